package reclaim

import (
	"slices"
	"time"
)

// grid is the node's time, divided into the cells of which a window has span.length.
// Cells are numbered from the first report on.
type grid struct {
	cell time.Duration
	span span

	epoch    time.Time     // cell 0
	elapsed  time.Duration // since then; never falls
	last     time.Time
	began    bool
	observed []uint32 // cells of the window in which anything was measured
	// unseen are those that a restart hid, in part or in full: what was used in them
	// counts as all there is. They are among the observed.
	unseen []uint32
	// resuming says that nothing was measured since a checkpoint, whose cell was resumed.
	resuming bool
	resumed  uint32
}

// spanOf: a tenth of a window may be missing in one piece.
func spanOf(length uint32) span { return span{length: length, hole: max(length/10, 1)} }

// tick places now on the time grid. A clock that was set back goes on from where
// it was: what is in the windows neither ages nor returns.
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
	g.observed, g.unseen = g.span.young(g.observed, cell), g.span.young(g.unseen, cell)
	if g.resuming {
		g.unsee(cell)
		g.resuming = !sampled
	}
	if sampled {
		g.observed = enter(g.observed, cell)
	}
	return cell
}

// unsee takes down that nobody has seen what was used from the checkpoint's cell on:
// the daemon may have lived on for a while after it was written.
func (g *grid) unsee(cell uint32) {
	from := g.resumed
	if oldest := int64(cell) - int64(g.span.length) + 1; int64(from) < oldest {
		from = uint32(oldest)
	}
	for c := from; c <= cell; c++ {
		g.observed, g.unseen = enter(g.observed, c), enter(g.unseen, c)
	}
}

// enter adds a cell to ascending ones that do not end after it, once.
func enter(cells []uint32, cell uint32) []uint32 {
	if n := len(cells); n > 0 && cells[n-1] >= cell {
		return cells
	}
	return append(cells, cell)
}

// young drops the cells that have left the window.
func (s span) young(cells []uint32, now uint32) []uint32 {
	k := 0
	for k < len(cells) && now-cells[k] >= s.length {
		k++
	}
	return slices.Delete(cells, 0, k)
}

// now is the cell of the last report.
func (g *grid) now() uint32 { return uint32(g.elapsed / g.cell) }
