// Package agent follows QuietcorePolicy objects for one node: it carries out what package rollout decides.
//
// Nothing waits for it, and it waits for the API server alone. What was taken over last is kept by its caller, and is
// in force at the next start whether or not the API server answers. Objects are read by one watch a kind. A node writes
// its turn, twice a change, and its QuietcoreNode where that has something new to say.
package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quietcore/quietcore/internal/kube"
	"github.com/quietcore/quietcore/internal/rollout"
)

// Options are what an Agent is made of.
type Options struct {
	Node    string
	Version string
	API     API
	Log     *slog.Logger
	Now     func() time.Time
	// Tick says when to look again though nothing was heard.
	Tick <-chan time.Time
	// Random draws places, and how long is waited before a request that all nodes may make at once.
	Random func() uint64
	// Spread is within what time nodes ask for a turn, or report, where all have a reason at once; 0: ten seconds.
	Spread time.Duration
	// NodeUID is that of the Node object; empty: not known.
	NodeUID func() types.UID

	// Applied is what is in force from before.
	Applied rollout.Applied
	// Keep keeps what is in force over a restart.
	Keep func(rollout.Applied) error
	// Apply takes over what a policy says; nil: the file alone. On an error nothing has changed.
	Apply func(ctx context.Context, config []byte) error
	// Lacks says of what does not work now why, by name.
	Lacks func() map[string]string
	// Report counts a request about what, "policies" or "turns".
	Report func(what string, err error)
}

const (
	// MaxPolicies bounds how many policies are looked at, and so how much memory they take.
	MaxPolicies = 100
	usualSpread = 10 * time.Second
	// Failed requests are made again after firstPause, doubled up to mostPause.
	firstPause, mostPause = time.Second, time.Minute
	// reportEvery is when a report is written though nothing is new: somebody may have deleted it.
	reportEvery = 30 * time.Minute
	// maxActs bounds what is done in a row.
	maxActs = 10
)

// Agent follows policies. Its methods are safe for concurrent use; Run must be called once at most.
type Agent struct {
	o     Options
	heard chan struct{} // holds one when something of seen is new
	said  atomic.Pointer[Report]
	// unsaid is why the node's QuietcoreNode is not up to date; nil: it is.
	unsaid atomic.Pointer[string]

	mu   sync.Mutex
	seen seen

	// Run's alone.
	applied rollout.Applied
	refused rollout.Refused
	unkept  string          // why applied cannot be kept
	own     map[string]turn // by name: turns of this node, as this process wrote them
	gone    map[string]bool // UIDs of turns that were given back, until the watch has seen it
	works   condition
	take    time.Time // when to ask for a turn; zero: nothing is wanted
	again   pause     // of requests that failed
	report  reporting
}

// seen is what the API server said.
type seen struct {
	labels                 map[string]string
	policies               []rollout.Policy
	turns                  []rollout.Turn
	readPolicies, readTurn bool
	retry                  bool // what was refused may not be any more
}

// turn is one that this process wrote; followed: the watch has it.
type turn struct {
	rollout.Turn
	followed bool
}

// condition is since when all works, or not.
type condition struct {
	broken string
	since  time.Time
}

type pause struct {
	until time.Time
	last  time.Duration
}

func (p *pause) failed(now time.Time) {
	p.last = min(max(2*p.last, firstPause), mostPause)
	p.until = now.Add(p.last)
}

// reporting is what is known of the node's QuietcoreNode.
type reporting struct {
	written Report
	at      time.Time // zero: never
	due     time.Time // zero: not
	again   pause
}

// New makes an Agent.
func New(o Options) *Agent {
	o.Spread = cmp.Or(o.Spread, usualSpread)
	a := &Agent{o: o, heard: make(chan struct{}, 1), applied: o.Applied, own: map[string]turn{},
		gone: map[string]bool{}, works: condition{since: o.Now()}}
	a.say(&rollout.Step{State: rollout.Unknown})
	return a
}

