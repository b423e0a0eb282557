package experiment

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpi"
)

// Trial is a coin to be thrown for the window to come. Pair is the test that pays for
// it; all tests of the suspect share the coin.
type Trial struct {
	Pair   PairKey
	Window int64
	P      float64 // that the suspect is throttled
}

// Thrown is a trial's coin.
type Thrown struct {
	Trial
	On bool
}

func (c *container) exempt() bool {
	able, _ := c.MayBeCapped()
	return !able
}

// depth is what a throttle leaves of a container: 7 % of what its job uses when
// it is busy, and no less than its class keeps. So a job that idles is not active, and
// who is tested still moves. A verdict leaves half as much with each term that it has survived:
// who does later what it was kept from does it at that pace all the time.
func (d *Detector) depth(c *container) int64 {
	milli := d.cfg.CapBatchMilli
	if c.Class == cpi.BE {
		milli = d.cfg.CapBEMilli
	}
	if n := len(c.suspect.refs); n > 0 {
		milli = max(milli, int64(1000*c.suspect.leaves()*c.suspect.peak)/int64(n))
	}
	if c.LimitMilli > 0 {
		milli = min(milli, c.LimitMilli)
	}
	if milli > percent {
		milli -= milli % percent
	}
	return milli
}

// leaves is the share of a busy job's usage that a throttle leaves it.
func (s *suspect) leaves() float64 {
	if s.lead == nil || s.lead.stage != Verdict {
		return depthShare
	}
	return math.Ldexp(depthShare, -s.lead.term)
}

const (
	depthShare = 0.07
	// percent of a CPU, in thousandths: systemd keeps a quota in whole ones, and changes another at a daemon-reload.
	percent = 10
)

// analysisPerWindow bounds how many victims' suspects are ranked in a window; the others
// wait.
const analysisPerWindow = 3

// analyse ranks the suspects of the victims in an anomaly.
func (d *Detector) analyse() {
	list := d.work.anomalous
	n := min(len(list), analysisPerWindow)
	for _, ref := range list[:n] {
		c := d.slotOf(ref)
		if c == nil || c.victim == nil {
			continue
		}
		c.victim.queued = false
		d.counts.Analyses++
		ranked := d.rank(c)
		why := d.propose(ref, c, ranked)
		j, l := &c.victim.latest, &c.victim.job.history.line
		d.emit(Event{Kind: AnalysisEvent, Victim: c.Container, CPI: j.cpi, Threshold: j.threshold, Suspects: ranked,
			Normal: Normal{j.threshold / math.Exp(l.Thr), l.SD, l.N}, Why: why})
	}
	d.work.anomalous = slices.Delete(list, 0, n)
}

// rank the suspects of a victim, most suspicious first.
func (d *Detector) rank(c *container) []Suspect {
	w := &d.work.prior
	w.prepare(c.victim)
	from := len(d.work.ranked)
	for _, s := range d.listed {
		if s == c.suspect || s.seen <= d.window-ring {
			continue
		}
		prior, correlation := w.prior(c.victim, s)
		out := Suspect{Job: s.name, Prior: prior, Correlation: correlation,
			MayBeThrottled: len(s.refs) > s.exempt, job: s}
		if p := d.pairs[PairKey{c.victim.job.name, c.victim.job.platform, s.name}]; p != nil {
			out.E = p.proc.e(d.bank)
		}
		d.work.ranked = append(d.work.ranked, out)
	}
	ranked := d.work.ranked[from:]
	slices.SortStableFunc(ranked, func(a, b Suspect) int { return cmp.Compare(b.Prior, a.Prior) })
	return ranked
}

// propose a test of the best suspect, and say what follows.
func (d *Detector) propose(ref Ref, c *container, ranked []Suspect) string {
	switch {
	case !d.cfg.Enforce:
		return "nobody is tested: nothing is enforced"
	case d.cfg.Budget == 0:
		return "nobody is tested: the budget of probes is 0"
	}
	key := c.victim.job.key()
	running := 0
	for _, p := range d.order {
		if p.workload() == key && p.stage == Testing && p.proc.e(d.bank) >= losing {
			running++
		}
	}
	if running >= d.cfg.Tests {
		return "a test is running"
	}
	accuser := accuserName(c.Container)
	a := d.accuserOf(accuser)
	if a.harm.Left < leastHarm {
		return fmt.Sprintf("no test: %s has %.1f probe minutes left, %d are needed", accuser, a.harm.Left, leastHarm)
	}
	for i := range ranked {
		s := &ranked[i]
		if s.Prior < PriorToTest {
			break
		}
		if !s.MayBeThrottled {
			continue
		}
		if why := d.test(ref, c, s, a); why != "" {
			return why
		}
	}
	return "no suspect that may be throttled is likely enough"
}

// losing tests go on, and keep nobody from being tested.
const losing = 0.5

// accuserName is who pays for a container's tests: its namespace, with which a job's name
// begins where a record does not tell it.
func accuserName(c *cpi.Container) string {
	if c.Namespace != "" {
		return c.Namespace
	}
	return namespaceOf(JobOf(c))
}

