package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Forget removes the file, once everything in it has been undone.
func (s *Store) Forget() error {
	if err := os.Remove(filepath.Join(s.Dir, fileName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget state: %w", err)
	}
	return nil
}
