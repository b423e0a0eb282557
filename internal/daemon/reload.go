package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quietcore/quietcore/internal/config"
)

// running is the configuration of the daemon.
type running struct {
	// Pointer is what is in force: file, with the mode that people say in its place.
	atomic.Pointer[config.Config]
	file  atomic.Pointer[config.Config] // file's and policy's, without what waits for a restart
	modes *modes
	// followed is the policy that is written over the file.
	followed followed

	turn sync.Mutex // held while another configuration is taken over
	// waiting are the keys of the file that take effect at the next start; nil: none.
	waiting atomic.Pointer[[]string]
}

// begin is the configuration that the daemon starts with.
func (r *running) begin(file *config.Config, m *modes) *config.Config {
	r.modes = m
	r.file.Store(file)
	r.followed.base = file
	now := r.effective(file)
	r.Store(now)
	return now
}

// effective is a file's configuration with the mode that is in force.
func (r *running) effective(file *config.Config) *config.Config {
	s := r.modes.now()
	now := *file
	now.Mode, _ = s.of(file.Mode)
	return &now
}

// restartRequired names the keys of the file that wait for a restart.
func (r *running) restartRequired() []string {
	if keys := r.waiting.Load(); keys != nil {
		return *keys
	}
	return nil
}

// waitingError is a reload that was taken over in part.
type waitingError struct{ keys []string }

func (e *waitingError) Error() string {
	return fmt.Sprintf("%s: in effect after a restart of the daemon", strings.Join(e.keys, ", "))
}

// watchConfig takes over a changed file; a bad one changes nothing.
func (d *daemon) watchConfig(ctx context.Context) {
	if d.options.File == "" {
		return
	}
	err := config.Watch(ctx, d.options.File, func(next *config.Config, err error) {
		if err == nil {
			err = d.reload(ctx, next)
		}
		d.metrics.Reloaded(time.Now(), err)
		var waiting *waitingError
		switch {
		case errors.As(err, &waiting):
			d.log.Warn("a part of the configuration waits for a restart", "keys", waiting.keys)
		case err != nil:
			d.log.Error("the configuration is refused; the one from before stays", "err", err)
		}
	})
	if err != nil {
		d.log.Warn("the configuration is not reloaded", "err", err)
	}
}

// reload takes over what a running daemon can. What waits for a restart is an error that names it.
func (d *daemon) reload(ctx context.Context, next *config.Config) error {
	d.cfg.turn.Lock()
	defer d.cfg.turn.Unlock()
	before := d.cfg.file.Load()
	read := next
	next, err := d.cfg.followed.over(read)
	if err != nil {
		return err
	}
	changes, err := config.Changes(before, next)
	if err != nil {
		return err
	}
	if err := d.takeOver(ctx, before.Reloaded(next)); err != nil {
		return err
	}
	d.cfg.followed.base = read
	d.cfg.followed.noteMode(next)
	if a := d.cfg.followed.agent; a != nil {
		a.Retry()
	}
	var changed, waiting []string
	for _, c := range changes {
		if c.Restart {
			d.log.Warn(c.Key + " changed: takes effect after a restart")
			waiting = append(waiting, c.Key)
			continue
		}
		changed = append(changed, c.Key)
	}
	d.cfg.waiting.Store(&waiting)
	if len(changed) > 0 {
		d.log.Info("the configuration is taken over", "changed", changed)
	}
	if len(waiting) > 0 {
		return &waitingError{waiting}
	}
	return nil
}

// takeOver has a configuration of the file in force, with the mode that people say. It is called with turn held. On an
// error the one before stays, except that whoever says observe is obeyed.
func (d *daemon) takeOver(ctx context.Context, file *config.Config) error {
	before, next := d.cfg.Load(), d.cfg.effective(file)
	observe := next.Mode == config.Observe
	var refused error
	if !config.SamePolicy(before, next) {
		refused = d.labels.reconfigure(ctx, next.Policy())
	}
	if refused != nil {
		if !observe || before.Mode == config.Observe {
			return refused
		}
		stays := *before
		stays.Mode = config.Observe
		next, file = &stays, d.cfg.file.Load()
	}
	d.level.Set(next.Log.Level.Slog())
	d.cfg.file.Store(file)
	d.cfg.Store(next)
	if next.Mode != before.Mode {
		if observe {
			refused = errors.Join(refused, d.node.Observe(ctx))
		} else {
			d.node.Enforce()
		}
	}
	d.api.takeOver(next)
	if !config.SameCounting(before, next) {
		d.counting.renew(next)
	}
	if !config.SameLending(before, next) {
		d.lending.renew(next)
	}
	return refused
}
