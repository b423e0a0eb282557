// Package cgrouptest is a kernel for tests: a tree of cgroups in memory that follows the kernel's
// own rules for cpusets, also available mirrored into a folder of files. It shares no logic with
// the planner that it helps to test.
//
//	k := cgrouptest.New(cpuset.Range(0, 15))
//	k.Mkdir("kubepods/burstable/podA/main", 1) // one task in it
//	err := k.Apply(ctx, "kubepods/burstable", cgroup.Values{CPUs: cgroup.Only(set)})
//	e, err := k.Effective("kubepods/burstable/podA/main")
package cgrouptest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
)

// Kernel is a cgroup.Driver and cgroup.Reader in memory. Fields are set before
// first use. It is safe for concurrent use.
type Kernel struct {
	// V1 selects cgroup v1: no inheritance, and a child's set must lie in its parent's.
	V1 bool
	// ClearPopulated allows emptying the mask of a populated cgroup, as kernels later than 6.1 may
	// do.
	ClearPopulated bool
	// OnDemand enables the cpuset controller for a cgroup that is written, as
	// systemd does for its units.
	OnDemand bool
	// NoIdle is a kernel before 5.15, without cpu.idle.
	NoIdle bool
	// Before, if set, runs before each Apply without any lock held: it may
	// block, remove the cgroup, or return an error in the kernel's place.
	Before func(path string, v cgroup.Values) error
	// After, if set, runs after every single file write that changed something.
	After func(path, file string)

	mu     sync.Mutex
	root   *group
	writes []string
}

type group struct {
	name       string
	parent     *group
	kids       map[string]*group
	cpus, mems cpuset.Set
	quota      cgroup.Quota
	weight     uint64
	idle       bool
	tasks      int
	noCpuset   bool // for this cgroup and its whole subtree
}

// New returns a kernel with these CPUs online and memory nodes 0 and 1.
func New(online cpuset.Set) *Kernel {
	return &Kernel{root: &group{kids: map[string]*group{}, cpus: online, mems: cpuset.Of(0, 1)}}
}

// Mkdir creates a cgroup and its ancestors, and puts tasks into it.
func (k *Kernel) Mkdir(path string, tasks int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := k.root
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		kid := g.kids[name]
		if kid == nil {
			kid = &group{name: name, parent: g, kids: map[string]*group{},
				quota: cgroup.Quota{Micros: -1, Period: 100000}, weight: 100}
			if k.V1 {
				// As a runtime does, since v1 allows no task in a cgroup without a set.
				kid.cpus, kid.mems = g.cpus, g.mems
			}
			g.kids[name] = kid
		}
		g = kid
	}
	g.tasks += tasks
}

// Rmdir removes a cgroup with its subtree, as when its tasks have ended.
func (k *Kernel) Rmdir(path string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if g := k.find(path); g != nil && g.parent != nil {
		delete(g.parent.kids, g.name)
	}
}

// DisableCpuset takes the cpuset controller from a cgroup and its subtree.
func (k *Kernel) DisableCpuset(path string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := k.find(path)
	g.noCpuset = true
	g.forget()
}

// EnableCpuset enables the controller again, with empty masks.
func (k *Kernel) EnableCpuset(path string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.find(path).noCpuset = false
}

// forget clears the masks of g and its subtree, which are lost with the controller.
func (g *group) forget() {
	g.cpus, g.mems = cpuset.Set{}, cpuset.Set{}
	for _, kid := range g.kids {
		kid.forget()
	}
}

// HasCpuset reports whether a cgroup has the controller.
func (k *Kernel) HasCpuset(path string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := k.find(path)
	return g != nil && g.hasCpuset()
}

func (g *group) hasCpuset() bool {
	for ; g != nil; g = g.parent {
		if g.noCpuset {
			return false
		}
	}
	return true
}

// SetOnline sets the online CPUs.
func (k *Kernel) SetOnline(online cpuset.Set) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.root.cpus = online
}

