package reclaim

import (
	"math"
	"slices"
)

// window is what one pod used in the cells of a time grid, at most length of them
// back: one value a cell, the mean over the part of it that was seen. Values are
// kept in order of time and, a second time, in order of size, so that a
// percentile costs nothing and a sample costs two small moves of memory.
//
// With 288 cells (a day in steps of five minutes) it takes 3.4 KiB.
type window struct {
	cells  []uint32 // ascending; the last one may still grow
	uses   []float32
	sorted []float32
	weight float32 // seconds that were seen of the last cell
	// rebuilt and raised are about a last cell whose share of the samples nobody
	// knows any more; see mix.
	rebuilt bool
	raised  float32
	// first is the cell in which the unbroken series of samples began. It stays
	// when the sample itself has left the window.
	first uint32
}

// span is the length of windows and the longest hole in one, in cells.
type span struct {
	length uint32
	hole   uint32
}

// add enters what was used during the last seconds, which end in a cell. Cells
// never decrease.
func (w *window) add(cell uint32, use, seconds float64, s span) {
	v, weight := float32(use), float32(max(seconds, 1e-3))
	n := len(w.cells)
	switch {
	case n > 0 && w.cells[n-1] == cell && w.rebuilt:
		w.mix(v)
		return
	case n > 0 && w.cells[n-1] == cell:
		w.forget(w.uses[n-1])
		mean := (w.uses[n-1]*w.weight + v*weight) / (w.weight + weight)
		w.uses[n-1], w.weight = mean, w.weight+weight
		w.enter(mean)
		return
	case n == 0 || cell-w.cells[n-1] > s.hole:
		w.first = cell
	}
	w.makeRoom(s)
	w.rebuilt = false
	w.cells, w.uses, w.weight = append(w.cells, cell), append(w.uses, v), weight
	w.enter(v)
}

// mix enters a sample of the cell in which a rebuilt window ends. What the cell had
// before is one of the values, but which one is lost; to be no less whatever it
// was, the smallest is raised to the largest sample that comes.
func (w *window) mix(v float32) {
	from := w.sorted[0]
	if w.raised > 0 {
		from = w.raised
	}
	if v > from {
		w.forget(from)
		w.enter(v)
		w.raised = v
		copy(w.uses, w.sorted) // the largest are the youngest, as in rebuild
	} else {
		w.raised = from
	}
}

// makeRoom grows the three slices together, to no more than a full window needs.
func (w *window) makeRoom(s span) {
	n := len(w.cells)
	if n < cap(w.cells) {
		return
	}
	size := max(2*n, 8)
	if most := int(min(uint64(s.length)+1, 1<<20)); size > most && n < most {
		size = most
	}
	w.cells = append(make([]uint32, 0, size), w.cells...)
	w.uses = append(make([]float32, 0, size), w.uses...)
	w.sorted = append(make([]float32, 0, size), w.sorted...)
}

func (w *window) enter(v float32) {
	i, _ := slices.BinarySearch(w.sorted, v)
	w.sorted = slices.Insert(w.sorted, i, v)
}

func (w *window) forget(v float32) {
	i, _ := slices.BinarySearch(w.sorted, v)
	w.sorted = slices.Delete(w.sorted, i, i+1)
}

// expire drops what is length cells old or older.
func (w *window) expire(now uint32, s span) {
	k := 0
	for k < len(w.cells) && now-w.cells[k] >= s.length {
		w.forget(w.uses[k])
		k++
	}
	if k > 0 {
		w.cells, w.uses = slices.Delete(w.cells, 0, k), slices.Delete(w.uses, 0, k)
	}
}

// minCoverage is the share of the observed cells that a window must have a sample
// of: what was not seen is not idle.
const minCoverage = 0.9

// full says that the window is covered: its samples began a whole window ago, and
// few of the cells in which anything was observed lack one.
func (w *window) full(now uint32, observed int, s span) bool {
	n := len(w.cells)
	return n > 0 && now-w.first >= s.length && now-w.cells[n-1] <= s.hole && float64(n) >= minCoverage*float64(observed)
}

// below counts the samples below a use.
func (w *window) below(use float64) int {
	i, _ := slices.BinarySearch(w.sorted, float32(use))
	return i
}

// mostly says that at least percent of the samples are below a use.
func (w *window) mostly(percent, use float64) bool {
	return len(w.sorted) > 0 && w.below(use) >= rank(percent, len(w.sorted))
}

// percentile is the smallest use that percent of the samples do not exceed; 0
// without samples.
func (w *window) percentile(percent float64) float64 {
	if len(w.sorted) == 0 {
		return 0
	}
	return float64(w.sorted[max(rank(percent, len(w.sorted)), 1)-1])
}

// rank is how many of n samples percent are, rounded up. The small term keeps
// 95 % of 20 at 19.
func rank(percent float64, n int) int {
	return min(max(int(math.Ceil(percent*float64(n)/100-1e-9)), 0), n)
}
