package nrt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// writeEvery bounds how often the object is written.
	writeEvery = time.Second
	// lookEvery is how often the object is checked for changes by others and for
	// deletion.
	lookEvery = 5 * time.Minute
	// absentEvery is how often a missing CRD is looked for.
	absentEvery    = 3 * time.Minute
	firstRetry     = time.Second
	lastRetry      = 5 * time.Minute
	requestTimeout = 10 * time.Second
	// conflictPause is the pause after another manager undid our takeover.
	conflictPause = time.Hour
)

// Options of a Publisher. API, Source and Log are required.
type Options struct {
	API API
	// Source builds the present object; nil while the state is unknown. Only Run calls
	// it.
	Source func() *v1alpha2.NodeResourceTopology
	Log    *slog.Logger
	// Report is called with the result of every request: ok, error, forbidden or
	// timeout.
	Report func(result string)
	// Published is called with the time at which the object was last known to be up to
	// date.
	Published func(time.Time)

	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
	// Spread varies a long wait, so that nodes do not send requests in step.
	Spread func(time.Duration) time.Duration
}

// Publisher keeps one NodeResourceTopology up to date.
type Publisher struct {
	o     Options
	dirty chan struct{}

	mu    sync.Mutex // guards what other goroutines use
	state string
	good  time.Time

	// The fields below belong to the goroutine of Run.
	version  string
	name     string
	body     []byte // as last written; nil: a write is due
	seen     string // the resource version after it
	retry    time.Duration
	takeover map[string]time.Time // when fields were taken back from a manager
}

