package lend

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/quietcore/quietcore/internal/kube"
)

const (
	// writeEvery bounds how often the Node is written.
	writeEvery = time.Second
	// DefaultRaiseEvery is how often more is published.
	DefaultRaiseEvery = time.Minute
	// RenewEvery is how old the annotation's time may get while nothing changes. All
	// watchers of Nodes receive each change, so it is too long for a heartbeat.
	RenewEvery = 10 * time.Minute
	// OfferFor is how long an offer is valid unless repeated: CPUs of which nothing is
	// known count as in use.
	OfferFor = 5 * time.Minute

	// repairBurst repairs are made at once, then one in repairEvery: two writers of the
	// same field must not fill etcd.
	repairBurst = 5
	repairEvery = 10 * time.Second

	firstRetry     = time.Second
	lastRetry      = time.Minute
	refusedRetry   = 5 * time.Minute
	requestTimeout = 10 * time.Second
	// watchLag is how long after the answer to a write a watch may still report the
	// earlier Node.
	watchLag = 30 * time.Second
	lookAt   = time.Minute
)

// Causes of a repair.
const (
	// CauseZeroed is kubelet, which registers zeros while its directory of device plugins
	// is empty.
	CauseZeroed    = "zeroed"
	CauseRemoved   = "removed"
	CauseRecreated = "recreated" // the Node was deleted and created again
	CauseChanged   = "changed"
)

// Options configure a Publisher. API, Node and Bound are required.
type Options struct {
	API  NodeWriter
	Node string
	// Bound returns the pods of this node that request lent CPUs; known is false until
	// the API server has sent all.
	Bound func() (pods []kube.BatchPod, known bool)
	// AlsoKoordinator also publishes the CPUs as Koordinator's resource. Koordinator's
	// own manager would conflict with it.
	AlsoKoordinator bool
	// RaiseEvery is how often the amounts may rise; 0: DefaultRaiseEvery.
	RaiseEvery time.Duration
	Log        *slog.Logger
	// Report is called with the result of every request: ok, conflict, forbidden,
	// notfound, timeout or error. Repaired is called with the cause of every repair.
	Report   func(result string)
	Repaired func(cause string)

	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
	// Spread varies a long wait, so that nodes do not write in step.
	Spread func(time.Duration) time.Duration
}

// Published is a Node's lent CPUs, and their basis.
type Published struct {
	// Offer is the last offer in thousandths of a CPU, Bound what pods request. Own and
	// Koordinator are the Node's amounts by each resource; -1: absent.
	Offer, Bound, Own, Koordinator int64
	// At is when the Node was last written; zero: not by this process.
	At time.Time
}

// Publisher keeps a Node's lent CPUs up to date. Its methods are safe for concurrent
// use and never block, except Run, which must be called at most once.
type Publisher struct {
	o    Options
	wake chan struct{}

	mu        sync.Mutex // guards inbox, state and published; never held during a request
	inbox     inbox
	state     string
	published Published

	// The fields below belong to the goroutine of Run.
	started time.Time
	adopted bool
	node    kube.LentNode // as last seen or answered
	written
	attempts
}

// written is what this process wrote to the Node, and when.
type written struct {
	granted   amounts // as last written successfully
	sent      amounts // as last sent, answered or not
	writtenTo types.UID
	wrote     time.Time
	renewIn   time.Duration
	raised    time.Time
}

// attempts says when the Node may be written again.
type attempts struct {
	repairs   *rate.Limiter
	retry     time.Duration
	retryAt   time.Time
	lastError string // the error of the last request
}

// inbox is the newest input.
type inbox struct {
	offer     int64
	offered   time.Time // zero: never
	also      bool      // Koordinator's resource is published too
	withdrawn bool
	node      kube.LentNode // zero: not seen, or gone
	seen      bool          // node was observed
}

