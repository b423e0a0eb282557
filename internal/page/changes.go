package page

import (
	"fmt"
	"slices"
	"time"

	"github.com/quietcore/quietcore/policy"
)

// maxChanges bounds the kept changes; a page shows those since it was opened.
const maxChanges = 200

// change describes something that happened.
type change struct {
	At   int64  `json:"at"` // Unix milliseconds
	Kind string `json:"kind"`
	Who  string `json:"who,omitempty"`
	Text string `json:"text"`
}

// Kinds of change.
const (
	changeCap     = "cap"
	changeUncap   = "uncap"
	changeOwn     = "own"
	changeFree    = "free"
	changeOff     = "off" // best effort is kept off CPUs
	changeBack    = "back"
	changeCPUs    = "cpus"
	changeRuntime = "runtime"
)

// comparer reports what changed between two looks. The first look reports nothing.
type comparer struct {
	begun    bool
	rev      uint64
	topology string // CPUs that are on
	caps     map[string]capped
	owners   map[string]owned
	off      int
	linked   bool
}

type capped struct {
	subject string
	milli   int64
}

type owned struct{ subject, cpus string }

func (c *comparer) compare(now time.Time, l *Look) []change {
	var out []change
	report := func(kind, subject, format string, args ...any) {
		if c.begun {
			out = append(out, change{At: now.UnixMilli(), Kind: kind, Who: subject, Text: fmt.Sprintf(format, args...)})
		}
	}
	if linked := l.Connected && l.Synchronised; linked != c.linked {
		c.linked = linked
		if linked {
			report(changeRuntime, "", "connected to the runtime, and what runs is taken over")
		} else {
			report(changeRuntime, "", "the connection to the runtime is gone")
		}
	}
	s := l.Snapshot
	if c.begun && s.Rev == c.rev {
		return out
	}
	c.rev = s.Rev
	online := s.Topology.Online()
	if text := online.String(); text != c.topology {
		c.topology = text
		report(changeCPUs, "", "CPUs that are on are now %s", text)
	}
	c.compareOwners(s, report)
	c.compareCaps(s, report)
	kept := s.BEWhole.Minus(s.BE)
	switch off := kept.Count(); {
	case off > 0 && c.off == 0:
		report(changeOff, "", "best effort begins to give way: it is kept off CPUs %s", kept.String())
		c.off = off
	case off == 0 && c.off > 0:
		report(changeBack, "", "best effort has its whole pool again")
		c.off = 0
	}
	c.begun = true
	return out
}

type reporter func(kind, subject, format string, args ...any)

func (c *comparer) compareOwners(s *policy.Snapshot, report reporter) {
	now := make(map[string]owned, len(s.Owners))
	for _, o := range s.Owners {
		id, one := o.PodUID, owned{name(o.Namespace) + "/" + name(o.Pod), o.CPUs.String()}
		if o.Container != "" {
			id, one.subject = id+"/"+o.Container, one.subject+"/"+name(o.Container)
		}
		now[id] = one
		switch was, known := c.owners[id]; {
		case !known:
			report(changeOwn, one.subject, "owns CPUs %s", one.cpus)
		case was.cpus != one.cpus:
			report(changeOwn, one.subject, "owns CPUs %s, before %s", one.cpus, was.cpus)
		}
	}
	for _, uid := range ended(c.owners, now) {
		report(changeFree, c.owners[uid].subject, "no longer owns CPUs %s", c.owners[uid].cpus)
	}
	c.owners = now
}

func (c *comparer) compareCaps(s *policy.Snapshot, report reporter) {
	now := map[string]capped{}
	for _, v := range s.Containers {
		if v.CapMilli <= 0 {
			continue
		}
		one := capped{name(v.Namespace) + "/" + name(v.Pod) + "/" + name(v.Name), v.CapMilli}
		now[v.ID] = one
		if was := c.caps[v.ID]; was.milli != one.milli {
			report(changeCap, one.subject, "is capped at %dm", one.milli)
		}
	}
	for _, id := range ended(c.caps, now) {
		report(changeUncap, c.caps[id].subject, "is no longer capped")
	}
	c.caps = now
}

// ended returns the keys that are gone, in order.
func ended[V any](before, now map[string]V) []string {
	var list []string
	for key := range before {
		if _, still := now[key]; !still {
			list = append(list, key)
		}
	}
	slices.Sort(list)
	return list
}
