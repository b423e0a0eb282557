package cgroup

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/cpuset"
)

// Need defines where the tasks of a cgroup must run: on a pool, whose set may change at any time,
// or on CPUs of their own. The zero Need is "as the parent cgroup"; for a pod outside every slice
// it means unmanaged: nothing is written.
type Need struct {
	pool string
	cpus *cpuset.Set
}

// InPool is the need for whatever CPUs this pool has.
func InPool(pool string) Need { return Need{pool: pool} }

// On is the need for exactly these CPUs.
func On(cpus cpuset.Set) Need { return Need{cpus: &cpus} }

// IsZero reports whether the need is the parent's.
func (n Need) IsZero() bool { return n.pool == "" && n.cpus == nil }

func (n Need) String() string {
	switch {
	case n.cpus != nil:
		return n.cpus.String()
	case n.pool != "":
		return "pool " + n.pool
	}
	return "as above"
}

// same compares needs, not sets: two pools that happen to be equal now are different needs, or a
// slice would flip between one mask and hundreds.
func (n Need) same(o Need) bool {
	if n.cpus != nil && o.cpus != nil {
		return *n.cpus == *o.cpus
	}
	return n == o
}

// Slice is a cgroup that holds pods and may have a mask for all of them: kubelet's burstable and
// besteffort. Its need applies to unknown new members.
type Slice struct {
	Path string
	Need Need
}

// Pod is a pod's cgroup. It lies in a slice if its path does and the slice was put; any other pod
// is written on its own.
type Pod struct {
	ID   string
	Path string
	Need Need
	Mems cpuset.Set // empty: any memory node
}

// Container is a container's cgroup, usually below its pod's; if it lies elsewhere, the masks on
// the way to it are widened for it.
type Container struct {
	ID   string
	Pod  string
	Path string
	Need Need       // zero: as the pod
	Mems cpuset.Set // empty: as the pod
	// OwnCPUs is the mask that the runtime wrote on this cgroup when it created it; empty: none.
	OwnCPUs cpuset.Set
}

// Options of a Tree.
type Options struct {
	// Flat is for cgroup v1, which has no inheritance: every cgroup has its own set, and a set must
	// lie inside the parent's.
	Flat bool
}

// Tree holds the pods' cgroups, what each needs and what was last written, and plans the
// difference. It does no I/O and is not safe for concurrent use.
//
// Invariant: a node is in dirty unless its known mask is its target and gives it nothing that it
// has no right to.
type Tree struct {
	online cpuset.Set
	flat   bool
	pools  map[string]*cpuset.Set
	top    *node            // parent of all nodes outside of slices; never written
	byPath map[string]*node // slices, pods and containers
	byID   map[string]*node // several IDs may name one pod: its sandboxes
	users  map[string]map[*node]struct{}
	dirty  map[*node]struct{}
	unsure map[*node]struct{} // nodes with an uncertainty
	// writing is the write that Execute has in flight; nil between two writes.
	writing *underWay
	// gaps lists, by a path that is not in the tree, the nodes below it whose parent lies above it:
	// they become kids of the cgroup that is put there.
	gaps map[string]map[*node]struct{}
	// outer holds, by the path of a cgroup that is not in the tree, what it and its ancestors allow
	// the nodes in it; only if that is not everything.
	outer map[string]*outer
	// lifted means that limits from outside do not count at the moment: Held asks what would be without them.
	lifted bool
	// spare holds the CPUs of each pool that have no owner, the largest set first; nil: to be
	// computed again.
	spare []cpuset.Set
}

type level int

const (
	topLevel level = iota
	sliceLevel
	podLevel
	containerLevel
)

func (l level) String() string {
	return [...]string{"root", "slice", "pod", "container"}[l]
}

