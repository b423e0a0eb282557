package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"image/color"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
	"github.com/quietcore/quietcore/e2e/wire"
)

// point is one look at the node: what the pods have used since the look before, in
// CPUs, how many CPUs best effort has, and what the Node says.
type point struct {
	At          float64 // seconds since the guest's boot
	Shop, Batch float64
	Pool        int
	Node        int64 // thousandths of a CPU; -1: nothing, unknown: not looked at
}

const unknown = -2

// counted are the counters at one look.
type counted struct {
	at          float64
	shop, batch uint64 // microseconds
}

// recorder looks until it is stopped.
type recorder struct {
	l     *lent
	shop  string
	be    string
	ended chan struct{}
	stop  context.CancelFunc

	mu     sync.Mutex // guards what follows
	points []point
	err    error
}

// lookEvery is less than a tenth of the time in which best effort has to have given
// way; every fifth look asks the API server too.
const (
	lookEvery = 150 * time.Millisecond
	askEvery  = 5
)

func (l *lent) record(ctx context.Context) *recorder {
	ctx, cancel := context.WithCancel(ctx)
	r := &recorder{l: l, shop: l.dir(l.shop), be: path.Dir(path.Dir(l.dir(l.batch["busy-old"]))),
		ended: make(chan struct{})}
	r.stop = func() { cancel(); <-r.ended }
	go func() {
		defer close(r.ended)
		r.run(ctx)
	}()
	return r
}

