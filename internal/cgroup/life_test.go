package cgroup_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/cgroup/cgrouptest"
	"github.com/quietcore/quietcore/internal/cpuset"
)

// life is a node whose pods come, change and go at random. It knows what every
// container needs without asking the tree.
type life struct {
	tree   *cgroup.Tree
	kern   *cgrouptest.Kernel
	online cpuset.Set
	shared cpuset.Set
	be     cpuset.Set
	pods   map[string]*lifePod
	serial int

	// Of the plan under way.
	owned     cpuset.Set // CPUs with an owner before or after it
	before    map[string]cpuset.Set
	last      map[string]cpuset.Set
	violation string
	failing   func() bool
}

type lifePod struct {
	path       string
	pool       string // empty: exclusive
	cpus       cpuset.Set
	alone      bool // LSE: best effort must leave too
	containers map[string]cpuset.Set
}

const lifeCPUs = 16

func newLife(t *rapid.T, flat bool) *life {
	online := cpuset.Range(0, lifeCPUs-1)
	l := &life{
		tree: cgroup.NewTree(online, cgroup.Options{Flat: flat}), kern: cgrouptest.New(online),
		online: online, shared: online, be: online, pods: map[string]*lifePod{},
	}
	l.kern.V1 = flat
	l.kern.ClearPopulated = rapid.Bool().Draw(t, "kernel clears populated cgroups")
	l.kern.Mkdir(burstable, 0)
	l.kern.Mkdir(besteffort, 0)
	l.kern.After = l.check
	l.pools(t)
	l.slices(t)
	l.observe(t, burstable)
	l.observe(t, besteffort)
	return l
}

func (l *life) slices(t *rapid.T) {
	ok(t, l.tree.PutSlice(cgroup.Slice{Path: burstable, Need: cgroup.InPool("shared")}))
	ok(t, l.tree.PutSlice(cgroup.Slice{Path: besteffort, Need: cgroup.InPool("be")}))
}

