package kubelet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// lookAgain finds what no event reported, and directories when they appear.
	lookAgain = 10 * time.Second
	// settle is how long a change is left to be written: the first half of a
	// configuration may be a valid one that says less.
	settle = time.Second
)

// Read reads kubelet's configuration file and, unless dropIns is empty, what
// kubelet would take of that directory: files *.conf in lexical order,
// directories within it included. A missing directory has none.
func Read(file, dropIns string) ([]Source, error) {
	text, err := readFile(file)
	if err != nil {
		return nil, err
	}
	sources := []Source{{file, text}}
	if dropIns == "" {
		return sources, nil
	}
	err = filepath.WalkDir(dropIns, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		if d.IsDir() || filepath.Ext(path) != ".conf" {
			return nil
		}
		if len(sources) == maxSources {
			return fmt.Errorf("more than %d files are in %s", maxSources-1, dropIns)
		}
		text, err := readFile(path)
		if err != nil {
			return err
		}
		sources = append(sources, Source{path, text})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read kubelet's drop-ins: %w", err)
	}
	return sources, nil
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, fmt.Errorf("%s is not a regular file", name))
	}
	return io.ReadAll(io.LimitReader(f, maxSource+1))
}

// Watcher follows kubelet's configuration.
type Watcher struct {
	File    string
	DropIns string // kubelet's --config-dir; empty: none
	// Take gets every new configuration; on an error it gets it again.
	Take func(context.Context, Config) error
	Log  *slog.Logger

	mu    sync.Mutex
	taken []byte // what was taken over last
	state string

	settle time.Duration // for tests; 0: settle
}

// State is empty where the configuration in force is the file's, else why not.
func (w *Watcher) State() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// Look takes the configuration over if it is another one. What is bad or half
// written now may be good at its next change; until then the one from before
// stays.
func (w *Watcher) Look(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sources, err := Read(w.File, w.DropIns)
	mark := fingerprint(sources)
	if err == nil && w.taken != nil && bytes.Equal(mark, w.taken) {
		w.is("")
		return
	}
	var c Config
	if err == nil {
		c, err = Parse(sources...)
	}
	if err == nil {
		err = w.Take(ctx, c)
	}
	if err != nil {
		w.is(fmt.Sprintf("kubelet's configuration is not taken over: %v", err))
		return
	}
	w.taken = mark
	w.is("")
}

func (w *Watcher) is(state string) {
	if state != w.state && state != "" {
		w.Log.Warn("kubelet's configuration cannot be followed; what was known stays", "file", w.File, "why", state)
	}
	w.state = state
}

// differs says whether Look would do anything.
func (w *Watcher) differs() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	sources, err := Read(w.File, w.DropIns)
	return err != nil || w.taken == nil || !bytes.Equal(fingerprint(sources), w.taken)
}

func fingerprint(sources []Source) []byte {
	var b bytes.Buffer
	for _, s := range sources {
		fmt.Fprintf(&b, "%q %d\n%s", s.Name, len(s.Text), s.Text)
	}
	return b.Bytes()
}

// Watch looks now and at every change until ctx ends. It watches directories,
// since files are replaced.
func (w *Watcher) Watch(ctx context.Context) {
	var events chan fsnotify.Event
	var lost chan error
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		w.Log.Warn("kubelet's configuration is polled instead of watched", "err", err)
	} else {
		defer watcher.Close()
		events, lost = watcher.Events, watcher.Errors
	}
	quiet := w.settle
	if quiet == 0 {
		quiet = settle
	}
	dirs := []string{filepath.Dir(w.File)}
	if w.DropIns != "" {
		dirs = append(dirs, w.DropIns)
	}
	poll := time.NewTicker(lookAgain)
	defer poll.Stop()
	var settled <-chan time.Time
	w.follow(watcher, dirs)
	w.Look(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-settled:
			settled = nil
			w.Look(ctx)
		case <-events:
			if settled == nil {
				settled = time.After(quiet)
			}
		case <-lost: // an overflow lost events, so something may have changed
			if settled == nil {
				settled = time.After(quiet)
			}
		case <-poll.C:
			w.follow(watcher, dirs)
			if settled == nil && w.differs() {
				settled = time.After(quiet)
			}
		}
	}
}

// follow watches what is there. A directory that was replaced has to be watched
// anew, and adding one twice does nothing; a missing one is found by a later poll.
func (w *Watcher) follow(watcher *fsnotify.Watcher, dirs []string) {
	if watcher == nil {
		return
	}
	for _, dir := range dirs {
		_ = watcher.Add(dir)
	}
}
