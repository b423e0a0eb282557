package placement

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/quietcore/quietcore/internal/ledger"
	"github.com/quietcore/quietcore/policy"
)

// Cluster is all nodes. Any number of goroutines may use it.
type Cluster struct {
	mu    sync.Mutex // held by those who change something
	nodes atomic.Pointer[table]
	sites map[siteKey]*site
	where map[string]string // the node of each pod on its way, by UID
	// odd are nodes on which a pod without a wish needs a look, too.
	odd atomic.Int64
	// Changed is told of each node on which more may fit than before; nil: nobody is.
	changed func(node string)
}

// NewCluster knows no node. changed is called, with nothing held, when something that was
// held on a node is held no longer, or its rules are others; nil: nothing is.
func NewCluster(changed func(node string)) *Cluster {
	if changed == nil {
		changed = func(string) {}
	}
	c := &Cluster{sites: map[siteKey]*site{}, where: map[string]string{}, changed: changed}
	c.nodes.Store(&table{})
	return c
}

// Node is the present state of a node; nil: nothing was heard of it, or it is gone and no pod is on its way
// there.
func (c *Cluster) Node(name string) *State { return c.nodes.Load().state(name) }

// Glance is that of the present state of a node.
func (c *Cluster) Glance(name string) Glance { return c.nodes.Load().glance(name) }

// Generation is that of a node's ledger; 0: nothing was heard of it.
func (c *Cluster) Generation(name string) uint64 {
	if s := c.Node(name); s != nil {
		return s.generation
	}
	return 0
}

// Odd says that pods without a wish need a look at nodes, too: somewhere CPUs are kept idle,
// or pods are bound to NUMA nodes.
func (c *Cluster) Odd() bool { return c.odd.Load() > 0 }

// Publish takes over what a node says.
func (c *Cluster) Publish(name string, n *ledger.Node) error {
	err := c.publish(name, n)
	c.changed(name)
	return err
}

func (c *Cluster) publish(name string, n *ledger.Node) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.siteOf(n)
	before := c.Node(name)
	next := &State{broken: err, flights: flightsOf(before)}
	if err == nil {
		next.site, next.ledger, next.generation = s, n.Ledger, n.Generation
		newer := before == nil || before.generation != n.Generation
		next.flights = slices.DeleteFunc(slices.Clone(next.flights), func(f flight) bool {
			return c.landed(next.ledger, f)
		})
		for i := range next.flights {
			if f := &next.flights[i]; f.started && newer {
				f.silent++
			}
		}
		next.flights = slices.DeleteFunc(next.flights, func(f flight) bool {
			if f.silent < enoughSilence {
				return false
			}
			delete(c.where, f.holding.UID)
			return true
		})
	}
	next.accept()
	c.store(name, before, next)
	return err
}

// accept finds out what pods hold that other schedulers sent, once there are rules to ask by.
func (s *State) accept() {
	if !s.Known() {
		return
	}
	t := s.site.trial()
	defer s.site.giveBack(t)
	for i := range s.flights {
		f := &s.flights[i]
		if f.wish == nil {
			continue
		}
		if r := f.wish.on(s.site, t); r.refusal == nil {
			f.holding = t.Accept(r.applicant, policy.Standing{Ledger: s.ledger}, f.offer)
		}
	}
}

// holds says that a pod is in the ledger.
func (s *State) holds(uid string) bool {
	return slices.ContainsFunc(s.ledger.Holdings, func(h policy.Holding) bool { return h.UID == uid })
}

// landed says that the ledger knows a pod, which is then not on its way any more.
func (c *Cluster) landed(l *policy.Ledger, f flight) bool {
	known := (&State{ledger: l}).holds(f.holding.UID)
	if known {
		delete(c.where, f.holding.UID)
	}
	return known
}

func flightsOf(s *State) []flight {
	if s == nil {
		return nil
	}
	return s.flights
}

// maxSites bounds what is kept of hardware and rules that no node has any more.
const maxSites = 256

func (c *Cluster) siteOf(n *ledger.Node) (*site, error) {
	key := siteKey{n.Topology, n.Ledger.Rules}
	if s := c.sites[key]; s != nil {
		return s, nil
	}
	s, err := newSite(n.Topology, n.Ledger.Rules)
	if err != nil {
		return nil, err
	}
	if len(c.sites) >= maxSites {
		clear(c.sites)
	}
	c.sites[key] = s
	return s, nil
}

