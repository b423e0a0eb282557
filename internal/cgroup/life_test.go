package cgroup_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	oracle "k8s.io/utils/cpuset"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/cgroup/cgrouptest"
)

// life is a node whose pods come, change and go at random, in every mix of
// class and place. It knows what every container needs without asking the tree,
// and where it runs without asking the fake kernel.
type life struct {
	tree   *cgroup.Tree
	kern   *cgrouptest.Kernel
	model  *model
	online cpuset.Set
	pools  map[string]cpuset.Set
	pods   map[string]*lifePod
	serial int
	// limit is what an administrator leaves to kubepods; empty: everything.
	limit cpuset.Set
	// unseen is set while masks were changed behind the tree's back and it has not looked.
	unseen bool
	audits uint64
	ghosts []string // ids whose cgroups have vanished

	// Of the change under way, however many plans it takes.
	owned     cpuset.Set               // CPUs with an owner before or after it
	gained    map[string]oracle.CPUSet // by which cgroup, since it began
	last      map[string]oracle.CPUSet
	violation string
	unknown   string // a container that runs where the tree does not say that it may
	failing   func() failure
	vanishing func() bool
	// unreadable makes the next plan go ahead without reading back what is uncertain.
	unreadable func() bool
	late       []cgroup.Write // given up, and yet to take effect
}

type lifePod struct {
	path       string
	need       lifeNeed
	alone      bool // LSE: best effort must leave too
	containers map[string]*lifeContainer
}

type lifeContainer struct {
	path string
	need lifeNeed // zero: as the pod
}

// lifeNeed is a pool, or CPUs of one's own.
type lifeNeed struct {
	pool string
	cpus cpuset.Set
}

func (n lifeNeed) cgroup() cgroup.Need {
	switch {
	case n.pool != "":
		return cgroup.InPool(n.pool)
	case !n.cpus.IsEmpty():
		return cgroup.On(n.cpus)
	}
	return cgroup.Need{}
}

const (
	lifeCPUs = 16
	outside  = "system/pods" // of a runtime without kubelet
)

// floor is never owned, nor offline: two CPUs of each of two NUMA nodes.
func floor() cpuset.Set { return cpuset.Of(0, 1, 8, 9) }

func newLife(t *rapid.T, flat bool) *life {
	online := cpuset.Range(0, lifeCPUs-1)
	l := &life{
		tree: cgroup.NewTree(online, cgroup.Options{Flat: flat}), kern: cgrouptest.New(online),
		model:  newModel(online.String()),
		online: online, pods: map[string]*lifePod{},
	}
	l.kern.V1 = flat
	l.kern.ClearPopulated = rapid.Bool().Draw(t, "kernel clears populated cgroups")
	l.kern.OnDemand = true
	l.kern.After = l.check
	l.mkdir(burstable, 0)
	l.mkdir(besteffort, 0)
	l.settlePools(t)
	for _, s := range []cgroup.Slice{{Path: burstable, Need: cgroup.InPool("shared")},
		{Path: besteffort, Need: cgroup.InPool("be")}} {
		l.leftover(t, s.Path)
		ok(t, l.tree.PutSlice(s))
		l.observe(t, s.Path)
	}
	return l
}

