package sample

// History is the last samples of one container, oldest first. Its memory is
// fixed when it is made.
type History struct {
	ring []Sample
	next int
	full bool
}

// NewHistory keeps this many samples.
func NewHistory(depth int) *History { return &History{ring: make([]Sample, max(depth, 1))} }

// Add forgets the oldest sample for a new one. One that is not later than the
// newest is not taken: a clock that is used here does not go back.
func (h *History) Add(s Sample) bool {
	if last, ok := h.Last(); ok && s.Boot <= last.Boot {
		return false
	}
	h.ring[h.next] = s
	h.next++
	if h.next == len(h.ring) {
		h.next, h.full = 0, true
	}
	return true
}

// Len is how many there are.
func (h *History) Len() int {
	if h.full {
		return len(h.ring)
	}
	return h.next
}

// Last is the newest.
func (h *History) Last() (Sample, bool) {
	if h.Len() == 0 {
		return Sample{}, false
	}
	return h.ring[(h.next+len(h.ring)-1)%len(h.ring)], true
}

// AppendTo appends them all to dst, oldest first.
func (h *History) AppendTo(dst []Sample) []Sample {
	if h.full {
		dst = append(dst, h.ring[h.next:]...)
	}
	return append(dst, h.ring[:h.next]...)
}
