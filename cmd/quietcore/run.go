package main

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/daemon"
	"github.com/quietcore/quietcore/plugin"
)

func newRun() *cobra.Command {
	var file, testSocket, failAt string
	var late time.Duration
	cmd := &cobra.Command{
		Use:   "run",
		Short: "the daemon: register with the runtime and place every pod",
		Long: `Registers with the container runtime through NRI and gives every container its CPUs.
It keeps running when the runtime goes away, and containers keep running where they are
when it does. One daemon runs on a node. SIGTERM ends it and leaves every placement.`,
		Example: "  quietcore run --config /etc/quietcore/config.yaml",
		Args:    noArgs,
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file; without one the defaults hold")
	cmd.Flags().StringVar(&testSocket, "test-socket", "", "take events for tests on this socket")
	cmd.Flags().StringVar(&failAt, "fail-at", "",
		"POINT[:N]: kill this daemon when it passes that point for the Nth time")
	cmd.Flags().DurationVar(&late, "test-late", 0, "let owners start at once and the others leave that much later")
	for _, flag := range []string{"test-socket", "fail-at", "test-late"} {
		_ = cmd.Flags().MarkHidden(flag) // it exists: defined above
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		faults := daemon.Faults{Socket: testSocket, Late: late}
		if late != 0 && testSocket == "" {
			return usage("--test-late is for tests and wants --test-socket")
		}
		var err error
		if faults.At, err = failingAt(failAt, testSocket); err != nil {
			return err
		}
		return inputOf(daemon.Run(cmd.Context(), daemon.Options{
			File: file, Version: version, Log: cmd.ErrOrStderr(), Faults: faults,
		}))
	}
	return cmd
}

// inputOf marks a configuration that is wrong as the caller's mistake.
func inputOf(err error) error {
	var wrong *daemon.InvalidError
	if errors.As(err, &wrong) {
		return usageError{err}
	}
	return err
}

// failingAt is for tests of what a daemon leaves that is killed: nothing of it may
// run on, not even a deferred function.
func failingAt(point, testSocket string) (func(plugin.Point), error) {
	switch {
	case point == "":
		return nil, nil
	case testSocket == "":
		return nil, usage("--fail-at is for tests and wants --test-socket")
	}
	at, err := plugin.FailAt(point, func() {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way
	})
	if err != nil {
		return nil, usage("--fail-at: %w", err)
	}
	return at, nil
}