// Customs are the objects that are to be followed for it.
func (a *Agent) Customs() []*kube.Custom {
	return []*kube.Custom{
		{Part: "policies", Path: PoliciesPath, Kind: PolicyKind, Max: rollout.MaxSpec, On: a.takePolicies},
		{Part: "turns", Path: TurnsPath, Kind: TurnKind, Max: 4 << 10, On: a.takeTurns},
	}
}

// Labels takes the Node's labels.
func (a *Agent) Labels(labels map[string]string) { a.hear(func(s *seen) { s.labels = labels }) }

// Retry has what was refused tried anew: the file has changed.
func (a *Agent) Retry() { a.hear(func(s *seen) { s.retry = true }) }

func (a *Agent) takePolicies(objects []kube.CustomObject) {
	policies := make([]rollout.Policy, 0, min(len(objects), MaxPolicies))
	for i := range objects[:min(len(objects), MaxPolicies)] {
		o := &objects[i]
		p := rollout.ReadPolicy(o.Name, o.Generation, o.Spec)
		if o.TooLarge {
			p.Bad = fmt.Sprintf("its spec has more than %d bytes", rollout.MaxSpec)
		}
		policies = append(policies, p)
	}
	if len(objects) > MaxPolicies {
		policies[0].Bad = fmt.Sprintf("there are %d policies, at most %d are read", len(objects), MaxPolicies)
	}
	a.hear(func(s *seen) { s.policies, s.readPolicies = policies, true })
}

func (a *Agent) takeTurns(objects []kube.CustomObject) {
	turns := make([]rollout.Turn, 0, len(objects))
	for i := range objects {
		if t, ok := readTurn(&objects[i]); ok {
			turns = append(turns, t)
		}
	}
	a.hear(func(s *seen) { s.turns, s.readTurn = turns, true })
}

func (a *Agent) hear(what func(*seen)) {
	a.mu.Lock()
	what(&a.seen)
	a.mu.Unlock()
	select {
	case a.heard <- struct{}{}:
	default:
	}
}

// Report is what the node says of itself now.
func (a *Agent) Report() Report { return *a.said.Load() }

// Problem is what an operator has to mend; empty: nothing.
func (a *Agent) Problem() string {
	r := a.Report()
	switch r.State {
	case rollout.Rejected:
		return fmt.Sprintf("policy %s, revision %d, is refused, and what was before stays: %s", r.Policy, r.Revision,
			r.Why)
	case rollout.Doubtful:
		return "what was in force stays: " + r.Why
	case rollout.Failed:
		return fmt.Sprintf("since policy %s, revision %d, is in force: %s", r.Policy, r.Revision, r.Why)
	case rollout.Current, rollout.File, rollout.Unknown:
		if r.Why != "" {
			return r.Why
		}
	}
	if why := a.unsaid.Load(); why != nil {
		return *why
	}
	return ""
}