func (r *recorder) run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var before counted
	for i := 0; ; i++ {
		now, pool, err := r.look(ctx)
		p := point{Pool: pool, Node: unknown}
		if err == nil && i%askEvery == 0 {
			p.Node, err = r.l.published(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		r.mu.Lock()
		// a look that fails once is a hole in the plot, and waited for no longer than for what it should show
		r.err = err
		if err == nil && before.at > 0 && now.at > before.at {
			p.At, p.Shop, p.Batch = now.at, rate(before.shop, now.shop, now.at-before.at), rate(before.batch,
				now.batch, now.at-before.at)
			r.points = append(r.points, p)
		}
		r.mu.Unlock()
		if err == nil {
			before = now
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func rate(from, to uint64, span float64) float64 {
	if to < from {
		return 0 // made anew
	}
	return float64(to-from) / 1e6 / span
}

func (r *recorder) look(ctx context.Context) (counted, int, error) {
	files, err := r.l.node.Files(ctx, wire.FileAction{Do: wire.FileRead, Path: "/proc/uptime"},
		wire.FileAction{Do: wire.FileRead, Path: r.shop + "/cpu.stat"},
		wire.FileAction{Do: wire.FileRead, Path: r.be + "/cpu.stat"},
		wire.FileAction{Do: wire.FileRead, Path: r.be + "/cpuset.cpus.effective"})
	if err != nil {
		return counted{}, 0, err
	}
	return lookOf(string(files[0].Data), string(files[1].Data), string(files[2].Data), string(files[3].Data))
}

// lookOf reads what the guest's files say.
func lookOf(uptime, shop, batch, cpus string) (counted, int, error) {
	var c counted
	var errs [4]error
	c.at, errs[0] = uptimeOf(uptime)
	c.shop, errs[1] = usedOf(shop)
	c.batch, errs[2] = usedOf(batch)
	set, err := cpuset.Parse(strings.TrimSpace(cpus))
	errs[3] = err
	return c, set.Count(), errors.Join(errs[:]...)
}

func uptimeOf(text string) (float64, error) {
	first, _, _ := strings.Cut(text, " ")
	at, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0, fmt.Errorf("/proc/uptime is %q: %w", text, err)
	}
	return at, nil
}

func usedOf(stat string) (uint64, error) {
	for line := range strings.Lines(stat) {
		if value, ok := strings.CutPrefix(line, "usage_usec "); ok {
			return strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("cpu.stat without usage_usec: %q", stat)
}

// workOf reads counters in seconds.
func workOf(uptime, stat, pressure string) (work, error) {
	at, err := uptimeOf(uptime)
	if err != nil {
		return work{}, err
	}
	used, err := usedOf(stat)
	if err != nil {
		return work{}, err
	}
	line, _, _ := strings.Cut(pressure, "\n")
	_, total, ok := strings.Cut(line, " total=")
	waited, err := strconv.ParseUint(total, 10, 64)
	if err != nil || !ok || !strings.HasPrefix(line, "some ") {
		return work{}, fmt.Errorf("cpu.pressure is %q", pressure)
	}
	return work{used: float64(used) / 1e6, waited: float64(waited) / 1e6, span: at}, nil
}

// milliOf is the Node's amount; -1: it has none.
func milliOf(allocatable map[string]string) (int64, error) {
	text, there := allocatable[batchCPU]
	if !there {
		return -1, nil
	}
	factor := int64(1)
	if whole, ok := strings.CutSuffix(text, "k"); ok {
		text, factor = whole, 1000
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the Node's %s is %q: %w", batchCPU, text, err)
	}
	return n * factor, nil
}

func (r *recorder) all() []point {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.points[:len(r.points):len(r.points)]
}

func (r *recorder) last() point {
	all := r.all()
	if len(all) == 0 {
		return point{}
	}
	return all[len(all)-1]
}

// until waits for the latest point to be as wanted.
func (r *recorder) until(ctx context.Context, limit time.Duration, what string,
	wanted func(point) bool) (point, error) {
	var last point
	err := cluster.Until(ctx, limit, func(context.Context) error {
		last = r.last()
		if last.At > 0 && wanted(last) {
			return nil
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		return errors.Join(fmt.Errorf("%s: not so at the last look: %+v", what, last), r.err)
	})
	return last, err
}

// begins is the least use that shows that production's load has begun; what a pod that
// sleeps uses is far below.
const begins = 0.5

// gaveWay is the time from the last look at which production did not use CPUs yet to
// the first at which best effort has so few, and when that was.
func gaveWay(points []point, after float64, most int) (took time.Duration, at float64, err error) {
	began := 0.0
	for i, p := range points {
		if p.At <= after || i == 0 {
			continue
		}
		if began == 0 && p.Shop >= begins {
			if points[i-1].Pool <= most {
				return 0, 0, fmt.Errorf("best effort had %d CPUs before production's step: this shows nothing",
					points[i-1].Pool)
			}
			began = points[i-1].At
		}
		if began > 0 && p.Pool <= most {
			return time.Duration((p.At - began) * float64(time.Second)), p.At, nil
		}
	}
	if began == 0 {
		return 0, 0, errors.New("production has not used anything")
	}
	return 0, 0, fmt.Errorf("best effort never had as few as %d CPUs", most)
}

// neverAbove demands that best effort had no more from a moment on while production was
// at its peak.
func neverAbove(points []point, from float64, most int) error {
	seen := 0
	for _, p := range points {
		if p.At < from || p.Shop < begins {
			continue
		}
		seen++
		if p.Pool > most {
			return fmt.Errorf(
				"%.1f s after the beginning best effort has %d CPUs next to production's %.2f, %d at most are due",
				p.At, p.Pool, p.Shop, most)
		}
	}
	if seen < 10 {
		return fmt.Errorf("only %d looks at production's peak", seen)
	}
	return nil
}

// leastNode is the least that the Node said from a moment on, and how often it was
// looked at.
func leastNode(points []point, from float64) (least int64, seen int) {
	for _, p := range points {
		if p.At < from || p.Node == unknown {
			continue
		}
		if seen == 0 || p.Node < least {
			least = p.Node
		}
		seen++
	}
	return least, seen
}

// write makes a table and a plot of what was seen.
func (r *recorder) write(dir string) ([]string, error) {
	points := r.all()
	if len(points) == 0 {
		return nil, errors.New("nothing was recorded")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	table, drawn := filepath.Join(dir, "lending.csv"), filepath.Join(dir, "lending.svg")
	if err := os.WriteFile(table, csvOf(points), 0o644); err != nil {
		return nil, err
	}
	text, err := svgOf(points)
	if err != nil {
		return nil, err
	}
	return []string{table, drawn}, os.WriteFile(drawn, text, 0o644)
}

func csvOf(points []point) []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	_ = w.Write([]string{"seconds", "production", "batch", "pool", "node"}) // into memory
	for _, p := range points {
		node := ""
		if p.Node != unknown {
			node = fmt.Sprint(p.Node)
		}
		_ = w.Write([]string{fmt.Sprintf("%.2f", p.At-points[0].At), fmt.Sprintf("%.3f", p.Shop),
			fmt.Sprintf("%.3f", p.Batch), fmt.Sprint(p.Pool), node})
	}
	w.Flush()
	return b.Bytes()
}

// wholeTicks are a plot's ticks without decimals.
type wholeTicks struct{ plot.DefaultTicks }

func (w wholeTicks) Ticks(least, most float64) []plot.Tick {
	ticks := w.DefaultTicks.Ticks(least, most)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = fmt.Sprintf("%.0f", ticks[i].Value)
		}
	}
	return ticks
}

// smooth makes each use the mean of the second before: between two looks an emulated
// CPU that its host had stopped seems to do the work of many.
func smooth(points []point) []point {
	out := slices.Clone(points)
	from := 0
	var shop, batch, span float64
	for i := 1; i < len(points); i++ {
		dt := points[i].At - points[i-1].At
		shop, batch, span = shop+points[i].Shop*dt, batch+points[i].Batch*dt, span+dt
		for span > 1 && from+1 < i {
			from++
			dt := points[from].At - points[from-1].At
			shop, batch, span = shop-points[from].Shop*dt, batch-points[from].Batch*dt, span-dt
		}
		if span > 0 {
			out[i].Shop, out[i].Batch = max(shop/span, 0), max(batch/span, 0)
		}
	}
	return out
}

// svgOf draws it, in colours that people with any sight tell apart, after Okabe and Ito.
func svgOf(points []point) ([]byte, error) {
	points = smooth(points)
	p := plot.New()
	p.BackgroundColor = color.White
	p.X.Label.Text, p.Y.Label.Text, p.Y.Min = "seconds", "CPUs, use over a second", 0
	p.X.Tick.Marker, p.Y.Tick.Marker = wholeTicks{}, wholeTicks{}
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Millimeter
	for _, line := range []struct {
		name   string
		colour color.Color
		value  func(point) (float64, bool)
	}{
		{"production's use", color.RGBA{R: 213, G: 94, A: 255}, func(p point) (float64, bool) { return p.Shop, true }},
		{"batch pods' use", color.RGBA{G: 114, B: 178, A: 255}, func(p point) (float64, bool) { return p.Batch, true }},
		{"best-effort pool", color.RGBA{G: 158, B: 115, A: 255}, func(p point) (float64, bool) {
			return float64(p.Pool), true
		}},
		{batchCPU + " of the Node", color.RGBA{R: 230, G: 159, A: 255}, func(p point) (float64, bool) {
			return float64(max(p.Node, 0)) / 1000, p.Node != unknown
		}},
	} {
		var xy plotter.XYs
		for _, one := range points {
			if y, ok := line.value(one); ok {
				xy = append(xy, plotter.XY{X: one.At - points[0].At, Y: y})
			}
		}
		if len(xy) == 0 {
			continue
		}
		l, err := plotter.NewLine(xy)
		if err != nil {
			return nil, err
		}
		l.Color, l.StepStyle = line.colour, plotter.PreStep
		p.Add(l)
		p.Legend.Add(line.name, l)
	}
	// Room for the legend above the machine's CPUs; what lies beyond is cut.
	p.Y.Max = 1.6 * float64(grid.CPUs())
	canvas := vgsvg.New(28*vg.Centimeter, 11*vg.Centimeter)
	p.Draw(draw.Crop(draw.New(canvas), 10, -10, 5, -10))
	var text bytes.Buffer
	_, err := canvas.WriteTo(&text)
	return text.Bytes(), err
}
