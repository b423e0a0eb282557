package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/quietcore/quietcore/internal/cli"
)

//go:generate go test -run TestReference . -update

func newMan() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "man DIR",
		Short: "write the man pages",
		Long: `Writes a man page of every command into a directory, which is made if need be. The date in them is
SOURCE_DATE_EPOCH's where that is set, so that packages can be built twice to the same bytes.`,
		Example: "  quietcore man /usr/local/share/man/man1 && man quietcore-doctor",
		Args:    cli.OneArg("the directory"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := os.MkdirAll(args[0], 0o755); err != nil {
			return err
		}
		return writeMan(cmd.Root(), args[0])
	}
	return cmd
}

func writeMan(root *cobra.Command, dir string) error {
	header := &doc.GenManHeader{Section: "1", Source: "quietcore " + version, Manual: "Quietcore"}
	if os.Getenv("SOURCE_DATE_EPOCH") == "" {
		now := time.Now()
		header.Date = &now
	}
	return eachCommand(root, func(c *cobra.Command) error {
		name := filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1")
		f, err := os.Create(name)
		if err != nil {
			return err
		}
		h := *header // it is filled in for each command
		if err := doc.GenMan(c, &h, f); err != nil {
			f.Close()
			return fmt.Errorf("man page of %s: %w", c.CommandPath(), err)
		}
		return f.Close()
	})
}

// eachCommand visits a command and everything below that people may use.
func eachCommand(c *cobra.Command, visit func(*cobra.Command) error) error {
	c.DisableAutoGenTag = true
	c.InitDefaultHelpFlag()
	if err := visit(c); err != nil {
		return err
	}
	for _, sub := range c.Commands() {
		if !sub.IsAvailableCommand() || sub.Name() == "help" {
			continue
		}
		if err := eachCommand(sub, visit); err != nil {
			return err
		}
	}
	return nil
}
