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
	// writeEvery bounds how often the Node is written, however often offers change.
	writeEvery = time.Second
	// DefaultRaiseEvery is how often more is published.
	DefaultRaiseEvery = time.Minute
	// RenewEvery is how old the annotation's time gets while nothing changes. A Node is
	// sent to everybody who watches Nodes, so this is not a heartbeat.
	RenewEvery = 10 * time.Minute
	// OfferFor is how long an offer holds that is not repeated: CPUs of which nothing
	// is known are in use.
	OfferFor = 5 * time.Minute

	// repairBurst repairs are made at once, then one in repairEvery: two who write the
	// same field must not fill etcd.
	repairBurst = 5
	repairEvery = 10 * time.Second

	firstRetry     = time.Second
	lastRetry      = time.Minute
	refusedRetry   = 5 * time.Minute
	requestTimeout = 10 * time.Second
	// lagging is how much later than the answer to a write a watch may still report
	// the Node as it was before.
	lagging = 30 * time.Second
	lookAt  = time.Minute
)

// Causes of a repair.
const (
	// CauseZeroed is kubelet, which registers so while its folder of device plugins is
	// empty.
	CauseZeroed    = "zeroed"
	CauseRemoved   = "removed"
	CauseRecreated = "recreated" // the Node is another object
	CauseChanged   = "changed"
)

// Options of a Publisher. API, Node and Bound have to be there.
type Options struct {
	API  NodeWriter
	Node string
	// Bound are the pods of this node that request lent CPUs; known is false while the
	// API server has not sent all.
	Bound func() (pods []kube.BatchPod, known bool)
	// AlsoKoordinator publishes the same CPUs by Koordinator's name too. Where
	// Koordinator's own manager runs, both would write it.
	AlsoKoordinator bool
	// RaiseEvery is how often more is published; 0: DefaultRaiseEvery.
	RaiseEvery time.Duration
	Log        *slog.Logger
	// Report is called with the result of every request: ok, conflict, forbidden, notfound,
	// timeout or error; Repaired the cause of every repair.
	Report   func(result string)
	Repaired func(cause string)

	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
	// Spread varies a long wait, so that nodes do not write in step.
	Spread func(time.Duration) time.Duration
}

// Published is what a Node says of lent CPUs, and why.
type Published struct {
	// Offer is the last offer in thousandths of a CPU, Bound what pods request, Own
	// and Koordinator what the Node says by each name; -1: nothing.
	Offer, Bound, Own, Koordinator int64
	// At is when the Node was last written; zero: not by this process.
	At time.Time
}

// Publisher keeps a Node's lent CPUs what they should be. Its methods may be called
// from any goroutine and never wait; Run at most once.
type Publisher struct {
	o    Options
	wake chan struct{}

	mu        sync.Mutex // guards inbox, state and published; never held during a request
	inbox     inbox
	state     string
	published Published

	// What follows belongs to Run.
	started time.Time
	adopted bool
	node    kube.LentNode // as last seen or answered
	written
	attempts
}

// written is what this process wrote into the Node, and when.
type written struct {
	granted   amounts // as last written and not refused
	sent      amounts // as last sent, whether or not an answer came
	writtenTo types.UID
	wrote     time.Time
	renewIn   time.Duration
	raised    time.Time
}

// attempts say when the Node may be written again.
type attempts struct {
	repairs *rate.Limiter
	retry   time.Duration
	retryAt time.Time
	excuse  string // why the last request failed
}

// inbox is what was reported last.
type inbox struct {
	offer     int64
	offered   time.Time // zero: never
	withdrawn bool
	node      kube.LentNode // zero: not seen, or gone
	seen      bool          // node was observed
}

// New makes a publisher that has not written yet and, until the first Offer or
// Withdraw, only keeps what is there from falling below what pods request.
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
		state:    "the Node was not seen yet", published: Published{Own: absent, Koordinator: absent},
	}
}

// Offer says how many thousandths of a CPU may be lent now, those that pods already
// request among them. It has to be repeated within OfferFor.
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

// Withdraw takes the resources from the Node, since nothing is to be lent any more.
// Koordinator's stays at what pods request until they are gone: kubelet would fail
// them where it is missing.
func (p *Publisher) Withdraw() {
	p.mu.Lock()
	news := !p.inbox.withdrawn
	p.inbox.withdrawn, p.inbox.offered = true, time.Time{}
	p.mu.Unlock()
	if news {
		p.Changed()
	}
}