type node struct {
	level  level
	path   string
	ids    []string // its names in byID, the latest last
	need   Need
	mems   *cpuset.Set
	parent *node // the nearest known ancestor: its mask applies here
	kids   map[*node]struct{}
	// pod is the pod of a container, wherever the container lies; members are a pod's containers.
	pod     *node
	members map[*node]struct{}
	// odd holds the kids that do not simply run on this node's need.
	odd map[*node]struct{}
	masks
	// unsure is what the kernel may have instead; nil: own is certain.
	unsure *uncertainty
	// indexed is the pool under which users lists the node.
	indexed string
	gone    bool
	// room means that the node stands for CPUs that its pod keeps: it never has a cgroup.
	room bool
}

// NewTree returns an empty tree for a machine, or for a cgroup root that may use only these CPUs.
func NewTree(online cpuset.Set, o Options) *Tree {
	return &Tree{
		online: online,
		flat:   o.Flat,
		pools:  map[string]*cpuset.Set{},
		top:    &node{level: topLevel, kids: map[*node]struct{}{}},
		byPath: map[string]*node{},
		byID:   map[string]*node{},
		users:  map[string]map[*node]struct{}{},
		dirty:  map[*node]struct{}{},
		unsure: map[*node]struct{}{},
		gaps:   map[string]map[*node]struct{}{},
		outer:  map[string]*outer{},
	}
}

// SetOnline sets the online CPUs. Every cgroup is checked again.
func (t *Tree) SetOnline(online cpuset.Set) {
	if t.online == online {
		return
	}
	t.online = online
	t.doubtGivenUp()
	t.refoldOuter()
	t.touchAll()
}

func (t *Tree) touchAll() {
	for _, n := range t.byPath {
		t.dirty[n] = struct{}{}
	}
}

// SetPool sets the CPUs of a pool. Its cost is the number of cgroups that have the pool's mask, not
// of those that run in it. An empty set is refused and changes nothing: an empty mask does not mean
// "no CPU".
func (t *Tree) SetPool(pool string, cpus cpuset.Set) error {
	if cpus.IsEmpty() {
		return fmt.Errorf("pool %s: %w", pool, ErrEmptySet)
	}
	if old := t.pools[pool]; old != nil && *old == cpus {
		return nil
	}
	t.pools[pool] = &cpus
	t.spare = nil
	for n := range t.users[pool] {
		t.markUp(n)
	}
	return nil
}

// DropPool removes a pool that is no longer needed.
func (t *Tree) DropPool(pool string) {
	delete(t.pools, pool)
	delete(t.users, pool)
	t.spare = nil
}

// Pools are the names of the pools that have CPUs, sorted.
func (t *Tree) Pools() []string { return slices.Sorted(maps.Keys(t.pools)) }

// PutSlice declares a slice or changes its need. Pods put before it move in.
func (t *Tree) PutSlice(s Slice) error {
	path, err := CleanPath(s.Path)
	if err != nil {
		return err
	}
	if n := t.byPath[path]; n != nil {
		if n.level != sliceLevel {
			return fmt.Errorf("slice %s: a %s is known at this path", path, n.level)
		}
		t.revive(n)
		t.setNeed(n, s.Need)
		return nil
	}
	t.insert(newNode(sliceLevel, path, s.Need), path)
	return nil
}

func newNode(l level, path string, need Need) *node {
	return &node{level: l, path: path, need: need, kids: map[*node]struct{}{}, odd: map[*node]struct{}{}}
}

// PutPod adds a pod or changes its need. A second id for the same path is a
// new sandbox of the same pod: the cgroup stays until both are removed.
func (t *Tree) PutPod(p Pod) error {
	path, err := CleanPath(p.Path)
	if err != nil {
		return fmt.Errorf("pod %s: %w", p.ID, err)
	}
	if p.Need.cpus != nil && p.Need.cpus.IsEmpty() {
		return fmt.Errorf("pod %s: %w", p.ID, ErrEmptySet)
	}
	if old := t.byID[p.ID]; old != nil && old.path != path {
		t.Remove(p.ID)
	}
	n := t.byPath[path]
	if n == nil {
		n = newNode(podLevel, path, p.Need)
		n.members = map[*node]struct{}{}
		t.insert(n, p.ID)
		if t.inUnread(n) != nil {
			t.doubt(n).unread = true // it may have existed before, with a mask
		}
	} else if n.level != podLevel {
		return fmt.Errorf("pod %s: a %s is known at %s", p.ID, n.level, path)
	}
	t.name(n, p.ID)
	t.revive(n)
	t.setMems(n, p.Mems)
	t.setNeed(n, p.Need)
	return nil
}