// Tamper changes a mask from outside, bypassing Apply; "" clears it even if tasks run there.
func (k *Kernel) Tamper(path, cpus string) {
	set, err := cpuset.Parse(cpus)
	if err != nil {
		panic(err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.find(path).cpus = set
}

// Writes returns "path file=text" of every file write so far, and clears the list.
func (k *Kernel) Writes() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.writes
	k.writes = nil
	return w
}

// find looks a cgroup up; "/" is the root.
func (k *Kernel) find(path string) *group {
	g := k.root
	if path == "/" {
		return g
	}
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if g = g.kids[name]; g == nil {
			return nil
		}
	}
	return g
}

// Apply does what the file driver would make the kernel do.
func (k *Kernel) Apply(ctx context.Context, path string, v cgroup.Values) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if k.Before != nil {
		if err := k.Before(path, v); err != nil {
			return err
		}
	}
	if err := k.applyMask(path, "cpuset.cpus", v.CPUs); err != nil {
		return err
	}
	if err := k.applyMask(path, "cpuset.mems", v.Mems); err != nil {
		return err
	}
	if err := k.applyIdle(path, v.Idle); err != nil {
		return err
	}
	if v.Quota == nil && v.Weight == 0 {
		return nil
	}
	return k.write(path, "cpu.max", fmt.Sprint(v.Quota, v.Weight), func(g *group) error {
		if v.Weight > 0 && g.idle {
			return unix.EINVAL
		}
		if v.Quota != nil {
			period := g.quota.Period
			if v.Quota.Period > 0 {
				period = v.Quota.Period
			}
			g.quota = cgroup.Quota{Micros: max(v.Quota.Micros, -1), Period: period}
		}
		if v.Weight > 0 {
			g.weight = v.Weight
		}
		return nil
	})
}

// applyIdle resets the weight, as the kernel does in both directions.
func (k *Kernel) applyIdle(path string, idle *bool) error {
	switch {
	case idle == nil:
		return nil
	case k.V1 || k.NoIdle:
		return cgroup.ErrNoIdle
	}
	return k.write(path, "cpu.idle", fmt.Sprint(*idle), func(g *group) error {
		if g.idle == *idle {
			return nil
		}
		g.idle, g.weight = *idle, 100
		if *idle {
			g.weight = 0
		}
		return nil
	})
}

func (k *Kernel) applyMask(path, file string, m cgroup.Mask) error {
	if m.IsZero() {
		return nil
	}
	set := m.Set()
	if set.IsEmpty() {
		return cgroup.ErrEmptySet
	}
	if k.V1 {
		return k.writeV1Set(path, file, set)
	}
	if err := k.writeSet(path, file, set); err != nil || !m.Inherits() {
		return err
	}
	if err := k.writeSet(path, file, cpuset.Set{}); err != nil && err != unix.ENOSPC {
		return err
	}
	return nil
}

func (k *Kernel) writeSet(path, file string, set cpuset.Set) error {
	return k.write(path, file, set.String(), func(g *group) error {
		if g.parent == nil {
			return unix.EACCES
		}
		for a := g; k.OnDemand && a != nil; a = a.parent {
			a.noCpuset = false
		}
		if !g.hasCpuset() {
			return &cgroup.NoControllerError{Path: path, Controller: "cpuset", File: file}
		}
		own := &g.cpus
		if file == "cpuset.mems" {
			own = &g.mems
		}
		if set.IsEmpty() && !own.IsEmpty() && g.populated() && !k.ClearPopulated {
			return unix.ENOSPC
		}
		if k.V1 && file == "cpuset.cpus" {
			if err := g.checkV1(set); err != nil {
				return err
			}
		}
		*own = set
		return nil
	})
}

// writeV1Set does what the file driver does if unmanaged cgroups are in the way.
func (k *Kernel) writeV1Set(path, file string, set cpuset.Set) error {
	err := k.writeSet(path, file, set)
	if err != unix.EBUSY {
		return err
	}
	now, err := k.Effective(path)
	if err != nil {
		return err
	}
	kids, err := k.Children(path)
	if err != nil {
		return err
	}
	apart := false
	for _, kid := range kids {
		e, err := k.Effective(path + "/" + kid)
		if err != nil {
			return err
		}
		apart = apart || !e.OwnCPUs.Intersects(&set)
	}
	if apart {
		if err := k.writeSet(path, file, now.OwnCPUs.Or(set)); err != nil {
			return err
		}
	}
	for _, kid := range kids {
		e, err := k.Effective(path + "/" + kid)
		if err != nil {
			return err
		}
		within := set
		if common := e.OwnCPUs.And(set); !common.IsEmpty() {
			within = common
		}
		if err := k.writeV1Set(path+"/"+kid, file, within); err != nil {
			return err
		}
	}
	return k.writeSet(path, file, set)
}

