package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/doctor"
	"github.com/quietcore/quietcore/internal/doctor/probe"
	"github.com/quietcore/quietcore/internal/enablenri"
	"github.com/quietcore/quietcore/policy"
)

func newDoctor() *cobra.Command {
	var file, root, runtime, dir, profile string
	var all, strict bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "find what keeps Quietcore from working on this node",
		Long: `Looks at the runtime's NRI, other plugins, kubelet, cgroups, systemd, the kernel and its counters,
capabilities, the state directory, a second daemon, the daemon itself and its rights at the API
server. Says what keeps Quietcore from working, or will after the next restart, and how to mend
it. Nothing is changed, and no daemon need run. docs/doctor.md lists every finding.

Exits with 1 where there is an error (with --strict: a warning too).`,
		Example: `  quietcore doctor
  quietcore doctor --all -o json
  quietcore doctor --profile strict     which pods would be refused under it
  quietcore doctor --root /host         in a pod that has the node's file system there`,
		Args: cli.NoArgs,
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file of the daemon; without one "+doctor.UsualConfig+
		" if it is there, else the defaults")
	cmd.Flags().StringVar(&root, "root", "/", "where the node's file system is")
	cmd.Flags().StringVar(&runtime, "runtime", "", "containerd or cri-o; without it the one whose socket is there")
	cmd.Flags().StringVar(&dir, "config-dir", "",
		"the runtime's configuration directory; without it /etc/containerd or /etc/crio")
	cmd.Flags().StringVar(&profile, "profile", "",
		"name the pods that run here and would be refused with this authority.profile")
	cmd.Flags().BoolVar(&all, "all", false, "show what is well too")
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with 1 where there is a warning too")
	profiles := []string{}
	for _, p := range policy.Profiles() {
		profiles = append(profiles, string(p))
	}
	cli.Completes(cmd, "profile", profiles...)
	cli.Completes(cmd, "runtime", string(enablenri.Containerd), string(enablenri.CRIO))
	_ = cmd.MarkFlagFilename("config", "yaml") // it exists: defined above
	_ = cmd.MarkFlagDirname("root")            // so does this
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o := doctor.Options{Root: root, Config: file, Runtime: enablenri.Runtime(runtime), RuntimeDir: dir,
			Profile: policy.Profile(profile)}
		if profile != "" {
			if err := cli.OneOf("profile", profile, profiles...); err != nil {
				return err
			}
		}
		if runtime != "" {
			if err := cli.OneOf("runtime", runtime, string(enablenri.Containerd), string(enablenri.CRIO)); err != nil {
				return err
			}
		}
		for flag, path := range map[string]string{"root": root, "config-dir": dir} {
			if path != "" && !filepath.IsAbs(path) {
				return cli.Usage("--%s is %q; it must be absolute", flag, path)
			}
		}
		if info, err := os.Stat(root); err != nil || !info.IsDir() {
			return cli.Usage("--root is %q; it must be a directory", root)
		}
		r := probe.Examine(cmd.Context(), o, version)
		if *format == "json" {
			if err := cli.WriteJSON(cmd.OutOrStdout(), r); err != nil {
				return err
			}
		} else if err := r.Text(cmd.OutOrStdout(), all); err != nil {
			return err
		}
		return r.Verdict(strict)
	}
	return cmd
}