// PutContainer adds a container or changes its need.
func (t *Tree) PutContainer(c Container) error {
	path, err := CleanPath(c.Path)
	if err != nil {
		return fmt.Errorf("container %s: %w", c.ID, err)
	}
	if c.Need.cpus != nil && c.Need.cpus.IsEmpty() {
		return fmt.Errorf("container %s: %w", c.ID, ErrEmptySet)
	}
	pod := t.byID[c.Pod]
	if pod == nil || pod.level != podLevel {
		return fmt.Errorf("container %s: its pod %s is not known; put the pod first", c.ID, c.Pod)
	}
	if old := t.byID[c.ID]; old != nil && old.path != path {
		t.Remove(c.ID)
	}
	if strings.HasPrefix(pod.path, path+"/") {
		return fmt.Errorf("container %s: its cgroup %s lies above its pod's", c.ID, path)
	}
	n := t.byPath[path]
	if n == nil {
		n = newNode(containerLevel, path, c.Need)
		t.join(n, pod)
		t.insert(n, c.ID)
	} else if n.level != containerLevel {
		return fmt.Errorf("container %s: a %s is known at %s", c.ID, n.level, path)
	}
	t.name(n, c.ID)
	t.join(n, pod)
	t.revive(n)
	t.revive(pod)
	if !c.OwnCPUs.IsEmpty() {
		n.setOwn(&c.OwnCPUs)
	}
	t.setMems(n, c.Mems)
	t.setNeed(n, c.Need)
	return nil
}

// Remove removes a pod with its containers, a container, or a slice by path. Unknown IDs are
// ignored: Stop and Remove may come twice, or never.
func (t *Tree) Remove(id string) {
	n := t.byID[id]
	if n == nil {
		return
	}
	delete(t.byID, id)
	n.ids = slices.DeleteFunc(n.ids, func(s string) bool { return s == id })
	if len(n.ids) == 0 {
		t.drop(n)
	}
}

func (t *Tree) drop(n *node) {
	for m := range n.members {
		t.drop(m)
	}
	for _, id := range n.ids {
		delete(t.byID, id)
	}
	if n.pod != nil {
		delete(n.pod.members, n)
	}
	delete(t.byPath, n.path)
	for k := range n.kids { // pods of a slice, containers of others
		t.move(k, n.parent)
	}
	t.index(n, "")
	t.detach(n)
	delete(t.dirty, n)
	t.forget(n)
	t.spare = nil
}

// Observe records what was read of a cgroup: its own masks, from which the next Plan starts, and
// the CPUs that it allows, which count as allowed even if no known mask explains them. Unknown
// paths are ignored.
func (t *Tree) Observe(path string, e Effective) {
	n := t.byPath[strings.Trim(path, "/")]
	if n == nil {
		return
	}
	t.observe(n, &e)
	t.unexplained(n, e.CPUs)
}

// known copies a set; nil if it is empty.
func known(s *cpuset.Set) *cpuset.Set {
	if *s == (cpuset.Set{}) {
		return nil
	}
	own := *s
	return &own
}

// Len returns how many cgroups the tree holds.
func (t *Tree) Len() int { return len(t.byPath) }

// --- relations ---

// nearest returns the nearest known ancestor of path.
func (t *Tree) nearest(path string) *node {
	for p := Parent(path); p != ""; p = Parent(p) {
		if n := t.byPath[p]; n != nil {
			return n
		}
	}
	return t.top
}

