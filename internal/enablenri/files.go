package enablenri

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"
)

const (
	maxFile  = 1 << 20
	maxFiles = 256
)

// ReadFiles reads the configuration below dir, as seen from root.
func ReadFiles(root, dir string) (Files, error) {
	files := Files{}
	base := filepath.Join(root, dir)
	err := filepath.WalkDir(base, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		below, err := filepath.Rel(base, name)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if strings.Count(below, "/") >= 1 {
				return filepath.SkipDir // no runtime looks deeper
			}
			return nil
		}
		if ext := filepath.Ext(name); ext != ".toml" && ext != ".conf" &&
			filepath.Base(filepath.Dir(name)) != "crio.conf.d" {
			return nil
		}
		if len(files) == maxFiles {
			return fmt.Errorf("%s has more than %d files", dir, maxFiles)
		}
		text, err := readFile(name)
		if err != nil {
			return err
		}
		files[filepath.Join(dir, below)] = text
		return nil
	})
	return files, err
}

func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is %s, must be a regular file", name, info.Mode().Type())
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", name, maxFile)
	}
	return text, err
}

// Listening says whether a runtime listens for plugins at the socket.
func Listening(socket string) bool {
	c, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// Apply writes the plan below root: the file as a whole or not at all, and first a
// copy of the old one. A copy from an earlier time is the original and stays.
func (p *Plan) Apply(root string) error {
	name := filepath.Join(root, p.Path)
	mode := fs.FileMode(0o644)
	if p.Old == nil {
		if _, err := os.Lstat(name); err == nil {
			return fmt.Errorf("%s has come to be since it was looked for; try again", p.Path)
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		return renameio.WriteFile(name, p.New, mode)
	}
	// The target of a link is replaced, not the link.
	name, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	now, err := readFile(name)
	if err != nil {
		return err
	}
	if string(now) != string(p.Old) {
		return fmt.Errorf("%s has changed since it was read; try again", p.Path)
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	mode = info.Mode().Perm()
	if p.Backup != "" {
		backup := filepath.Join(root, p.Backup)
		if _, err := os.Lstat(backup); errors.Is(err, os.ErrNotExist) {
			if err := renameio.WriteFile(backup, p.Old, mode); err != nil {
				return fmt.Errorf("keep a copy of %s: %w", p.Path, err)
			}
		} else if err != nil {
			return err
		}
	}
	return renameio.WriteFile(name, p.New, mode, renameio.WithStaticPermissions(mode))
}
