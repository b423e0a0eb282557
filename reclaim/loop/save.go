package loop

import (
	"fmt"
	"time"
)

// saving is the state of saving checkpoints.
type saving struct {
	savedAt    time.Time
	savedCell  uint32
	inProgress bool
	saved      chan error // the result of the last save
}

// saveIfDue saves a checkpoint if one is due and none is being saved.
func (l *Loop) saveIfDue() {
	select {
	case err := <-l.saved:
		l.inProgress = false
		l.warnUnsaved(err)
	default:
	}
	now := l.o.Clock.Now()
	if l.o.Save == nil || l.o.Estimator == nil || l.inProgress {
		return
	}
	since, cell := now.Sub(l.savedAt), l.o.Estimator.Cell()
	if since >= 0 && since < SaveEvery && (since < minSaveInterval || cell == l.savedCell) {
		return
	}
	l.savedAt, l.savedCell, l.inProgress = now, cell, true
	learned := l.o.Estimator.Checkpoint(l.o.Name)
	l.background.Go(func() { l.saved <- l.o.Save(learned) })
}

// saveFinal saves the last checkpoint, after all evictions and saves have ended. A pod
// whose eviction failed must not count as terminating after the restart, since nothing
// would evict it again.
func (l *Loop) saveFinal() {
	s := l.Status()
	l.settle(l.o.Clock.Now(), &s)
	if l.o.Save != nil && l.o.Estimator != nil {
		l.warnUnsaved(l.o.Save(l.o.Estimator.Checkpoint(l.o.Name)))
	}
}

func (l *Loop) warnUnsaved(err error) {
	if err != nil {
		l.warnOnce(
			fmt.Errorf(
				"save the history of pods: %w; after a restart no pod is idle until a window is full again", err))
	}
}
