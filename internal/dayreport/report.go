package dayreport

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quietcore/quietcore/internal/incidents"
)

// Asked is what a report is to be about, beside the facts.
type Asked struct {
	Node         string
	Mode         string // in force now
	Since, Until time.Time
	// Incidents are those of that time. Listed says that there is a database of them.
	Incidents []incidents.Summary
	Listed    bool
	// Lends says that somebody estimates what can be lent, Counts that it is to be counted who runs where; Uncounted is
	// why it is not, or not in full.
	Lends, Counts bool
	Uncounted     string
	// Limit bounds each list; 0: all.
	Limit int
}

// Report is what a day was like, and what enforcing would have changed. Amounts are in CPUs, on average over the time
// that was looked at.
type Report struct {
	Node  string    `json:"node,omitempty"`
	Mode  string    `json:"mode,omitempty"`
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// LookedMinutes is how much of that time the daemon has seen, EnforcedMinutes for how much of it it enforced.
	LookedMinutes   float64 `json:"lookedMinutes"`
	EnforcedMinutes float64 `json:"enforcedMinutes"`
	// Missing are sentences about what is not known.
	Missing []string `json:"missing,omitempty"`
	CPUs    CPUs     `json:"cpus"`
	// Shared says which pods had cores of a pod that owns CPUs, or would; the longest first.
	Shared []Sharing `json:"shared"`
	// Disturbed are the jobs that were slower than is normal for them; the longest first.
	Disturbed []Disturbed `json:"disturbed"`
	// Idle are the pods that were allocated CPUs which they did not use; the most first.
	Idle []Idle `json:"idle"`
	// Costs are what enforcing costs, and whom.
	Costs []Cost `json:"costs"`
	// More is how many lines the lists were cut by.
	More int `json:"more,omitempty"`
}

// CPUs are the machine's on average. Nil is not known.
type CPUs struct {
	Online     float64  `json:"online"`
	Owned      float64  `json:"owned"` // by pods; in mode observe it is what they would own
	Requested  *float64 `json:"requested,omitempty"`
	Production *float64 `json:"production,omitempty"`
	Batch      *float64 `json:"batch,omitempty"`
	Outside    *float64 `json:"outside,omitempty"`
	Idle       *float64 `json:"idle,omitempty"`     // of those that production was allocated
	Lendable   *float64 `json:"lendable,omitempty"` // what the estimator would lend, or lent
}

// Sharing is a pod that had cores of an owner.
type Sharing struct {
	Pod     string  `json:"pod"`
	With    string  `json:"with"`
	Minutes float64 `json:"minutes"`
	CPUs    float64 `json:"cpus"` // that the other one had of the pod's cores
	// PartedMinutes are those of Minutes in which enforcing would have had the two on cores of their own.
	PartedMinutes float64 `json:"partedMinutes"`
}

// Disturbed is a job that was slower than is normal for it.
type Disturbed struct {
	Job       string   `json:"job"`
	Incidents int      `json:"incidents"`
	Minutes   float64  `json:"minutes"`
	By        []Blamed `json:"by,omitempty"`
}

// Blamed is a job that was blamed for it, or, without a verdict, suspected first.
type Blamed struct {
	Job       string  `json:"job"`
	Incidents int     `json:"incidents"`
	Verdicts  int     `json:"verdicts"` // incidents of these in which it was blamed
	Minutes   float64 `json:"minutes"`
	Capped    float64 `json:"cappedMinutes"`
}

// Idle is a pod that was allocated more than it used.
type Idle struct {
	Pod       string  `json:"pod"`
	Class     string  `json:"class"`
	Owned     float64 `json:"owned"`
	Allocated float64 `json:"allocated"`
	Used      float64 `json:"used"`
	Hours     float64 `json:"idleCPUHours"`
}

// Kinds of Cost.
const (
	CostRefused    = "refused"    // the pod does not start
	CostProduction = "production" // of the shared pool, which is too small
	CostBatch      = "batch"      // gives way
	CostCapped     = "capped"     // antagonists
	CostSuspected  = "suspected"  // tested, and capped where the test finds them guilty
)

