package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/kube"
	"github.com/quietcore/quietcore/internal/state"
)

// Who says what the mode is.
const (
	fromFile       = "file"
	fromCommand    = "command"
	fromAnnotation = "annotation"
	fromPolicy     = "policy" // in place of the file
)

// modes is what people say of the mode beside the configuration's file: `quietcore mode` on this node, and the
// annotation of the Node. It survives a restart of the daemon, and of the node: who stops enforcement in an incident
// has it stopped until it is taken back.
type modes struct {
	file string // where it is kept
	log  *slog.Logger

	mu   sync.Mutex
	said said
}

// said is what the file holds.
type said struct {
	Command    config.Mode `json:"command,omitempty"`    // empty: nothing
	Annotation config.Mode `json:"annotation,omitempty"` // as last seen; observe, or empty
	// Since is when the mode in force was said.
	Since time.Time `json:"since,omitzero"`
	// Undone means that what was enforced before is undone.
	Undone bool `json:"undone,omitempty"`
	// damaged is why the file could not be read.
	damaged string
}

// maxSaid bounds what is read.
const maxSaid = 4 << 10

func readModes(dir string, log *slog.Logger) *modes {
	m := &modes{file: filepath.Join(dir, state.ModeFile), log: log}
	text, err := state.ReadFile(m.file, maxSaid)
	if err == nil {
		err = json.Unmarshal(text, &m.said)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		// It is there since somebody stopped enforcement once, and may want that still.
		m.said = said{Command: config.Observe, damaged: err.Error()}
		log.Error("what `quietcore mode` said cannot be read, so nothing is enforced; say it again", "file", m.file,
			"err", err)
	}
	return m
}

// now is what was said.
func (m *modes) now() said {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.said
}

// of is the mode in force where the file says one, and who says so. Who says observe is heard before who says enforce.
func (s *said) of(file config.Mode) (mode config.Mode, source string) {
	switch {
	case s.Command == config.Observe:
		return config.Observe, fromCommand
	case s.Annotation == config.Observe:
		return config.Observe, fromAnnotation
	case s.Command != "":
		return s.Command, fromCommand
	}
	return file, fromFile
}

// change replaces what was said, and keeps it. The error is that it cannot be kept; it counts all the same.
func (m *modes) change(to func(*said)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	to(&m.said)
	text, err := json.Marshal(m.said)
	if err == nil {
		err = state.WriteFile(m.file, text)
	}
	if err != nil {
		return fmt.Errorf("a restart of the daemon would undo it: %w", err)
	}
	return nil
}

// Words of `quietcore mode`.
const wordConfig = "config"

// setMode is `quietcore mode WORD`: observe, enforce, or config, which leaves the word to the file.
func (d *daemon) setMode(ctx context.Context, word string) (control.Mode, error) {
	mode := config.Mode(word)
	if word == wordConfig {
		mode = ""
	}
	kept := d.say(ctx, "`quietcore mode "+word+"`", func(s *said) { s.Command = mode })
	now := d.modeNow()
	if kept != nil {
		now.Problem = kept.Error()
	}
	return now, nil
}

// takeAnnotation takes over the Node's annotation; only observe counts, since who may change a Node may not be who may
// have it enforce.
func (d *daemon) takeAnnotation(ctx context.Context, value string) {
	mode := config.Mode(value)
	if mode != config.Observe {
		if mode = ""; value != "" {
			d.log.Warn("the annotation of the Node is ignored: observe is the only mode that it may say", "annotation",
				kube.AnnMode, "value", value)
		}
	}
	if d.cfg.modes.now().Annotation == mode {
		return
	}
	_ = d.say(ctx, "the Node's annotation", func(s *said) { s.Annotation = mode })
}

// say changes what was said of the mode, and has it in force before it returns. The error says what of it fails.
func (d *daemon) say(ctx context.Context, who string, to func(*said)) error {
	d.cfg.turn.Lock()
	defer d.cfg.turn.Unlock()
	file := d.cfg.file.Load()
	kept := d.cfg.modes.change(func(s *said) {
		before, _ := s.of(file.Mode)
		to(s)
		s.damaged = ""
		if after, _ := s.of(file.Mode); after != before {
			s.Since, s.Undone = time.Now().UTC().Truncate(time.Second), false
		}
	})
	if kept != nil {
		d.log.Error("what the mode is to be cannot be kept", "said", who, "err", kept)
	}
	// It is in force whether or not who asked still waits.
	err := d.takeOver(context.WithoutCancel(ctx), file)
	now := d.modeNow()
	d.log.Warn("the mode is "+now.Mode, "said", who, "source", now.Source)
	return errors.Join(kept, err)
}

// modeNow is the mode in force, and why.
func (d *daemon) modeNow() control.Mode {
	s := d.cfg.modes.now()
	mode, source := s.of(d.cfg.file.Load().Mode)
	if source == fromFile && d.cfg.followed.mode.Load() != nil {
		source = fromPolicy
	}
	m := control.Mode{Mode: string(mode), Source: source, Problem: s.damaged}
	if source != fromFile && source != fromPolicy && !s.Since.IsZero() {
		m.Since = &s.Since
	}
	m.Undoing = mode == config.Observe && d.node.Undoing()
	m.Resuming = mode == config.Enforce && d.node.Observes()
	return m
}

// undoEvery is how often it is asked whether everything is undone.
const undoEvery = 100 * time.Millisecond

// undoes reports whether a daemon that starts has to undo what an earlier one enforced. A daemon that observes because
// its file says so writes nothing at all.
func (s *said) undoes(file config.Mode) bool {
	_, source := s.of(file)
	return source != fromFile && !s.Undone && s.damaged == ""
}

// followMode keeps that everything is undone.
func (d *daemon) followMode(ctx context.Context) {
	tick := time.NewTicker(undoEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			d.noteUndone()
		}
	}
}

// noteUndone keeps that everything is undone, once it is.
func (d *daemon) noteUndone() {
	now := d.cfg.modes.now()
	if mode, source := now.of(d.cfg.file.Load().Mode); now.Undone || source == fromFile || mode != config.Observe ||
		now.damaged != "" || d.node.Undoing() {
		return
	}
	d.cfg.turn.Lock()
	defer d.cfg.turn.Unlock()
	if d.node.Undoing() || !d.node.Observes() {
		return
	}
	if err := d.cfg.modes.change(func(s *said) { s.Undone = true }); err != nil {
		d.log.Debug("that everything is undone is not kept", "err", err)
	}
}