// New makes a publisher. Until the first Offer or Withdraw it only keeps the present
// amounts from falling below what pods request.
func New(o Options) *Publisher {
	if o.RaiseEvery <= 0 {
		o.RaiseEvery = DefaultRaiseEvery
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Report == nil {
		o.Report = func(string) {}
	}
	if o.Repaired == nil {
		o.Repaired = func(string) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.After == nil {
		o.After = time.After
	}
	if o.Spread == nil {
		o.Spread = func(d time.Duration) time.Duration { return d*4/5 + rand.N(d*2/5) }
	}
	return &Publisher{
		o: o, wake: make(chan struct{}, 1),
		written:  written{granted: none(), sent: none(), renewIn: RenewEvery},
		attempts: attempts{repairs: rate.NewLimiter(rate.Every(repairEvery), repairBurst)},
		inbox:    inbox{also: o.AlsoKoordinator},
		state:    "the Node was not seen yet", published: Published{Own: absent, Koordinator: absent},
	}
}

// Offer says how many thousandths of a CPU may be lent now, including those that pods
// already request. It must be repeated within OfferFor.
func (p *Publisher) Offer(milli int64) {
	milli = max(0, min(milli, maxMilli))
	p.mu.Lock()
	in := &p.inbox
	news := in.withdrawn || in.offered.IsZero() || in.offer != milli
	in.offer, in.offered, in.withdrawn = milli, p.o.Now(), false
	p.mu.Unlock()
	if news {
		p.Changed()
	}
}

// Withdraw removes the resources from the Node, since lending ended. Koordinator's
// stays at what pods request until they are gone: kubelet would fail them without it.
func (p *Publisher) Withdraw() {
	p.mu.Lock()
	news := !p.inbox.withdrawn
	p.inbox.withdrawn, p.inbox.offered = true, time.Time{}
	p.mu.Unlock()
	if news {
		p.Changed()
	}
}

// AlsoKoordinator says whether the CPUs are also published as Koordinator's resource.
func (p *Publisher) AlsoKoordinator(also bool) {
	p.mu.Lock()
	news := p.inbox.also != also
	p.inbox.also = also
	p.mu.Unlock()
	if news {
		p.Changed()
	}
}

// Observe takes the Node's present status; it is kube.Options' OnLent.
func (p *Publisher) Observe(n kube.LentNode) {
	p.mu.Lock()
	was := p.inbox.node
	news := !p.inbox.seen || was.UID != n.UID || was.Own != n.Own || was.Koordinator != n.Koordinator ||
		was.Record != n.Record
	p.inbox.node, p.inbox.seen = n, true
	p.mu.Unlock()
	if news {
		p.Changed()
	}
}

// Changed says that Bound may have changed; it is kube.Options' OnBatch.
func (p *Publisher) Changed() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// State says why the Node is not up to date; empty if it is.
func (p *Publisher) State() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// Published returns the Node's amounts as far as known.
func (p *Publisher) Published() Published {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.published
}

// Run publishes until ctx ends. The published amounts then stay: pods run on them.
func (p *Publisher) Run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := p.turn(ctx)
		if ctx.Err() != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-p.wake:
		case <-p.o.After(max(wait, time.Millisecond)):
		}
	}
}

// turn writes the Node if that is due, and returns when to check again.
func (p *Publisher) turn(ctx context.Context) time.Duration {
	select {
	case <-p.wake: // the inbox is read below
	default:
	}
	p.mu.Lock()
	in := p.inbox
	p.mu.Unlock()
	now := p.o.Now()
	if p.started.IsZero() {
		p.started = now
	}
	switch {
	case !in.seen:
		return lookAt // the initial state says so
	case in.node.UID == "":
		p.setState("there is no Node " + p.o.Node)
		return lookAt
	}
	p.observe(now, in.node)
	pods, known := p.o.Bound()
	if !known && !in.withdrawn {
		p.setState("the pods of this node are not known, nor how much of the published amount they request")
		return lookAt
	}
	t := p.plan(now, in, demandOf(pods), known)
	p.publish(in, t)
	if !t.write {
		p.setState(t.state)
		return p.until(now, t.recheckAt)
	}
	if now.Before(t.notBefore) {
		p.setState(t.waitState)
		return t.notBefore.Sub(now)
	}
	p.write(ctx, now, t)
	p.publish(in, t)
	// The next turn decides whether more is due, such as a postponed rise.
	if !p.retryAt.After(now) {
		return 0
	}
	return p.retryAt.Sub(now)
}

func (p *Publisher) until(now, at time.Time) time.Duration {
	if at.IsZero() {
		return lookAt
	}
	return min(lookAt, max(at.Sub(now), writeEvery))
}

// observe takes the watch's Node unless it is older than the answer to our own write.
func (p *Publisher) observe(now time.Time, n kube.LentNode) {
	if n.UID == p.node.UID && now.Sub(p.wrote) < watchLag {
		if order, err := resourceversion.CompareResourceVersion(n.Version, p.node.Version); err == nil && order < 0 {
			return
		}
	}
	p.node = n
}

