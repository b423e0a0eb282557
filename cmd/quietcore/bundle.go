package main

import (
	"cmp"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/doctor"
	"github.com/quietcore/quietcore/internal/doctor/bundle"
)

func newBundle() *cobra.Command {
	var o bundle.Options
	cmd := &cobra.Command{
		Use:   "bundle [FILE]",
		Short: "gather what a bug report needs into one archive",
		Long: `Writes a tar.gz with what a bug report needs: the version, what doctor and diff find, the daemon's
status, what its containers use, the record of the last events (it replays with quietcore
simulate), the newest incidents, the configuration, health, metrics and the machine. MANIFEST.json
lists every file with its checksum and says what could not be had. FILE is by default
quietcore-bundle-NODE-TIME.tar.gz in this directory; - is standard output.

No environment, no file of the runtime or of kubelet, no secret and no token gets into it, and of
the kernel's command line only what is about CPUs. The names of namespaces, pods, containers, jobs
and of the Node are in it, unless --hash-names: then each is replaced by a hash whose key is thrown
away, the same name by the same hash.`,
		Example: `  quietcore bundle
  quietcore bundle --hash-names report.tar.gz
  kubectl -n quietcore-system exec POD -- /quietcore bundle - > report.tar.gz`,
		Args: cli.AtMostOneArg("the file"),
	}
	cmd.Flags().StringVar(&o.Config, "config", "", "configuration file of the daemon; without one "+doctor.UsualConfig+
		" if it is there, else the defaults")
	cmd.Flags().StringVar(&o.Socket, "socket", "", "the daemon's control socket; without it the configuration's")
	cmd.Flags().BoolVar(&o.HashNames, "hash-names", false, "replace names by hashes")
	_ = cmd.MarkFlagFilename("config", "yaml") // it exists: defined above
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name := ""
		if len(args) == 1 {
			name = args[0]
		}
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			return cli.Usage("%s is a directory; name the file to write", name)
		}
		if name == "-" && cli.IsTerminal(cmd.OutOrStdout()) {
			return cli.Usage("an archive is not for a terminal; redirect standard output, or name a file")
		}
		o.Build = cli.BuildOf(version, commit, date)
		b, usual, err := bundle.Gather(cmd.Context(), o)
		if err != nil {
			return err
		}
		if name == "-" {
			return b.Write(cmd.OutOrStdout())
		}
		name = cmp.Or(name, usual)
		if err := b.WriteFile(name); err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", name, b.Summary())
		return err
	}
	return cmd
}
