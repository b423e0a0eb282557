package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/daemon"
	"github.com/quietcore/quietcore/internal/doctor"
	"github.com/quietcore/quietcore/internal/doctor/bundle"
	"github.com/quietcore/quietcore/internal/doctor/probe"
)

func newRun() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "the daemon: register with the runtime and place every pod",
		Long: `Registers with the container runtime through NRI and gives every container its CPUs.
It keeps running when the runtime goes away, and containers keep running where they are
when it does. One daemon runs on a node. SIGTERM ends it and leaves every placement.`,
		Example: "  quietcore run --config /etc/quietcore/config.yaml",
		Args:    cli.NoArgs,
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file; without one the defaults hold")
	hooks := faultFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		h, err := hooks()
		if err != nil {
			return err
		}
		return inputOf(daemon.Run(cmd.Context(), daemon.Options{
			File: file, Version: version, Log: cmd.ErrOrStderr(), Hooks: h,
			Doctor: func(ctx context.Context) (any, error) {
				return probe.Within(ctx, doctor.Options{Root: "/", Config: file}, version), nil
			},
			Bundle: func(ctx context.Context, w io.Writer, hashNames bool) error {
				b, _, err := bundle.Gather(ctx, bundle.Options{Config: file, Build: cli.BuildOf(version, commit, date),
					HashNames: hashNames, Within: true})
				if err != nil {
					return err
				}
				return b.Write(w)
			},
		}))
	}
	return cmd
}

// inputOf marks a configuration that is wrong as the caller's mistake.
func inputOf(err error) error {
	var wrong *daemon.InvalidError
	if errors.As(err, &wrong) {
		return cli.UsageError{Err: err}
	}
	return err
}
