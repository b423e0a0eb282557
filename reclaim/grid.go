package reclaim

import (
	"slices"
	"time"
)

// grid divides the node's time into cells; a window has span.length of them. Cells are
// numbered from the first report on.
type grid struct {
	cell time.Duration
	span span

	epoch    time.Time     // cell 0
	elapsed  time.Duration // since then; never falls
	last     time.Time
	began    bool
	observed []uint32 // cells of the window in which anything was measured
	// unseen are the observed cells that a restart hid, at least in part: their use
	// counts as everything there is.
	unseen []uint32
	// resuming says that nothing has been measured since a checkpoint was resumed.
	resuming bool
	resumed  uint32
}

// spanOf allows a tenth of a window to be missing in one piece.
func spanOf(length uint32) span { return span{length: length, hole: max(length/10, 1)} }

// tick places now on the grid. If the clock goes back, time continues from where it
// was, so that windows neither age nor regain samples.
func (g *grid) tick(now time.Time, sampled bool) uint32 {
	if !g.began {
		g.epoch, g.began = now, true
	}
	if elapsed := now.Sub(g.epoch); elapsed < g.elapsed {
		g.epoch = g.epoch.Add(elapsed - g.elapsed)
	} else {
		g.elapsed = elapsed
	}
	g.last = now
	cell := g.now()
	g.observed, g.unseen = g.span.inWindow(g.observed, cell), g.span.inWindow(g.unseen, cell)
	if g.resuming {
		g.markUnseen(cell)
		g.resuming = !sampled
	}
	if sampled {
		g.observed = enter(g.observed, cell)
	}
	return cell
}

// markUnseen marks the cells since the checkpoint as unseen: the daemon may have run on
// after it was written.
func (g *grid) markUnseen(cell uint32) {
	from := g.resumed
	if oldest := int64(cell) - int64(g.span.length) + 1; int64(from) < oldest {
		from = uint32(oldest)
	}
	for c := from; c <= cell; c++ {
		g.observed, g.unseen = enter(g.observed, c), enter(g.unseen, c)
	}
}

// enter adds a cell to ascending cells that do not end after it, once.
func enter(cells []uint32, cell uint32) []uint32 {
	if n := len(cells); n > 0 && cells[n-1] >= cell {
		return cells
	}
	return append(cells, cell)
}

// inWindow drops the cells that have left the window.
func (s span) inWindow(cells []uint32, now uint32) []uint32 {
	k := 0
	for k < len(cells) && now-cells[k] >= s.length {
		k++
	}
	return slices.Delete(cells, 0, k)
}

// now is the cell of the last report.
func (g *grid) now() uint32 { return uint32(g.elapsed / g.cell) }
