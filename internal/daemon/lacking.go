package daemon

import (
	"maps"
	"sync"
	"time"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/loop"
	"github.com/quietcore/quietcore/cpi/sample"
)

// lacking is which resource victims lacked when they were last found to be disturbed.
type lacking struct {
	mu sync.Mutex
	by map[string]lack // by container ID
}

type lack struct {
	resource string
	until    time.Time
}

const (
	// shownFor is how long a resource is shown.
	shownFor = 10 * time.Minute
	// maxLacking bounds the victims; fewer are analysed in that time.
	maxLacking = 1024
)

// find takes over an analysis.
func (l *lacking) find(f *loop.Finding, now time.Time) {
	if f.Kind != detect.AnalysisEvent || f.Evidence == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(now)
	if _, known := l.by[f.Victim.ID]; !known && len(l.by) >= maxLacking {
		return
	}
	text := string(f.Evidence.Resource)
	if f.Evidence.Waited && f.Evidence.Resource != sample.Queue {
		text += "+" + string(sample.Queue)
	}
	if l.by == nil {
		l.by = map[string]lack{}
	}
	l.by[f.Victim.ID] = lack{text, now.Add(shownFor)}
}

func (l *lacking) forget(now time.Time) {
	maps.DeleteFunc(l.by, func(_ string, x lack) bool { return !x.until.After(now) })
}

// now returns what is shown, by container ID.
func (l *lacking) now(now time.Time) map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(now)
	out := make(map[string]string, len(l.by))
	for id, x := range l.by {
		out[id] = x.resource
	}
	return out
}