// Observe takes in what the Node says; it is kube.Options' OnLent.
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

// Changed says that Bound may have news; it is kube.Options' OnBatch.
func (p *Publisher) Changed() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// State is empty while the Node says what it should, else why it does not.
func (p *Publisher) State() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// Published is what the Node says, as far as is known.
func (p *Publisher) Published() Published {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.published
}

// Run publishes until ctx ends. What is published then stays: pods run on it.
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

// turn writes the Node if it has to be written now, and says when to look again.
func (p *Publisher) turn(ctx context.Context) time.Duration {
	select {
	case <-p.wake: // what was reported up to here is taken in now
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
		return lookAt // the state says so from the beginning
	case in.node.UID == "":
		p.is("there is no Node " + p.o.Node)
		return lookAt
	}
	p.observe(now, in.node)
	pods, known := p.o.Bound()
	if !known && !in.withdrawn {
		p.is("the pods of this node are not known, so nobody knows how much of what is published they request")
		return lookAt
	}
	t := p.plan(now, in, demandOf(pods), known)
	p.publish(in, t)
	if !t.write {
		p.is(t.state)
		return p.until(now, t.again)
	}
	if now.Before(t.notBefore) {
		p.is(t.late)
		return t.notBefore.Sub(now)
	}
	p.write(ctx, now, t)
	p.publish(in, t)
	// Whether there is more to do, such as a rise that was put off, the next turn says.
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

// observe takes over what the watch reports, unless it is older than the answer to
// our own write.
func (p *Publisher) observe(now time.Time, n kube.LentNode) {
	if n.UID == p.node.UID && now.Sub(p.wrote) < lagging {
		if order, err := resourceversion.CompareResourceVersion(n.Version, p.node.Version); err == nil && order < 0 {
			return
		}
	}
	p.node = n
}

// task is what has to be done about the Node.
type task struct {
	next      amounts
	touch     [resources]bool
	demand    demand
	offer     int64
	rises     bool
	write     bool
	cause     string    // of a repair; empty: none is made
	notBefore time.Time // of the write
	late      string    // the state until then
	again     time.Time // when something changes by itself; zero: it does not
	state     string
}

// plan decides what the Node should say and when to write it.
func (p *Publisher) plan(now time.Time, in inbox, d demand, known bool) task {
	have, torn := seen(p.node)
	mine := ours(p.node)
	p.adopt(have, mine)
	t := task{demand: d, touch: [resources]bool{own: true, koordinator: p.o.AlsoKoordinator || mine[koordinator]}}
	if !known { // withdrawn: kubelet overlooks that a resource of ours is missing, whoever requests it
		t.touch[koordinator] = false
	}
	want := p.want(now, in, &t)
	may := p.raised.Add(p.o.RaiseEvery)
	// What was sent may have arrived: it is no rise a second time.
	was := amounts{max(p.granted[own], p.sent[own]), max(p.granted[koordinator], p.sent[koordinator])}
	t.next, t.rises = step{was: was, want: want, bound: d.bound, mayRise: !now.Before(may)}.next()
	left := false
	for i := range t.next {
		if !t.touch[i] {
			t.next[i] = have[i]
			continue
		}
		t.write = t.write || have[i] != t.next[i] || torn[i]
		left = left || t.next[i] != absent
		if t.next[i] < want[i] {
			t.again = earlier(t.again, may)
		}
	}
	r, recorded := parseRecord(p.node.Record)
	switch renew := r.At.Add(p.renewIn); {
	case !left:
		t.write = t.write || p.node.Record != "" && known
	case !recorded || !now.Before(renew) || r.At.After(now.Add(RenewEvery)): // or of a clock that was wrong
		t.write = true
	default:
		t.again = earlier(t.again, renew)
	}
	t.cause = p.cause(have, t)
	p.pace(now, have, &t)
	return t
}

// pace says when a write may be made, and what is wrong until then.
func (p *Publisher) pace(now time.Time, have amounts, t *task) {
	t.notBefore, t.late = p.retryAt, t.state
	if p.excuse != "" {
		t.late = p.excuse
	}
	if t.cause == "" {
		t.notBefore = later(t.notBefore, p.wrote.Add(writeEvery))
		return
	}
	if wait := tokenIn(p.repairs, now); wait > 0 {
		t.notBefore, t.late = later(t.notBefore, now.Add(wait)), p.conflict(have)
	}
}

// adopt takes over what an earlier daemon published, and what was sent when its
// answer got lost.
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

// want is what the Node should say, however quickly. It says in t what is missing
// to say more.
func (p *Publisher) want(now time.Time, in inbox, t *task) amounts {
	want := none()
	expires := in.offered.Add(OfferFor)
	switch {
	case in.withdrawn:
		want[koordinator] = p.rest(t.demand)
		return want
	case in.offered.IsZero() && now.Before(p.started.Add(OfferFor)):
		t.again, t.state = p.started.Add(OfferFor), "nothing was offered yet; what is published stays"
		for i, was := range p.granted {
			if was != absent {
				want[i] = max(was, t.demand.bound[i])
			}
		}
		if p.o.AlsoKoordinator && want[koordinator] == absent {
			want[koordinator] = p.rest(t.demand)
		}
		return want
	case in.offered.IsZero():
		t.state = "nothing was ever offered"
		if p.granted[own] == absent {
			want[koordinator] = p.rest(t.demand)
			return want
		}
	case !now.Before(expires):
		t.state = fmt.Sprintf("no offer for %s; only what pods already request is published", OfferFor)
	default:
		t.offer = in.offer
		t.again = expires
	}
	free := t.demand.free(t.offer)
	want[own] = t.demand.bound[own] + free
	if p.o.AlsoKoordinator {
		want[koordinator] = t.demand.bound[koordinator] + free
	} else {
		want[koordinator] = p.rest(t.demand)
	}
	return want
}

// rest is what has to remain of Koordinator's resource when it is given up.
func (p *Publisher) rest(d demand) int64 {
	if d.bound[koordinator] == 0 {
		return absent
	}
	return d.bound[koordinator]
}

// cause is who else wrote the Node; empty: nobody, or it does not matter.
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
		"something else keeps writing the Node: it says %s instead of %s; is another manager of batch resources "+
			"running?", have, p.granted)
}

