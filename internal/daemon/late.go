package daemon

import "sync"

// late holds back what windows change in metrics, which every pod may read: a change at a
// window's end would say that the rest of its interval is not counted.
type late struct {
	mu           sync.Mutex
	newest, last []func() // since the present interval began, and in the one before
}

// add has f called when the interval after the present one has ended.
func (l *late) add(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newest = append(l.newest, f)
}

// begin is the beginning of an interval.
func (l *late) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.last {
		f()
	}
	l.newest, l.last = nil, l.newest
}