// Cost is what enforcing would cost somebody, or did.
type Cost struct {
	Who        string  `json:"who"`
	Kind       string  `json:"kind"`
	Minutes    float64 `json:"minutes"`
	CPUMinutes float64 `json:"cpuMinutes,omitempty"`
	Why        string  `json:"why"`
}

// Of makes the report of facts, which are oldest first. It counts whole parts of hours: those that began within the
// time that is asked for, and the newest.
func Of(facts []Facts, a Asked) *Report {
	r := &Report{Node: a.Node, Mode: a.Mode, Since: a.Since.UTC(), Until: a.Until.UTC()}
	all := sumOf(facts, a.Since, a.Until)
	r.LookedMinutes, r.EnforcedMinutes = minutes(all.Seconds), minutes(all.enforced)
	r.cpus(&all.Facts)
	r.shared(all.Pairs)
	r.idle(all.Pods)
	r.disturbed(a.Incidents)
	r.costs(all, a.Incidents)
	r.missing(all, &a)
	r.Cut(a.Limit)
	return r
}

// sum is facts together.
type sum struct {
	Facts
	enforced float64
}

func sumOf(facts []Facts, since, until time.Time) *sum {
	all := &sum{Facts: Facts{Pods: map[string]*PodFacts{}, Pairs: map[string]*PairFacts{},
		Refused: map[string]*RefusedFor{}}}
	for i := range facts {
		f := &facts[i]
		if f.From.Before(since) && i < len(facts)-1 || f.From.After(until) {
			continue
		}
		all.add(f)
	}
	return all
}

func (s *sum) add(f *Facts) {
	if f.Enforced {
		s.enforced += f.Seconds
	}
	s.Seconds += f.Seconds
	s.Known += f.Known
	s.Lending += f.Lending
	s.Online += f.Online
	s.Owned += f.Owned
	s.Lendable += f.Lendable
	s.Counted += f.Counted
	s.Left += f.Left
	s.Use.Requested += f.Use.Requested
	s.Use.Production += f.Use.Production
	s.Use.Batch += f.Use.Batch
	s.Use.Outside += f.Use.Outside
	s.Use.Idle += f.Use.Idle
	if !f.Enforced { // else what does not fit is not used
		s.Tight.ProductionSeconds += f.Tight.ProductionSeconds
		s.Tight.Production += f.Tight.Production
		s.Tight.BatchSeconds += f.Tight.BatchSeconds
		s.Tight.Batch += f.Tight.Batch
	}
	for key, p := range f.Pods {
		to := in(s.Pods, key)
		to.Pod = p.Pod
		to.Seconds += p.Seconds
		to.Owned += p.Owned
		to.Allocated += p.Allocated
		to.Used += p.Used
		to.Idle += p.Idle
	}
	for key, p := range f.Pairs {
		to := in(s.Pairs, key)
		to.Owner, to.Other = p.Owner, p.Other
		to.Seconds += p.Seconds
		to.Parts += p.Parts
		to.CPUs += p.CPUs
	}
	for key, r := range f.Refused {
		to := in(s.Facts.Refused, key)
		to.Refused = r.Refused
		to.Seconds += r.Seconds
	}
}

func in[T any](m map[string]*T, key string) *T {
	if m[key] == nil {
		m[key] = new(T)
	}
	return m[key]
}

func minutes(seconds float64) float64 { return seconds / 60 }

// mean is nil where nothing is known.
func mean(total, seconds float64) *float64 {
	if seconds == 0 {
		return nil
	}
	v := total / seconds
	return &v
}

func (r *Report) cpus(f *Facts) {
	c := &r.CPUs
	if f.Seconds > 0 {
		c.Online, c.Owned = f.Online/f.Seconds, f.Owned/f.Seconds
	}
	c.Requested, c.Production = mean(f.Use.Requested, f.Known), mean(f.Use.Production, f.Known)
	c.Batch, c.Outside = mean(f.Use.Batch, f.Known), mean(f.Use.Outside, f.Known)
	c.Idle, c.Lendable = mean(f.Use.Idle, f.Known), mean(f.Lendable, f.Lending)
}

