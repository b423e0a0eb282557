package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// holding is what a pod owns, and whether it waits for more.
type holding struct {
	cpus  cpuset.Set
	waits bool
}

func (l *life) holdings() map[string]holding {
	all := map[string]holding{}
	for id, holder := range l.holders() {
		h := holding{waits: l.m.lacks(holder) > 0}
		if holder.grant != nil {
			h.cpus = holder.grant.cpus
		}
		all[id] = h
	}
	return all
}

// holders are all that may own CPUs, by ID.
func (l *life) holders() map[string]*holder {
	all := map[string]*holder{}
	for _, p := range l.m.pods {
		for _, h := range p.every() {
			all[h.id()] = h
		}
	}
	return all
}

// checkHealed: holders wait if they lack CPUs and may have some. When only time passes one pod
// at most gets any, it waited for them, and it keeps those that it has; all others stay.
func (l *life) checkHealed(t rapid.TB, e Event, had map[string]holding) {
	holders := l.holders()
	for id, p := range holders {
		if waits := l.m.waiting[id] == p; waits != (l.m.lacks(p) > 0) || waits == p.since.IsZero() {
			t.Fatalf("%s lacks %d CPUs, waits: %t since %s", p, l.m.lacks(p), waits, p.since)
		}
		if waits := strings.Contains(p.why, "; waiting for "); waits != (l.m.lacks(p) > 0) {
			t.Fatalf("%s lacks %d CPUs, and says %q", p, l.m.lacks(p), p.why)
		}
	}
	for id := range l.m.waiting {
		if holders[id] == nil {
			t.Fatalf("%s waits and is not there", id)
		}
	}
	if _, tick := e.(Tick); !tick {
		return
	}
	online := l.m.topo.Online()
	healed := map[string]bool{} // pods
	for uid, p := range holders {
		var has cpuset.Set
		if p.grant != nil {
			has = p.grant.cpus
		}
		was, known := had[uid]
		if !known { // kubelet pinned it: what waited as a whole owns container by container
			was = had[p.pod.ref.UID]
		}
		if has == was.cpus {
			continue
		}
		healed[p.pod.ref.UID] = true
		kept := was.cpus.And(online)
		if !was.waits && l.m.moved.Equal(l.now) && l.movedWell(p, was.cpus) {
			continue
		}
		if !was.waits || !kept.SubsetOf(&has) || has.CountAnd(&online) <= kept.Count() {
			t.Fatalf("in a tick %s, waiting: %t, went from %s to %s, online is %s", uid, was.waits, was.cpus, has,
				online)
		}
	}
	if len(healed) > 1 {
		t.Fatalf("one step healed %v", healed)
	}
}

// someHealed reports whether a pod got CPUs that it waited for, perhaps only since this step.
func someHealed(decisions []Decision) bool {
	return slices.ContainsFunc(decisions, func(d Decision) bool {
		n, ok := d.(Notice)
		return ok && n.Reason == "CPUsHealed"
	})
}

// movedWell: compaction is configured, and the pod lies better than it did, on as many CPUs.
func (l *life) movedWell(p *holder, was cpuset.Set) bool {
	now := p.grant.cpus
	switch l.m.cfg.Allocation.Compact {
	case CompactAlways:
	case CompactIdle:
		if p.runs() {
			return false
		}
	default:
		return false
	}
	return now.Count() == was.Count() && l.m.better(was, now) != ""
}

// settle lets time pass until no holder gets CPUs any more: healing ends.
func (l *life) settle(t rapid.TB) {
	const others = 8 // ends of caps and of what keeps best effort off
	for range 3*len(l.m.pods) + others {
		rev := l.m.Rev()
		l.now = l.now.Add(l.cfg.HealAfter)
		_ = l.step(t, Tick{})
		if l.m.Rev() == rev && !l.m.again {
			return
		}
	}
	t.Fatalf("healing does not end:\n%s", describe(l.m.Snapshot()))
}

