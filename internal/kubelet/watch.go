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
	// lookAgain is the poll interval, for changes without an event and for directories
	// that appear.
	lookAgain = 10 * time.Second
	// settle is how long to wait after a change: half a configuration may be valid but
	// incomplete.
	settle = time.Second
)

// Read reads kubelet's configuration file and, unless dropIns is empty, the files
// *.conf in that directory and directories below it, in lexical order, as kubelet does.
// A missing directory has none.
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
	// Take is called with every new configuration; after an error it is called again.
	Take func(context.Context, Config) error
	Log  *slog.Logger

	mu    sync.Mutex
	taken []byte // the last accepted input
	seen  []byte // the last input, accepted or not
	state string

	settle time.Duration // for tests; 0: settle
}

// State says why the configuration in force is not the file's; empty if it is.
func (w *Watcher) State() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state
}

// Look reads the configuration and passes it on if it changed. A bad or half-written
// file may be good after its next change; until then the previous configuration stays.
func (w *Watcher) Look(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sources, err := Read(w.File, w.DropIns)
	mark := fingerprint(sources)
	w.seen = mark
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
		w.Log.Warn("cannot read kubelet's configuration; the previous one stays", "file", w.File, "why", state)
	}
	w.state = state
}

// Fresh says whether what the files say now has been looked at.
func (w *Watcher) Fresh() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	sources, err := Read(w.File, w.DropIns)
	return err != nil || bytes.Equal(fingerprint(sources), w.seen)
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

// Watch calls Look now and at every change until ctx ends. It watches directories,
// since files are replaced.
func (w *Watcher) Watch(ctx context.Context) {
	var events chan fsnotify.Event
	var lost chan error
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		w.Log.Warn("cannot watch kubelet's configuration; polling it instead", "err", err)
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
		case <-lost: // an overflow lost events
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

// follow watches the directories that exist. A replaced directory must be watched anew;
// adding one twice has no effect; a poll finds a missing one.
func (w *Watcher) follow(watcher *fsnotify.Watcher, dirs []string) {
	if watcher == nil {
		return
	}
	for _, dir := range dirs {
		_ = watcher.Add(dir)
	}
}
