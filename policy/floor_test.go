package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// isolated and rounded are LSR pods whose cores no other pod may use, or that are rounded up.
func isolated(name string, milli int64) Pod {
	return lsr(name, milli, map[string]string{AnnSMT: "isolate"})
}
func rounded(name string, milli int64) Pod {
	return lsr(name, milli, map[string]string{AnnSMT: "roundup"})
}

func bestEffort(name string, milli int64) Pod {
	p := ls(name, milli, nil)
	p.Labels = map[string]string{LabelClass: "BE"}
	return p
}

// refusal steps an event and returns why it was refused; empty: it was not.
func refusal(m *Machine, e Event) string {
	if _, err := m.Step(time.Unix(1e9, 0), e); err != nil {
		return err.Error()
	}
	return ""
}

// Two sockets of four cores with two threads. What the pods of the shared pool request is
// theirs, whatever way a later owner would take it.
func TestTheSharedPoolKeepsWhatItsPodsRequest(t *testing.T) {
	one := map[string]string{AnnNUMASpec: `{"numaTopologyPolicy":"SingleNUMANode"}`}
	resized := func(name string, milli int64) Event {
		return PodResized{Sandbox: name, Resources: Resources{RequestMilli: milli, LimitMilli: milli}}
	}
	for _, c := range []struct {
		name   string
		cfg    Config
		before []Event
		event  Event
		want   string // part of the refusal; empty: accepted
	}{
		{"isolation", Config{}, []Event{PodRun{Pod: ls("web", 8000, nil)}}, PodRun{Pod: isolated("db", 7000)},
			"InsufficientCPUs: giving 14 CPUs away exclusively would leave the shared pool 2 of its 16 CPUs; " +
				"its pods request 8000m"},
		{"isolation that fits", Config{}, []Event{PodRun{Pod: ls("web", 8000, nil)}}, PodRun{Pod: isolated("db", 4000)},
			""},
		{"surplus", Config{}, []Event{PodRun{Pod: ls("web", 13000, nil)}}, PodRun{Pod: rounded("db", 3000)},
			"its pods request 13000m"},
		{"what was requested", Config{}, []Event{PodRun{Pod: ls("web", 13000, nil)}}, PodRun{Pod: lsr("db", 3000, nil)},
			""},
		{"requests add up", Config{}, []Event{PodRun{Pod: ls("a", 6500, nil)}, PodRun{Pod: ls("b", 6600, nil)}},
			PodRun{Pod: lsr("db", 3000, nil)}, "its pods request 13100m"},
		{"reserved CPUs", Config{Reserved: cpuset.Of(0, 1)}, []Event{PodRun{Pod: ls("web", 12000, nil)}},
			PodRun{Pod: lsr("db", 3000, nil)}, "its pods request 12000m; 2 CPUs reserved for the system"},
		{"strictly reserved CPUs", Config{Reserved: cpuset.Of(0, 1), ReservedStrict: true},
			[]Event{PodRun{Pod: ls("web", 11000, nil)}}, PodRun{Pod: lsr("db", 3000, nil)}, ""},
		{"a resize", Config{}, []Event{PodRun{Pod: ls("web", 12000, nil)}, PodRun{Pod: lsr("db", 3000, nil)}},
			resized("db", 5000), "its pods request 12000m"},
		{"its own request does not count", Config{}, []Event{PodRun{Pod: ls("web", 12000, nil)},
			PodRun{Pod: lsr("db", 3000, nil)}}, resized("db", 4000), ""},
		{"a pool that is short gives no more", Config{}, []Event{PodRun{Pod: ls("web", 30000, nil)}},
			PodRun{Pod: lsr("db", 1000, nil)}, "its pods request 30000m"},
		{"and still takes back", Config{}, []Event{PodRun{Pod: lsr("db", 3000, nil)},
			PodRun{Pod: ls("web", 30000, nil)}},
			resized("db", 2000), ""},
		{"best effort requests nothing of it", Config{}, []Event{PodRun{Pod: bestEffort("batch", 30000)}},
			PodRun{Pod: lsr("db", 8000, nil)}, ""},
		{"the part on a NUMA node", Config{}, []Event{PodRun{Pod: ls("web", 6000, one)},
			PodRun{Pod: lsr("there", 6000, one)}}, PodRun{Pod: lsr("db", 4000, one)},
			"would leave the shared pool of NUMA node 0 4 of its 8 CPUs; the pods bound there request 6000m"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := small(t, c.cfg)
			for _, e := range c.before {
				if text := refusal(m, e); text != "" {
					t.Fatal(text)
				}
			}
			if got := refusal(m, c.event); c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// An owner goes where no bound pod requested the CPUs, though the first choice was there.
func TestAnOwnerLeavesABoundPodItsRequest(t *testing.T) {
	one := map[string]string{AnnNUMASpec: `{"numaTopologyPolicy":"SingleNUMANode"}`}
	m := small(t, Config{})
	decided(t, m, PodRun{Pod: ls("web", 6000, one)})
	decided(t, m, PodRun{Pod: lsr("db", 4000, nil)})
	if got := owns(m, "db"); got != "8-11" {
		t.Errorf("db has %s", got)
	}
	decided(t, m, PodRun{Pod: lsr("wide", 5000, nil)})
	if got := owns(m, "wide"); got != "0,12-15" && got != "0-1,12-14" {
		t.Errorf("wide has %s", got)
	}
}

// A later pod of the shared pool gets back what no pod requested: surplus first, then
// siblings kept idle, of the youngest owner first and no more than it needs.
func TestWhatIsTakenBackForALaterPod(t *testing.T) {
	for _, c := range []struct {
		milli  int64 // that the later pod requests
		oldest string
		older  string
		newer  string
		idle   string
	}{
		{6000, "0-3", "4-7", "8", "9"},
		{7000, "0-3", "4-6", "8", "9"},
		{8000, "0-2", "4-6", "8", "9"},
		{9000, "0-2", "4-6", "8", ""},
		{10000, "0-2", "4-6", "8", ""},
	} {
		t.Run(fmt.Sprintf("%dm", c.milli), func(t *testing.T) {
			m := small(t, Config{})
			for _, p := range []Pod{rounded("oldest", 3000), rounded("older", 3000), isolated("newer", 1000)} {
				decided(t, m, PodRun{Pod: p})
			}
			before := m.Snapshot()
			decisions, err := m.Step(time.Unix(1e9, 0), PodRun{Pod: ls("web", c.milli, nil)})
			if err != nil {
				t.Fatal(err)
			}
			r := newMirror(m)
			r.take(t, decisions)
			oldest, older, newer := m.pods["oldest"].grant, m.pods["older"].grant, m.pods["newer"].grant
			if oldest.cpus.String() != c.oldest || older.cpus.String() != c.older || newer.cpus.String() != c.newer ||
				newer.withheld.String() != c.idle {
				t.Errorf("left are %s, %s and %s with %s idle", oldest.cpus, older.cpus, newer.cpus, newer.withheld)
			}
			notices := 0
			for _, d := range decisions {
				if n, ok := d.(Notice); ok && n.Reason == "CPUsReturned" {
					notices++
				}
			}
			after := m.Snapshot()
			if moved := after.Shared.Minus(before.Shared).Count(); notices != moved {
				t.Errorf("%d CPUs went back with %d notices", moved, notices)
			}
			again, err := New(m.Topology(), Config{})
			if err != nil {
				t.Fatal(err)
			}
			decided(t, again, m.Checkpoint())
			if describe(again.Snapshot()) != describe(after) {
				t.Errorf("a restart changed something:\n%s\n%s", describe(after), describe(again.Snapshot()))
			}
		})
	}
}

// What was taken back stays away through a resize.
func TestAResizeTakesNoSiblingsAgain(t *testing.T) {
	m := small(t, Config{})
	decided(t, m, PodRun{Pod: isolated("db", 4000)})
	decided(t, m, PodRun{Pod: ls("web", 10000, nil)})
	for _, step := range []struct {
		milli int64
		idle  string
	}{{3000, "1,3"}, {5000, ""}, {2000, "1,3"}, {3000, "1,3,5"}} {
		e := PodResized{Sandbox: "db", Resources: Resources{step.milli, step.milli}}
		if step.idle == "" {
			if refusal(m, e) == "" {
				t.Error("it grew where its pods request the CPUs")
			}
			continue
		}
		decided(t, m, e)
		if idle := m.pods["db"].grant.withheld; idle.String() != step.idle || len(m.Shortages()) > 0 {
			t.Errorf("at %dm %s is idle, short are %+v", step.milli, idle, m.Shortages())
		}
	}
}

// Where isolation is required the later pod waits, and takes surplus only.
func TestRequiredIsolationMakesLaterPodsWait(t *testing.T) {
	cfg := Config{Allocation: Allocation{SMTRequired: true}}
	m := small(t, cfg)
	decided(t, m, PodRun{Pod: isolated("db", 4000)})
	decided(t, m, PodRun{Pod: rounded("odd", 1000)})
	decided(t, m, PodRun{Pod: ls("fits", 7000, nil)})
	if got := owns(m, "odd"); got != "8" {
		t.Errorf("odd has %s", got)
	}
	want := "the siblings 1,3,5,7 are kept idle for other pods, whose isolation is required"
	if got := refusal(m, PodRun{Pod: ls("web", 1000, nil)}); !strings.Contains(got, want) {
		t.Errorf("got %q", got)
	}
	if got := refusal(m, PodResized{Sandbox: "fits", Resources: Resources{8000, 8000}}); !strings.Contains(got, want) {
		t.Errorf("a resize: got %q", got)
	}
	decided(t, m, PodRemoved{Sandbox: "db"})
	decided(t, m, PodRun{Pod: ls("web", 1000, nil)})
}

// CPUs that go offline are only reported, and costs no owner its siblings.
func TestAShortPoolIsReported(t *testing.T) {
	m := small(t, Config{})
	decided(t, m, PodRun{Pod: isolated("db", 2000)})
	decided(t, m, PodRun{Pod: ls("web", 12000, nil)})
	online := m.Topology().Online()
	online.Remove(15)
	decided(t, m, Hardware{Online: online})
	got := m.Shortages()
	want := Shortage{Pool: PoolShared.ID(), CPUs: 11, RequestMilli: 12000}
	if len(got) != 1 || got[0] != want || m.pods["db"].grant.withheld.IsEmpty() {
		t.Errorf("got %+v, kept idle are %s", got, m.pods["db"].grant.withheld)
	}
	decided(t, m, PodRun{Pod: bestEffort("batch", 0)})
	if m.pods["db"].grant.withheld.IsEmpty() {
		t.Error("a pod that requests nothing took the siblings")
	}
}

// A bound pod that kubelet pins onto CPUs of others gets CPUs in their place: it is bound
// to nothing while its own request is left out.
func TestABoundPodWhosePinCollides(t *testing.T) {
	one := map[string]string{AnnNUMASpec: `{"numaTopologyPolicy":"SingleNUMANode"}`}
	for range 20 { // pods are looked at in the order of a map
		m := small(t, Config{})
		decided(t, m, PodRun{Pod: lsr("db", 2000, nil)})
		decided(t, m, PodRun{Pod: ls("web", 1000, one)})
		both := ls("both", 2000, one)
		both.QoS = Guaranteed
		decided(t, m, PodRun{Pod: both})
		decided(t, m, booked(t, map[string]string{"both": "0-1"}))
		if got := owns(m, "both"); got != "2-3" {
			t.Fatalf("it has %s", got)
		}
	}
}

// requests adds up what the pods request that run in the shared pool by the last decisions;
// nodes is the part of it on NUMA nodes. Pods that wait for CPUs do not hold up each other.
func (l *life) requests(nodes *cpuset.Set) int64 {
	var sum int64
	for uid, d := range l.mirror.pods {
		p := l.m.pods[uid]
		kind, text, part := strings.Cut(string(d.Need.Pool), "@")
		if PoolKind(kind) != PoolShared || p.resources == nil || l.healed && l.m.waiting[uid] != nil {
			continue
		}
		if nodes != nil {
			on, err := cpuset.Parse(text)
			if !part || err != nil || !on.SubsetOf(nodes) {
				continue
			}
		}
		if p.holders != nil {
			rest := p.resources.RequestMilli
			for _, o := range d.Owned {
				rest -= 1000 * int64(p.holders[o.Container].grant.request.CPUs)
			}
			for _, h := range p.holders {
				if l.healed && l.m.waiting[h.id()] != nil && !l.m.pins(h) {
					rest -= 1000 * int64(l.m.lacks(h))
				}
			}
			sum += max(rest, 0)
			continue
		}
		pinned := union(p.entries)
		sum += max(p.resources.RequestMilli-1000*int64(pinned.Count()), 0)
	}
	return sum
}

// checkFloors: an event that is about a pod takes nothing from the shared pool, or from a
// part of it, that the pods there request. Hardware and kubelet do not ask.
func (l *life) checkFloors(t rapid.TB, e Event, before cpuset.Set) {
	switch e := e.(type) {
	case PodRun, PodResized, PodFacts, ContainerUpdate, ContainerStopped, Tick, CapVerdict:
	case PodRemoved:
		if l.m.kubelet.PolicyName == "static" {
			return // what kubelet gave a pod that ran elsewhere counts when the pod is gone
		}
	case ContainerCreate:
		if e.Container.CPUs != "" {
			return
		}
	default:
		return
	}
	s := l.m.Snapshot()
	lost := before.Minus(s.Shared)
	paid := s.Shared.Minus(s.Reserved)
	if left, want := paid.Count(), l.requests(nil); !lost.IsEmpty() && int64(left)*1000 < want {
		t.Fatalf("%T took %s from the shared pool, which has %d CPUs for %dm\n%s", e, lost, left, want, describe(s))
	}
	for id := range l.mirror.pools {
		_, text, part := strings.Cut(string(id), "@")
		nodes, err := cpuset.Parse(text)
		if err != nil || !part {
			continue
		}
		cpus := cpusOn(l.m.topo, &nodes)
		if left, want := paid.CountAnd(&cpus), l.requests(&nodes); lost.Intersects(&cpus) && int64(left)*1000 < want {
			t.Fatalf("%T took %s from pool %s, which has %d CPUs for %dm\n%s", e, lost.And(cpus), id, left, want,
				describe(s))
		}
	}
}

// checkTakenBack: a pod that came into a pool that is too small found nothing there that
// no pod requested.
func (l *life) checkTakenBack(t rapid.TB, e Event) {
	run, ok := e.(PodRun)
	if !ok || l.cfg.Allocation.SMTRequired {
		return
	}
	s := l.m.Snapshot()
	d := l.mirror.pods[run.Pod.UID]
	paid := s.Shared.Minus(s.Reserved)
	if d.Need.Pool != PoolShared.ID() || run.Pod.Resources == nil || run.Pod.Resources.RequestMilli == 0 ||
		l.requests(nil) <= int64(paid.Count())*1000 {
		return
	}
	for _, p := range l.m.exclusive {
		online := s.Topology.Online()
		foreign := l.m.foreignClaimed()
		extra := p.grant.cpus.CountAnd(&online) - p.grant.request.CPUs
		if p.grant.cpus.SubsetOf(&foreign) {
			extra = 0 // another driver gave them all to a claim, which would have them
		}
		idle := p.grant.withheld.And(online).Minus(l.m.cfg.reserved()).Minus(foreign)
		if p.pod.reserved() {
			continue
		}
		if !idle.IsEmpty() || p.grant.request.SMT == cpuallocator.SMTRoundUp && extra > 0 {
			t.Fatalf("the shared pool has too few CPUs, and %s has %s, %d of them surplus, and %s idle\n%s", p,
				p.grant.cpus, extra, idle, describe(s))
		}
	}
}
