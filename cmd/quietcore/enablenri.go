package main

import (
	"cmp"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/enablenri"
)

func newEnableNRI() *cobra.Command {
	var apply, dryRun bool
	var root, runtime, dir, socket, version string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "enable-nri",
		Short: "turn NRI on in the runtime's configuration, or print how",
		Long: `Looks whether the container runtime has NRI on and lets plugins connect. Where it does, nothing
is done. Where it does not, the smallest change that turns it on is printed (--dry-run, the
default) or written (--apply): one file of its own where the runtime reads drop-ins, else a few
lines in the file that is there, whose old text is kept beside it. Timeouts are only raised.
A configuration that a program generates (k3s, RKE2) or that is not understood is refused with
what to do by hand.

The runtime is not restarted: do that when the node can bear it.`,
		Example: `  quietcore enable-nri
  quietcore enable-nri --apply --request-timeout 5s && systemctl restart containerd`,
		Args: cli.NoArgs,
	}
	cmd.Flags().BoolVar(&apply, "apply", false, "write the change")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only print the change (the default)")
	cmd.Flags().StringVar(&root, "root", "/", "where the node's file system is")
	cmd.Flags().StringVar(&runtime, "runtime", "", "containerd or cri-o; without it the one whose socket is there")
	cmd.Flags().StringVar(&dir, "config-dir", "",
		"the runtime's configuration directory; without it /etc/containerd or /etc/crio")
	cmd.Flags().StringVar(&socket, "nri-socket", "/var/run/nri/nri.sock",
		"where the runtime listens for plugins once NRI is on")
	cmd.Flags().StringVar(&version, "runtime-version", "",
		"the runtime's version, such as 1.7.28: what its configuration means that says nothing of NRI")
	cmd.Flags().DurationVar(&timeout, "request-timeout", 0, "raise the runtime's time for one event to this")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if apply && dryRun {
			return cli.Usage("--apply and --dry-run exclude each other")
		}
		if timeout < 0 || timeout > time.Minute {
			return cli.Usage("--request-timeout is %v; it must be between 0 and 1m", timeout)
		}
		if info, err := os.Stat(root); err != nil || !info.IsDir() {
			return cli.Usage("--root is %q; it must be a directory", root)
		}
		o := enablenri.Options{Dir: dir, Version: version, RequestTimeout: timeout}
		var err error
		switch o.Runtime = enablenri.Runtime(runtime); o.Runtime {
		case enablenri.Containerd, enablenri.CRIO:
		case "":
			if o.Runtime, err = enablenri.Find(root); err != nil {
				return err
			}
		default:
			return cli.Usage("--runtime is %q; it must be containerd or cri-o", runtime)
		}
		if o.Dir = cmp.Or(o.Dir, o.Runtime.Dir()); !filepath.IsAbs(o.Dir) {
			return cli.Usage("--config-dir is %q; it must be absolute", o.Dir)
		}
		o.Dir = filepath.Clean(o.Dir)
		o.On = enablenri.Listening(filepath.Join(root, socket))
		return enablenri.Run(cmd.OutOrStdout(), root, o, apply)
	}
	return cmd
}
