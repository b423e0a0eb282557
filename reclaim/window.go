package reclaim

import (
	"math"
	"slices"
)

// window is what one pod used in the cells of a time grid, at most length of them
// back: one value a cell, the mean over the part of it that was seen. Values are
// kept in order of time and, a second time, in order of size, so that a percentile
// costs nothing and a sample costs a few small moves of memory.
//
// With 288 cells (a day in steps of five minutes) it takes 3.4 KiB.
type window struct {
	cells  []uint32 // ascending
	uses   []float32
	sorted []float32
	// The cell that still grows is in none of the three.
	cell   uint32
	mean   float32
	weight float32 // seconds that were seen of it; 0: there is none
	// raised is about the cell in which a rebuilt window ended; see mix.
	raised float32
	// first is the cell in which the unbroken series of samples began. It stays
	// when the sample itself has left the window.
	first uint32
}

// span is the length of windows and the longest hole in one, in cells.
type span struct {
	length uint32
	hole   uint32
}

// count is the number of samples.
func (w *window) count() int {
	if w.weight > 0 {
		return len(w.cells) + 1
	}
	return len(w.cells)
}

// newest is the cell of the last sample; there has to be one.
func (w *window) newest() uint32 {
	if w.weight > 0 {
		return w.cell
	}
	return w.cells[len(w.cells)-1]
}

// add enters what was used during the last seconds, which end in a cell. Cells
// never decrease.
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

// settle puts the cell that grew among the others.
func (w *window) settle(s span) {
	if w.weight == 0 {
		return
	}
	w.makeRoom(s)
	w.cells, w.uses = append(w.cells, w.cell), append(w.uses, w.mean)
	w.enter(w.mean)
	w.weight = 0
}

// mix enters a sample of the cell in which a rebuilt window ends. What the cell had
// before is one of the values, but which one is lost; to be no less whatever it
// was, the smallest is raised to the largest sample that comes.
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

// makeRoom grows the three slices together, to no more than a full window needs.
func (w *window) makeRoom(s span) {
	n := len(w.cells)
	if n < cap(w.cells) {
		return
	}
	size := max(2*n, 8)
	if most := int(min(uint64(s.length), 1<<20)); size > most && n < most {
		size = most
	}
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

// expire drops what is length cells old or older.
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

// minCoverage is the share of the observed cells that a window must have a sample
// of: what was not seen is not idle.
const minCoverage = 0.9

// full says that the window is covered: its samples began a whole window ago, and
// few of the cells in which anything was observed lack one.
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

// hole is what a window lacks that nobody has seen: cells without a sample, and cells
// whose sample may be too small. Which value such a sample has may be lost, so the
// smallest ones are taken for them.
type hole struct{ missing, doubtful int }

// hole compares the samples with the cells that nobody has seen, or not in full.
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

// mostly says that at least percent of the samples are below a use, those of the hole
// being above any.
func (w *window) mostly(percent, use float64, h hole) bool {
	n := w.count()
	return n > 0 && w.below(use)-h.doubtful >= rank(percent, n+h.missing)
}

// percentile is the smallest use that percent of the samples do not exceed, those of
// the hole being infinite; 0 without samples.
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
	// The growing cell stands between two settled ones, or after the last.
	switch {
	case i < len(w.sorted) && w.sorted[i] <= w.mean:
		return float64(w.sorted[i])
	case i > 0 && w.sorted[i-1] > w.mean:
		return float64(w.sorted[i-1])
	}
	return float64(w.mean)
}

// each calls do with every sample.
func (w *window) each(do func(use float64)) {
	for _, u := range w.uses {
		do(float64(u))
	}
	if w.weight > 0 {
		do(float64(w.mean))
	}
}

// rank is how many of n samples percent are, rounded up. The small term keeps
// 95 % of 20 at 19.
func rank(percent float64, n int) int {
	return min(max(int(math.Ceil(percent*float64(n)/100-1e-9)), 0), n)
}