// TestHealing: which holders get CPUs and when.
func TestHealing(t *testing.T) {
	none := map[string]string(nil)
	for _, c := range []struct {
		name  string
		cfg   Config
		steps func(m *Machine)
		want  string
	}{
		{"the oldest first, one a step", Config{Degrade: true}, func(m *Machine) {
			run(t, m, lsr("big", 12000, none), lsr("first", 6000, none), lsr("second", 4000, none))
			told(t, m, PodRemoved{Sandbox: "big"})
		}, "first 0-5"},
		{"the next with the next step", Config{Degrade: true}, func(m *Machine) {
			run(t, m, lsr("big", 12000, none), lsr("first", 6000, none), lsr("second", 4000, none))
			told(t, m, PodRemoved{Sandbox: "big"})
			told(t, m, Tick{})
		}, "first 0-5, second 8-11"},
		{"who does not fit holds up nobody", Config{Degrade: true}, func(m *Machine) {
			run(t, m, lsr("a", 4000, none), lsr("b", 8000, none), lsr("huge", 14000, none), lsr("second", 4000, none))
			told(t, m, PodRemoved{Sandbox: "a"})
		}, "b 8-15, second 0-3"},
		{"off", Config{Degrade: true, NoHeal: true}, func(m *Machine) {
			run(t, m, lsr("big", 12000, none), lsr("first", 6000, none))
			told(t, m, PodRemoved{Sandbox: "big"})
		}, ""},
		{"off for the pod", Config{Degrade: true}, func(m *Machine) {
			run(t, m, lsr("big", 12000, none), lsr("first", 6000, map[string]string{AnnHeal: "off"}))
			told(t, m, PodRemoved{Sandbox: "big"})
		}, ""},
		{"the request changes", Config{Degrade: true}, func(m *Machine) {
			run(t, m, lsr("big", 12000, none), lsr("first", 6000, none))
			r := Resources{RequestMilli: 2000, LimitMilli: 2000}
			told(t, m, ContainerUpdate{ID: "first-main", Resources: &r, Pod: &r})
		}, "big 0-11, first 12-13"},
	} {
		m := small(t, c.cfg)
		c.steps(m)
		var parts []string
		for _, o := range m.Snapshot().Owners {
			parts = append(parts, o.Pod+" "+o.CPUs.String())
		}
		if got := strings.Join(parts, ", "); got != c.want {
			t.Errorf("%s: owners are %q, want %q", c.name, got, c.want)
		}
	}
}

// run starts pods with a container each, in the order of creation.
func run(t *testing.T, m *Machine, pods ...Pod) {
	t.Helper()
	for i, p := range pods {
		p.CreatedAt = time.Unix(int64(i+1), 0)
		told(t, m, PodRun{Pod: p})
		told(t, m, mainOf(p))
	}
}

// TestHealAfter: what was never owned is given only when it has been free for long enough;
// what hardware took is replaced at once, and a restart does not begin anew.
func TestHealAfter(t *testing.T) {
	m := small(t, Config{Degrade: true, HealAfter: time.Minute})
	at := time.Unix(1e9, 0)
	step := func(e Event) {
		t.Helper()
		if _, err := m.Step(at, e); err != nil {
			t.Fatal(err)
		}
	}
	own := func() string {
		var s string
		for _, o := range m.Snapshot().Owners {
			s += fmt.Sprintf("%s %s;", o.Pod, o.CPUs)
		}
		return s
	}
	run(t, m, lsr("big", 10000, nil), lsr("late", 8000, nil))
	at = at.Add(2 * time.Minute)
	step(PodRemoved{Sandbox: "big"})
	for _, c := range []struct {
		after time.Duration
		want  string
	}{{0, ""}, {59 * time.Second, ""}, {time.Second, "late 0-7;"}} {
		at = at.Add(c.after)
		if step(Tick{}); own() != c.want {
			t.Fatalf("%s: owners are %q, want %q", at, own(), c.want)
		}
	}
	step(Hardware{Online: cpus(t, "0-6,8-15")})
	if want := "late 0-6,8;"; own() != want {
		t.Errorf("after CPU 7 went: %q, want %q", own(), want)
	}
}

// Isolation that is configured while an owner runs on both threads of a core does not keep it
// from being resized, nor does it cost the pools its siblings.
func TestIsolationThatIsConfiguredLater(t *testing.T) {
	m := small(t, Config{})
	p := lsr("a", 2000, nil)
	told(t, m, PodRun{Pod: p})
	after := small(t, Config{Allocation: Allocation{SMT: cpuallocator.SMTIsolate}})
	told(t, after, m.Checkpoint())
	told(t, after, PodRun{Pod: lsr("new", 1000, nil)})
	told(t, after, PodResized{Sandbox: p.Sandbox, Resources: Resources{RequestMilli: 3000, LimitMilli: 3000}})
	if a, n := owns(after, "a"), owns(after, "new"); a != "0-1,4" || n != "2 beside 3" {
		t.Errorf("the one that ran owns %s, the new one %s", a, n)
	}
}