func (r *Report) shared(pairs map[string]*PairFacts) {
	r.Shared = []Sharing{}
	for _, p := range pairs {
		r.Shared = append(r.Shared, Sharing{Pod: p.Owner.String(), With: p.Other.String(), Minutes: minutes(p.Seconds),
			CPUs: p.CPUs / max(p.Seconds, 1), PartedMinutes: minutes(p.Parts)})
	}
	slices.SortFunc(r.Shared, func(a, b Sharing) int {
		return cmp.Or(cmp.Compare(b.PartedMinutes, a.PartedMinutes), cmp.Compare(b.Minutes, a.Minutes),
			cmp.Compare(b.CPUs, a.CPUs), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.With, b.With))
	})
}

// leastIdle is how many CPU-hours somebody has to have left idle to be named.
const leastIdle = 0.01

func (r *Report) idle(pods map[string]*PodFacts) {
	r.Idle = []Idle{}
	for _, p := range pods {
		hours := p.Idle / time.Hour.Seconds()
		if p.Seconds == 0 || hours < leastIdle {
			continue
		}
		r.Idle = append(r.Idle, Idle{Pod: p.String(), Class: p.Class, Owned: p.Owned / p.Seconds,
			Allocated: p.Allocated / p.Seconds, Used: p.Used / p.Seconds, Hours: hours})
	}
	slices.SortFunc(r.Idle, func(a, b Idle) int {
		return cmp.Or(cmp.Compare(b.Hours, a.Hours), cmp.Compare(a.Pod, b.Pod))
	})
}

// disturbed sums incidents by the victim's job, and within it by who was blamed. Where several were, each has all of
// the minutes.
func (r *Report) disturbed(list []incidents.Summary) {
	r.Disturbed = []Disturbed{}
	by := map[string]*Disturbed{}
	for i := range list {
		one := &list[i]
		d := in(by, one.Victim.JobName())
		d.Job = one.Victim.JobName()
		d.Incidents++
		d.Minutes += minutes(one.DisturbedSeconds)
		for _, b := range blamed(one) {
			d.blame(&b)
		}
	}
	for _, d := range by {
		d.sort()
		r.Disturbed = append(r.Disturbed, *d)
	}
	r.sortDisturbed()
}

func (r *Report) sortDisturbed() {
	slices.SortFunc(r.Disturbed, func(a, b Disturbed) int {
		return cmp.Or(cmp.Compare(b.Minutes, a.Minutes), cmp.Compare(b.Incidents, a.Incidents),
			cmp.Compare(a.Job, b.Job))
	})
}

// blame adds what is said of a job that disturbs this one.
func (d *Disturbed) blame(b *Blamed) {
	at := slices.IndexFunc(d.By, func(o Blamed) bool { return o.Job == b.Job })
	if at < 0 {
		d.By = append(d.By, Blamed{Job: b.Job})
		at = len(d.By) - 1
	}
	d.By[at].add(b)
}

func (d *Disturbed) sort() {
	slices.SortFunc(d.By, func(a, b Blamed) int {
		return cmp.Or(cmp.Compare(b.Minutes, a.Minutes), cmp.Compare(b.Incidents, a.Incidents),
			cmp.Compare(a.Job, b.Job))
	})
}

// blamed are the jobs that an incident is about beside the victim's: its antagonists, or who was suspected first.
func blamed(i *incidents.Summary) []Blamed {
	var list []Blamed
	for _, a := range i.Antagonists {
		one := Blamed{Job: a.JobName(), Incidents: 1, Verdicts: 1, Minutes: minutes(i.DisturbedSeconds),
			Capped: minutes(a.CappedSeconds)}
		if at := slices.IndexFunc(list, func(o Blamed) bool { return o.Job == one.Job }); at >= 0 {
			list[at].Capped += one.Capped // another container of it
			continue
		}
		list = append(list, one)
	}
	if len(list) == 0 && i.Suspect != "" {
		list = append(list, Blamed{Job: i.Suspect, Incidents: 1, Minutes: minutes(i.DisturbedSeconds)})
	}
	return list
}

