package sample

import "time"

// History holds the last samples of one container, oldest first. Its memory is
// allocated once.
type History struct {
	ring []kept
	next int
	full bool
}

// kept is a compact Sample; there are many per container.
type kept struct {
	end              int64 // nanoseconds since 1970
	boot, length     time.Duration
	usage, cpi       float64
	mpki, wait       float32
	counted, speed   float32
	queue, pressure  float32
	noCPI            Reason
	hasMPKI, hasWait bool
	reference        bool
}

func keep(s *Sample) kept {
	return kept{
		end: s.End.UnixNano(), boot: s.Boot, length: s.Length, usage: s.Usage, cpi: s.CPI,
		mpki: float32(s.MPKI), wait: float32(s.Wait), queue: float32(s.Queue), pressure: float32(s.Pressure),
		counted: float32(s.Counted), speed: float32(s.Speed),
		noCPI: s.NoCPI, hasMPKI: s.HasMPKI, hasWait: s.HasWait, reference: s.Reference,
	}
}

func (k *kept) sample() Sample {
	return Sample{
		End: time.Unix(0, k.end), Boot: k.boot, Length: k.length, Usage: k.usage, CPI: k.cpi,
		MPKI: float64(k.mpki), Wait: float64(k.wait), Queue: float64(k.queue), Pressure: float64(k.pressure),
		Counted: float64(k.counted), Speed: float64(k.speed),
		NoCPI: k.noCPI, HasMPKI: k.hasMPKI, HasWait: k.hasWait, Reference: k.reference,
	}
}

// NewHistory makes a history of this many samples.
func NewHistory(depth int) *History { return &History{ring: make([]kept, max(depth, 1))} }

// Add stores a sample and drops the oldest if the history is full. It rejects a sample
// that is not newer than the newest: clocks used here do not go back.
func (h *History) Add(s Sample) bool {
	if last, ok := h.Last(); ok && s.Boot <= last.Boot {
		return false
	}
	h.ring[h.next] = keep(&s)
	h.next++
	if h.next == len(h.ring) {
		h.next, h.full = 0, true
	}
	return true
}

// Len returns the number of samples.
func (h *History) Len() int {
	if h.full {
		return len(h.ring)
	}
	return h.next
}

// Last returns the newest sample.
func (h *History) Last() (Sample, bool) {
	if h.Len() == 0 {
		return Sample{}, false
	}
	return h.ring[(h.next+len(h.ring)-1)%len(h.ring)].sample(), true
}

// AppendTo appends all samples to dst, oldest first. Their End has no monotonic clock
// reading.
func (h *History) AppendTo(dst []Sample) []Sample {
	first := 0
	if h.full {
		first = h.next
	}
	for i := range h.Len() {
		dst = append(dst, h.ring[(first+i)%len(h.ring)].sample())
	}
	return dst
}