// CPUs that an owner has given up while no daemon ran leave another one its own where no CPU is in the pool otherwise,
// whichever of them comes first.
func TestWhatAnOwnerGaveUpWithoutADaemonIsThePools(t *testing.T) {
	m := small(t, Config{})
	online := m.topo.Online()
	half := cpuset.Range(0, online.Count()/2-1)
	rest := online.Minus(half)
	for _, first := range []string{"shrank", "other"} {
		m := small(t, Config{})
		shrank, other := lsr("shrank", int64(half.Count())*1000, nil), lsr("other", int64(rest.Count())*1000, nil)
		shrank.Recovered = &Recovered{From: fromState, CPUs: &half, ResizedTo: 1}
		other.Recovered = &Recovered{From: fromState, CPUs: &rest}
		shrank.CreatedAt, other.CreatedAt = time.Unix(2, 0), time.Unix(2, 0)
		if first == "shrank" {
			shrank.CreatedAt = time.Unix(1, 0)
		} else {
			other.CreatedAt = time.Unix(1, 0)
		}
		told(t, m, Synchronized{Pods: []Pod{shrank, other}})
		if a, b := m.pods["shrank"].grant, owns(m, "other"); a == nil || a.cpus.Count() != 1 || b != rest.String() {
			t.Errorf("%s came first: one owns %s, the other %s of its %s", first, owns(m, "shrank"), b, rest)
		}
	}
}

// An owner gives up no more of its CPUs to a pool that lost its last one while no daemon ran than to one that loses it
// now. A mask that would leave no pool may be the pool's.
func TestAPoolThatIsEmptyAtARestartTakesCores(t *testing.T) {
	online := small(t, Config{}).topo.Online()
	half := cpuset.Range(0, online.Count()/2-1)
	rest := online.Minus(half)
	for from, kept := range map[string]string{fromState: "8-13", "runtime": "8-13", fromKernel: "nothing"} {
		m := small(t, Config{})
		old, young := lsr("old", int64(half.Count())*1000, nil), lsr("young", int64(rest.Count())*1000, nil)
		old.Recovered, young.Recovered = &Recovered{From: fromState, CPUs: &half}, &Recovered{From: from, CPUs: &rest}
		old.CreatedAt, young.CreatedAt = time.Unix(1, 0), time.Unix(2, 0)
		told(t, m, Synchronized{Pods: []Pod{old, young}})
		if a, b := owns(m, "old"), owns(m, "young"); a != half.String() || b != kept {
			t.Errorf("from the %s: the older one owns %s, want %s; the younger one %s, want %s", from, a, half, b, kept)
		}
	}
}

// An owner that healed after its container was restarted keeps its CPUs over a restart of the
// daemon, although the runtime still lists the run whose limit was not its request.
func TestAHealedOwnerIsNotJudgedByAnOldRun(t *testing.T) {
	p := lsr("a", 2000, nil)
	p.LimitHidden, p.Resources = true, &Resources{RequestMilli: 2000, LimitMilli: NoLimit}
	m := small(t, Config{Degrade: true})
	told(t, m, PodRun{Pod: p})
	old := containerOf(p, "main", Resources{RequestMilli: 2000, LimitMilli: NoLimit})
	old.Container.CreatedAt = time.Unix(1, 0)
	told(t, m, old)
	if got := owns(m, "a"); got != "nothing" {
		t.Fatalf("a container without a limit owns %s", got)
	}
	next := old
	next.Container.ID, next.Container.CreatedAt = "a-main-2", time.Unix(2, 0)
	next.Container.Resources = Resources{RequestMilli: 2000, LimitMilli: 2000}
	told(t, m, next)
	told(t, m, PodResized{Sandbox: p.Sandbox, Resources: Resources{RequestMilli: 2000, LimitMilli: 2000}})
	before := owns(m, "a")
	if before == "nothing" {
		t.Fatalf("it has not healed: %s", m.pods["a"].why)
	}
	after := small(t, Config{Degrade: true})
	told(t, after, m.Checkpoint())
	if got := owns(after, "a"); got != before {
		t.Errorf("after a restart it owns %q, before %q: %s", got, before, after.pods["a"].why)
	}
}
