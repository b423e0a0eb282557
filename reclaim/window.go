package reclaim

import (
	"math"
	"slices"
)

// window holds one pod's use in the cells of a time grid, at most length cells back:
// one value per cell, the mean over the measured part of it. Values are stored in order
// of time and again in order of size. So a percentile costs nothing, and a sample costs
// a few small moves of memory.
//
// With 288 cells (a day in steps of five minutes) it takes 3.4 KiB.
type window struct {
	cells  []uint32 // ascending
	uses   []float32
	sorted []float32
	// The cell in progress is in none of the three.
	cell   uint32
	mean   float32
	weight float32 // measured seconds of it; 0: there is none
	// raised concerns the cell in which a rebuilt window ended; see mix.
	raised float32
	// first is the cell in which the unbroken series of samples began. It stays when
	// that sample has left the window.
	first uint32
}

// span is the length of windows and of the longest hole in one, in cells.
type span struct {
	length uint32
	hole   uint32
}

// count returns the number of samples.
func (w *window) count() int {
	if w.weight > 0 {
		return len(w.cells) + 1
	}
	return len(w.cells)
}

// newest is the cell of the last sample; there must be one.
func (w *window) newest() uint32 {
	if w.weight > 0 {
		return w.cell
	}
	return w.cells[len(w.cells)-1]
}

// add records the use of the last seconds, which end in a cell. Cells never decrease.
func (w *window) add(cell uint32, use, seconds float64, s span) {
	v, weight := float32(use), float32(max(seconds, 1e-3))
	empty := w.count() == 0
	switch {
	case !empty && w.newest() == cell && w.weight == 0:
		w.mix(v)
		return
	case !empty && w.newest() == cell:
		w.mean = (w.mean*w.weight + v*weight) / (w.weight + weight)
		w.weight += weight
		return
	case empty || cell-w.newest() > s.hole:
		w.first = cell
	}
	w.settle(s)
	w.cell, w.mean, w.weight = cell, v, weight
}

// settle moves the finished cell to the others.
func (w *window) settle(s span) {
	if w.weight == 0 {
		return
	}
	w.makeRoom(s)
	w.cells, w.uses = append(w.cells, w.cell), append(w.uses, w.mean)
	w.enter(w.mean)
	w.weight = 0
}

// mix adds a sample to the cell in which a rebuilt window ends. The cell's earlier
// value is among the others, but it is not known which one. To be no less in any case,
// the smallest value is raised to the largest new sample.
func (w *window) mix(v float32) {
	from := w.sorted[0]
	if w.raised > 0 {
		from = w.raised
	}
	w.raised = max(from, v)
	if v > from {
		w.leave(from)
		w.enter(v)
		copy(w.uses, w.sorted) // the largest are the youngest, as in rebuild
	}
}

// makeRoom grows the three slices together, at most to a full window.
func (w *window) makeRoom(s span) {
	n := len(w.cells)
	if n < cap(w.cells) {
		return
	}
	size := min(max(2*n, 8), int(min(uint64(s.length), 1<<20))) // append makes more of it if a window ever needs it
	w.cells = append(make([]uint32, 0, size), w.cells...)
	w.uses = append(make([]float32, 0, size), w.uses...)
	w.sorted = append(make([]float32, 0, size), w.sorted...)
}

func (w *window) enter(v float32) {
	i := w.lower(v)
	w.sorted = append(w.sorted, 0)
	copy(w.sorted[i+1:], w.sorted[i:])
	w.sorted[i] = v
}

func (w *window) leave(v float32) {
	i := w.lower(v)
	w.sorted = append(w.sorted[:i], w.sorted[i+1:]...)
}

// lower counts the settled samples below v.
func (w *window) lower(v float32) int {
	lo, hi := 0, len(w.sorted)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); w.sorted[mid] < v {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// expire drops cells that are length or more cells old.
func (w *window) expire(now uint32, s span) {
	k := 0
	for k < len(w.cells) && now-w.cells[k] >= s.length {
		w.leave(w.uses[k])
		k++
	}
	if k > 0 {
		w.cells, w.uses = slices.Delete(w.cells, 0, k), slices.Delete(w.uses, 0, k)
	}
	if w.weight > 0 && now-w.cell >= s.length {
		w.weight = 0
	}
}

// minCoverage is the share of the observed cells that must have a sample: a pod without
// samples is not idle.
const minCoverage = 0.9

// full says that the window is covered: its samples began a whole window ago, and few
// of the observed cells lack one.
func (w *window) full(now uint32, observed int, s span) bool {
	n := w.count()
	return n > 0 && now-w.first >= s.length && now-w.newest() <= s.hole && float64(n) >= minCoverage*float64(observed)
}

// below counts the samples below a use.
func (w *window) below(use float64) int {
	n := w.lower(float32(use))
	if w.weight > 0 && w.mean < float32(use) {
		n++
	}
	return n
}

// above counts the samples that are not below a use.
func (w *window) above(use float64) int { return w.count() - w.below(use) }

// hole is the unknown part of a window: cells without a sample, and cells whose sample
// may be too small. It is not known which values those are, so the smallest are
// assumed.
type hole struct{ missing, doubtful int }

// hole compares the samples with the cells that a restart hid.
func (w *window) hole(unseen []uint32) hole {
	var h hole
	for _, c := range unseen {
		if _, there := slices.BinarySearch(w.cells, c); there || w.weight > 0 && w.cell == c {
			h.doubtful++
		} else {
			h.missing++
		}
	}
	return h
}

// atLeast says that at least percent of the samples are below a use, with those of the
// hole above any.
func (w *window) atLeast(percent, use float64, h hole) bool {
	n := w.count()
	return n > 0 && w.below(use)-h.doubtful >= rank(percent, n+h.missing)
}

// percentile is the smallest use that percent of the samples do not exceed, with those
// of the hole infinite; 0 without samples.
func (w *window) percentile(percent float64, h hole) float64 {
	n := w.count()
	if n == 0 {
		return 0
	}
	i := max(rank(percent, n+h.missing), 1) - 1 + h.doubtful
	if i >= n {
		return math.Inf(1)
	}
	if w.weight == 0 {
		return float64(w.sorted[i])
	}
	// The cell in progress is one more among the settled ones.
	v := w.mean
	if i < len(w.sorted) {
		v = min(v, w.sorted[i])
	}
	if i > 0 {
		v = max(v, w.sorted[i-1])
	}
	return float64(v)
}

// atLeastUsed is the smallest use that percent of all samples do not exceed, where those that
// were not seen are 0.
func (w *window) atLeastUsed(percent float64, all int) float64 {
	seen := w.count() - (all - rank(percent, all)) // of them, those that do not exceed it
	if seen <= 0 {
		return 0
	}
	return w.percentile(100*float64(seen)/float64(w.count()), hole{})
}

// each calls do for every sample.
func (w *window) each(do func(use float64)) {
	for _, u := range w.uses {
		do(float64(u))
	}
	if w.weight > 0 {
		do(float64(w.mean))
	}
}

// rank is how many of n samples are percent of them, rounded up. The small term keeps
// 95 % of 20 at 19.
func rank(percent float64, n int) int {
	return min(max(int(math.Ceil(percent*float64(n)/100-1e-9)), 0), n)
}