// insert puts n in its place, between its ancestors and its descendants.
func (t *Tree) insert(n *node, id string) {
	t.byPath[n.path] = n
	t.name(n, id)
	t.attach(n, t.nearest(n.path))
	t.revive(n.parent)
	below := make([]*node, 0, len(t.gaps[n.path]))
	for k := range t.gaps[n.path] {
		below = append(below, k)
	}
	for _, k := range below {
		t.move(k, n)
	}
}

// join makes n a container of pod.
func (t *Tree) join(n, pod *node) {
	if n.pod == pod {
		return
	}
	if n.pod != nil {
		delete(n.pod.members, n)
	}
	n.pod = pod
	pod.members[n] = struct{}{}
}

// revive records that a cgroup and its ancestors exist.
func (t *Tree) revive(n *node) {
	for ; n != t.top && n.gone; n = n.parent {
		n.gone = false
		t.dirty[n] = struct{}{}
	}
}

// vanished records that a cgroup and its descendants do not exist: their masks are gone, too.
func (t *Tree) vanished(n *node) {
	n.gone, n.ownMems = true, nil
	n.setOwn(nil)
	t.forget(n)
	for k := range n.kids {
		t.vanished(k)
	}
}

func (t *Tree) name(n *node, id string) {
	if old := t.byID[id]; old == n {
		return
	} else if old != nil {
		t.Remove(id)
	}
	t.byID[id] = n
	n.ids = append(n.ids, id)
}

func (t *Tree) move(n, parent *node) {
	t.detach(n)
	t.attach(n, parent)
}

func (t *Tree) attach(n, parent *node) {
	n.parent = parent
	parent.kids[n] = struct{}{}
	for p := Parent(n.path); p != parent.path; p = Parent(p) {
		if t.gaps[p] == nil {
			t.gaps[p] = map[*node]struct{}{}
		}
		t.gaps[p][n] = struct{}{}
	}
	t.relink(n)
}

// detach removes n from its parent, whose remaining kids may all need the same then.
func (t *Tree) detach(n *node) {
	p := n.parent
	delete(p.kids, n)
	for path := Parent(n.path); path != p.path; path = Parent(path) {
		if delete(t.gaps[path], n); len(t.gaps[path]) == 0 {
			delete(t.gaps, path)
			delete(t.outer, path)
		}
	}
	if p == t.top {
		return
	}
	if _, wasOdd := p.odd[n]; wasOdd {
		delete(p.odd, n)
		t.flipped(p, len(p.odd) == 0)
	}
	t.markUp(p)
}

// relink updates whether n is odd in its parent, and marks all nodes whose target changes by that.
// Only a parent that turns from uniform to mixed or back is walked.
func (t *Tree) relink(n *node) {
	p := n.parent
	t.touch(n)
	if p == t.top {
		return
	}
	_, was := p.odd[n]
	now := len(n.odd) > 0 || !t.needOf(n).same(t.needOf(p))
	switch {
	case now && !was:
		p.odd[n] = struct{}{}
		t.flipped(p, len(p.odd) == 1)
	case was && !now:
		delete(p.odd, n)
		t.flipped(p, len(p.odd) == 0)
	}
	t.markUp(p)
}

func (t *Tree) flipped(p *node, really bool) {
	if !really {
		return
	}
	for k := range p.kids {
		t.touch(k)
	}
	t.relink(p)
}

func (t *Tree) setNeed(n *node, need Need) {
	if n.need.same(need) {
		t.touch(n)
		return
	}
	n.need = need
	t.relink(n)
	t.follow(n)
	t.touchBelow(n)
}

// follow updates whether those nodes are odd whose own need, or whose parent's need, is n's.
func (t *Tree) follow(n *node) {
	for k := range n.kids {
		t.relink(k)
		if k.level == podLevel && k.need.IsZero() {
			t.follow(k)
		}
	}
	for m := range n.members {
		if !m.need.IsZero() {
			continue
		}
		t.relink(m)
		for k := range m.kids {
			t.relink(k)
		}
	}
}

func (t *Tree) touchBelow(n *node) {
	for k := range n.kids {
		t.touch(k)
		t.touchBelow(k)
	}
}

