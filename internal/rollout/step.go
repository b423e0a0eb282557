package rollout

import (
	"bytes"
	"fmt"
	"time"
)

// Turn is a QuietcoreTurn: the leave of one node to change.
type Turn struct {
	Name, UID string
	Policy    string // its name
	Place     int
	Node      string
	// Generation is the policy's that the node may take over.
	Generation int64
	// Failed is why the node does not work; empty: it does, as far as is known.
	Failed string
	// Sure says that the API server has confirmed to this process that there is the turn: a watch may show one that was
	// given back.
	Sure bool
}

// Applied is the policy that a node has taken over; the zero value: none, its file alone counts.
type Applied struct {
	Policy     string `json:"policy"`
	Generation int64  `json:"revision"`
	Config     []byte `json:"config"`
	// Since is when that was, and Lacked what did not work before.
	Since  time.Time `json:"since"`
	Lacked []string  `json:"lacked,omitempty"`
	// Settled means that the node has worked with it for a while, or did not have to.
	Settled bool `json:"settled,omitempty"`
}

// Of is what a node has applied that takes p over at now, after a. lacks is what does not work. A node that has not
// settled since an earlier change is measured by what worked before that one.
func (a *Applied) Of(p *Policy, now time.Time, lacks []string) Applied {
	next := Applied{Policy: p.Name, Generation: p.Generation, Config: p.Config, Since: now, Lacked: lacks,
		Settled: p.stops()}
	if a.Policy != "" && !a.Settled {
		next.Lacked = a.Lacked
	}
	return next
}

// is reports whether that is all that p says.
func (a *Applied) is(p *Policy) bool { return a.Policy != "" && bytes.Equal(a.Config, p.Config) }

// Refused is a policy that could not be taken over.
type Refused struct {
	Policy     string
	Generation int64
	Config     []byte
	Why        string // empty: there is none
}

func (r *Refused) is(p *Policy) bool {
	return r.Why != "" && r.Policy == p.Name && r.Generation == p.Generation && bytes.Equal(r.Config, p.Config)
}

// View is what a daemon sees when it decides.
type View struct {
	Now  time.Time
	Node string
	// Labels are the Node's; nil: not known. Read says that the policies and the turns are known.
	Labels   map[string]string
	Read     bool
	Policies []Policy
	Turns    []Turn // of all policies and nodes

	Applied Applied
	Refused Refused
	// Broken is what does not work that worked when the policy was taken over; empty: all does. Since when.
	Broken      string
	BrokenSince time.Time
	// Works is since when everything works.
	Works time.Time
	// Draw chooses among free places.
	Draw uint64
}

// Act is what a daemon has to do next.
type Act int

// The acts. Each is safe to repeat.
const (
	Nothing Act = iota
	Apply       // take over Step.Policy
	Adopt       // note that Step.Policy is what is in force
	Settle      // note that the node has worked with it for long enough
	Revert      // go back to the file
	Take        // create Step.Turn
	Renew       // make Step.Turn one of Step.Policy's generation, not failed
	Fail        // mark Step.Turn as failed by Step.Why; empty: it works again
	Release     // delete Step.Turn
)

// State is how far a node is, in a word.
type State string

// The states.
const (
	Unknown  State = "Unknown"  // the API server has not said what there is
	File     State = "File"     // no policy selects the node
	Current  State = "Applied"  // the policy is in force
	Settling State = "Settling" // and the node has to work for a while
	Waiting  State = "Waiting"  // for a turn
	Halted   State = "Halted"   // another node has failed
	Failed   State = "Failed"   // this node has failed
	Rejected State = "Refused"  // the policy is bad for this node
	Doubtful State = "Conflict" // which policy counts is not known
)

// Step is what follows from a View.
type Step struct {
	Act    Act
	Policy *Policy // wanted; nil: none, or not known
	Turn   Turn
	State  State
	Why    string
	// Again is when to decide anew though nothing was heard; zero: never.
	Again time.Time
}

// BrokenFor is how long something has to be broken before a node has failed: parts that are made anew take a moment.
const BrokenFor = 10 * time.Second

