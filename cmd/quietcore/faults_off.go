//go:build !quietcore_faults

package main

import (
	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/daemon"
)

// faultFlags adds nothing: a production binary cannot be made to fail.
func faultFlags(*cobra.Command) func() (daemon.Hooks, error) {
	return func() (daemon.Hooks, error) { return nil, nil }
}
