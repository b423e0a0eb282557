// Package man writes the man pages of a command. It is apart from internal/cli, so that a
// command without man pages does without what renders them.
package man

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Write writes a man page of every command into a directory, which it makes. Their
// date is that of SOURCE_DATE_EPOCH where it is set.
func Write(root *cobra.Command, version, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	header := doc.GenManHeader{Section: "1", Source: root.Name() + " " + version, Manual: "Quietcore"}
	if os.Getenv("SOURCE_DATE_EPOCH") == "" {
		now := time.Now()
		header.Date = &now
	}
	return Each(root, func(c *cobra.Command) error {
		name := filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1")
		f, err := os.Create(name)
		if err != nil {
			return err
		}
		h := header // it is filled in for each command
		if err := doc.GenMan(c, &h, f); err != nil {
			f.Close()
			return fmt.Errorf("man page of %s: %w", c.CommandPath(), err)
		}
		return f.Close()
	})
}

// Each visits a command and everything below it that people may use.
func Each(c *cobra.Command, visit func(*cobra.Command) error) error {
	c.DisableAutoGenTag = true
	c.InitDefaultHelpFlag()
	if err := visit(c); err != nil {
		return err
	}
	for _, sub := range c.Commands() {
		if !sub.IsAvailableCommand() || sub.Name() == "help" {
			continue
		}
		if err := Each(sub, visit); err != nil {
			return err
		}
	}
	return nil
}