func ok(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

func (l *life) pools(t *rapid.T) {
	ok(t, l.tree.SetPool("shared", l.shared))
	ok(t, l.tree.SetPool("be", l.be))
}

// settlePools recomputes the pools from the owners, as policy does.
func (l *life) settlePools(t *rapid.T) {
	l.shared, l.be = l.online, l.online
	for _, p := range l.pods {
		for _, own := range p.containers {
			l.shared.RemoveSet(&own)
		}
		l.shared.RemoveSet(&p.cpus)
		if p.alone {
			l.be.RemoveSet(&p.cpus)
		}
		for _, own := range p.containers {
			l.be.RemoveSet(&own)
		}
	}
	if rapid.Bool().Draw(t, "suppress") {
		if cut := subset(t, l.be, "be", 1, l.be.Count()); !cut.IsEmpty() {
			l.be = cut
		}
	}
	l.pools(t)
}

// subset draws between low and high CPUs of s, or none if s is too small.
func subset(t *rapid.T, s cpuset.Set, label string, low, high int) cpuset.Set {
	cpus := slices.Collect(s.All())
	if len(cpus) < low {
		return cpuset.Set{}
	}
	order := rapid.Permutation(cpus).Draw(t, label)
	return cpuset.Of(order[:rapid.IntRange(low, min(high, len(order))).Draw(t, label+" count")]...)
}

func (l *life) free() cpuset.Set {
	free := l.online.Minus(cpuset.Of(0, 1)) // the floor of the pools
	for _, p := range l.pods {
		free.RemoveSet(&p.cpus)
		for _, own := range p.containers {
			free.RemoveSet(&own)
		}
	}
	return free
}

func (l *life) create(t *rapid.T) {
	l.serial++
	name := fmt.Sprint("pod", l.serial)
	parent := rapid.SampledFrom([]string{"kubepods", burstable, burstable, besteffort}).Draw(t, "parent")
	p := &lifePod{path: parent + "/" + name, containers: map[string]cpuset.Set{}}
	p.pool = rapid.SampledFrom([]string{"", "shared", "be", "usual", "usual"}).Draw(t, "kind")
	if p.pool == "usual" {
		p.pool = map[string]string{"kubepods": "shared", burstable: "shared", besteffort: "be"}[parent]
	}
	if p.pool == "" {
		if p.cpus = subset(t, l.free(), "cpus", 1, 4); p.cpus.IsEmpty() {
			return
		}
		p.alone = rapid.Bool().Draw(t, "LSE")
	}
	l.pods[name] = p
	l.kern.Mkdir(p.path, 0)
	l.put(t, name)
	for i := range rapid.IntRange(0, 2).Draw(t, "containers") {
		l.container(t, name, i)
	}
}

func (l *life) put(t *rapid.T, name string) {
	p := l.pods[name]
	ok(t, l.tree.PutPod(cgroup.Pod{ID: name, Path: p.path, Need: p.need()}))
	l.observe(t, p.path)
}

// observe reads what a new cgroup has of its own; on v1 it always has a set.
func (l *life) observe(t *rapid.T, path string) {
	e, err := l.kern.Effective(path)
	ok(t, err)
	l.tree.Observe(path, e)
}

func (p *lifePod) need() cgroup.Need {
	if p.pool != "" {
		return cgroup.InPool(p.pool)
	}
	return cgroup.On(p.cpus)
}

// container adds one, sometimes with a mask from the runtime and sometimes
// with CPUs of its own beside its pod's.
func (l *life) container(t *rapid.T, pod string, i int) {
	p, name := l.pods[pod], fmt.Sprint("c", i)
	c := cgroup.Container{ID: pod + "/" + name, Pod: pod, Path: p.path + "/" + name}
	own := cpuset.Set{}
	if p.pool != "" && rapid.IntRange(0, 3).Draw(t, "odd container") == 0 {
		own = subset(t, l.free(), "container cpus", 1, 2)
	}
	p.containers[name] = own
	if !own.IsEmpty() {
		c.Need = cgroup.On(own)
	}
	l.kern.Mkdir(c.Path, 1)
	if !l.kern.V1 && rapid.IntRange(0, 2).Draw(t, "stored") == 0 {
		c.OwnCPUs = subset(t, l.online, "stored cpus", 1, lifeCPUs)
		l.kern.Tamper(c.Path, c.OwnCPUs.String())
	}
	ok(t, l.tree.PutContainer(c))
	l.observe(t, c.Path)
}

func (l *life) pick(t *rapid.T) string {
	if len(l.pods) == 0 {
		return ""
	}
	return rapid.SampledFrom(slices.Sorted(maps.Keys(l.pods))).Draw(t, "pod")
}

func (l *life) remove(t *rapid.T) {
	if name := l.pick(t); name != "" {
		l.kern.Rmdir(l.pods[name].path)
		l.tree.Remove(name)
		delete(l.pods, name)
	}
}

// change gives an owner other CPUs: more, fewer, or wholly different ones.
func (l *life) change(t *rapid.T) {
	name := l.pick(t)
	if name == "" || l.pods[name].pool != "" {
		return
	}
	p := l.pods[name]
	from := l.free().Or(p.cpus)
	if rapid.Bool().Draw(t, "elsewhere") {
		from = l.free()
	}
	if cpus := subset(t, from, "cpus", 1, 4); !cpus.IsEmpty() {
		p.cpus = cpus
		l.put(t, name)
	}
}

// swap lets two owners exchange CPUs: no order of plain moves is safe.
func (l *life) swap(t *rapid.T) {
	a, b := l.pick(t), l.pick(t)
	if a == "" || a == b || l.pods[a].pool != "" || l.pods[b].pool != "" {
		return
	}
	l.pods[a].cpus, l.pods[b].cpus = l.pods[b].cpus, l.pods[a].cpus
	l.put(t, a)
	l.put(t, b)
}

func (l *life) wants() map[string]cpuset.Set {
	want := map[string]cpuset.Set{}
	for _, p := range l.pods {
		for c, own := range p.containers {
			switch {
			case !own.IsEmpty():
				want[p.path+"/"+c] = own
			case p.pool == "shared":
				want[p.path+"/"+c] = l.shared
			case p.pool == "be":
				want[p.path+"/"+c] = l.be
			default:
				want[p.path+"/"+c] = p.cpus
			}
		}
	}
	return want
}

func (l *life) owners() cpuset.Set {
	var s cpuset.Set
	for _, p := range l.pods {
		s.AddSet(&p.cpus)
		for _, own := range p.containers {
			s.AddSet(&own)
		}
	}
	return s
}

// check holds after every single file write: who gained a CPU is entitled to
// it, and so is everybody else who is on it. CPUs without any owner, before and
// after, hurt nobody.
func (l *life) check(path, file string) {
	now, wants, owners := l.kern.Tasks(), l.wants(), l.owners()
	for q, cpus := range now {
		was := l.last[q]
		for c := range cpus.All() {
			if was.Has(c) || !l.owned.Has(c) || l.violation != "" {
				continue
			}
			for r, others := range now {
				// Parked: it came with this plan onto a CPU that has no owner.
				parked, was := !owners.Has(c), l.before[r]
				parked = parked && !was.Has(c)
				if w := wants[r]; others.Has(c) && !w.Has(c) && !parked {
					l.violation = fmt.Sprintf("after a write to %s %s, %s came onto CPU %d while %s is on it and must not be (it needs %s)", path, file, q, c, r, w)
				}
			}
		}
	}
	l.last = now
}

func (l *life) run(plan []cgroup.Write) error {
	l.last, l.violation = l.kern.Tasks(), ""
	l.before = l.last
	return l.tree.Execute(plan, func(w cgroup.Write) error {
		if l.failing != nil && l.failing() {
			return errInjected
		}
		return l.kern.Apply(context.Background(), w.Path, w.Values())
	})
}

var errInjected = errors.New("injected")

// steps lets a few things happen and returns the plan for them.
func (l *life) steps(t *rapid.T) []cgroup.Write {
	l.owned = l.owners()
	for range rapid.IntRange(1, 3).Draw(t, "events") {
		event := rapid.SampledFrom([]func(*rapid.T){l.create, l.create, l.remove, l.change, l.swap}).Draw(t, "event")
		event(t)
	}
	l.settlePools(t)
	l.owned = l.owned.Or(l.owners())
	return l.tree.Plan()
}

func (l *life) settled(t *rapid.T) {
	now := l.kern.Tasks()
	for path, want := range l.wants() {
		if now[path] != want {
			t.Fatalf("%s is on %s, needs %s", path, now[path], want)
		}
	}
	if again := l.tree.Plan(); len(again) > 0 {
		t.Fatalf("a second plan still writes %v", again)
	}
	for _, d := range l.tree.Check(l.kern.Effective) {
		t.Fatal(d)
	}
}

func testLives(t *testing.T, flat bool) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(t, flat)
		for range rapid.IntRange(1, 12).Draw(t, "rounds") {
			plan := l.steps(t)
			ok(t, l.run(plan))
			if l.violation != "" {
				t.Fatalf("%s\nplan: %v", l.violation, plan)
			}
			l.settled(t)
		}
	})
}

func TestRandomLives(t *testing.T)   { testLives(t, false) }
func TestRandomLivesV1(t *testing.T) { testLives(t, true) }

func TestRandomLivesWithFailingWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(t, false)
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			rate := rapid.IntRange(1, 5).Draw(t, "one write fails in")
			l.failing = func() bool { return rapid.IntRange(1, rate).Draw(t, "fails") == 1 }
			plan := l.steps(t)
			_ = l.run(plan)
			if l.violation != "" {
				t.Fatalf("%s\nplan: %v", l.violation, plan)
			}
			l.failing = nil
			plan = l.tree.Plan()
			ok(t, l.run(plan))
			if l.violation != "" {
				t.Fatalf("repairing: %s\nplan: %v", l.violation, plan)
			}
			l.settled(t)
		}
	})
}
