package experiment

import (
	"math"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpi"
)

// suspect is a job with all its containers, as far as others suffer from it.
type suspect struct {
	name   string
	refs   []Ref // containers that run, in order
	exempt int   // of them, that may not be throttled
	seen   int64
	newest int64
	// usage and work (instructions, as usage over CPI) by window; NaN: unknown.
	usage, work [ring]float32
	throttled   uint64  // windows in which it was, the newest in bit 0
	peak        float64 // CPUs when it is busy
	round       round
	harm        bucket
	changes     changes
	trial
}

// trial is the coin of a suspect for a window.
type trial struct {
	lead   *pair   // whose test it is; nil: there is no coin
	p      float64 // of throttling
	thrown bool
	next   bool           // what the coin says of the window to come
	on     bool           // throttled in the window to come or that has just ended
	step   Step           // how, while on; ByMove: with off
	off    *cpi.Room      // what it keeps off, while moved
	until  time.Time      // end of the throttle that was told last
	told   *cpi.Container // for whom
	grown  bool           // a container has come since
	// confirmed says that a verdict on it has a neutral witness.
	confirmed bool
	refused   int64   // window until which it is left alone, since a throttle was refused
	caps      []int64 // windows of its newest caps, at most Config.EvictAfter of them
	asked     int64   // window in which its eviction was asked for; 0: never
}

// add a container.
func (s *suspect) add(ref Ref, exempt bool) {
	at, _ := slices.BinarySearch(s.refs, ref)
	s.refs = slices.Insert(s.refs, at, ref)
	if exempt {
		s.exempt++
	}
	s.grown = true
}

// drop a container.
func (s *suspect) drop(ref Ref, exempt bool) {
	if at, ok := slices.BinarySearch(s.refs, ref); ok {
		s.refs = slices.Delete(s.refs, at, at+1)
	}
	if exempt {
		s.exempt--
	}
}

// round is what a window's samples have said so far.
type round struct {
	usage, work float64
	samples     int
	active      bool // a container wants more than a throttle would leave
}

func (s *suspect) advance(window int64) {
	if window-s.newest > ring {
		s.newest = window - ring
	}
	for s.newest < window {
		s.newest++
		// Between windows, and in those of which samples are missing, nothing is known.
		s.usage[index(s.newest, ring)], s.work[index(s.newest, ring)] = nan32, nan32
		s.throttled <<= 1
	}
}

var nan32 = float32(math.NaN())

// take a sample of one of its containers.
func (s *suspect) take(usage, cpi, depth float64) {
	r := &s.round
	r.samples++
	r.usage += usage
	if cpi > 0 {
		r.work += usage / cpi
	} else {
		r.work = math.NaN()
	}
	r.active = r.active || usage >= wants*depth
}

// wants is how much of what a throttle leaves a container uses that counts as active.
// Whether it does must not depend on the coin, or the bound is gone: so much is used with
// and without a throttle by who wants all or more, even where a quota gives less than it
// says. Whether the quota bit is no measure: it bites who runs in bursts, too.
const wants = 0.7

// close the window.
func (s *suspect) close(window int64) {
	s.advance(window)
	i := index(window, ring)
	switch r := &s.round; {
	case len(s.refs) == 0 && r.samples == 0:
		s.usage[i], s.work[i] = 0, 0
	case r.samples >= len(s.refs):
		s.usage[i], s.work[i] = float32(r.usage), float32(r.work)
	}
	if s.on {
		s.throttled |= 1
	}
}

// measure what the job uses when it is busy: the ninth decile of the windows in which it
// was let. Of a verdict these are few, and it may have been idle in all of them.
func (s *suspect) measure(w *workspace) {
	w.levels = w.levels[:0]
	for k := range int64(history60) {
		if u := float64(s.usage[index(s.newest-k, ring)]); u > 0 && s.throttled>>k&1 == 0 {
			w.levels = append(w.levels, u)
		}
	}
	n := len(w.levels)
	if n < leastPeak {
		return
	}
	busy := nth(w.levels, int(0.9*float64(n)))
	if s.lead != nil && s.lead.stage == Verdict {
		busy = max(busy, s.peak)
	}
	s.peak = busy
}

const (
	peakEvery = 5 // windows
	leastPeak = 5
)

// changes of a suspect's usage and work from window to window, relative to how large
// changes of it are. They do not depend on the victim.
type changes struct {
	window int64 // for which they were computed
	usage  series
	work   series
}

// series of changes, the newest first; 0 where it is small or unknown.
type series [history60]float32

const history60 = 60

// leastChange of a series, relative to its larger ones, says something.
const leastChange = 0.25

func (s *suspect) refresh(window int64, w *workspace) {
	if s.changes.window == window {
		return
	}
	s.changes.window = window
	s.fill(&s.changes.usage, &s.usage, w)
	s.fill(&s.changes.work, &s.work, w)
}

// fill takes the differences and divides them by their ninth decile, or by a good part of
// the series' range where that is more: the noise of a busy job is no change.
func (s *suspect) fill(out *series, of *[ring]float32, w *workspace) {
	w.sorted, w.levels = w.sorted[:0], w.levels[:0]
	for k := range int64(history60) {
		at := s.newest - k
		out[k] = 0
		if (s.throttled>>k)&3 != 0 {
			continue // throttled in one of the two
		}
		level := float64(of[index(at, ring)])
		d := level - float64(of[index(at-1, ring)])
		if math.IsNaN(d) {
			continue
		}
		out[k] = float32(d)
		w.sorted, w.levels = append(w.sorted, math.Abs(d)), append(w.levels, level)
	}
	n := float64(len(w.sorted))
	if n < 6 {
		*out = series{}
		return
	}
	swing := nth(w.levels, int(0.95*n)) - nth(w.levels, int(0.05*n))
	scale := max(nth(w.sorted, int(0.9*n)), rangeShare*swing)
	for k := range out {
		if x := float64(out[k]) / max(scale, 1e-6); math.Abs(x) > leastChange && scale > 1e-3 {
			out[k] = float32(x)
		} else {
			out[k] = 0
		}
	}
}

// rangeShare of a series' range counts as a change of 1.
const rangeShare = 0.7

// nth smallest value; it orders the list in part.
func nth(list []float64, n int) float64 {
	low, high := 0, len(list)-1
	for low < high {
		pivot := list[(low+high)/2]
		i, j := low, high
		for i <= j {
			for list[i] < pivot {
				i++
			}
			for list[j] > pivot {
				j--
			}
			if i <= j {
				list[i], list[j] = list[j], list[i]
				i, j = i+1, j-1
			}
		}
		switch {
		case n <= j:
			high = j
		case n >= i:
			low = i
		default:
			return list[n]
		}
	}
	return list[n]
}
