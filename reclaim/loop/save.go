package loop

import (
	"fmt"
	"time"
)

// saving is when what was learned was saved last.
type saving struct {
	kept       time.Time
	keptCell   uint32
	inProgress bool
	saved      chan error // the result of the last save
}

// keep saves what was learned where it is time, one saving at once.
func (l *Loop) keep() {
	select {
	case err := <-l.saved:
		l.inProgress = false
		l.unsaved(err)
	default:
	}
	now := l.o.Clock.Now()
	if l.o.Keep == nil || l.o.Estimator == nil || l.inProgress {
		return
	}
	since, cell := now.Sub(l.kept), l.o.Estimator.Cell()
	if since >= 0 && since < KeepEvery && (since < keepLeast || cell == l.keptCell) {
		return
	}
	l.kept, l.keptCell, l.inProgress = now, cell, true
	learned := l.o.Estimator.Checkpoint(l.o.Name)
	l.asking.Go(func() { l.saved <- l.o.Keep(learned) })
}

// keepLast is for the end, when neither an eviction nor a saving is under way any more.
// Who was not evicted must not count as going after the restart: nobody would ask again.
func (l *Loop) keepLast() {
	s := l.Status()
	l.settle(l.o.Clock.Now(), &s)
	if l.o.Keep != nil && l.o.Estimator != nil {
		l.unsaved(l.o.Keep(l.o.Estimator.Checkpoint(l.o.Name)))
	}
}

func (l *Loop) unsaved(err error) {
	if err != nil {
		l.complain(
			fmt.Errorf(
				"what was learned of pods is not saved; a restart takes nobody for idle until a window is full "+
					"again: %w", err))
	}
}
