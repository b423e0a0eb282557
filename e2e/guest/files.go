package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/quietcore/quietcore/e2e/wire"
)

func files(actions []wire.FileAction) (*wire.Response, error) {
	resp := &wire.Response{}
	for _, a := range actions {
		res, err := fileAction(a)
		if errors.Is(err, fs.ErrNotExist) && a.Optional {
			res, err = wire.FileResult{Missing: true}, nil
		}
		if err != nil {
			return resp, fmt.Errorf("%s %s: %w", a.Do, a.Path, err)
		}
		resp.Files = append(resp.Files, res)
	}
	return resp, nil
}

func fileAction(a wire.FileAction) (res wire.FileResult, err error) {
	switch a.Do {
	case wire.FileRead:
		res.Data, err = os.ReadFile(a.Path)
	case wire.FileWrite:
		err = writeFile(a)
	case wire.FileMkdir:
		err = os.MkdirAll(a.Path, 0o755)
	case wire.FileList:
		var entries []os.DirEntry
		entries, err = os.ReadDir(a.Path)
		for _, e := range entries {
			res.Names = append(res.Names, e.Name())
		}
	case wire.FileRemove:
		err = os.Remove(a.Path)
	case wire.FileRemoveTree:
		err = os.RemoveAll(a.Path)
	case wire.FileRmdirTree:
		err = rmdirTree(a.Path)
	default:
		err = fmt.Errorf("unknown file action %q", a.Do)
	}
	return res, err
}

// writeFile does not go through a temporary file: kernel files must be written
// in place.
func writeFile(a wire.FileAction) error {
	mode := fs.FileMode(a.Mode)
	if mode == 0 {
		mode = 0o644
	}
	if err := os.MkdirAll(filepath.Dir(a.Path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(a.Path, a.Data, mode)
}

func rmdirTree(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			dirs = append(dirs, p)
		}
		return nil
	})
	for i := len(dirs) - 1; i >= 0 && err == nil; i-- {
		err = os.Remove(dirs[i])
	}
	return err
}
