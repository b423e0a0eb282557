package reclaim

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Checkpoint is what an estimator keeps over a restart: statistics of every batch pod's
// window instead of its samples. A window rebuilt from them over-estimates: at every
// later moment, whatever samples follow, its percentiles are no less than those of the
// true window. So a pod that is not idle is never taken for idle; the reverse may
// happen. Use between the checkpoint and the next measurement counts as everything
// there is.
type Checkpoint struct {
	Version  int             `json:"version"`
	Node     string          `json:"node"`
	At       time.Time       `json:"at"`
	Epoch    time.Time       `json:"epoch"`
	Cell     Duration        `json:"cell"`
	Length   uint32          `json:"length"`
	Offered  float64         `json:"offered"`
	Observed []Run           `json:"observed"`
	Unseen   []Run           `json:"unseen,omitempty"` // observed cells whose use a restart hid
	Pods     []PodCheckpoint `json:"pods"`
	// Production is the forecast's past. Predictor names what can read it: the first edition
	// had others.
	Predictor  string    `json:"predictor"`
	Production Past      `json:"production"`
	Known      []Trusted `json:"known"`
}

const (
	checkpointVersion = 1
	predictorName     = "forecast"
)

// PodCheckpoint is one batch pod.
type PodCheckpoint struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	First   uint32    `json:"first"` // cell in which its samples began
	Runs    []Run     `json:"runs"`  // the cells of the samples in the window
	// Points are percentiles of use, ascending; the last is the maximum.
	Points   []Point `json:"points"`
	Evicting bool    `json:"evicting,omitempty"`
}

// Trusted is a production pod and the cell since which its use is known.
type Trusted struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	Known   uint32    `json:"known"`
	Peak    float64   `json:"peak,omitempty"` // the most that it used
}

// Run is a series of cells at equal distances: cell, distance, count.
type Run [3]uint32

// Point is a percentile and its use.
type Point [2]float64

// points are the stored percentiles, in addition to those of the rule.
func (e *Estimator) points() []float64 {
	list := []float64{50, 75, 90, 95, 97.5, 99, 99.5, e.cfg.Idle.Percentile, e.cfg.Idle.UsePercentile, 100}
	slices.Sort(list)
	return slices.Compact(list)
}

