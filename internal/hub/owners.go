package hub

import (
	"cmp"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/printable"
	"github.com/quietcore/quietcore/internal/top"
	"github.com/quietcore/quietcore/policy"
)

// use is what a node's containers use, by what they had used at two times.
type use struct {
	before *control.Top
	inUse  *float64 // CPUs, by all of them; nil: not known yet
	owners map[podName]*owner
}

type podName struct{ namespace, pod string }

// owner is a pod with CPUs of its own, and what it left of them while it was watched.
type owner struct {
	cpus    int
	used    *float64      // CPUs, between the last two answers; nil: not known
	watched time.Duration // for which its use is known
	left    time.Duration // CPU time of its own CPUs that it did not use
	since   time.Time
}

// take adds an answer of a node.
func (u *use) take(at time.Time, now *control.Top) {
	before := u.before
	u.before = now
	if before == nil {
		before = now
	}
	frame := top.Compare(before, now)
	took := now.At.Sub(before.At)
	if u.inUse = nil; took > 0 {
		all := frame.Usage // a pointer into the frame would keep it
		u.inUse = &all
	}
	rows := ownersOf(frame)
	next := make(map[podName]*owner, len(rows))
	for name, r := range rows {
		o := u.owners[name]
		if o == nil {
			o = &owner{since: at}
		}
		o.cpus, o.used = r.cpus.Count(), nil
		if r.known && took > 0 {
			used := r.used
			o.used = &used
			o.watched += took
			o.left += time.Duration(max(float64(o.cpus)-used, 0) * float64(took))
		}
		next[name] = o
	}
	u.owners = next
}

// owned is a pod's containers that have CPUs of their own, together.
type owned struct {
	cpus  cpuset.Set
	used  float64
	known bool // of all of them
}

func ownersOf(f *top.Frame) map[podName]*owned {
	by := map[podName]*owned{}
	for i := range f.Containers {
		c := &f.Containers[i]
		own, err := cpuset.Parse(c.CPUs)
		if c.Pool != policy.PoolExclusive || err != nil {
			continue
		}
		name := podName{c.Namespace, c.Pod}
		o := by[name]
		if o == nil {
			o = &owned{known: true}
			by[name] = o
		}
		o.cpus = o.cpus.Or(own)
		if c.Usage == nil {
			o.known = false
			continue
		}
		o.used += *c.Usage
	}
	return by
}

// idle is how many owned CPUs are not used; nil: not known.
func (u *use) idle() *float64 {
	var sum float64
	known := len(u.owners) == 0 && u.inUse != nil
	for _, o := range u.owners {
		if o.used != nil {
			known = true
			sum += max(float64(o.cpus)-*o.used, 0)
		}
	}
	if !known {
		return nil
	}
	return &sum
}

// ownerView is an owner on the page. CPU-days a day are CPUs.
type ownerView struct {
	Name    string   `json:"name"`
	Node    string   `json:"node"`
	CPUs    int      `json:"cpus"`
	Used    *float64 `json:"used"`    // lately
	Left    float64  `json:"left"`    // CPUs, on average while it was watched
	Days    float64  `json:"days"`    // CPU-days left, in that time
	Watched float64  `json:"watched"` // hours
}

// namespaceView is what the owners of a namespace leave together.
type namespaceView struct {
	Name   string  `json:"name"`
	Owners int     `json:"owners"`
	CPUs   int     `json:"cpus"`
	Left   float64 `json:"left"`
	Days   float64 `json:"days"`
}

// ownersView is the body of /api/owners: the most idle first.
type ownersView struct {
	Owners     []ownerView     `json:"owners"`
	All        int             `json:"all"`
	Namespaces []namespaceView `json:"namespaces"`
}

// maxOwners bounds a list.
const maxOwners = 100

func (h *Hub) owners() ownersView {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := ownersView{Owners: []ownerView{}, Namespaces: []namespaceView{}}
	by := map[string]*namespaceView{}
	for _, n := range h.nodes {
		for name, o := range n.owners {
			one := ownerView{Name: printable.Clip(name.namespace+"/"+name.pod, maxName), CPUs: o.cpus, Used: o.used,
				Node: printable.Clip(n.name, maxName), Watched: o.watched.Hours(), Days: o.left.Hours() / 24}
			if o.watched > 0 {
				one.Left = float64(o.left) / float64(o.watched)
			}
			v.Owners = append(v.Owners, one)
			space := by[name.namespace]
			if space == nil {
				space = &namespaceView{Name: printable.Clip(name.namespace, maxName)}
				by[name.namespace] = space
			}
			space.Owners++
			space.CPUs += one.CPUs
			space.Left += one.Left
			space.Days += one.Days
		}
	}
	for _, space := range by {
		v.Namespaces = append(v.Namespaces, *space)
	}
	slices.SortFunc(v.Owners, func(a, b ownerView) int {
		return cmp.Or(cmp.Compare(b.Left, a.Left), cmp.Compare(b.CPUs, a.CPUs), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Node, b.Node))
	})
	slices.SortFunc(v.Namespaces, func(a, b namespaceView) int {
		return cmp.Or(cmp.Compare(b.Left, a.Left), cmp.Compare(a.Name, b.Name))
	})
	v.All = len(v.Owners)
	v.Owners = v.Owners[:min(len(v.Owners), maxOwners)]
	v.Namespaces = v.Namespaces[:min(len(v.Namespaces), maxOwners)]
	return v
}