// Run follows policies until ctx ends.
func (a *Agent) Run(ctx context.Context) {
	for {
		for range maxActs {
			if !a.step(ctx) {
				break
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-a.heard:
		case <-a.o.Tick:
		}
	}
}

// step decides once and carries it out. It reports whether something was done, after which there may be more to do.
func (a *Agent) step(ctx context.Context) bool {
	now := a.o.Now()
	a.look(now)
	v := a.view(now)
	s := rollout.Decide(&v)
	a.say(&s)
	a.tell(ctx, now)
	if s.Act != rollout.Take {
		a.take = time.Time{}
	}
	switch s.Act {
	case rollout.Nothing:
		return false
	case rollout.Apply:
		return a.apply(ctx, &s)
	case rollout.Adopt:
		a.applied.Policy, a.applied.Generation, a.refused = s.Policy.Name, s.Policy.Generation, rollout.Refused{}
		return a.keep()
	case rollout.Settle:
		a.applied.Settled = true
		a.o.Log.Info("the node works with its policy", "policy", s.Policy.Name, "revision", s.Policy.Generation)
		return a.keep()
	case rollout.Revert:
		return a.revert(ctx)
	}
	if now.Before(a.again.until) || s.Act == rollout.Take && !a.mayTake(now) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	return a.request(ctx, &s)
}

// mayTake has the nodes that see a free place ask for it one after the other, mostly.
func (a *Agent) mayTake(now time.Time) bool {
	if a.take.IsZero() {
		a.take = now.Add(a.within(a.o.Spread))
	}
	return !now.Before(a.take)
}

func (a *Agent) within(d time.Duration) time.Duration { return time.Duration(a.o.Random() % uint64(d)) }

// look notes what works.
func (a *Agent) look(now time.Time) {
	var broken []string
	for what, why := range a.o.Lacks() {
		if slices.Contains(a.applied.Lacked, what) {
			continue
		}
		if why != "" {
			what += ": " + why
		}
		broken = append(broken, what)
	}
	slices.Sort(broken)
	text := strings.Join(broken, "; ")
	if (text == "") != (a.works.broken == "") {
		a.works.since = now
	}
	if shape(text) != shape(a.works.broken) {
		a.works.broken = text
	}
}

// shape is a text without its numbers: how long something has been broken is no news.
func shape(text string) string {
	return strings.Map(func(r rune) rune {
		if '0' <= r && r <= '9' {
			return -1
		}
		return r
	}, text)
}

// view is what the API server said, with what this process knows better.
func (a *Agent) view(now time.Time) rollout.View {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen.retry {
		a.seen.retry, a.refused = false, rollout.Refused{}
	}
	v := rollout.View{Now: now, Node: a.o.Node, Labels: a.seen.labels, Read: a.seen.readPolicies && a.seen.readTurn,
		Policies: a.seen.policies, Applied: a.applied, Refused: a.refused, Draw: a.o.Random()}
	if v.Works = a.works.since; a.works.broken != "" {
		v.Broken, v.BrokenSince = a.works.broken, a.works.since
	}
	there := map[string]bool{}
	for _, t := range a.seen.turns {
		there[t.UID] = true
		if a.gone[t.UID] {
			continue
		}
		if own, ok := a.own[t.Name]; ok && own.UID == t.UID {
			own.followed = true
			a.own[t.Name], t = own, own.Turn
		}
		v.Turns = append(v.Turns, t)
	}
	for uid := range a.gone {
		if !there[uid] {
			delete(a.gone, uid)
		}
	}
	for name, own := range a.own {
		switch {
		case there[own.UID]:
		case own.followed:
			delete(a.own, name) // somebody took it away
		default:
			v.Turns = append(v.Turns, own.Turn)
		}
	}
	return v
}

func (a *Agent) apply(ctx context.Context, s *rollout.Step) bool {
	p := s.Policy
	log := a.o.Log.With("policy", p.Name, "revision", p.Generation)
	lacks := slices.Sorted(maps.Keys(a.o.Lacks()))
	if err := a.o.Apply(ctx, p.Config); err != nil {
		if ctx.Err() != nil {
			return false
		}
		why := err.Error()
		log.Error("the policy is refused; what was in force stays", "err", err)
		if rollout.Stops(p.Config) {
			why += a.stop(ctx, p)
		}
		a.refused = rollout.Refused{Policy: p.Name, Generation: p.Generation, Config: p.Config, Why: why}
		return true
	}
	a.applied, a.refused = a.applied.Of(p, a.o.Now().UTC().Truncate(time.Second), lacks), rollout.Refused{}
	a.works = condition{since: a.o.Now()}
	log.Info("the policy is in force")
	return a.keep()
}

// stop ends enforcement where a policy says so that is refused: who ends it in an incident does not wait until a
// mistake beside it is found. All else stays as it was. It returns how to go on after the reason of the refusal.
func (a *Agent) stop(ctx context.Context, p *rollout.Policy) (then string) {
	next := a.applied
	if next.Config = rollout.Stopped(next.Config); next.Policy == "" {
		next.Policy, next.Generation, next.Since = p.Name, p.Generation, a.o.Now().UTC().Truncate(time.Second)
	}
	if err := a.o.Apply(ctx, next.Config); err != nil {
		a.o.Log.Error("enforcement goes on, though a policy says mode: observe", "policy", p.Name, "err", err)
		return "; so is its mode: observe: " + err.Error()
	}
	next.Settled = true
	a.applied = next
	a.o.Log.Warn("a policy is refused, but for its mode: observe", "policy", p.Name, "revision", p.Generation)
	a.keep()
	return "; its mode: observe is in force all the same"
}

func (a *Agent) revert(ctx context.Context) bool {
	if err := a.o.Apply(ctx, nil); err != nil {
		a.unkept = "no policy selects the node any more, and its file is refused: " + err.Error()
		return false
	}
	a.o.Log.Info("no policy selects the node any more; its file counts", "was", a.applied.Policy)
	a.applied, a.refused = rollout.Applied{}, rollout.Refused{}
	return a.keep()
}

// keep has what is in force survive a restart. It counts whether or not that works.
func (a *Agent) keep() bool {
	a.unkept = ""
	if err := a.o.Keep(a.applied); err != nil {
		a.unkept = "a restart of the daemon would undo what a policy changed: " + err.Error()
		a.o.Log.Error("the policy in force cannot be kept", "err", err)
	}
	return true
}

// request makes a request about a turn.
func (a *Agent) request(ctx context.Context, s *rollout.Step) bool {
	t := s.Turn
	var err error
	switch s.Act {
	case rollout.Take:
		a.take = time.Time{}
		t.UID, err = a.o.API.Take(ctx, a.node(), &t)
	case rollout.Renew:
		t.Generation, t.Failed = s.Policy.Generation, ""
		err = a.o.API.Mark(ctx, &t)
	case rollout.Fail:
		t.Failed = s.Why
		err = a.o.API.Mark(ctx, &t)
	case rollout.Release:
		err = a.o.API.Release(ctx, &t)
	}
	a.o.Report("turns", err)
	switch {
	case s.Act == rollout.Take && apierrors.IsAlreadyExists(err):
		return false // the watch will say who was first
	case s.Act != rollout.Take && gone(err), err == nil && s.Act == rollout.Release:
		a.gone[t.UID] = true
		delete(a.own, t.Name)
	case err != nil:
		a.again.failed(a.o.Now())
		a.o.Log.Warn("the turn to change is not written", "turn", t.Name, "err", err)
		return false
	default:
		t.Sure = true
		a.own[t.Name] = turn{Turn: t, followed: a.own[t.Name].followed && a.own[t.Name].UID == t.UID}
	}
	a.again = pause{}
	return true
}

func (a *Agent) node() Node { return Node{a.o.Node, a.o.NodeUID()} }

// say has the report ready for who asks.
func (a *Agent) say(s *rollout.Step) {
	r := Report{State: s.State, Why: s.Why, Version: a.o.Version}
	if s.Policy != nil {
		r.Policy, r.Revision = s.Policy.Name, s.Policy.Generation
	}
	if a.applied.Policy != "" {
		r.Applied = &InForce{a.applied.Policy, a.applied.Generation, a.applied.Since}
	}
	if r.Why == "" {
		r.Why = a.unkept
	}
	a.said.Store(&r)
}

// tell writes the node's QuietcoreNode where it has something new to say. All nodes may have at once.
func (a *Agent) tell(ctx context.Context, now time.Time) {
	r := a.Report()
	if r.State == rollout.Unknown {
		return
	}
	w := &a.report
	if same(&r, &w.written) && !w.at.IsZero() && now.Sub(w.at) < reportEvery {
		w.due = time.Time{}
		return
	}
	if w.due.IsZero() {
		w.due = now.Add(a.within(a.o.Spread / 2))
	}
	if now.Before(w.due) || now.Before(w.again.until) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	err := a.o.API.Report(ctx, a.node(), &r)
	a.o.Report("policies", err)
	if err != nil {
		w.again.failed(now)
		why := "what the node says of its policy is not written: " + err.Error()
		if a.unsaid.Swap(&why) == nil {
			a.o.Log.Warn("what the node says of its policy is not written", "err", err)
		}
		return
	}
	a.unsaid.Store(nil)
	*w = reporting{written: r, at: now}
}

func same(a, b *Report) bool {
	x, y := *a, *b
	x.Applied, y.Applied = nil, nil
	return x == y && (a.Applied == nil) == (b.Applied == nil) && (a.Applied == nil || *a.Applied == *b.Applied)
}