func ok(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

func (l *life) mkdir(path string, tasks int) {
	l.kern.Mkdir(path, tasks)
	l.model.mkdir(path, tasks > 0, l.kern.V1)
}

func (l *life) rmdir(path string) {
	l.kern.Rmdir(path)
	l.model.rmdir(path)
}

func (l *life) tamper(path, cpus string) {
	l.kern.Tamper(path, cpus)
	l.model.files[path] = cpus
}

// leftover puts a mask on a new cgroup, of an earlier daemon or by the runtime.
// v1 has rules of its own for that.
func (l *life) leftover(t *rapid.T, path string) {
	if !l.kern.V1 && l.kern.HasCpuset(path) && rapid.IntRange(0, 3).Draw(t, "leftover") == 0 {
		l.tamper(path, subset(t, cpuset.Range(0, lifeCPUs-1), "leftover cpus", 1, lifeCPUs).String())
	}
}

// owners are the CPUs that have an owner.
func (l *life) owners() cpuset.Set {
	var s cpuset.Set
	for _, p := range l.pods {
		s.AddSet(&p.need.cpus)
		for _, c := range p.containers {
			s.AddSet(&c.need.cpus)
		}
	}
	return s
}

// settlePools recomputes the pools from the owners, as policy does.
func (l *life) settlePools(t *rapid.T) {
	shared, be := l.online.Minus(l.owners()), l.online
	for _, p := range l.pods {
		if p.alone {
			be.RemoveSet(&p.need.cpus)
		}
		for _, c := range p.containers {
			be.RemoveSet(&c.need.cpus)
		}
	}
	if rapid.Bool().Draw(t, "suppress") {
		be = subset(t, be, "be", 1, be.Count())
	}
	l.pools = map[string]cpuset.Set{
		"shared": shared, "be": be,
		"shared@0": shared.And(cpuset.Range(0, 7)), "shared@1": shared.And(cpuset.Range(8, 15)),
	}
	for _, name := range slices.Sorted(maps.Keys(l.pools)) {
		ok(t, l.tree.SetPool(name, l.pools[name]))
	}
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

func (l *life) free() cpuset.Set { return l.online.Minus(floor()).Minus(l.owners()) }

func (l *life) create(t *rapid.T) {
	l.serial++
	name := fmt.Sprint("pod", l.serial)
	parent := rapid.SampledFrom([]string{"kubepods", burstable, burstable, besteffort, outside}).Draw(t, "parent")
	p := &lifePod{path: parent + "/" + name, containers: map[string]*lifeContainer{}}
	switch kind := rapid.SampledFrom([]string{"", "shared", "be", "shared@0", "shared@1", "usual", "usual"}).Draw(t,
		"kind"); kind {
	case "usual":
		p.need.pool = map[string]string{"kubepods": "shared", burstable: "shared", besteffort: "be",
			outside: "shared"}[parent]
	case "":
		if p.need.cpus = subset(t, l.free(), "cpus", 1, 4); p.need.cpus.IsEmpty() {
			return
		}
		p.alone = rapid.Bool().Draw(t, "LSE")
	default:
		p.need.pool = kind
	}
	l.pods[name] = p
	l.mkdir(p.path, 0)
	l.leftover(t, p.path)
	l.put(t, name)
	for range rapid.IntRange(0, 3).Draw(t, "containers") {
		l.container(t, name)
	}
}

func (l *life) put(t *rapid.T, name string) {
	p := l.pods[name]
	ok(t, l.tree.PutPod(cgroup.Pod{ID: name, Path: p.path, Need: p.need.cgroup()}))
	l.observe(t, p.path)
}

// observe reads what a new cgroup has of its own; on v1 it always has a set.
func (l *life) observe(t *rapid.T, path string) {
	e, err := l.kern.Effective(path)
	ok(t, err)
	l.tree.Observe(path, e)
}

// container adds one to a pod, perhaps with a need of its own, a mask of the
// runtime's, cgroups inside, or a place elsewhere.
func (l *life) container(t *rapid.T, pod string) {
	p := l.pods[pod]
	l.serial++
	name := fmt.Sprint("c", l.serial)
	c := &lifeContainer{path: l.place(t, p) + "/" + name}
	switch rapid.SampledFrom([]string{"", "", "", "own", "pool"}).Draw(t, "container's need") {
	case "own":
		c.need.cpus = subset(t, l.free(), "container cpus", 1, 2)
	case "pool":
		c.need.pool = rapid.SampledFrom([]string{"shared", "be", "shared@1"}).Draw(t, "container's pool")
	}
	p.containers[name] = c
	l.mkdir(c.path, 1)
	l.leftover(t, c.path)
	l.putContainer(t, pod, name)
	l.observe(t, c.path)
	for nested := c.path; rapid.IntRange(0, 3).Draw(t, "nested") == 0; {
		nested += "/nested"
		l.mkdir(nested, 1)
		l.leftover(t, nested)
	}
}

// place is where a container's cgroup lies: in its pod, seldom elsewhere.
func (l *life) place(t *rapid.T, p *lifePod) string {
	if rapid.IntRange(0, 5).Draw(t, "own parent") > 0 {
		return p.path
	}
	places := []string{burstable, besteffort, "kubepods", "system/runtime"}
	for _, name := range slices.Sorted(maps.Keys(l.pods)) {
		places = append(places, l.pods[name].path)
	}
	return rapid.SampledFrom(places).Draw(t, "place")
}

func (l *life) putContainer(t *rapid.T, pod, name string) {
	c := l.pods[pod].containers[name]
	own := cpuset.Set{}
	if rapid.Bool().Draw(t, "own mask known") && !l.kern.V1 {
		own, _ = cpuset.Parse(l.model.files[c.path])
	}
	ok(t, l.tree.PutContainer(cgroup.Container{ID: name, Pod: pod, Path: c.path, Need: c.need.cgroup(), OwnCPUs: own}))
}

func (l *life) pick(t *rapid.T) string {
	if len(l.pods) == 0 {
		return ""
	}
	return rapid.SampledFrom(slices.Sorted(maps.Keys(l.pods))).Draw(t, "pod")
}

func (l *life) remove(t *rapid.T) {
	if name := l.pick(t); name != "" {
		for _, c := range l.pods[name].containers {
			l.gone(c.path)
		}
		l.gone(l.pods[name].path)
		l.dropVanished()
	}
}

// gone removes a cgroup and all below. Those that were there will be forgotten.
func (l *life) gone(path string) {
	l.rmdir(path)
	for id, p := range l.pods {
		for name, c := range p.containers {
			if strings.HasPrefix(c.path+"/", path+"/") {
				delete(p.containers, name)
				l.ghosts = append(l.ghosts, name)
			}
		}
		if strings.HasPrefix(p.path+"/", path+"/") {
			for _, c := range p.containers { // containers of an own parent: they end with their pod
				l.rmdir(c.path)
			}
			delete(l.pods, id)
			l.ghosts = append(l.ghosts, id)
		}
	}
}

// dropVanished removes from the tree those whose cgroups have vanished.
func (l *life) dropVanished() {
	for _, id := range l.ghosts {
		l.tree.Remove(id)
	}
	l.ghosts = nil
}

// change gives an owner other CPUs, more, fewer or wholly different ones, or
// makes it one, or takes from it all that it has.
func (l *life) change(t *rapid.T) {
	name := l.pick(t)
	if name == "" {
		return
	}
	p := l.pods[name]
	from := l.free()
	if rapid.Bool().Draw(t, "around") {
		from.AddSet(&p.need.cpus)
	}
	cpus := subset(t, from, "cpus", 0, 4)
	if p.need = (lifeNeed{cpus: cpus}); cpus.IsEmpty() {
		p.need, p.alone = lifeNeed{pool: rapid.SampledFrom([]string{"shared", "be", "shared@0"}).Draw(t, "pool")}, false
	}
	l.put(t, name)
}

// swap lets two owners exchange CPUs: no order of plain moves is safe.
func (l *life) swap(t *rapid.T) {
	a, b := l.pick(t), l.pick(t)
	if a == "" || a == b || l.pods[a].need.pool != "" || l.pods[b].need.pool != "" {
		return
	}
	l.pods[a].need, l.pods[b].need = l.pods[b].need, l.pods[a].need
	l.put(t, a)
	l.put(t, b)
}

// hotplug takes CPUs away or brings them back. Owners keep what is left; one
// with nothing left moves to the shared pool.
func (l *life) hotplug(t *rapid.T) {
	if l.kern.V1 { // v1 cuts the masks themselves and moves tasks
		return
	}
	l.online = cpuset.Range(0, lifeCPUs-1).Minus(subset(t, cpuset.Range(0, lifeCPUs-1).Minus(floor()), "offline", 0, 6))
	l.kern.SetOnline(l.online)
	l.model.online = parsed(l.online.String())
	l.tree.SetOnline(l.online)
	for _, name := range slices.Sorted(maps.Keys(l.pods)) {
		p := l.pods[name]
		if l.shrinkTo(&p.need) {
			p.alone = p.alone && p.need.pool == ""
			l.put(t, name)
		}
		for _, id := range slices.Sorted(maps.Keys(p.containers)) {
			if l.shrinkTo(&p.containers[id].need) {
				l.putContainer(t, name, id)
			}
		}
	}
}

func (l *life) shrinkTo(n *lifeNeed) bool {
	left := n.cpus.And(l.online)
	if left == n.cpus {
		return false
	}
	if n.cpus = left; left.IsEmpty() {
		n.pool = "shared"
	}
	return true
}

// uncontrolled takes the cpuset controller from a cgroup and all below, and
// their masks with it, as when systemd finds no unit there that asks for it.
func (l *life) uncontrolled(t *rapid.T) {
	path := l.ours(t)
	l.kern.DisableCpuset(path)
	for below := range l.model.files {
		if strings.HasPrefix(below+"/", path+"/") {
			l.model.files[below] = ""
		}
	}
	l.unseen = true
}

// ours draws a cgroup that is not above the tree.
func (l *life) ours(t *rapid.T) string {
	var paths []string
	for path := range l.model.files {
		if strings.Count(path, "/") > 0 && path != outside && path != "system/runtime" {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return rapid.SampledFrom(paths).Draw(t, "cgroup")
}

// hostile changes a mask behind the tree's back.
func (l *life) hostile(t *rapid.T) {
	if l.kern.V1 {
		return
	}
	path := l.ours(t)
	if l.kern.HasCpuset(path) {
		l.tamper(path, subset(t, cpuset.Range(0, lifeCPUs-1), "hostile cpus", 0, lifeCPUs).String())
	}
	l.unseen = true
}

// restarted is what a new daemon finds that cannot read a slice: some mask.
func (l *life) restarted(t *rapid.T) {
	path := rapid.SampledFrom([]string{burstable, besteffort}).Draw(t, "slice")
	if rapid.Bool().Draw(t, "other mask") {
		l.tamper(path, subset(t, cpuset.Range(0, lifeCPUs-1), "slice's cpus", 0, lifeCPUs).String())
	}
	l.tree.Unread(path)
}

// administrator puts a mask on kubepods, which is not ours, or takes it away.
func (l *life) administrator(t *rapid.T) {
	l.limit = subset(t, cpuset.Range(0, lifeCPUs-1), "limit", 0, lifeCPUs)
	l.tamper("kubepods", l.limit.String())
	l.unseen = true
}

// wish is what policy wants for a container.
func (l *life) wish(p *lifePod, c *lifeContainer) cpuset.Set {
	for _, n := range []lifeNeed{c.need, p.need} {
		switch {
		case n.pool != "":
			return l.pools[n.pool]
		case !n.cpus.IsEmpty():
			return n.cpus
		}
	}
	panic("a pod without a need")
}

// entitled is where a container may be: its wish, or as much of it as there is
// under a limit from outside, or what there is without an owner. exact says
// that it must also be on all of it.
func (l *life) entitled(p *lifePod, c *lifeContainer) (cpus cpuset.Set, exact bool) {
	cpus, exact, _ = l.outlook(p, c)
	return cpus, exact
}

// outlook adds whether it is hopeless: all that is left has owners, before or
// after, and no order of writes can keep the container off their CPUs.
func (l *life) outlook(p *lifePod, c *lifeContainer) (cpus cpuset.Set, exact, hopeless bool) {
	wish := l.wish(p, c)
	limit := l.limit.And(l.online) // nothing left is no limit to the kernel
	if limit.IsEmpty() || !strings.HasPrefix(c.path, "kubepods/") {
		return wish, true, false
	}
	hopeless = limit.SubsetOf(&l.owned)
	if both := wish.And(limit); !both.IsEmpty() {
		return both, true, hopeless
	}
	if ownerless := limit.Minus(l.owners()); !ownerless.IsEmpty() {
		return ownerless, false, hopeless
	}
	return limit, false, true
}

// rights is what every cgroup with tasks may use; cgroups inside a container
// what the container may.
func (l *life) rights() (all map[string]oracle.CPUSet, hopeless map[string]bool) {
	all, hopeless = map[string]oracle.CPUSet{}, map[string]bool{}
	for _, p := range l.pods {
		for _, c := range p.containers {
			cpus, _, none := l.outlook(p, c)
			for path := c.path; l.model.tasks[path]; path += "/nested" {
				all[path], hopeless[path] = parsed(cpus.String()), none
			}
		}
	}
	return all, hopeless
}

// check holds after every single file write: a cgroup that gained a CPU is entitled
// to it, and so is every other that is on it. CPUs without any owner, before and
// after, do no harm; nor does a cgroup inside a container that comes onto a CPU
// where its container already was.
func (l *life) check(path, file string) {
	for _, line := range l.kern.Writes() {
		l.model.write(line)
	}
	now, owners := l.model.where(), l.owners()
	rights, hopeless := l.rights()
	l.compare(now)
	for q, cpus := range now {
		l.gained[q] = l.gained[q].Union(cpus.Difference(l.last[q]))
	}
	for q, cpus := range now {
		for _, c := range cpus.Difference(l.last[q]).List() {
			if !l.owned.Has(c) || hopeless[q] || l.violation != "" {
				continue
			}
			for r, others := range now {
				// Parked: it came with this plan onto a CPU that has no owner.
				parked := !owners.Has(c) && l.gained[r].Contains(c)
				within := l.last[strings.TrimRight(strings.ReplaceAll(q, "/nested", "/"), "/")].Contains(c)
				if others.Contains(c) && !rights[r].Contains(c) && !parked && !within {
					l.violation = fmt.Sprintf(
						"after a write to %s %s, %s came onto CPU %d while %s is on it and must not be (it needs "+
							"%s)%s", path, file, q, c, r, rights[r], l.model.tree())
				}
			}
		}
	}
	l.last = now
}

// compare holds the fake kernel to the model.
func (l *life) compare(now map[string]oracle.CPUSet) {
	fake := l.kern.Tasks()
	for path, cpus := range now {
		if cpus.String() != fake[path].String() {
			l.violation = fmt.Sprintf("the fake kernel has %s on %s, the model on %s%s", path, fake[path], cpus,
				l.model.tree())
		}
	}
	if len(fake) != len(now) {
		l.violation = fmt.Sprintf("the fake kernel has %d cgroups with tasks, the model %d", len(fake), len(now))
	}
}

func (l *life) run(plan []cgroup.Write) error {
	l.last, l.violation = l.model.where(), ""
	return l.tree.Execute(plan, func(w cgroup.Write) error {
		l.noteUnknown()
		defer l.noteUnknown() // the write has had its effect, and the tree has no result yet
		if l.failing != nil {
			switch l.failing() {
			case refused:
				return errInjected
			case workedAndFailed:
				if err := l.kern.Apply(context.Background(), w.Path, w.Values()); err != nil {
					return err
				}
				return errInjected
			case comesLater:
				l.late = append(l.late, w)
				return fmt.Errorf("no answer: %w", cgroup.ErrInFlight)
			}
		}
		if l.vanishing != nil && w.Path != burstable && w.Path != besteffort && l.vanishing() {
			l.gone(w.Path)
		}
		return l.kern.Apply(context.Background(), w.Path, w.Values())
	})
}

var errInjected = errors.New("injected")

// failure is how a write fails.
type failure int

const (
	works failure = iota
	refused
	workedAndFailed
	comesLater
)

// arrive lets writes that were given up take effect, some of them or all.
func (l *life) arrive(some func() bool) {
	l.late = slices.DeleteFunc(l.late, func(w cgroup.Write) bool {
		if !some() {
			return false
		}
		if err := l.kern.Apply(context.Background(), w.Path, w.Values()); err != nil &&
			!errors.Is(err, cgroup.ErrGone) {
			panic(err)
		}
		return true
	})
	for _, line := range l.kern.Writes() {
		l.model.write(line)
	}
}

// held wants every CPU that a container may use and should not to be known.
func (l *life) held(t *rapid.T) {
	l.noteUnknown()
	if l.unknown != "" {
		t.Fatal(l.unknown)
	}
}

// noteUnknown keeps the first container that runs where the tree does not say that it
// may, and the first cgroup that allows more than it may.
func (l *life) noteUnknown() {
	if l.unknown == "" {
		l.unknown = l.tree.Disagreement()
	}
	if l.unknown != "" {
		return
	}
	held := parsed(l.tree.Held().String())
	for _, p := range l.pods {
		for _, c := range p.containers {
			cpus, exact := l.entitled(p, c)
			if !exact && cpus.Intersects(ref(l.owners())) {
				cpus = l.wish(p, c) // there is nothing that it may have, and the kernel gives it that
			}
			right, is := parsed(cpus.String()), l.model.effective(c.path)
			if beyond := is.Difference(right).Difference(held); beyond.Size() > 0 {
				l.unknown = fmt.Sprintf("%s is on %s, needs %s, and nobody knows of %s, only of %s%s", c.path, is,
					right, beyond, held, l.model.tree())
			}
		}
	}
	for path := range l.model.files {
		is, may := l.model.effective(path), parsed(l.tree.MayUse(path).String())
		if !is.IsSubsetOf(may) {
			l.unknown = fmt.Sprintf("%s allows %s, and the tree says that it may allow %s%s", path, is, may,
				l.model.tree())
		}
	}
}

// steps lets a few things happen and returns the plan for them.
func (l *life) steps(t *rapid.T, more ...func(*rapid.T)) []cgroup.Write {
	l.owned, l.gained = l.owners(), map[string]oracle.CPUSet{}
	events := append([]func(*rapid.T){l.create, l.create, l.remove, l.change, l.swap}, more...)
	for range rapid.IntRange(1, 3).Draw(t, "events") {
		rapid.SampledFrom(events).Draw(t, "event")(t)
	}
	l.settlePools(t)
	l.owned = l.owned.Or(l.owners())
	if l.unseen { // what the audit does
		l.tree.LookAbove(l.kern.CPUs)
		l.audit(8)
		l.unseen = false
	}
	if l.unreadable == nil || !l.unreadable() {
		l.readBack(time.Unix(0, 0)) // what the writer does before it plans
	}
	return l.tree.Plan()
}

// audit looks at everything in so many rounds.
func (l *life) audit(rounds uint64) {
	ids := []string{burstable, besteffort}
	for name, p := range l.pods {
		ids = append(ids, name)
		ids = slices.AppendSeq(ids, maps.Keys(p.containers))
	}
	for range rounds {
		for _, id := range ids {
			l.tree.Audit(id, l.audits, l.kern)
		}
		l.audits++
	}
}

// settled holds when a plan is done: every cgroup is where policy wants it, the
// tree knows, and there is nothing more to write.
func (l *life) settled(t *rapid.T) {
	limited := map[string]bool{}
	for _, p := range l.pods {
		for _, c := range p.containers {
			cpus, exact := l.entitled(p, c)
			right, is := parsed(cpus.String()), l.model.effective(c.path)
			if exact && !is.Equals(right) || !is.IsSubsetOf(right) {
				t.Fatalf("%s is on %s, needs %s%s", c.path, is, right, l.model.tree())
			}
			limited[c.path] = l.wish(p, c) != cpus
			for path := c.path + "/nested"; l.model.tasks[path]; path += "/nested" {
				if inside := l.model.effective(path); !inside.IsSubsetOf(is) {
					t.Fatalf("%s is on %s, outside its container's %s", path, inside, is)
				}
			}
		}
	}
	if again := l.tree.Plan(); len(again) > 0 {
		t.Fatalf("a second plan still writes %v%s", again, l.model.tree())
	}
	if held := l.tree.Held(); l.limit.IsEmpty() && !held.IsEmpty() {
		t.Fatalf("all is written and CPUs %s still count as held by others%s", held, l.model.tree())
	}
	for _, d := range l.tree.Check(l.kern.CPUs) {
		if l.limit.IsEmpty() || !d.Outside() || d.Above != "kubepods" {
			t.Fatalf("%s%s", d, l.model.tree())
		}
		delete(limited, d.Path)
	}
	for path, is := range limited {
		if is {
			t.Fatalf("%s is limited from outside and nobody says so%s", path, l.model.tree())
		}
	}
	if again := l.tree.Plan(); len(again) > 0 {
		t.Fatalf("after a check without drift there is a plan: %v", again)
	}
}

func (l *life) obey(t *rapid.T, plan []cgroup.Write) {
	l.held(t)
	ok(t, l.run(plan))
	l.lawful(t, plan)
	l.held(t)
}

func (l *life) lawful(t *rapid.T, plan []cgroup.Write) {
	if l.violation != "" {
		t.Fatalf("%s\nplan: %v", l.violation, plan)
	}
}

func TestRandomLives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(t, false)
		for range rapid.IntRange(1, 12).Draw(t, "rounds") {
			l.obey(t, l.steps(t, l.hotplug, l.hostile, l.uncontrolled))
			l.settled(t)
		}
	})
}

// One audit finds whatever takes CPUs from a cgroup or gives it those of others; what it
// leaves for a later round changes the CPUs of none.
func TestRandomLivesOneAudit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(t, false)
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			l.obey(t, l.steps(t))
			for range rapid.IntRange(1, 4).Draw(t, "hands") {
				l.hostile(t)
			}
			l.audit(1)
			l.obey(t, l.tree.Plan())
			for _, p := range l.pods {
				for _, c := range p.containers {
					if is, right := l.model.effective(c.path), l.wish(p, c).String(); is.String() != right {
						t.Fatalf("%s is on %s, needs %s%s", c.path, is, right, l.model.tree())
					}
				}
			}
		}
	})
}

