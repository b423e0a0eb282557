package reclaim

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Pod is one running pod, in CPUs.
type Pod struct {
	ID      string // the pod's UID
	Batch   bool   // of the class BE; the others are production
	Request float64
	// Use is the mean over the report's span; valid if Sampled. Use that was not
	// measured counts as unknown, never as 0.
	Use     float64
	Sampled bool
	// Throttled says that a limit kept the pod from using more (see Totals.Hid).
	Throttled bool
	Created   time.Time // zero: when first reported
}

// Report is a node at one moment.
type Report struct {
	Capacity float64 // CPUs of the node
	Reserve  float64 // CPUs not available to pods, in addition to the configured reserve
	// Pods are all running pods. Step clears Sampled of a use that is not a number of
	// CPUs. Use above the capacity counts: a batch pod is busy, a production pod uses
	// everything.
	Pods []Pod
	// Span is the length of the measurement, which ends now. 0 says that nothing was
	// measured: a pod started or ended, or the capacity changed. Such a report can
	// lower an offer, but neither raise one nor evict.
	Span time.Duration
	// Throttled says that the batch pods as a group were kept from using more;
	// Pod.Throttled is about one of them.
	Throttled bool
	// Room is how many CPUs batch pods were allowed to use, such as the budget of
	// suppression; 0: unknown.
	Room float64
}

// Estimate is the result of a report. Its slices are valid until the next Step.
type Estimate struct {
	Supply     float64 // capacity - reserve - what production is promised; may be negative
	Idle       []string
	Unutilised float64 // what idle pods requested but do not use
	// Exists is max(0, Supply) + Unutilised. Reclaimable is the same but rises with a
	// delay: all that may be promised to batch pods.
	Exists      float64
	Reclaimable float64
	// Offer is what to publish: Reclaimable, bounded so that idle pods can still reach
	// the threshold. After an eviction it does not rise until the next sample. Never
	// publish less than the requests of bound pods.
	Offer         float64
	Promised      float64 // requests of the running batch pods
	Demand        float64 // Promised, with idle pods by the percentile of their use
	ProductionUse float64
	BatchUse      float64
	Expected      float64 // what Supply subtracts for production
	Overcommitted bool    // Demand is above Reclaimable
	Frozen        bool    // batch pods were kept from using more: no pod becomes idle
	Evict         []Eviction
}

// PublishMilli is the value of the node's resource, in thousandths of a CPU. bound is
// what the pods bound to the node request: after a restart kubelet admits them again,
// and fails those that no longer fit.
func (o *Estimate) PublishMilli(bound float64) int64 {
	return int64(max(math.Floor(o.Offer*1000+tiny), math.Ceil(bound*1000-tiny)))
}

// Eviction is a decision to evict a pod.
type Eviction struct {
	Pod  string
	Idle bool
	Why  string
}

// Estimator knows which pods are idle and what may be promised. It is not safe for
// concurrent use.
type Estimator struct {
	cfg      Config
	forecast *Forecast
	grid

	pods   map[string]*podState
	seen   []*podState // of the current report, in its order
	round  uint64
	supply supply
	// conversion says what it cost to resume a checkpoint of another configuration; it is told
	// until what was converted has left the windows.
	conversion       string
	overcommittedFor time.Duration // how long batch pods have needed more than exists
	// ceiling bounds the offer from an eviction to the next sample; negative: none.
	ceiling float64
	out     Estimate
}

// verdict is how a batch pod counts.
type verdict struct {
	idle  bool
	busy  bool    // known not to be idle; neither: it is not known yet
	use   float64 // its request, or its percentile while idle
	needs float64 // the same, of which nothing is assumed
	lends float64 // what it requested and does not use, while idle
}

// podState is what is known of one pod.
type podState struct {
	id      string
	created time.Time
	request float64
	batch   bool
	w       window // of a batch pod
	verdict
	// known is the cell since which the forecast has a production pod's use.
	known      uint32
	peak       peak // of a production pod
	lastUse    float64
	measured   bool
	round      uint64
	lastSeen   uint32
	evicting   bool
	observed   bool      // its eviction was only reported
	retryAfter time.Time // not evicted before
}

// New makes the estimator of a node without history.
func New(cfg Config) (*Estimator, error) { return newEstimator(cfg, time.Duration(cfg.Idle.Sample)) }

// NewRecorded makes an estimator for recorded data: every row is a sample, whatever the
// time between rows. A window takes as much memory as it has rows.
func NewRecorded(cfg Config) (*Estimator, error) {
	return newEstimator(cfg, 10*time.Millisecond)
}

func newEstimator(cfg Config, cell time.Duration) (*Estimator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	length := time.Duration(cfg.Idle.Window) / cell
	if length < 1 || length > math.MaxUint32/4 {
		return nil, fmt.Errorf("reclaim.idle.window: is %v, must be %v to %v", time.Duration(cfg.Idle.Window), cell,
			cell*(math.MaxUint32/4))
	}
	return &Estimator{
		cfg: cfg, forecast: cfg.newForecast(),
		grid: grid{cell: cell, span: spanOf(uint32(length))},
		pods: map[string]*podState{}, ceiling: -1,
	}, nil
}