func (b *Blamed) add(o *Blamed) {
	b.Incidents += o.Incidents
	b.Verdicts += o.Verdicts
	b.Minutes += o.Minutes
	b.Capped += o.Capped
}

func (r *Report) costs(all *sum, list []incidents.Summary) {
	r.Costs = []Cost{}
	would := "would be"
	if all.enforced > 0 && all.enforced == all.Seconds {
		would = "is"
	}
	for _, one := range all.Facts.Refused {
		r.Costs = append(r.Costs, Cost{Who: one.String(), Kind: CostRefused, Minutes: minutes(one.Seconds),
			Why: would + " refused as " + one.Code + ": " + one.Message})
	}
	if t := &all.Tight; t.ProductionSeconds > 0 {
		r.Costs = append(r.Costs, Cost{Who: "production without CPUs of its own", Kind: CostProduction,
			Minutes: minutes(t.ProductionSeconds), CPUMinutes: minutes(t.Production),
			Why: "it used more CPUs than the shared pool would have had"})
	}
	if t := &all.Tight; t.BatchSeconds > 0 {
		r.Costs = append(r.Costs, Cost{Who: "best effort", Kind: CostBatch, Minutes: minutes(t.BatchSeconds),
			CPUMinutes: minutes(t.Batch), Why: "it used more CPUs than others would have left to it"})
	}
	r.Costs = append(r.Costs, throttled(list)...)
	order := []string{CostRefused, CostProduction, CostBatch, CostCapped, CostSuspected}
	slices.SortFunc(r.Costs, func(a, b Cost) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind)),
			cmp.Compare(b.Minutes, a.Minutes), cmp.Compare(a.Who, b.Who))
	})
}

// throttled is what is done to who disturbs others, and to who is suspected of it.
func throttled(list []incidents.Summary) []Cost {
	blames := map[string]*Blamed{}
	for i := range list {
		for _, b := range blamed(&list[i]) {
			to := in(blames, b.Job)
			to.Job = b.Job
			to.add(&b)
		}
	}
	var costs []Cost
	for _, b := range blames {
		c := Cost{Who: b.Job, Kind: CostSuspected, Minutes: b.Minutes,
			Why: fmt.Sprintf("suspected first in %d incidents: with cpi.mode enforce it is tested in single windows, "+
				"and capped where that helps", b.Incidents)}
		if b.Verdicts > 0 {
			c.Kind, c.Why = CostCapped, fmt.Sprintf("blamed in %d incidents: with cpi.mode enforce it is capped",
				b.Verdicts)
		}
		if b.Capped > 0 {
			c.Minutes, c.Why = b.Capped, fmt.Sprintf("capped, for %d incidents", b.Verdicts)
		}
		costs = append(costs, c)
	}
	return costs
}

// missing says what is not known.
func (r *Report) missing(all *sum, a *Asked) {
	add := func(format string, args ...any) { r.Missing = append(r.Missing, fmt.Sprintf(format, args...)) }
	asked := a.Until.Sub(a.Since)
	if all.Seconds < 0.9*asked.Seconds() {
		add("the daemon has seen %s of the %s asked for", spell(all.Seconds), spell(asked.Seconds()))
	}
	if all.Seconds > 0 && all.Known < 0.9*all.Seconds {
		add("what pods use was measured for %s", spell(all.Known))
	}
	switch {
	case !a.Counts:
		add("who shares cores is not counted: cpi.mode is off")
	case all.Counted < 0.9*all.Seconds && a.Uncounted != "":
		add("who shares cores was counted for %s: %s", spell(all.Counted), a.Uncounted)
	case all.Counted < 0.9*all.Seconds:
		add("who shares cores was counted for %s", spell(all.Counted))
	}
	if !a.Listed {
		add("no incidents are kept; with cpi.mode observe or enforce they are")
	}
	if n := untimed(a.Incidents); n > 0 {
		add("%d incidents are of an earlier version, and say not for how long", n)
	}
	if !a.Lends {
		add("what could be lent is not estimated; with reclaim.mode observe it is")
	}
	if all.Left > 0 {
		add("%d entries of short-lived pods are left out", all.Left)
	}
}