func TestRandomLivesV1(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(t, true)
		for range rapid.IntRange(1, 12).Draw(t, "rounds") {
			l.obey(t, l.steps(t))
			l.settled(t)
		}
	})
}

func TestRandomLivesUnderALimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(t, false)
		for range rapid.IntRange(1, 10).Draw(t, "rounds") {
			l.obey(t, l.steps(t, l.administrator, l.hotplug))
			l.settled(t)
		}
	})
}

func TestRandomLivesWithFailingWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(t, false)
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			rate := rapid.IntRange(1, 5).Draw(t, "one write fails in")
			l.failing = func() failure {
				if rapid.IntRange(1, rate).Draw(t, "fails") == 1 {
					return rapid.SampledFrom([]failure{refused, workedAndFailed}).Draw(t, "how")
				}
				return works
			}
			l.unreadable = func() bool { return rapid.IntRange(0, 3).Draw(t, "unreadable") == 0 }
			plan := l.steps(t, l.hotplug)
			_ = l.run(plan)
			l.lawful(t, plan)
			l.held(t)
			l.failing, l.unreadable = nil, nil
			l.readBack(time.Unix(0, 0))
			plan = l.tree.Plan()
			l.obey(t, plan)
			l.settled(t)
		}
	})
}

// While the mask of a slice is not known, no write puts a pod in it onto CPUs of others.
func TestRandomLivesWithUnreadSlices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(t, false)
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			l.restarted(t)
			l.unreadable = func() bool { return rapid.IntRange(0, 3).Draw(t, "readable") > 0 }
			l.failing = func() failure {
				return rapid.SampledFrom([]failure{works, works, works, refused, workedAndFailed}).Draw(t, "how")
			}
			plan := l.steps(t, l.restarted)
			l.held(t)
			_ = l.run(plan)
			l.lawful(t, plan)
			l.held(t)
			l.unreadable, l.failing = nil, nil
			l.readBack(time.Unix(0, 0))
			l.obey(t, l.tree.Plan())
			l.settled(t)
		}
	})
}

