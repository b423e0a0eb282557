package daemon

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/quietcore/quietcore/internal/config"
)

// running is the configuration of the daemon.
type running struct {
	atomic.Pointer[config.Config] // in force
	// waiting are the keys of the file that take effect at the next start; nil: none.
	waiting atomic.Pointer[[]string]
}

// restartRequired names the keys of the file that wait for a restart.
func (r *running) restartRequired() []string {
	if keys := r.waiting.Load(); keys != nil {
		return *keys
	}
	return nil
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
		if err != nil {
			d.log.Error("the configuration is refused; the one from before stays", "err", err)
		}
	})
	if err != nil {
		d.log.Warn("the configuration is not reloaded", "err", err)
	}
}

// reload takes over what a running daemon can, and names what waits for a restart.
func (d *daemon) reload(ctx context.Context, next *config.Config) error {
	before := d.cfg.Load()
	merged := before.Reloaded(next)
	if !config.SamePolicy(before, merged) {
		if err := d.labels.reconfigure(ctx, merged.Policy()); err != nil {
			return err
		}
	}
	d.level.Set(merged.Log.Level.Slog())
	d.cfg.Store(merged)
	changes, err := config.Changes(before, next)
	if err != nil {
		return err
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
	return nil
}
