package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/quietcore/quietcore/hack/image/build"
)

// kubectl asks a program of this name what may follow `kubectl quietcore`.
const completePlugin = `#!/bin/sh
exec kubectl-quietcore __complete "$@"
`

// writeManual packs man pages and completions as they lie below a prefix such as
// /usr/local.
func writeManual(ctx context.Context, source build.Source, dist string) error {
	quietcore, err := hostBinary(dist, "quietcore")
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "quietcore-manual-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	env := []string{"SOURCE_DATE_EPOCH=" + strconv.FormatInt(source.Date.Unix(), 10), "TZ=UTC", "LC_ALL=C"}
	if err := command(ctx, "", env, quietcore, "man", work); err != nil {
		return err
	}
	pages, err := os.ReadDir(work)
	if err != nil {
		return err
	}
	files := []packed{{name: "bin/kubectl_complete-quietcore", mode: 0o755, data: []byte(completePlugin)}}
	for _, p := range pages {
		text, err := os.ReadFile(filepath.Join(work, p.Name()))
		if err != nil {
			return err
		}
		files = append(files, packed{"share/man/man1/" + p.Name(), 0o644, text})
	}
	for shell, name := range map[string]string{
		"bash": "share/bash-completion/completions/quietcore",
		"zsh":  "share/zsh/site-functions/_quietcore",
		"fish": "share/fish/vendor_completions.d/quietcore.fish",
	} {
		text, err := output(ctx, "", env, quietcore, "completion", shell)
		if err != nil {
			return err
		}
		files = append(files, packed{name, 0o644, []byte(text)})
	}
	return pack(filepath.Join(dist, manualName), source.Date, files)
}

// packed is a file of an archive.
type packed struct {
	name string
	mode int64
	data []byte
}

// pack writes a tar.gz whose bytes depend on nothing but its files and the time.
func pack(archive string, at time.Time, files []packed) error {
	slices.SortFunc(files, func(a, b packed) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	zipped, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(zipped)
	for _, p := range files {
		h := &tar.Header{Name: p.name, Mode: p.mode, Size: int64(len(p.data)), ModTime: at, Typeflag: tar.TypeReg,
			Format: tar.FormatUSTAR}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(p.data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := zipped.Close(); err != nil {
		return err
	}
	return f.Close()
}