// A write that was given up may take effect at any later time, until the mask has been
// read twice. Whatever it does by then, the tree knew that it might.
func TestRandomLivesWithWritesInFlight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(t, false)
		some := func() bool { return rapid.Bool().Draw(t, "arrives") }
		now := time.Unix(0, 0)
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			l.failing = func() failure {
				return rapid.SampledFrom([]failure{works, works, refused, workedAndFailed, comesLater}).Draw(t, "how")
			}
			plan := l.steps(t)
			_ = l.run(plan)
			for range 3 {
				l.held(t)
				l.arrive(some)
				l.held(t)
				if rapid.Bool().Draw(t, "is read back") {
					now = now.Add(time.Second)
					l.readBack(now)
				}
				l.held(t)
				_ = l.run(l.tree.Plan())
			}
		}
		l.failing = nil
		l.arrive(func() bool { return true })
		// What is written between two reads begins the second one anew.
		for range 10 {
			now = now.Add(time.Minute)
			l.readBack(now)
			_ = l.run(l.tree.Plan())
		}
		if left := l.tree.Uncertain(); len(left) > 0 {
			t.Fatalf("everything was read twice, and %v are still uncertain", left)
		}
		l.audit(8)
		_ = l.run(l.tree.Plan())
		l.settled(t)
	})
}