// write sends the Node what it should say.
func (p *Publisher) write(ctx context.Context, now time.Time, t task) {
	body, err := patchOf(t.next, t.touch, record{At: now, Offer: t.offer})
	if err != nil {
		p.failed(now, err)
		return
	}
	if t.cause != "" {
		p.repairs.AllowN(now, 1)
		have, _ := seen(p.node)
		p.o.Log.Warn("the Node does not say any more what is lent; it is written again", "node", p.o.Node, "why",
			t.cause, "was", p.granted.String(), "is", have.String())
		p.o.Repaired(t.cause)
	}
	p.sent = t.next
	if t.rises {
		p.raised = now
	}
	asking, cancel := context.WithTimeout(ctx, requestTimeout)
	got, err := p.o.API.PatchNode(asking, p.o.Node, body)
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
		p.o.Log.Info("the Node says what is lent", "node", p.o.Node, "milli", t.next.String(), "was", was.String(),
			"offer", t.offer, "requested", t.demand.lent)
	}
	for i, v := range t.next {
		if v > max(p.granted[i], t.demand.bound[i]) { // perhaps one that was sent before
			p.raised = now
		}
	}
	p.granted, p.node, p.writtenTo, p.wrote = t.next, got, got.UID, p.o.Now()
	p.renewIn = p.o.Spread(RenewEvery)
	p.retry, p.retryAt, p.excuse = 0, time.Time{}, ""
	p.is(t.state)
}

// failed puts the next attempt off.
func (p *Publisher) failed(now time.Time, err error) {
	p.excuse = fmt.Sprintf("not written: %v", err)
	p.is(p.excuse)
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
	// From the end of the request: a slow server is not asked more often for it.
	p.retryAt = p.o.Now().Add(wait)
}

// publish makes the result visible to others.
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

// is takes over the state and logs it where it is another one.
func (p *Publisher) is(state string) {
	p.mu.Lock()
	was := p.state
	p.state = state
	p.mu.Unlock()
	switch {
	case was == state:
	case state == "":
		p.o.Log.Info("what is lent is published", "node", p.o.Node)
	default:
		p.o.Log.Warn("what is lent is not published as it should be", "node", p.o.Node, "why", state)
	}
}

// tokenIn is how long until a limiter lets the next one through.
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
