package config

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long a directory is left to change before the file is read: an
// editor, a rename and a ConfigMap's swap of links are several changes each.
const settle = 100 * time.Millisecond

// Watch calls apply with the configuration that the file holds now, and again
// whenever that changes, until ctx ends. For a file that is bad or gone it
// calls apply with the error, and the configuration applied last stays right.
// It returns an error only if the directory cannot be watched.
//
// It watches the directory, since a mounted ConfigMap changes by a link next to
// the file: the file itself is never written to.
func Watch(ctx context.Context, name string, apply func(*Config, error)) error {
	return watch(ctx, name, apply, time.After)
}

func watch(ctx context.Context, name string, apply func(*Config, error),
	after func(time.Duration) <-chan time.Time) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch configuration %s: %w; it will not be reloaded", name, err)
	}
	defer w.Close()
	dir := filepath.Dir(name)
	if err := w.Add(dir); err != nil {
		return fmt.Errorf("watch configuration directory %s: %w; it will not be reloaded", dir, err)
	}
	r := reloader{name: name, apply: apply}
	r.read()
	var quiet <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, open := <-w.Events:
			if !open {
				return nil
			}
			if quiet == nil {
				quiet = after(settle)
			}
		case err, open := <-w.Errors:
			if !open {
				return nil
			}
			// An overflow lost events, so the file may have changed.
			_ = err
			if quiet == nil {
				quiet = after(settle)
			}
		case <-quiet:
			quiet = nil
			r.read()
		}
	}
}

// reloader remembers what it said last, so that it says nothing twice.
type reloader struct {
	name  string
	apply func(*Config, error)
	data  []byte
	last  *Config // the last good one
	bad   string  // what was wrong at the last reading, "" for nothing
}

func (r *reloader) read() {
	data, err := readFile(r.name)
	var c *Config
	if err == nil {
		if r.data != nil && bytes.Equal(data, r.data) && r.bad == "" {
			return
		}
		r.data = data
		if c, err = Parse(data); err != nil {
			err = fmt.Errorf("configuration %s:\n%w", r.name, err)
		}
	}
	if err != nil {
		if err.Error() != r.bad {
			r.bad = err.Error()
			r.apply(nil, err)
		}
		return
	}
	if r.bad == "" && r.last != nil && reflect.DeepEqual(c, r.last) {
		return
	}
	r.bad, r.last = "", c
	r.apply(c, nil)
}