func ref(s cpuset.Set) *cpuset.Set { return &s }

func (l *life) readBack(now time.Time) {
	for _, path := range l.tree.Uncertain() {
		if e, err := l.kern.CPUs(path); err == nil {
			l.tree.ReadBack(path, e, now)
		}
	}
}

// When every cgroup has left, which is before any grows, no CPU of an owner is held.
func TestRandomLivesHoldNothingOfOwnersAfterShrinking(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(t, false)
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			plan := l.steps(t, l.hotplug)
			grow := slices.IndexFunc(plan, func(w cgroup.Write) bool { return w.Phase == cgroup.Grow })
			if grow < 0 {
				grow = len(plan)
			}
			l.obey(t, plan[:grow])
			l.held(t)
			if held := l.tree.Held(); held.Intersects(ref(l.owners())) {
				t.Fatalf("CPUs %s of owners count as held by others%s", held, l.model.tree())
			}
			l.obey(t, l.tree.Plan())
		}
	})
}

func TestRandomLivesWithVanishingCgroups(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(t, false)
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			l.vanishing = func() bool { return rapid.IntRange(1, 4).Draw(t, "vanishes") == 1 }
			plan := l.steps(t, l.hostile)
			l.obey(t, plan)
			l.vanishing = nil
			l.dropVanished()
			l.settlePools(t)
			l.obey(t, l.tree.Plan())
			l.settled(t)
		}
	})
}