// task is what is to be done about the Node.
type task struct {
	next      amounts
	touch     [resources]bool
	demand    demand
	offer     int64
	write     bool
	cause     string    // of a repair; empty: none
	notBefore time.Time // of the write
	waitState string    // the state until then
	recheckAt time.Time // when to check again without new input; zero: not needed
	state     string
}

// plan decides what the Node should have and when to write it.
func (p *Publisher) plan(now time.Time, in inbox, d demand, known bool) task {
	have, torn := amountsIn(p.node)
	mine := ours(p.node)
	p.adopt(have, mine)
	t := task{demand: d, touch: [resources]bool{own: true, koordinator: in.also || mine[koordinator]}}
	if !known { // withdrawn: kubelet ignores a missing resource of ours, even if pods request it
		t.touch[koordinator] = false
	}
	want := p.want(now, in, &t)
	may := p.raised.Add(p.o.RaiseEvery)
	// A request without an answer may have succeeded: repeating it is not a rise.
	was := amounts{max(p.granted[own], p.sent[own]), max(p.granted[koordinator], p.sent[koordinator])}
	t.next = step{was: was, want: want, bound: d.bound, mayRise: !now.Before(may)}.next()
	left := false
	for i := range t.next {
		if !t.touch[i] {
			t.next[i] = have[i]
			continue
		}
		t.write = t.write || have[i] != t.next[i] || torn[i]
		left = left || t.next[i] != absent
		if t.next[i] < want[i] {
			t.recheckAt = earlier(t.recheckAt, may)
		}
	}
	r, recorded := parseRecord(p.node.Record)
	switch renew := r.At.Add(p.renewIn); {
	case !left:
		t.write = t.write || p.node.Record != "" && known
	case !recorded || !now.Before(renew) || r.At.After(now.Add(RenewEvery)): // the record's clock may have been wrong
		t.write = true
	default:
		t.recheckAt = earlier(t.recheckAt, renew)
	}
	t.cause = p.cause(have, t)
	p.pace(now, have, &t)
	return t
}

// pace decides when a write may be made, and the state until then.
func (p *Publisher) pace(now time.Time, have amounts, t *task) {
	t.notBefore, t.waitState = p.retryAt, t.state
	if p.lastError != "" {
		t.waitState = p.lastError
	}
	if t.cause == "" {
		t.notBefore = later(t.notBefore, p.wrote.Add(writeEvery))
		return
	}
	if wait := tokenIn(p.repairs, now); wait > 0 {
		t.notBefore, t.waitState = later(t.notBefore, now.Add(wait)), p.conflict(have)
	}
}

// adopt takes over what an earlier daemon published, and a write whose answer was lost.
func (p *Publisher) adopt(have amounts, mine [resources]bool) {
	if !p.adopted {
		p.adopted = true
		for i := range have {
			if mine[i] {
				p.granted[i] = have[i]
			}
		}
		p.sent = p.granted
		return
	}
	if have != p.granted && have == p.sent {
		p.granted, p.writtenTo = p.sent, p.node.UID
	}
}

// want is what the Node should have, regardless of rates. It sets the state in t if an
// offer is missing.
func (p *Publisher) want(now time.Time, in inbox, t *task) amounts {
	want := none()
	expires := in.offered.Add(OfferFor)
	switch {
	case in.withdrawn:
		want[koordinator] = p.koordinatorRest(t.demand)
		return want
	case in.offered.IsZero() && now.Before(p.started.Add(OfferFor)):
		t.recheckAt, t.state = p.started.Add(OfferFor), "no offer yet; the published amounts stay"
		for i, was := range p.granted {
			if was != absent {
				want[i] = max(was, t.demand.bound[i])
			}
		}
		if in.also && want[koordinator] == absent {
			want[koordinator] = p.koordinatorRest(t.demand)
		}
		return want
	case in.offered.IsZero():
		t.state = "there has been no offer"
		if p.granted[own] == absent {
			want[koordinator] = p.koordinatorRest(t.demand)
			return want
		}
	case !now.Before(expires):
		t.state = fmt.Sprintf("no offer for %s; only what pods already request is published", OfferFor)
	default:
		t.offer = in.offer
		t.recheckAt = expires
	}
	free := t.demand.free(t.offer)
	want[own] = t.demand.bound[own] + free
	if in.also {
		want[koordinator] = t.demand.bound[koordinator] + free
	} else {
		want[koordinator] = p.koordinatorRest(t.demand)
	}
	return want
}