func (t *Tree) setMems(n *node, mems cpuset.Set) {
	n.mems = known(&mems)
	t.dirty[n] = struct{}{}
}

// touch marks n for the next plan and lists it under the pool on which its own target depends; a
// covered cgroup's target depends on no pool.
func (t *Tree) touch(n *node) {
	if n == t.top {
		return
	}
	t.dirty[n] = struct{}{}
	t.spare = nil
	pool := ""
	if !t.covered(n) {
		pool = t.needOf(n).pool
	}
	t.index(n, pool)
}

func (t *Tree) index(n *node, pool string) {
	if n.indexed == pool {
		return
	}
	delete(t.users[n.indexed], n)
	n.indexed = pool
	if pool == "" {
		return
	}
	if t.users[pool] == nil {
		t.users[pool] = map[*node]struct{}{}
	}
	t.users[pool][n] = struct{}{}
}

// markUp marks n and its ancestors, whose unions contain what n needs.
func (t *Tree) markUp(n *node) {
	for ; n != t.top; n = n.parent {
		t.dirty[n] = struct{}{}
	}
}

// --- what each cgroup should carry ---

// needOf is n's own need, else its pod's, else that of the slice in which the pod lies.
func (t *Tree) needOf(n *node) Need {
	if n.need.IsZero() && n.pod != nil {
		n = n.pod
	}
	if n.need.IsZero() && n.level == podLevel && n.parent.level == sliceLevel {
		n = n.parent
	}
	return n.need
}

func (t *Tree) resolve(need Need) *cpuset.Set {
	if need.cpus != nil {
		return need.cpus
	}
	return t.pools[need.pool]
}

// covered reports whether the parent's mask serves n: all members of its parent need the same.
func (t *Tree) covered(n *node) bool {
	return !t.flat && n.parent != t.top && len(n.parent.odd) == 0
}

// union is what all masks below n need, with n's own need for unknown cgroups; nil while some of it
// is unknown. Kids that are not odd add nothing.
func (t *Tree) union(n *node) *cpuset.Set { return t.unionOf(n, t.attainable) }

// wish is the union without limits from cgroups above the tree.
func (t *Tree) wish(n *node) *cpuset.Set {
	return t.unionOf(n, func(n *node) *cpuset.Set { return t.resolve(t.needOf(n)) })
}

func (t *Tree) unionOf(n *node, set func(*node) *cpuset.Set) *cpuset.Set {
	base := set(n)
	if base == nil || len(n.odd) == 0 {
		return base
	}
	all := *base
	for k := range n.odd {
		u := t.unionOf(k, set)
		if u == nil {
			return nil
		}
		all.AddSet(u)
	}
	return &all
}

// target is the mask that n's cgroup should have, nil for none; not managed if its need is unknown.
func (t *Tree) target(n *node) (set *cpuset.Set, managed bool) {
	u := t.union(n)
	if u == nil {
		return nil, false
	}
	if t.covered(n) || !t.flat && t.online.SubsetOf(u) {
		return nil, true
	}
	return u, true
}

// settled reports whether a cgroup with the mask own needs no write.
func (t *Tree) settled(n *node, own *cpuset.Set) bool {
	set, managed := t.target(n)
	switch {
	case !managed:
		return true
	case set != nil:
		return own != nil && *own == *set
	}
	return own == nil || t.rest(n).SubsetOf(own)
}

// rest is the narrowest mask that a cgroup without a target may keep. If the parent's mask serves
// it and it has CPUs of its own, these may stay (the runtime wrote them at creation, as a second
// line of defence). Otherwise it is every CPU, so that no later change of its pool has to write it.
func (t *Tree) rest(n *node) *cpuset.Set {
	if t.covered(n) && t.needOf(n).cpus != nil {
		return t.attainable(n)
	}
	return &t.online
}

func (t *Tree) memsSettled(n *node) bool {
	if n.mems == nil {
		return true
	}
	return n.ownMems != nil && *n.ownMems == *n.mems
}