// test a suspect: go on with a parked test, or begin one. Empty: it is not to be tested
// now.
func (d *Detector) test(ref Ref, c *container, s *Suspect, a *accuser) string {
	j := c.victim.job
	key := PairKey{j.name, j.platform, s.Job}
	p := d.pairs[key]
	switch {
	case p == nil, p.stage == Resting && d.window >= p.times.until:
		if a.starts.Left < 1 {
			return fmt.Sprintf("no test of %s: the starts are used up", s.Job)
		}
		a.starts.Left--
		d.counts.Tests++
		if p == nil {
			p = d.addPair(key)
		}
		// Witnesses are asked once, however often a test begins.
		was := &p.proc
		*p = pair{key: key, rest: p.rest, accuser: p.accuser,
			proc: process{Witnesses: was.Witnesses, Witnessed: was.Witnessed}}
	case p.stage == Parked:
	default:
		return ""
	}
	p.stage, p.victim, p.accuser, p.well = Testing, ref, accuserName(c.Container), 0
	p.effect = effect{disturbed: c.victim.disturbed(), sd: j.history.line.SD}
	p.eager = s.Prior >= priorToHasten
	p.times = times{began: d.window, active: d.window, bad: d.window, seen: d.window, judged: d.window}
	d.enlist(p)
	d.emit(Event{Kind: BegunEvent, Victim: c.Container, Job: s.Job, E: p.proc.e(d.bank),
		Why: fmt.Sprintf("prior %.1f", s.Prior)})
	return "a test of " + s.Job + " begins"
}

func (d *Detector) addPair(key PairKey) *pair {
	if len(d.pairs) >= d.cfg.MaxPairs {
		d.dropPair()
	}
	p := &pair{key: key}
	d.pairs[key] = p
	at, _ := slices.BinarySearchFunc(d.order, key, func(p *pair, key PairKey) int { return p.key.compare(key) })
	d.order = slices.Insert(d.order, at, p)
	return p
}

func (k PairKey) compare(o PairKey) int {
	return cmp.Or(compare(k.Victim, o.Victim), compare(k.Platform, o.Platform), compare(k.Suspect, o.Suspect))
}

// dropPair forgets the pair that was not seen for longest and is not under test. That
// favours nobody: to be tested again costs a start.
func (d *Detector) dropPair() {
	oldest := -1
	for i, p := range d.order {
		if p.stage != Testing && p.stage != Verdict && (oldest < 0 || p.times.seen < d.order[oldest].times.seen) {
			oldest = i
		}
	}
	if oldest >= 0 {
		delete(d.pairs, d.order[oldest].key)
		d.order = slices.Delete(d.order, oldest, oldest+1)
	}
}

// begin the next window: who may be throttled in it, with what probability.
func (d *Detector) begin() {
	d.work.trials = d.work.trials[:0]
	d.short = false
	for _, s := range d.listed {
		if d.window%peakEvery == 0 {
			s.measure(&d.work.prior)
		}
		s.lead, s.p, s.confirmed = nil, 0, false
	}
	d.hardenLost()
	for _, p := range d.order {
		// Coins whose effect is awaited are waited for, or it would depend on them which of them count.
		if d.bank.span > 1 && (p.stage == Testing || p.stage == Verdict || p.pending(d.bank, d.tick)) {
			d.short = true
		}
		s := d.suspects[p.key.Suspect]
		if s == nil || len(s.refs) == s.exempt || !d.cfg.Enforce || d.window < s.refused {
			continue
		}
		chance := p.propensity(d.bank, d.cfg.Threshold, d.tick, s.round.active)
		if chance > 0 && d.pays(p) &&
			(d.accuserOf(p.accuser).harm.Left < leastHarm || d.harmOf(s).Left < leastHarm) {
			chance = 0
		}
		if chance > s.p {
			s.lead, s.p = p, chance
		}
		s.confirmed = s.confirmed || p.stage == Verdict && p.confirmed()
	}
	for _, s := range d.listed {
		if s.p > 0 {
			d.work.trials = append(d.work.trials, Trial{Pair: s.lead.key, Window: d.tick + 1, P: s.p})
		}
	}
}

// Trials lists the coins to be thrown for the window that begins now; valid until the
// next Observe.
func (d *Detector) Trials() []Trial { return d.work.trials }

// Throw takes the coins of the window that begins now, in any order. A trial whose coin
// is not among them leaves its suspect alone and counts for nothing. The events throttle
// and release.
func (d *Detector) Throw(coins []Thrown) []Event {
	d.clear()
	d.thrown, d.began = d.tick+1, d.tick
	for _, s := range d.listed {
		s.thrown, s.next = false, false
	}
	for i := range coins {
		t := &coins[i]
		s := d.suspects[t.Pair.Suspect]
		if s == nil || s.lead == nil || s.lead.key != t.Pair || t.Window != d.tick+1 || t.P != s.p {
			continue
		}
		s.thrown, s.next = true, t.On
	}
	for _, p := range d.order {
		c := &p.proc.Coins[index(d.tick+1, recent)]
		*c = coin{}
		s := d.suspects[p.key.Suspect]
		if s != nil && s.thrown && (p.stage == Testing || p.stage == Verdict) {
			*c = coin{Window: d.tick + 1, P: s.p, On: s.next, Block: s.lead.pace.slow && s.p < 1,
				x: p.effect}
		}
	}
	for _, s := range d.listed {
		d.actuate(s)
		s.grown = false
	}
	return d.work.events
}

