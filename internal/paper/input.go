// Package paper answers what would happen, without a node: cases for the allocator, a
// node's life as a script, and the detector and the estimator on recorded data.
//
// An error that marks what the caller got wrong is a cli.UsageError.
package paper

import (
	"fmt"
	"io"
	"os"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/strict"
)

// openRecord opens a file, or standard input for "-".
func openRecord(s cli.Streams, path string) (io.ReadCloser, string, error) {
	if path == "-" {
		return io.NopCloser(s.In), "standard input", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, path, cli.UsageError{Err: err}
	}
	return f, path, nil
}

// configOf reads a configuration file; the defaults hold without one.
func configOf(name string) (*config.Config, error) {
	if name == "" {
		standard := config.Default()
		return &standard, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, strict.MaxBytes+1))
	if err != nil {
		return nil, err
	}
	c, err := config.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}