// Cell is the number of the sample in progress. When it changes, a sample has become
// final that a checkpoint would keep.
func (e *Estimator) Cell() uint32 { return e.now() }

// Step takes a report and returns what may be promised from now on, and which pods to
// evict. On an error the estimator is unchanged. The next Step overwrites the estimate.
func (e *Estimator) Step(now time.Time, r Report) (*Estimate, error) {
	if err := e.check(now, r); err != nil {
		return nil, err
	}
	r.Span = max(r.Span, 0)
	cell := e.tick(now, r.Span > 0)
	e.round++
	e.admit(now, cell, r)
	e.forget(cell)
	o := &e.out
	*o = Estimate{Idle: o.Idle[:0], Evict: o.Evict[:0]}
	p := e.observe(cell, r)
	known := e.expected(p, cell, r.Pods)
	o.Supply = r.Capacity - r.Reserve - e.cfg.Reserve - o.Expected
	o.Frozen = r.Throttled || r.Room > 0 && o.Promised*e.cfg.Idle.Threshold/100 > r.Room+tiny
	e.judge(cell, r, o)
	e.offer(r.Span, o)
	if r.Span > 0 {
		e.correct(now, r.Span, o.Supply+o.Expected-known)
	}
	return o, nil
}

// tiny is less than any meaningful number of CPUs.
const tiny = 1e-9

// check rejects an impossible report before anything changes. It only finds or creates
// the entries of pods.
func (e *Estimator) check(now time.Time, r Report) error {
	if !amount(r.Capacity) || !amount(r.Reserve) {
		return fmt.Errorf("reclaim: a capacity of %v CPUs with %v in reserve: both must be 0 or more", r.Capacity,
			r.Reserve)
	}
	if e.began && now.Sub(e.epoch)/e.cell > math.MaxUint32-1 {
		return fmt.Errorf("reclaim: %v is more than %v after the first report; begin anew", now, now.Sub(e.epoch))
	}
	mark := e.round + 1
	e.seen = e.seen[:0]
	for i := range r.Pods {
		p := &r.Pods[i]
		if !amount(p.Request) {
			e.undoCheck()
			return fmt.Errorf("reclaim: pod %s requests %v CPUs: must be 0 or more", p.ID, p.Request)
		}
		s := e.pods[p.ID]
		if s == nil {
			s = &podState{id: p.ID}
			e.pods[p.ID] = s
		}
		if s.round == mark {
			e.undoCheck()
			return fmt.Errorf("reclaim: pod %s is in the report twice", p.ID)
		}
		s.round = mark
		e.seen = append(e.seen, s)
	}
	return nil
}

// undoCheck undoes what check did to the entries before it found an error.
func (e *Estimator) undoCheck() {
	for _, s := range e.seen {
		s.round = e.round
	}
}

// admit updates the entries of pods from the report.
func (e *Estimator) admit(now time.Time, cell uint32, r Report) {
	for i, s := range e.seen {
		p := &r.Pods[i]
		if s.created.IsZero() || s.batch != p.Batch {
			*s = podState{id: s.id, round: e.round, known: cell, created: p.Created}
			if s.created.IsZero() {
				s.created = now
			}
		}
		s.batch, s.request, s.lastSeen = p.Batch, p.Request, cell
	}
}

// forget drops pods that are gone: production pods at once, batch pods when the hole
// would end their window anyway.
func (e *Estimator) forget(cell uint32) {
	if len(e.pods) == len(e.seen) {
		return
	}
	for id, s := range e.pods {
		if s.round != e.round && (!s.batch || cell-s.lastSeen > e.span.hole) {
			delete(e.pods, id)
		}
	}
}

// observe sums production's use and shows it to the forecast.
func (e *Estimator) observe(cell uint32, r Report) Production {
	p := Production{At: e.elapsed, Seconds: r.Span.Seconds()}
	o := &e.out
	for i := range r.Pods {
		pod := &r.Pods[i]
		pod.Sampled = pod.Sampled && r.Span > 0 && amount(pod.Use)
		switch {
		case pod.Batch:
			o.Promised += pod.Request
			if pod.Sampled {
				o.BatchUse += pod.Use
			}
		default:
			p.Request += pod.Request
			pod.Use = min(pod.Use, r.Capacity)
			use := e.seen[i].inUse(pod, r.Span > 0)
			p.Use += use
			p.Measured += e.seen[i].lastUse
			p.Peaks += e.peakOf(e.seen[i], cell, use)
		}
	}
	o.ProductionUse = p.Use
	if r.Span > 0 {
		e.forecast.Observe(p)
	}
	return p
}

// peak is the most that a production pod used in this fortnight and in the one before.
type peak struct {
	fortnight uint32
	now, last float32
}

// fortnight is how long the most that a pod used counts, at least.
const fortnight = 14 * 24 * time.Hour

