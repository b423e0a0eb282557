package daemon

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/sampler"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/dayreport"
	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/page"
	"github.com/quietcore/quietcore/internal/state"
	cgroupusage "github.com/quietcore/quietcore/internal/usage"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/reclaim"
	"github.com/quietcore/quietcore/topology"
)

// seen is a node as the report sees it; *plugin.Plugin is one.
type seen interface {
	Synchronised() bool
	Snapshot() *policy.Snapshot
	Pods(context.Context) ([]policy.PodView, error)
	Refused() []policy.RefusedPod
}

// dayOptions say where the facts of a day come from.
type dayOptions struct {
	node      seen
	config    func() *config.Config // in force
	usage     func(cgroups map[string]string) []cgroupusage.Reading
	lending   func() *page.Lending // nil, or a nil result: nothing is estimated
	counts    func() string        // why it is not counted who runs where
	incidents *incidents.Store
	file      string
	log       *slog.Logger
}

// day keeps what `quietcore report` is made of.
type day struct {
	o      dayOptions
	facts  *dayreport.Day
	line   atomic.Pointer[string] // the last day in one line; nil: not yet
	window time.Time              // the end of the last one that was taken; the sampler's alone
	// The rest is Run's alone.
	meters map[string]*reclaim.Meter // by cgroup
	saved  time.Time
}

const (
	lookAtDay = time.Minute
	saveDay   = 10 * time.Minute
	lastDay   = 24 * time.Hour
	// wholeNode is the cgroup of everything.
	wholeNode = "/"
)

// dayFile is where the facts are kept: as incidents, in mode observe not among the node's own.
func dayFile(cfg *config.Config) string {
	if cfg.Mode == config.Observe {
		return filepath.Join(filepath.Dir(cfg.Socket), state.DayFile)
	}
	return filepath.Join(cfg.State.Dir, state.DayFile)
}

func newDay(o dayOptions) *day {
	d := &day{o: o, facts: dayreport.NewDay(), meters: map[string]*reclaim.Meter{}}
	text, err := state.ReadFile(o.file, dayreport.MaxBytes)
	if err == nil {
		var found *dayreport.Day
		if found, err = dayreport.Decode(text); err == nil {
			d.facts = found
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		o.log.Warn("what was seen of the last day is not used; the report begins anew", "file", o.file, "err", err)
	}
	return d
}

func (d *day) Health() map[string]string { return nil }

// Run looks every minute until ctx ends.
func (d *day) Run(ctx context.Context) {
	tick := time.NewTicker(lookAtDay)
	defer tick.Stop()
	d.saved = time.Now()
	defer d.save()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			d.minute(ctx, time.Now())
		}
	}
}

func (d *day) minute(ctx context.Context, now time.Time) {
	d.look(ctx, now)
	if r, err := d.report(ctx, now.Add(-lastDay), now, 0); err == nil {
		line := r.Line()
		d.line.Store(&line)
	}
	if now.Sub(d.saved) >= saveDay {
		d.saved = now
		d.save()
	}
}

func (d *day) save() {
	text, err := d.facts.Encode()
	if err == nil {
		err = state.WriteFile(d.o.file, text)
	}
	if err != nil {
		d.o.log.Warn("what was seen of the day cannot be kept; a restart would lose it", "file", d.o.file, "err", err)
	}
}

// look takes how the node is now.
func (d *day) look(ctx context.Context, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, lookAtDay/2)
	defer cancel()
	if !d.o.node.Synchronised() {
		return // what runs is not known
	}
	pods, err := d.o.node.Pods(ctx)
	if err != nil {
		return // it is busy; the next look is soon
	}
	view := d.o.node.Snapshot()
	l := lookOf(view, pods)
	l.At, l.Enforced = now, d.o.config().Mode == config.Enforce
	d.measure(l, pods)
	if d.o.lending != nil {
		if n := d.o.lending(); n != nil && n.Offered {
			l.Lendable = &n.Offer
		}
	}
	for _, r := range d.o.node.Refused() {
		l.Refused = append(l.Refused, dayreport.Refused{Pod: dayreport.Pod{Namespace: r.Namespace, Name: r.Pod},
			Code: string(r.Code), Message: r.Message})
	}
	d.facts.Look(l)
}

// lookOf is what is decided, without what is used.
func lookOf(view *policy.Snapshot, pods []policy.PodView) *dayreport.Look {
	own := map[string]cpuset.Set{}
	for _, o := range view.Owners {
		own[o.PodUID] = own[o.PodUID].Or(o.CPUs)
	}
	online := view.Topology.Online()
	l := &dayreport.Look{Online: float64(online.Count()), Shared: float64(view.Shared.Count()),
		Open: float64(view.Shared.Or(view.BEWhole).Count())}
	for i := range pods {
		p := &pods[i]
		one := dayreport.PodLook{Pod: podOfDay(p.Namespace, p.Name, string(p.Class)),
			Requests: float64(p.RequestMilli) / 1000}
		if cpus, is := own[p.UID]; is {
			one.Owns, one.Apart = float64(cpus.Count()), !cpus.Intersects(&view.BEWhole)
		}
		l.Pods = append(l.Pods, one)
	}
	return l
}