// actuate what the coin of a suspect says.
func (d *Detector) actuate(s *suspect) {
	end := d.now.Add(d.next())
	s.on, s.off, s.step = s.next, nil, ByQuota
	if s.on {
		s.step = s.lead.move.step
	}
	if s.step == ByMove {
		if s.off = d.roomFor(s.lead); s.off == nil {
			s.step = ByQuota
		}
	}
	switch {
	case !s.on:
		if s.until.After(d.now) {
			d.emit(Event{Kind: UncapEvent, Victim: s.told, Job: s.name, Throttles: d.throttles(s)})
		}
		s.until = time.Time{}
	case s.lead.stage != Verdict:
		if s.until.After(end) { // a cap that has just ended
			d.emit(Event{Kind: UncapEvent, Victim: s.told, Job: s.name, Throttles: d.throttles(s)})
		}
		s.until, s.told = end, d.protected(s.lead)
		d.emit(Event{Kind: ProbeEvent, Victim: s.told, Job: s.name, Throttles: d.throttles(s), Until: end,
			E: s.lead.proc.e(d.bank), Why: fmt.Sprintf("tested, e-value %.2g, coin of %.2f", s.lead.proc.e(d.bank),
				s.p)})
	case s.until.Before(end), s.grown:
		most := longestTerm
		if d.cfg.NeedWitness && !s.confirmed {
			most = mostAlone
		}
		s.until = d.now.Add(time.Duration(min(d.bank.terms[s.lead.term], most)) * d.cfg.Period)
		s.told = d.protected(s.lead)
		d.emit(Event{Kind: CapEvent, Victim: s.told, Job: s.name, Throttles: d.throttles(s), Until: s.until,
			E: s.lead.proc.e(d.bank), Step: s.step, Off: s.off, Why: fmt.Sprintf("disturbs, e-value %.3g; %s",
				s.lead.proc.e(d.bank), d.witnessOf(s.lead).Text())})
		if s.step == ByQuota {
			d.countCap(s)
		}
	}
}

// countCap asks for the eviction of a job that was capped for the EvictAfter-th time in a
// day.
func (d *Detector) countCap(s *suspect) {
	n := d.cfg.EvictAfter
	if n == 0 || d.cfg.NeedWitness && !s.confirmed {
		return
	}
	s.caps = append(s.caps, d.window)
	s.caps = slices.Delete(s.caps, 0, max(len(s.caps)-n, 0))
	if len(s.caps) < n || d.window-s.caps[0] > d.windows(24*60) ||
		s.asked != 0 && d.window-s.asked < d.windows(evictPause) {
		return
	}
	s.asked = d.window
	d.emit(Event{Kind: EvictEvent, Victim: s.told, Job: s.name, Throttles: d.throttles(s),
		Why: fmt.Sprintf("%s was capped %d times in %.0f minutes", s.name, n,
			float64(d.window-s.caps[0])*d.cfg.Period.Minutes())})
}

const (
	evictPause   = 60 // minutes
	refusedPause = 5  // minutes
)

// Refuse says that a throttle of a job was not carried out. Its coins still count: to
// leave out those that fell on throttled alone would favour the others. It gets no new
// ones for a while. It returns whether that is news.
func (d *Detector) Refuse(job string) bool {
	s := d.suspects[job]
	if s == nil || d.window < s.refused {
		return false
	}
	s.refused = d.window + d.windows(refusedPause)
	return true
}

// throttles of a job's containers.
func (d *Detector) throttles(s *suspect) []Throttle {
	from := len(d.work.throttles)
	for _, ref := range s.refs {
		if c := &d.all[ref]; !c.exempt() {
			d.work.throttles = append(d.work.throttles, Throttle{ref, d.depth(c)})
		}
	}
	return d.work.throttles[from:]
}

// ThrottleOf says how far a container is throttled now, for one that was created since
// the coin was thrown; 0: it is not.
func (d *Detector) ThrottleOf(ref Ref) (milli int64, until time.Time) {
	c := d.slotOf(ref)
	if c == nil || !c.suspect.on || c.suspect.step != ByQuota || c.exempt() {
		return 0, time.Time{}
	}
	return d.depth(c), c.suspect.until
}

// next is how long the window that begins is to be in force.
func (d *Detector) next() time.Duration {
	if d.short {
		return d.cfg.Window
	}
	return d.cfg.Period
}

// Throttled says whether a job is throttled in the window that has begun, its containers
// to come included, and whether by a verdict rather than a test.
func (d *Detector) Throttled(job string) (on, verdict bool) {
	s := d.suspects[job]
	if s == nil || !s.on {
		return false, false
	}
	return true, s.lead != nil && s.lead.stage == Verdict
}