// peakOf is the most that a production pod used, with its use now; of a pod that is not yet
// known for a window no less than its request. It leaves with the pod.
func (e *Estimator) peakOf(s *podState, cell uint32, use float64) float64 {
	k := &s.peak
	if is := uint32(e.elapsed / fortnight); is != k.fortnight {
		k.last = k.now
		if is != k.fortnight+1 {
			k.last = 0
		}
		k.now, k.fortnight = 0, is
	}
	k.now = max(k.now, float32(use))
	most := float64(max(k.now, k.last))
	if cell-s.known < e.span.length {
		most = max(most, s.request)
	}
	return most
}

// inUse is what a production pod uses now. Between samples that is the last sample; if
// a sample is missing, it is no less than the request.
func (s *podState) inUse(p *Pod, measured bool) float64 {
	if p.Sampled {
		s.lastUse, s.measured = p.Use, true
		return p.Use
	}
	if s.measured && !measured {
		return s.lastUse
	}
	return max(p.Request, s.lastUse)
}

// expected is what the supply must leave to production, and known the part of it that evicts:
// what was requested, or what is in use. What is only foreseen evicts nobody.
func (e *Estimator) expected(p Production, cell uint32, pods []Pod) (known float64) {
	o := &e.out
	o.Expected = p.Request
	if e.cfg.From == FromSlack {
		return o.Expected
	}
	inWindow := 0.0
	for i, s := range e.seen {
		if pod := &pods[i]; !pod.Batch {
			inWindow += pod.Request * max(0, 1-float64(cell-s.known)/float64(e.span.length))
		}
	}
	most := e.forecast.Peak(p)
	// A pod starts with its whole request; over one window its history gradually
	// replaces it. The expectation is never below what is in use now.
	o.Expected = max(most, min(most+inWindow, p.Request), p.Use)
	return p.Measured
}

// judge decides which pods are idle.
func (e *Estimator) judge(cell uint32, r Report, o *Estimate) {
	rule := e.cfg.Idle
	for i, s := range e.seen {
		if !s.batch {
			continue
		}
		p := &r.Pods[i]
		threshold := rule.Threshold / 100 * s.request
		hidden := o.Frozen || p.Throttled
		s.w.expire(cell, e.span)
		// Low use while the pod is held down is no evidence of idleness and no sample.
		// High use in spite of it is a sample.
		if p.Sampled && (!hidden || float32(p.Use) >= float32(threshold)) {
			s.w.add(cell, p.Use, r.Span.Seconds(), e.span)
		}
		hole := s.w.hole(e.unseen)
		quiet := s.w.atLeast(rule.Percentile, threshold, hole)
		if hidden {
			s.idle = s.idle && quiet
		} else {
			s.idle = quiet && s.w.full(cell, len(e.observed), e.span)
		}
		all := e.samplesOf(s)
		s.busy = !s.idle && s.w.above(threshold) > all-rank(rule.Percentile, all)
		s.use, s.needs, s.lends = s.request, s.request, 0
		switch {
		case s.idle:
			s.use = min(s.w.percentile(rule.UsePercentile, hole), s.request)
			s.needs, s.lends = s.use, s.request-s.use
			o.Idle = append(o.Idle, s.id)
			o.Unutilised += s.lends
		case !s.busy:
			s.needs = min(s.w.atLeastUsed(rule.UsePercentile, all), s.request)
		}
		o.Demand += s.use
	}
	slices.SortFunc(o.Idle, strings.Compare)
}

// samplesOf is how many samples a pod has, with those that were not seen of it: as many as a
// window has if its start was not seen either.
func (e *Estimator) samplesOf(s *podState) int {
	n := s.w.count()
	start := e.epoch.Add(time.Duration(s.w.first) * e.cell)
	if start.Sub(s.created) <= time.Duration(e.span.hole)*e.cell {
		return n
	}
	return max(n, e.samplesInWindow())
}

// samplesInWindow is how many samples a whole window has at the rate observed.
func (e *Estimator) samplesInWindow() int {
	passed, n := e.now(), len(e.observed)
	switch {
	case passed >= e.span.length:
		return n
	case passed == 0:
		return int(e.span.length)
	}
	return 1 + int(uint64(max(n-1, 0))*uint64(e.span.length)/uint64(passed))
}

// offer delays a rising offer.
func (e *Estimator) offer(covered time.Duration, o *Estimate) {
	o.Exists = max(0, o.Supply) + o.Unutilised
	o.Reclaimable = e.supply.step(o.Exists, covered, rise{step: e.cfg.Raise.Step, most: math.Inf(1),
		capOffer: time.Duration(e.cfg.Raise.Hold)})
	o.Overcommitted = o.Demand > o.Reclaimable+tiny
	o.Offer = o.Reclaimable
	if t := e.cfg.Idle.Threshold / 100; t > 0 {
		// Batch pods share what production leaves. If that is too little for them to
		// reach the threshold, none of them could ever stop being idle.
		o.Offer = min(o.Offer, max(0, o.Supply)/t)
	}
	if covered > 0 {
		e.ceiling = -1
	}
	if e.ceiling >= 0 {
		o.Offer = min(o.Offer, e.ceiling)
	}
}