// Decide says what a daemon does next. The same view always gives the same step.
func Decide(v *View) Step {
	if !v.Read || v.Labels == nil {
		return Step{State: Unknown}
	}
	p, doubt := Choose(v.Policies, v.Labels)
	switch {
	case doubt != "":
		return v.idle(nil, Step{State: Doubtful, Why: doubt})
	case p == nil && v.Applied.Policy != "":
		return Step{Act: Revert, State: File}
	case p == nil:
		return v.idle(nil, Step{State: File})
	case v.Applied.is(p):
		return v.settle(p)
	case v.Refused.is(p):
		return v.refuse(p)
	case p.stops():
		return Step{Act: Apply, Policy: p, State: Settling}
	}
	return v.change(p)
}

// own is the turn of a policy that this node holds; without one, ok is false.
func (v *View) own(p *Policy) (t Turn, ok bool) {
	for _, t := range v.Turns {
		if p != nil && t.Node == v.Node && t.Policy == p.Name {
			return t, true
		}
	}
	return Turn{}, false
}

// idle is a step in which nothing is changed. A node that is not between two configurations gives turns back that are
// not of p.
func (v *View) idle(p *Policy, s Step) Step {
	s.Policy = p
	if v.Applied.Policy != "" && !v.Applied.Settled {
		return s
	}
	for _, t := range v.Turns {
		if t.Node == v.Node && (p == nil || t.Policy != p.Name) {
			s.Act, s.Turn = Release, t
			return s
		}
	}
	return s
}

// settle goes on where what p says is in force.
func (v *View) settle(p *Policy) Step {
	s := Step{Policy: p, State: Current}
	if v.Applied.Policy != p.Name || v.Applied.Generation != p.Generation {
		s.Act = Adopt
		return s
	}
	own, held := v.own(p)
	if v.Applied.Settled && held {
		s.Act, s.Turn = Release, own
		return s
	}
	if v.Applied.Settled {
		return v.idle(p, s)
	}
	settled := later(v.Applied.Since, v.Works).Add(p.SettleFor)
	switch {
	case v.Broken != "":
		s.State, s.Why = Failed, v.Broken
		if failed := v.BrokenSince.Add(BrokenFor); v.Now.Before(failed) {
			s.State, s.Again = Settling, failed
		} else if held && own.Failed == "" {
			s.Act, s.Turn = Fail, own
		}
	case held && own.Failed != "":
		s.Act, s.Turn, s.State = Fail, own, Settling
	case v.Now.Before(settled):
		s.State, s.Again = Settling, settled
	default:
		s.Act = Settle
	}
	return s
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// refuse keeps what is in force, and the turn marked.
func (v *View) refuse(p *Policy) Step {
	s := Step{Policy: p, State: Rejected, Why: v.Refused.Why}
	if own, held := v.own(p); held && own.Failed == "" {
		s.Act, s.Turn = Fail, own
		return s
	}
	return v.idle(p, s)
}

// change begins, or waits for the node's turn.
func (v *View) change(p *Policy) Step {
	if s := v.idle(p, Step{State: Waiting}); s.Act == Release {
		return s
	}
	own, held := v.own(p)
	switch {
	case held && own.Sure && own.Generation == p.Generation:
		return Step{Act: Apply, Policy: p, Turn: own, State: Settling}
	case held:
		return Step{Act: Renew, Policy: p, Turn: own, State: Waiting}
	}
	taken := map[int]bool{}
	used := 0
	for i := range v.Turns {
		t := &v.Turns[i]
		if t.Policy != p.Name {
			continue
		}
		if t.Failed != "" && t.Generation == p.Generation {
			return Step{Policy: p, State: Halted, Why: fmt.Sprintf("node %s: %s", t.Node, t.Failed)}
		}
		taken[t.Place] = true
		used++
	}
	var free []int
	for place := range p.MaxUnavailable {
		if !taken[place] {
			free = append(free, place)
		}
	}
	if used >= p.MaxUnavailable || len(free) == 0 {
		return Step{Policy: p, State: Waiting}
	}
	place := free[v.Draw%uint64(len(free))]
	return Step{Act: Take, Policy: p, State: Waiting, Turn: Turn{Name: fmt.Sprintf("%s.%d", p.Name, place),
		Policy: p.Name, Place: place, Node: v.Node, Generation: p.Generation}}
}