func podOfDay(namespace, name, class string) dayreport.Pod {
	return dayreport.Pod{Namespace: namespace, Name: name, Class: class}
}

// measure says what pods have used since the last look. A pod of which there is no earlier reading counts as nothing.
func (d *day) measure(l *dayreport.Look, pods []policy.PodView) {
	cgroups := map[string]string{wholeNode: wholeNode}
	for i := range pods {
		if at := pods[i].Cgroup; at != "" {
			cgroups[pods[i].UID] = at
		}
	}
	used := map[string]float64{}
	was := d.meters
	d.meters = make(map[string]*reclaim.Meter, len(cgroups))
	for _, r := range d.o.usage(cgroups) {
		m := was[r.ID]
		if m == nil {
			m = &reclaim.Meter{}
		}
		d.meters[r.ID] = m
		if cpus, _, ok := m.Use(r.At, r.CPU); ok {
			used[r.ID] = cpus
		}
	}
	l.Outside, l.Known = used[wholeNode], false
	if _, l.Known = used[wholeNode]; !l.Known {
		return
	}
	for i := range pods {
		l.Pods[i].Used = used[pods[i].UID]
		l.Outside -= l.Pods[i].Used
	}
	l.Outside = max(l.Outside, 0)
}

// take takes a window of counting: who ran on whose cores. It must not block.
func (d *day) take(w *sampler.Window) {
	if w.Failed != nil || w.Between || w.ByCPU == nil || w.Topology == nil {
		return
	}
	interval := time.Duration(d.o.config().CPI.Interval)
	span := w.End.Sub(d.window)
	if d.window.IsZero() || span <= 0 || span > 2*interval {
		span = interval
	}
	d.window = w.End
	d.facts.Share(w.End, span, d.o.config().Mode == config.Enforce, pairsOf(w, d.o.node.Snapshot()))
}

// inWindow is a pod, and where its containers may run by what is decided.
type inWindow struct {
	dayreport.Pod
	cpus cpuset.Set
}

// pairsOf are the owners of a snapshot with those that had some of their cores.
func pairsOf(w *sampler.Window, view *policy.Snapshot) (pairs []dayreport.Pair) {
	pods, uidOf := map[string]*inWindow{}, map[string]string{}
	for i := range w.Containers {
		c := w.Containers[i].Container
		if c.Class == cpi.Host || c.PodUID == "" {
			continue
		}
		uidOf[c.ID] = c.PodUID
		p := pods[c.PodUID]
		if p == nil {
			p = &inWindow{Pod: podOfDay(c.Namespace, c.Pod, c.PodClass)}
			pods[c.PodUID] = p
		}
		if c.Place.CPUs != nil {
			p.cpus.AddSet(c.Place.CPUs)
		}
	}
	own := map[string]cpuset.Set{}
	for _, o := range view.Owners {
		own[o.PodUID] = own[o.PodUID].Or(o.CPUs)
	}
	cores := coresOf(w.Topology)
	for uid, cpus := range own {
		owner := pods[uid]
		if owner == nil {
			continue
		}
		near := w.Topology.Siblings(cpus)
		for other, had := range w.ByCPU.OnCores(cores, func(id string) string { return uidOf[id] }, uid) {
			p := pods[other]
			pairs = append(pairs, dayreport.Pair{Owner: owner.Pod, Other: p.Pod, CPUs: had,
				Parts: !p.cpus.IsEmpty() && !near.Intersects(&p.cpus)})
		}
	}
	return pairs
}

// coresOf is the core of each CPU.
func coresOf(t *topology.Topology) []int32 {
	var list []int32
	for _, c := range t.CPUs() {
		for len(list) <= c.ID {
			list = append(list, -1)
		}
		list[c.ID] = int32(t.CoreOf(c.ID))
	}
	return list
}

// maxReported bounds the incidents that a report is made of; the newest are taken.
const maxReported = 10_000

// report is that of a time.
func (d *day) report(ctx context.Context, since, until time.Time, limit int) (*dayreport.Report, error) {
	cfg := d.o.config()
	a := dayreport.Asked{Node: cfg.NodeName(), Mode: string(cfg.Mode), Since: since, Until: until, Limit: limit,
		Lends:  d.o.lending != nil && d.o.lending() != nil && cfg.Reclaim.Mode != config.SwitchOff,
		Counts: cfg.CPI.Mode != config.CPIOff}
	if a.Counts {
		a.Uncounted = d.o.counts()
	}
	if a.Counts {
		list, err := d.o.incidents.List(ctx, incidents.Filter{Since: since, Until: until, Limit: maxReported})
		var none *incidents.UnavailableError
		switch {
		case err == nil:
			a.Incidents, a.Listed = list.Incidents, true
		case !errors.As(err, &none):
			return nil, err
		}
	}
	return dayreport.Of(d.facts.Facts(), a), nil
}

// last is the report of the last day, for the page.
func (d *day) last(ctx context.Context) (*dayreport.Report, error) {
	now := time.Now()
	return d.report(ctx, now.Add(-lastDay), now, page.ReportLines)
}

// reports is what people ask of it.
func (d *day) reports() control.Reports {
	return control.Reports{Of: d.report, Line: func() string {
		if line := d.line.Load(); line != nil {
			return *line
		}
		return ""
	}}
}
