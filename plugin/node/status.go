package node

import (
	"cmp"
	"fmt"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

// Status is how a core is doing.
type Status struct {
	Frozen   string    // why no decisions are made; empty: they are
	Blind    string    // why the cgroups that are seen are not believed; empty: they are
	Unread   int       // pods of which it is not known yet what they own
	Unpinned int       // containers that were last seen to run elsewhere than decided
	Unsaved  time.Time // since when the state file is behind; zero: it is not
	// Synchronized says that what runs was taken over at least once.
	Synchronized bool
	Rounds       uint64 // looks over all pods that have ended
}

// Status is how the core is doing.
func (c *Core) Status() Status {
	return Status{Frozen: c.machine.frozen, Blind: c.presence.absences.blind, Unread: c.machine.Unread(),
		Unpinned: len(c.writer.audit.drifted), Unsaved: c.saving.since, Synchronized: c.takeover.once,
		Rounds: c.presence.rounds}
}

// Unseen says what of the cgroups is not seen: that they are not believed, or not read
// yet; empty: all is well.
func (s *Status) Unseen() string { return cmp.Or(s.Blind, s.Reading()) }

// Reading says what of the node is still being read since the last Synchronize; empty:
// nothing that anything waits for.
func (s *Status) Reading() string {
	if s.Unread == 0 {
		return ""
	}
	return fmt.Sprintf("what %d pods own is still being read from their cgroups: until then no mask is written, "+
		"and pods that ask for CPUs of their own are refused as Busy", s.Unread)
}

// Settled reports whether everything decided is written, read back and saved.
func (c *Core) Settled() bool { return c.Unsettled() == "" }

// Unsettled names what is not: the first of it; empty: all is.
func (c *Core) Unsettled() string {
	switch {
	case !c.takeover.once:
		return "what runs was not taken over yet"
	case c.takeover.current != nil || c.machine.Unread() > 0:
		return "cgroups are still being read"
	case len(c.waiters) > 0:
		return "containers wait for their CPUs"
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

// Grants is what pods own, by UID, offline CPUs included.
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
	for _, pod := range c.machine.Checkpoint().Pods {
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

// Checkpoint is what the policy holds.
func (c *Core) Checkpoint() policy.Synchronized { return c.machine.Checkpoint() }

// Config is the policy's configuration in force.
func (c *Core) Config() policy.Config { return c.machine.anchor.cfg }

// Records is what happened, in a form that replays on an empty machine.
func (c *Core) Records() []policy.Record { return c.machine.anchor.recorder.Records() }