// untimed counts the incidents that say not for how long somebody was disturbed.
func untimed(list []incidents.Summary) (n int) {
	for i := range list {
		if list[i].DisturbedSeconds == 0 {
			n++
		}
	}
	return n
}

// spell is a duration in hours and minutes.
func spell(seconds float64) string {
	d := (time.Duration(seconds * float64(time.Second))).Round(time.Minute)
	if d < time.Minute {
		return "less than a minute"
	}
	return strings.TrimSuffix(d.String(), "0s")
}

// Cut leaves of each list so many; 0: all.
func (r *Report) Cut(limit int) {
	if limit <= 0 {
		return
	}
	r.Shared = first(r.Shared, limit, &r.More)
	r.Disturbed = first(r.Disturbed, limit, &r.More)
	r.Idle = first(r.Idle, limit, &r.More)
	r.Costs = first(r.Costs, limit, &r.More)
}

func first[T any](list []T, limit int, more *int) []T {
	if len(list) <= limit {
		return list
	}
	*more += len(list) - limit
	return list[:limit]
}

// Join adds the disturbed jobs and the costs of another node, which are the longest first again.
func (r *Report) Join(o *Report) {
	for i := range o.Disturbed {
		d := &o.Disturbed[i]
		at := slices.IndexFunc(r.Disturbed, func(has Disturbed) bool { return has.Job == d.Job })
		if at < 0 {
			r.Disturbed = append(r.Disturbed, Disturbed{Job: d.Job})
			at = len(r.Disturbed) - 1
		}
		to := &r.Disturbed[at]
		to.Incidents += d.Incidents
		to.Minutes += d.Minutes
		for k := range d.By {
			to.blame(&d.By[k])
		}
		to.sort()
	}
	r.Costs = append(r.Costs, o.Costs...)
	r.sortDisturbed()
}

// Totals are what a line says of a report, and what those of several nodes add up to.
type Totals struct {
	Sharing   int     // owners that shared cores with pods from which enforcing parts them
	Incidents int     // of disturbed jobs
	Minutes   float64 // that these were disturbed
	Refused   int     // pods that do not start, or would not
}

// Totals sums the lists, so it is for reports that were not cut.
func (r *Report) Totals() (t Totals) {
	owners := map[string]bool{}
	for i := range r.Shared {
		if r.Shared[i].PartedMinutes > 0 {
			owners[r.Shared[i].Pod] = true
		}
	}
	t.Sharing = len(owners)
	for i := range r.Disturbed {
		t.Incidents += r.Disturbed[i].Incidents
		t.Minutes += r.Disturbed[i].Minutes
	}
	for i := range r.Costs {
		if r.Costs[i].Kind == CostRefused {
			t.Refused++
		}
	}
	return t
}

// Line is the report in one line. It is for one that was not cut.
func (r *Report) Line() string {
	t := r.Totals()
	text := fmt.Sprintf("in %s: %d incidents, %.0f minutes disturbed", spell(r.LookedMinutes*60), t.Incidents,
		t.Minutes)
	if t.Sharing > 0 {
		text += fmt.Sprintf("; %d owners shared cores that enforcing keeps for them", t.Sharing)
	}
	if idle := r.CPUs.Idle; idle != nil {
		text += fmt.Sprintf("; %.1f allocated CPUs idle", *idle)
	}
	if lend := r.CPUs.Lendable; lend != nil {
		text += fmt.Sprintf(", %.1f to lend", *lend)
	}
	if t.Refused > 0 {
		text += fmt.Sprintf("; %d pods refused", t.Refused)
	}
	return text
}