// New makes a publisher.
func New(o Options) *Publisher {
	if o.Report == nil {
		o.Report = func(string) {}
	}
	if o.Published == nil {
		o.Published = func(time.Time) {}
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
	return &Publisher{o: o, dirty: make(chan struct{}, 1), state: "not written yet", takeover: map[string]time.Time{}}
}

// Changed says that Source may return another object. It never blocks.
func (p *Publisher) Changed() {
	select {
	case p.dirty <- struct{}{}:
	default:
	}
}

// State says why the object is not up to date; empty if it is.
func (p *Publisher) State() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// Age is how long ago the object was last known to be up to date; ok is false if it
// never was.
func (p *Publisher) Age() (age time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.o.Now().Sub(p.good), !p.good.IsZero()
}

// waits is how long the next attempt waits: at least if there is a change, and at most.
type waits struct{ change, most time.Duration }

// Run writes until ctx ends; it does not return earlier.
func (p *Publisher) Run(ctx context.Context) {
	changed := true
	notBefore, due := p.o.Now(), p.o.Now()
	for ctx.Err() == nil {
		now := p.o.Now()
		if look := !now.Before(due); look || changed && !now.Before(notBefore) {
			changed = false
			select {
			case <-p.dirty: // the next object has these changes
			default:
			}
			w := p.attempt(ctx, look)
			now = p.o.Now()
			notBefore, due = now.Add(w.change), now.Add(w.most)
			continue
		}
		until := due
		if changed && notBefore.Before(due) {
			until = notBefore
		}
		select {
		case <-ctx.Done():
		case <-p.dirty:
			changed = true
		case <-p.o.After(until.Sub(now)):
		}
	}
}

// attempt brings the object up to date, or finds out why that is impossible.
func (p *Publisher) attempt(ctx context.Context, look bool) waits {
	o := p.o.Source()
	if o == nil {
		p.set("the machine is not known yet") // as at every start
		return waits{writeEvery, writeEvery}
	}
	if o.Name == "" {
		p.setState("the node's name is not known; set node.name or the environment variable NODE_NAME")
		return p.later(lookEvery)
	}
	if o.Name != p.name {
		p.name, p.body, p.seen = o.Name, nil, ""
	}
	err := p.update(ctx, o, look)
	var foreign *ownedByOtherError
	switch {
	case ctx.Err() != nil:
		return waits{}
	case err == nil:
		p.retry = 0
		p.published()
		return waits{writeEvery, p.o.Spread(lookEvery)}
	case errors.As(err, &foreign):
		p.body = nil
		p.setState(err.Error())
		return p.later(lookEvery)
	case errors.Is(err, errAbsent):
		p.version, p.body = "", nil
		p.setState(err.Error())
		return p.later(absentEvery)
	}
	p.body = nil
	p.setState(fmt.Sprintf("not written: %v", err))
	p.retry = min(max(p.retry*2, firstRetry), lastRetry)
	return p.later(p.retry)
}

// later waits for d, whether or not anything changes.
func (p *Publisher) later(d time.Duration) waits {
	d = p.o.Spread(d)
	return waits{d, d}
}

func (p *Publisher) update(ctx context.Context, o *v1alpha2.NodeResourceTopology, look bool) error {
	if p.version == "" {
		var served []string
		err := p.ask(ctx, func(ctx context.Context) (err error) { served, err = p.o.API.Versions(ctx); return err })
		if err == nil {
			p.version, err = choose(served)
		}
		if err != nil {
			return err
		}
	}
	body, err := encode(o, p.version)
	if err != nil {
		return fmt.Errorf("encode the object: %w", err)
	}
	if p.body != nil && bytes.Equal(body, p.body) && (!look || p.unchanged(ctx)) {
		return nil
	}
	return p.write(ctx, o, body)
}

// unchanged checks that the object was not touched since it was written.
func (p *Publisher) unchanged(ctx context.Context) bool {
	var got *v1alpha2.NodeResourceTopology
	err := p.ask(ctx, func(ctx context.Context) (err error) {
		got, err = p.o.API.Get(ctx, p.version, p.name)
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		p.o.Log.Warn("the NodeResourceTopology was deleted; writing it again", "node", p.name)
		return false
	case err != nil:
		return false // the write reports what is wrong
	}
	return got.ResourceVersion == p.seen
}

func (p *Publisher) write(ctx context.Context, o *v1alpha2.NodeResourceTopology, body []byte) error {
	sent := body
	got, err := p.apply(ctx, Applied{Name: o.Name, Body: sent})
	if o.Attributes != nil && undeclared(err) {
		// Another writer used v1alpha1, and the API server merges in the versions of
		// all writers. topologyPolicies carry the same as the attributes.
		plain := *o
		plain.Attributes = nil
		if sent, err = encode(&plain, p.version); err == nil {
			got, err = p.apply(ctx, Applied{Name: o.Name, Body: sent})
		}
	}
	if apierrors.IsConflict(err) {
		got, err = p.resolve(ctx, o, sent, err)
	}
	if apierrors.IsNotFound(err) {
		return errAbsent // an apply would create the object: the CRD is gone
	}
	if err != nil {
		return err
	}
	p.body, p.seen = body, got.ResourceVersion
	return nil
}

func (p *Publisher) apply(ctx context.Context, a Applied) (got *v1alpha2.NodeResourceTopology, err error) {
	err = p.ask(ctx, func(ctx context.Context) (err error) { got, err = p.o.API.Apply(ctx, p.version, a); return err })
	return got, err
}

// ask bounds a request in time and reports its result.
func (p *Publisher) ask(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := request(ctx)
	p.o.Report(result(err))
	return err
}

func (p *Publisher) published() {
	now := p.o.Now()
	p.setState("")
	p.mu.Lock()
	p.good = now
	p.mu.Unlock()
	p.o.Published(now)
}

func (p *Publisher) set(state string) (was string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was, p.state = p.state, state
	return was
}

// setState sets the state and logs it if it changed.
func (p *Publisher) setState(state string) {
	switch was := p.set(state); {
	case was == state:
	case state == "":
		p.o.Log.Info("the NodeResourceTopology is up to date", "node", p.name, "version", p.version)
	default:
		p.o.Log.Warn("the NodeResourceTopology is not up to date", "node", p.name, "why", state)
	}
}
