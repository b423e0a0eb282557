package daemon

import "testing"

// TestWindowsAreShownLate: in metrics when the interval after a window's own has ended, so that
// the next window has ended too.
func TestWindowsAreShownLate(t *testing.T) {
	var l late
	shown := 0
	for interval := range 5 {
		l.begin()
		if want := max(interval-1, 0); shown != want {
			t.Errorf("at the beginning of interval %d windows up to %d are shown, want %d", interval, shown, want)
		}
		l.add(func() { shown = interval + 1 })
	}
}