func (k *Kernel) write(path, file, text string, change func(*group) error) error {
	k.mu.Lock()
	g := k.find(path)
	if g == nil {
		k.mu.Unlock()
		return fmt.Errorf("write %s of %s: %w", file, path, cgroup.ErrGone)
	}
	err := change(g)
	if err == nil {
		k.writes = append(k.writes, path+" "+file+"="+text)
	}
	k.mu.Unlock()
	if err == nil && k.After != nil {
		k.After(path, file)
	}
	return err
}

// checkV1 is v1's hierarchy rule: a set lies inside the parent's and contains the children's.
func (g *group) checkV1(set cpuset.Set) error {
	if !set.SubsetOf(&g.parent.cpus) {
		return unix.EACCES
	}
	for _, kid := range g.kids {
		if !kid.cpus.SubsetOf(&set) {
			return unix.EBUSY
		}
	}
	return nil
}

func (g *group) populated() bool {
	if g.tasks > 0 {
		return true
	}
	for _, kid := range g.kids {
		if kid.populated() {
			return true
		}
	}
	return false
}

// onCPUs applies the kernel's rule from the root down: a cgroup with an empty mask, or with one
// that has nothing in common with its parent's set, has its parent's set.
func (g *group) onCPUs() cpuset.Set {
	return g.inherited(func(g *group) cpuset.Set { return g.cpus })
}

func (g *group) onMems() cpuset.Set {
	return g.inherited(func(g *group) cpuset.Set { return g.mems })
}

func (g *group) inherited(own func(*group) cpuset.Set) cpuset.Set {
	if g.parent == nil {
		return own(g)
	}
	above := g.parent.inherited(own)
	result := above.And(own(g))
	if result == (cpuset.Set{}) {
		return above
	}
	return result
}

// CPUs is the cheap form of Effective.
func (k *Kernel) CPUs(path string) (cgroup.Effective, error) { return k.Effective(path) }

// Allowed reads the CPUs that a cgroup's tasks may use.
func (k *Kernel) Allowed(path string) (cpuset.Set, error) {
	e, err := k.Effective(path)
	return e.CPUs, err
}

// Effective reports a cgroup as its files would.
func (k *Kernel) Effective(path string) (cgroup.Effective, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := k.find(path)
	if g == nil {
		return cgroup.Effective{}, fmt.Errorf("read %s: %w", path, cgroup.ErrGone)
	}
	e := cgroup.Effective{
		CPUs: g.onCPUs(), Mems: g.onMems(), OwnCPUs: g.cpus, OwnMems: g.mems,
		Quota: g.quota, QuotaMilli: g.quota.Milli(), Weight: g.weight,
		Idle: g.idle, HasIdle: !k.V1 && !k.NoIdle && g.parent != nil,
	}
	if g.parent == nil && !k.V1 { // the root of v2 has no cpuset.cpus
		e.OwnCPUs, e.OwnMems = cpuset.Set{}, cpuset.Set{}
	}
	return e, nil
}

// Children lists the cgroups directly below.
func (k *Kernel) Children(path string) ([]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := k.find(path)
	if g == nil {
		return nil, fmt.Errorf("list %s: %w", path, cgroup.ErrGone)
	}
	var names []string
	for name := range g.kids {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// Tasks returns the effective CPUs of every cgroup that has tasks, by path.
func (k *Kernel) Tasks() map[string]cpuset.Set {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := map[string]cpuset.Set{}
	var walk func(g *group, path string)
	walk = func(g *group, path string) {
		if g.tasks > 0 {
			all[path] = g.onCPUs()
		}
		for name, kid := range g.kids {
			walk(kid, strings.TrimPrefix(path+"/"+name, "/"))
		}
	}
	walk(k.root, "")
	return all
}
