//go:build quietcore_faults

package main

import (
	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/daemon"
	"github.com/quietcore/quietcore/internal/faults"
)

// faultFlags adds the flags by which tests do things to the daemon.
func faultFlags(cmd *cobra.Command) func() (daemon.Hooks, error) {
	f := &faults.Faults{}
	var point string
	cmd.Flags().StringVar(&f.Socket, "test-socket", "", "take events for tests on this socket")
	cmd.Flags().StringVar(&point, "fail-at", "",
		"POINT[:N]: kill this daemon when it passes that point for the Nth time")
	cmd.Flags().DurationVar(&f.Late, "test-late", 0, "let owners start at once and the others leave that much later")
	for _, flag := range []string{"test-socket", "fail-at", "test-late"} {
		_ = cmd.Flags().MarkHidden(flag) // it exists: defined above
	}
	return func() (daemon.Hooks, error) {
		switch {
		case f.Socket == "" && f.Late != 0:
			return nil, cli.Usage("--test-late is for tests and wants --test-socket")
		case f.Socket == "" && point != "":
			return nil, cli.Usage("--fail-at is for tests and wants --test-socket")
		case f.Socket == "":
			return nil, nil
		case point == "":
			return f, nil
		}
		var err error
		if f.At, err = faults.KillAt(point, faults.KillSelf); err != nil {
			return nil, cli.Usage("--fail-at: %w", err)
		}
		return f, nil
	}
}