// Broken says that what a node published cannot be read: pods are placed there as if it
// published nothing.
func (c *Cluster) Broken(name string, why error) {
	c.mu.Lock()
	before := c.Node(name)
	c.store(name, before, &State{broken: why, flights: flightsOf(before)})
	c.mu.Unlock()
}

// Gone says that a node publishes nothing any more.
func (c *Cluster) Gone(name string) { c.Broken(name, ledger.ErrNone) }

// store makes a state the present one.
func (c *Cluster) store(name string, before, next *State) {
	next.last = &memo{}
	for _, f := range next.flights {
		next.more = append(next.more, f.holding)
	}
	next.count()
	c.odd.Add(oddity(next) - oddity(before))
	if next.site == nil && errors.Is(next.broken, ledger.ErrNone) && len(next.flights) == 0 {
		next = nil // or nodes that were there once would be kept for ever
	}
	t := c.nodes.Load()
	if at := t.slot(name); at != nil {
		at.store(next)
	} else if next != nil {
		c.nodes.Store(t.with(name, next))
	}
}

func oddity(s *State) int64 {
	if s.Glance().Odd() {
		return 1
	}
	return 0
}

// Take makes a place a pod's, if the node would still give it; else it asks anew. The place
// may then be another.
func (c *Cluster) Take(name string, w *Wish, l Load, p *Place) *policy.Refusal {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.Node(name)
	if !s.Known() {
		return &policy.Refusal{Code: policy.Busy, Message: "the node no longer publishes what pods hold"}
	}
	again, refusal := s.Ask(w, l)
	if refusal != nil {
		return refusal
	}
	*p = again
	if p.Holding.Owns() || p.Holding.Nodes != "" {
		c.add(name, s, flight{holding: p.Holding})
	}
	return nil
}

func (c *Cluster) add(name string, s *State, f flight) {
	next := *s
	next.more, next.counts = nil, counts{}
	next.flights = append(slices.DeleteFunc(slices.Clone(s.flights), func(o flight) bool {
		return o.holding.UID == f.holding.UID
	}), f)
	c.where[f.holding.UID] = name
	next.accept()
	c.store(name, s, &next)
}

// Assigned tells of a pod that is bound to a node, with what its annotation says that it has;
// nothing, if there is none. So a scheduler that starts, or is not the only one, knows of pods
// that their nodes do not show yet. started: the pod runs.
func (c *Cluster) Assigned(name string, w *Wish, o policy.Offer, started bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.Node(name)
	if s == nil {
		s = &State{broken: ledger.ErrNone}
	}
	uid := w.Pod.UID
	for _, f := range s.flights {
		if f.holding.UID == uid {
			if started && !f.started {
				f.started = true
				c.add(name, s, f)
			}
			return
		}
	}
	f := flight{holding: roughly(w, &o), wish: w, offer: o, started: started}
	if o.CPUs.IsEmpty() && o.Nodes.IsEmpty() || s.Known() && c.landed(s.ledger, f) {
		return
	}
	c.add(name, s, f)
}

// roughly is what a pod holds as far as its annotation says it.
func roughly(w *Wish, o *policy.Offer) policy.Holding {
	h := policy.Holding{UID: w.Pod.UID, Namespace: w.Pod.Namespace, Pod: w.Pod.Name, Class: w.Says.Class,
		CPUs: o.CPUs.Pack(), Nodes: o.Nodes.Pack(), Requested: int32(o.CPUs.Count())}
	if !h.Owns() && w.Pod.Resources != nil {
		h.Milli = w.Pod.Resources.RequestMilli
	}
	return h
}

// Drop ends the way of a pod: it is gone, or its binding failed.
func (c *Cluster) Drop(uid string) {
	c.mu.Lock()
	name, ok := c.where[uid]
	if ok {
		delete(c.where, uid)
		s := c.Node(name)
		next := *s
		next.more, next.counts = nil, counts{}
		next.flights = slices.DeleteFunc(slices.Clone(s.flights), func(f flight) bool { return f.holding.UID == uid })
		c.store(name, s, &next)
	}
	c.mu.Unlock()
	if ok {
		c.changed(name)
	}
}