// Checkpoint returns the estimator's state.
func (e *Estimator) Checkpoint(node string) Checkpoint {
	c := Checkpoint{
		Version: checkpointVersion, Node: node, At: e.last, Epoch: e.last.Add(-e.elapsed), Cell: Duration(e.cell),
		Length:  e.span.length,
		Offered: e.supply.published, Observed: runsOf(e.observed), Unseen: runsOf(e.unseen),
		Predictor: predictorName, Production: e.forecast.Past(),
	}
	points := e.points()
	for _, s := range e.pods {
		if !s.batch {
			c.Known = append(c.Known, Trusted{ID: s.id, Created: s.created, Known: s.known,
				Peak: shortest(float64(max(s.peak.now, s.peak.last)))})
			continue
		}
		p := PodCheckpoint{ID: s.id, Created: s.created, First: s.w.first, Evicting: s.evicting}
		p.Runs = runsOf(s.w.all())
		if len(p.Runs) > 0 {
			for _, percent := range points {
				p.Points = append(p.Points, Point{percent, shortest(s.w.percentile(percent, hole{}))})
			}
		}
		c.Pods = append(c.Pods, p)
	}
	slices.SortFunc(c.Pods, func(a, b PodCheckpoint) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(c.Known, func(a, b Trusted) int { return strings.Compare(a.ID, b.ID) })
	return c
}

// shortest returns the number with the fewest digits that is the same float32, the
// precision of windows.
func shortest(v float64) float64 {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', -1, 32), 64)
	return v
}

// Encode encodes a checkpoint as JSON.
func (c Checkpoint) Encode() ([]byte, error) { return json.Marshal(c) }

// maxCheckpoint bounds the input of Decode: 4,096 pods with windows full of holes.
const maxCheckpoint = 32 << 20

// DecodeCheckpoint decodes the output of Encode. Resume validates its contents.
func DecodeCheckpoint(data []byte) (Checkpoint, error) {
	var c Checkpoint
	if len(data) > maxCheckpoint {
		return c, fmt.Errorf("reclaim: checkpoint of %d bytes is longer than %d", len(data), maxCheckpoint)
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return Checkpoint{}, fmt.Errorf("reclaim: read checkpoint: %w; windows start empty", err)
	}
	return c, nil
}

// Resume makes an estimator from a checkpoint. Windows of another length or of other samples
// are converted, so that they over-estimate as well. It rejects a checkpoint of another node,
// from the future, or damaged. The caller then uses New, which lends nothing of idle pods for a
// window.
func Resume(cfg Config, node string, now time.Time, c Checkpoint) (*Estimator, error) {
	e, err := New(cfg)
	if err != nil {
		return nil, err
	}
	if err := e.checkFits(node, now, c); err != nil {
		return nil, fmt.Errorf("reclaim: checkpoint: %w; windows start empty", err)
	}
	if c.At.IsZero() {
		return e, nil // of an estimator before its first report, which knew nothing
	}
	e.elapsed = c.At.Sub(c.Epoch)
	at, old := e.now(), c.grid()
	// Relative to now, so that later changes of the system clock have no effect if now
	// has a monotonic reading.
	e.epoch, e.last, e.began = now.Add(c.Epoch.Sub(now)), c.At, true
	e.resuming, e.resumed = true, at
	e.supply, e.conversion = supply{known: true, published: c.Offered}, c.Conversion(cfg)
	if e.observed, err = cellsOf(c.Observed, old.now(), old.span); err != nil {
		return nil, fmt.Errorf("reclaim: checkpoint: observed cells: %w; windows start empty", err)
	}
	if e.unseen, err = cellsOf(c.Unseen, old.now(), old.span); err != nil {
		return nil, fmt.Errorf("reclaim: checkpoint: unseen cells: %w; windows start empty", err)
	}
	e.observed, e.unseen = e.convert(&old, e.observed), e.convert(&old, e.unseen)
	for _, p := range c.Pods {
		s := &podState{id: p.ID, batch: true, created: p.Created, lastSeen: at, evicting: p.Evicting}
		if s.evicting {
			s.retryAfter = now.Add(time.Duration(cfg.Correct.Retry))
		}
		if s.w, err = rebuild(p, old.now(), old.span); err != nil {
			return nil, fmt.Errorf("reclaim: checkpoint: pod %s: %w; windows start empty", p.ID, err)
		}
		s.w.onto(&e.grid, &old)
		if _, twice := e.pods[p.ID]; twice || p.Created.IsZero() {
			return nil,
				fmt.Errorf(
					"reclaim: checkpoint: pod %q is there twice or without its time of creation; windows start empty",
					p.ID)
		}
		e.pods[p.ID] = s
	}
	for i := range c.Known {
		c.Known[i].Known = e.cellOf(&old, c.Known[i].Known)
	}
	e.restoreProduction(c, at)
	return e, nil
}

// grid is the one that the checkpoint was made on.
func (c *Checkpoint) grid() grid {
	return grid{cell: time.Duration(c.Cell), span: spanOf(c.Length), elapsed: c.At.Sub(c.Epoch)}
}

// Conversion says what resuming the checkpoint with another configuration costs; empty:
// nothing.
func (c *Checkpoint) Conversion(cfg Config) string {
	was, window, sample := c.grid(), time.Duration(cfg.Idle.Window), time.Duration(cfg.Idle.Sample)
	var costs []string
	if had := was.window(); had != window {
		cost := "what is older than that is left out"
		if window > had {
			cost = fmt.Sprintf("no pod is idle until it was seen for %v more", window-had)
		}
		costs = append(costs, fmt.Sprintf("windows were %v long and are %v: %s", had, window, cost))
	}
	switch {
	case sample > was.cell:
		costs = append(costs, fmt.Sprintf("samples were %v long and are %v: each counts with the largest in it",
			was.cell, sample))
	case sample < was.cell:
		costs = append(costs, fmt.Sprintf("samples were %v long and are %v: no pod is idle until it was seen for %v",
			was.cell, sample, window))
	}
	if c.Predictor != predictorName {
		costs = append(costs, fmt.Sprintf(
			"what production uses was learned by %.40q: production counts with its requests, less so over %v",
			c.Predictor, window))
	}
	return strings.Join(costs, "; ")
}

func (g *grid) window() time.Duration { return time.Duration(g.span.length) * g.cell }

// cellOf is the cell of g in which a cell of another grid with the same epoch begins.
func (g *grid) cellOf(old *grid, cell uint32) uint32 {
	hi, lo := bits.Mul64(uint64(cell), uint64(old.cell))
	to, _ := bits.Div64(hi, lo, uint64(g.cell))
	return uint32(to)
}

// convert returns the cells of g in which those of another grid begin, ascending.
func (g *grid) convert(old *grid, cells []uint32) []uint32 {
	for i, c := range cells {
		cells[i] = g.cellOf(old, c)
	}
	return g.span.inWindow(slices.Compact(cells), g.now())
}

// onto moves a rebuilt window to another grid. Where cells are longer, a new one's mean is no
// more than the largest of the old ones in it, so the largest samples, the newest, are kept.
// What came before them is not known any more, nor whether it had a hole that is too long now.
// Where cells are shorter, an old one says neither how high nor how low use was in its parts, so
// the window begins anew: then the pod is neither known to be idle nor to be busy.
func (w *window) onto(g, old *grid) {
	switch {
	case g.cell < old.cell:
		*w = window{}
		return
	case g.cell == old.cell && g.span == old.span || len(w.cells) == 0:
		return
	}
	for i, c := range w.cells {
		if c = g.cellOf(old, c); i == 0 || c-g.cellOf(old, w.cells[i-1]) > g.span.hole {
			w.first = c
		}
	}
	w.cells = g.convert(old, w.cells)
	gone := len(w.uses) - len(w.cells)
	w.uses, w.sorted = w.uses[gone:], w.sorted[gone:]
}

func (e *Estimator) checkFits(node string, now time.Time, c Checkpoint) error {
	switch age := c.At.Sub(c.Epoch); {
	case c.Version != checkpointVersion:
		return fmt.Errorf("is of version %d, this is version %d", c.Version, checkpointVersion)
	case c.Node != node:
		return fmt.Errorf("is of node %.60q, this is node %q", c.Node, node)
	case c.Cell <= 0 || c.Length < 1 || c.Length > math.MaxUint32/4:
		return fmt.Errorf("has windows of %d times %v", c.Length, time.Duration(c.Cell))
	case c.At.After(now):
		return fmt.Errorf("is of %v, it is %v", c.At, now)
	case age < 0 || age > longest || age/time.Duration(c.Cell) > math.MaxUint32/2:
		return fmt.Errorf("began at %v and ends at %v", c.Epoch, c.At)
	case now.Sub(c.At) > longest && !c.At.IsZero():
		return fmt.Errorf("is of %v, it is %v", c.At, now)
	case !amount(c.Offered):
		return fmt.Errorf("offers %v CPUs", c.Offered)
	}
	return nil
}

// restoreProduction restores what is known of production. If its past cannot be read, every
// pod counts with its request again.
func (e *Estimator) restoreProduction(c Checkpoint, at uint32) {
	if c.Predictor != predictorName || !e.forecast.resume(c.Production, e.elapsed) {
		return
	}
	for _, t := range c.Known {
		if t.Known <= at && !t.Created.IsZero() && amount(t.Peak) && e.pods[t.ID] == nil {
			e.pods[t.ID] = &podState{id: t.ID, created: t.Created, known: t.Known, lastSeen: at,
				peak: peak{fortnight: uint32(e.elapsed / fortnight), now: float32(t.Peak)}}
		}
	}
}

// rebuild makes a window whose percentiles are no less than those that the points were
// taken from. Its largest values are the newest, so that they leave last: at any moment
// the true window has at most as many large ones left.
func rebuild(p PodCheckpoint, at uint32, s span) (window, error) {
	w := window{first: p.First}
	cells, err := cellsOf(p.Runs, at, s)
	if err != nil {
		return w, err
	}
	if len(cells) == 0 {
		return w, nil
	}
	if newest := cells[len(cells)-1]; p.First > newest {
		return w, fmt.Errorf("its samples began in cell %d, the last is of cell %d", p.First, newest)
	}
	if err := checkPoints(p.Points); err != nil {
		return w, err
	}
	w.cells = cells
	w.uses, w.sorted = make([]float32, len(cells)), make([]float32, len(cells))
	next := 0
	for i := range cells {
		for rank(p.Points[next][0], len(cells)) < i+1 {
			next++
		}
		w.uses[i], w.sorted[i] = float32(p.Points[next][1]), float32(p.Points[next][1])
	}
	return w, nil
}

func checkPoints(points []Point) error {
	if len(points) == 0 || points[len(points)-1][0] != 100 {
		return fmt.Errorf("its percentiles do not end with the maximum")
	}
	for i, p := range points {
		if !(p[0] > 0) || !amount(p[1]) || i > 0 && (p[0] <= points[i-1][0] || p[1] < points[i-1][1]) {
			return fmt.Errorf("its percentiles do not ascend: %v", p)
		}
	}
	return nil
}

// all returns the cells of all samples, including the one in progress.
func (w *window) all() []uint32 {
	if w.weight == 0 {
		return w.cells
	}
	return append(slices.Clip(w.cells), w.cell)
}

// runsOf encodes ascending cells as runs; regular samples make one run.
func runsOf(cells []uint32) []Run {
	var runs []Run
	for i, c := range cells {
		if n := len(runs); n > 0 {
			r := &runs[n-1]
			if distance := c - cells[i-1]; r[2] == 1 || r[1] == distance {
				r[1] = distance
				r[2]++
				continue
			}
		}
		runs = append(runs, Run{c, 0, 1})
	}
	return runs
}

// cellsOf decodes runs. None may lie after the last cell or before the window.
func cellsOf(runs []Run, last uint32, s span) ([]uint32, error) {
	var cells []uint32
	for _, r := range runs {
		if r[2] < 1 || r[2] > s.length || uint64(len(cells))+uint64(r[2]) > uint64(s.length)+1 {
			return nil, fmt.Errorf("%d samples do not fit into a window of %d", r[2], s.length)
		}
		for k := range r[2] {
			c := uint64(r[0]) + uint64(k)*uint64(r[1])
			if n := len(cells); c > uint64(last) || n > 0 && uint32(c) <= cells[n-1] {
				return nil, fmt.Errorf("cell %d is after cell %d or out of order", c, last)
			}
			cells = append(cells, uint32(c))
		}
	}
	return cells, nil
}
