package report

import (
	"errors"
	"io"
	"os"

	"github.com/google/renameio/v2"
)

// ToFile writes a file as a whole or not at all. A pipe or a device is written to,
// not replaced.
func ToFile(name string, write func(io.Writer) error) error {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(write(f), f.Close())
	}
	f, err := renameio.NewPendingFile(name, renameio.WithPermissions(0o644))
	if err != nil {
		return err
	}
	defer func() { _ = f.Cleanup() }()
	if err := write(f); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}
