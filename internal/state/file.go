package state

import (
	"fmt"
	"io"
	"os"

	"github.com/google/renameio/v2"
)

// ReadFile reads a file of at most this many bytes, since its origin is unknown.
func ReadFile(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("longer than %d bytes", most)
	}
	return text, err
}

// WriteFile replaces a file atomically.
func WriteFile(name string, text []byte) error { return renameio.WriteFile(name, text, 0o600) }
