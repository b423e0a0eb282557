package node

import (
	"cmp"
	"fmt"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

// Status is the health of a core.
type Status struct {
	Frozen   string    // why no decisions are made; empty: they are
	Blind    string    // why listings of cgroups are not trusted; empty: they are
	Unread   int       // pods whose CPUs are not known yet
	Unpinned int       // containers that were last seen on other CPUs than decided
	Unsaved  time.Time // since when the state file is behind; zero: it is not
	// Synchronized means that running pods were taken over at least once.
	Synchronized bool
	Observing    bool   // nothing that is decided is carried out
	Withdrawing  bool   // what was is still being undone
	Rounds       uint64 // completed rounds over all pods
}

// Status is the health of the core.
func (c *Core) Status() Status {
	return Status{Frozen: c.machine.frozen, Blind: c.presence.absences.blind, Unread: c.machine.Unread(),
		Unpinned: len(c.writer.audit.drifted), Unsaved: c.saving.since, Synchronized: c.takeover.once,
		Rounds: c.presence.rounds, Observing: c.mode.observe, Withdrawing: c.withdrawing()}
}

// Unseen says why the daemon does not see all cgroups: their listings are not trusted, or reads are
// outstanding; empty: it does.
func (s *Status) Unseen() string { return cmp.Or(s.Blind, s.Reading()) }

// Reading says what is still being read since the last Synchronize, as long as decisions depend
// on it; empty: nothing.
func (s *Status) Reading() string {
	if s.Unread == 0 {
		return ""
	}
	return fmt.Sprintf("what %d pods own is still being read from their cgroups: until then no mask is written, "+
		"and pods that ask for CPUs of their own are refused as Busy", s.Unread)
}

// Settled reports whether everything decided is written, read back and saved.
func (c *Core) Settled() bool { return c.Unsettled() == "" }

// Unsettled names the first thing that is not; empty: everything is.
func (c *Core) Unsettled() string {
	switch {
	case !c.takeover.once:
		return "running pods were not taken over yet"
	case c.takeover.current != nil || c.machine.Unread() > 0:
		return "cgroups are still being read"
	case len(c.waiters) > 0:
		return "containers wait for their CPUs"
	case len(c.claims) > 0:
		return "claims wait for their CPUs"
	case c.presence.running || c.presence.roundDue:
		return "pods are being looked for"
	case c.saving.dirty || c.saving.busy:
		return "the state is not saved"
	case !c.writer.idle():
		return "cgroups are still being written"
	}
	return ""
}

// Snapshot is the present state of the node.
func (c *Core) Snapshot() *policy.Snapshot { return c.machine.Snapshot() }

// Grants are the CPUs that pods own, by UID, including offline ones.
func (c *Core) Grants() map[string]cpuset.Set {
	grants := map[string]cpuset.Set{}
	if c.machine.frozen != "" {
		for id, at := range c.machine.anchor.decided {
			if at.pod == "" && at.own != nil {
				grants[id] = *at.own
			}
			for _, o := range at.named {
				grants[id] = grants[id].Or(o.CPUs)
			}
		}
		return grants
	}
	for _, pod := range c.machine.Kept().Pods {
		r := pod.Recovered
		if r == nil {
			continue
		}
		if r.CPUs != nil {
			grants[pod.UID] = *r.CPUs
		}
		for i := range r.Owners {
			if cpus := r.Owners[i].CPUs; cpus != nil {
				grants[pod.UID] = grants[pod.UID].Or(*cpus)
			}
		}
	}
	return grants
}

// Knows reports whether a container is known.
func (c *Core) Knows(container string) bool { return c.machine.Knows(container) }

// Pods lists the pods of the node in order of creation.
func (c *Core) Pods() []policy.PodView { return c.machine.Pods() }

// Checkpoint is the whole state of the policy.
func (c *Core) Checkpoint() policy.Synchronized { return c.machine.Checkpoint() }

// Config is the policy's configuration in force.
func (c *Core) Config() policy.Config { return c.machine.anchor.cfg }

// Records are the recorded events, which replay on an empty machine.
func (c *Core) Records() []policy.Record { return c.machine.anchor.recorder.Records() }