// koordinatorRest is what must remain of Koordinator's resource when it is given up.
func (p *Publisher) koordinatorRest(d demand) int64 {
	if d.bound[koordinator] == 0 {
		return absent
	}
	return d.bound[koordinator]
}

// cause says how another writer changed the Node; empty if none did, or if it does not
// matter.
func (p *Publisher) cause(have amounts, t task) string {
	if p.writtenTo == "" {
		return ""
	}
	zeroed, removed, differs := true, true, false
	for i, was := range p.granted {
		if !t.touch[i] || have[i] == was || have[i] == t.next[i] {
			continue
		}
		differs = true
		zeroed = zeroed && have[i] == 0
		removed = removed && have[i] == absent
	}
	switch {
	case !differs:
		return ""
	case p.node.UID != p.writtenTo:
		return CauseRecreated
	case zeroed:
		return CauseZeroed
	case removed:
		return CauseRemoved
	}
	return CauseChanged
}

func (p *Publisher) conflict(have amounts) string {
	return fmt.Sprintf(
		"another writer keeps changing the Node: it has %s instead of %s; is another manager of batch resources "+
			"running?", have, p.granted)
}

// write patches the Node.
func (p *Publisher) write(ctx context.Context, now time.Time, t task) {
	body, err := patchOf(t.next, t.touch, record{At: now, Offer: t.offer})
	if err != nil {
		p.failed(now, err)
		return
	}
	if t.cause != "" {
		p.repairs.AllowN(now, 1)
		have, _ := amountsIn(p.node)
		p.o.Log.Warn("the Node's lent CPUs were changed by another writer; repairing", "node", p.o.Node, "why",
			t.cause, "was", p.granted.String(), "is", have.String())
		p.o.Repaired(t.cause)
	}
	p.sent = t.next
	for i, v := range t.next {
		// What was sent earlier and not answered may rise only now, also when this is not answered.
		if v > max(p.granted[i], t.demand.bound[i]) {
			p.raised = now
		}
	}
	reqCtx, cancel := context.WithTimeout(ctx, requestTimeout)
	got, err := p.o.API.PatchNode(reqCtx, p.o.Node, body)
	cancel()
	if ctx.Err() != nil {
		return
	}
	p.o.Report(result(err))
	if err != nil {
		p.failed(now, err)
		return
	}
	if was := p.granted; was != t.next {
		p.o.Log.Info("published lent CPUs", "node", p.o.Node, "milli", t.next.String(), "was", was.String(),
			"offer", t.offer, "requested", t.demand.lent)
	}
	p.granted, p.node, p.writtenTo, p.wrote = t.next, got, got.UID, p.o.Now()
	p.renewIn = p.o.Spread(RenewEvery)
	p.retry, p.retryAt, p.lastError = 0, time.Time{}, ""
	p.setState(t.state)
}

// failed schedules the next attempt.
func (p *Publisher) failed(now time.Time, err error) {
	p.lastError = fmt.Sprintf("not written: %v", err)
	p.setState(p.lastError)
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsInvalid(err):
		p.retry = min(max(p.retry*2, firstRetry), refusedRetry)
	default:
		p.retry = min(max(p.retry*2, firstRetry), lastRetry)
	}
	wait := p.o.Spread(p.retry)
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		wait = max(wait, min(time.Duration(seconds)*time.Second, refusedRetry))
	}
	// Counted from the end of the request, so that a slow server gets no more requests.
	p.retryAt = p.o.Now().Add(wait)
}

// publish makes the result visible to Published.
func (p *Publisher) publish(in inbox, t task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.published = Published{Offer: absent, Bound: t.demand.lent, Own: p.granted[own],
		Koordinator: p.granted[koordinator],
		At:          p.wrote}
	if !in.offered.IsZero() {
		p.published.Offer = in.offer
	}
}

// setState sets the state and logs it if it changed.
func (p *Publisher) setState(state string) {
	p.mu.Lock()
	was := p.state
	p.state = state
	p.mu.Unlock()
	switch {
	case was == state:
	case state == "":
		p.o.Log.Info("the Node's lent CPUs are up to date", "node", p.o.Node)
	default:
		p.o.Log.Warn("the Node's lent CPUs are not up to date", "node", p.o.Node, "why", state)
	}
}

// tokenIn is how long until a limiter has a token.
func tokenIn(l *rate.Limiter, now time.Time) time.Duration {
	missing := 1 - l.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return max(time.Duration(missing/float64(l.Limit())*float64(time.Second)), time.Millisecond)
}

// earlier treats the zero time as never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
