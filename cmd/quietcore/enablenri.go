package main

import (
	"errors"
	"fmt"
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
		if o.Runtime, err = runtimeOf(root, runtime); err != nil {
			return err
		}
		if o.Dir == "" {
			o.Dir = map[enablenri.Runtime]string{enablenri.Containerd: "/etc/containerd",
				enablenri.CRIO: "/etc/crio"}[o.Runtime]
		}
		if !filepath.IsAbs(o.Dir) {
			return cli.Usage("--config-dir is %q; it must be absolute", o.Dir)
		}
		o.Dir = filepath.Clean(o.Dir)
		o.On = enablenri.Listening(filepath.Join(root, socket))
		return enableNRI(cmd, root, o, apply)
	}
	return cmd
}

func enableNRI(cmd *cobra.Command, root string, o enablenri.Options, apply bool) error {
	out := cmd.OutOrStdout()
	files, err := enablenri.ReadFiles(root, o.Dir)
	var plan *enablenri.Plan
	if err == nil {
		plan, err = enablenri.Look(files, o)
	}
	listens := o.On && o.RequestTimeout == 0 // nothing is wanted but what is there now
	switch {
	case err != nil && listens:
		_, err := fmt.Fprintf(out,
			"NRI is on: %s listens for plugins; whether its configuration keeps it so is not to be seen: %v\n",
			o.Runtime, err)
		return err
	case err != nil:
		return err
	case plan == nil && listens:
		_, err := fmt.Fprintf(out, "NRI is on: %s listens for plugins\n", o.Runtime)
		return err
	case plan == nil:
		_, err := fmt.Fprintf(out,
			"nothing to do: the configuration in %s has NRI on; if nobody listens, restart %s\n", o.Dir, o.Runtime)
		return err
	case listens:
		fmt.Fprintf(out, "NRI is on until %s is restarted: its configuration has it off\n", o.Runtime)
	}
	fmt.Fprint(out, plan.Diff())
	if !apply {
		_, err := fmt.Fprintln(out, "nothing was written; --apply does it")
		return err
	}
	if err := plan.Apply(root); err != nil {
		return err
	}
	kept := ""
	if plan.Backup != "" {
		kept = ", the text from before is in " + plan.Backup
	}
	_, err = fmt.Fprintf(out, "%s is written%s; it takes effect when %s is restarted\n", plan.Path, kept, o.Runtime)
	return err
}

// runtimeOf finds the runtime by the socket that it listens on.
func runtimeOf(root, name string) (enablenri.Runtime, error) {
	switch r := enablenri.Runtime(name); r {
	case enablenri.Containerd, enablenri.CRIO:
		return r, nil
	case "":
	default:
		return "", cli.Usage("--runtime is %q; it must be containerd or cri-o", name)
	}
	sockets := map[enablenri.Runtime]string{enablenri.Containerd: "/run/containerd/containerd.sock",
		enablenri.CRIO: "/run/crio/crio.sock"}
	var found []enablenri.Runtime
	for r, s := range sockets {
		if _, err := os.Stat(filepath.Join(root, s)); err == nil {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "",
			errors.New(
				"neither /run/containerd/containerd.sock nor /run/crio/crio.sock is there; say --runtime (k3s and " +
					"RKE2: see docs/install.md)")
	default:
		return "", errors.New("both containerd and CRI-O are there; say --runtime")
	}
}
