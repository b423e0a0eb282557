package policy

import (
	"maps"
	"time"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// beLimits are the limits that keep best effort off CPUs of its pool.
type beLimits struct {
	suppressed cpuset.Set         // the CPUs that best effort may still use; empty: not suppressed
	quota      int64              // in thousandths of a CPU; 0: none
	grouped    bool               // pods outside of the best-effort slice are part of it
	parts      map[string]int64   // their parts, by pod UID; never modified
	keptOff    map[string]keptOff // by victim
	away       map[string]away    // pods that are kept off CPUs, by UID
	// idled are pods that run on otherwise idle CPUs alone, by UID, and until when.
	idled  map[string]time.Time
	noIdle bool // the kernel or systemd cannot do that
}

type keptOff struct {
	cpus  cpuset.Set
	until time.Time
}

// away is a pod that is kept off the CPUs around a victim.
type away struct {
	keptOff
	victim string
	least  int // CPUs that it needs elsewhere
}

// suppress records how much of its pool best effort may still use.
func (m *Machine) suppress(e BESuppressed) {
	quota := max(e.QuotaMilli, 0)
	was := m.be
	m.be.suppressed, m.be.quota, m.be.grouped, m.be.parts = e.CPUs, quota, e.Grouped && quota > 0, nil
	if m.be.grouped {
		m.be.parts = e.PodMilli
	}
	parted := was.grouped != m.be.grouped || !maps.Equal(was.parts, m.be.parts)
	if !parted && was.suppressed == m.be.suppressed && was.quota == quota {
		return
	}
	if parted {
		for _, p := range ordered(m.pods) {
			if now := m.be.partOf(p); now != was.partOf(p) {
				m.podChanged(p)
			}
		}
	}
	m.recompute()
}

// outside reports whether a pod is best effort outside of kubelet's best-effort slice.
func (p *pod) outside() bool {
	return p.in.class == BE && !p.in.unmanaged && p.ref.QoS != BestEffort
}

// partOf is a pod's part of the quota of best effort, in thousandths of a CPU; 0: it has none. A pod
// of which it is not known what kubelet gave it has none, since that could not be restored.
func (b *beLimits) partOf(p *pod) int64 {
	if !b.grouped || !p.outside() || !p.known || p.resources == nil {
		return 0
	}
	return max(b.parts[p.ref.UID], leastMilli)
}

// sliceQuota is what the best-effort slice has of the quota; 0: no limit.
func (b *beLimits) sliceQuota() int64 {
	quota := b.quota
	for _, part := range b.parts {
		quota -= part
	}
	if b.quota > 0 {
		quota = max(quota, leastMilli)
	}
	return quota
}

// leastMilli is the kernel's smallest quota in the default period.
const leastMilli = leastQuota * 1000 / defaultPeriod

// judgeKeepOff checks a request to keep best effort off CPUs. It is refused if best effort would
// have less than its floor; the caller has to act in another way.
func (m *Machine) judgeKeepOff(now time.Time, e BEKeptOff) *Refusal {
	if e.Victim == "" || e.For < 0 {
		return refuse(InvalidRequest,
			"keep best effort off CPUs %s for %s: a victim and a time of at least 0 are needed", e.CPUs, e.For)
	}
	if e.ends() {
		return nil
	}
	if e.Pod != "" {
		return m.judgePodOff(&e)
	}
	off := m.offLimits(now, e.Victim).Or(e.CPUs)
	left, floor := m.pools.BEWhole.Minus(off), m.beFloor()
	if !m.be.suppressed.IsEmpty() {
		left = left.And(m.be.suppressed)
	}
	if n := left.Count(); n < floor {
		return refuse(cpuallocator.InsufficientCPUs,
			"keep best effort off CPUs %s: that leaves it %d CPUs, its floor is %d", off, n, floor)
	}
	return nil
}

func (e *BEKeptOff) ends() bool { return e.For == 0 || e.CPUs.IsEmpty() }

// keepOff moves best effort off the CPUs around a victim, the mildest action for it, or ends that.
func (m *Machine) keepOff(now time.Time, e BEKeptOff) {
	if e.Pod != "" {
		m.keepPodOff(now, &e)
		return
	}
	if e.ends() {
		if _, ok := m.be.keptOff[e.Victim]; ok {
			delete(m.be.keptOff, e.Victim)
			m.recompute()
		}
		return
	}
	if m.be.keptOff == nil {
		m.be.keptOff = map[string]keptOff{}
	}
	m.be.keptOff[e.Victim] = keptOff{cpus: e.CPUs, until: now.Add(e.For)}
	m.recompute()
}

// offLimits returns the CPUs that best effort is kept off for victims other than one.
func (m *Machine) offLimits(now time.Time, but string) cpuset.Set {
	var off cpuset.Set
	for victim, k := range m.be.keptOff {
		if victim != but && now.Before(k.until) {
			off.AddSet(&k.cpus)
		}
	}
	return off
}

// expireKeptOff ends the keep-offs whose deadline has passed.
func (m *Machine) expireKeptOff(now time.Time) {
	changed := false
	for victim, k := range m.be.keptOff {
		if !now.Before(k.until) {
			delete(m.be.keptOff, victim)
			changed = true
		}
	}
	if changed {
		m.recompute()
	}
	for _, uid := range sortedKeys(m.be.away) {
		if !now.Before(m.be.away[uid].until) {
			m.letBack(uid)
		}
	}
}

// beFloor is the number of CPUs that best effort always keeps.
func (m *Machine) beFloor() int {
	if m.cfg.BEFloor > 0 {
		return m.cfg.BEFloor
	}
	return m.topo.ThreadsPerCore()
}

// limitBE returns what the limits leave of the pool. A limit was checked when it was set, but
// owners may have arrived and CPUs gone offline since. So the floor is enforced here again, with
// the reserved CPUs first.
func (m *Machine) limitBE(whole, reserved cpuset.Set) cpuset.Set {
	if m.be.suppressed.IsEmpty() && len(m.be.keptOff) == 0 {
		return whole
	}
	left := whole
	if !m.be.suppressed.IsEmpty() {
		left = left.And(m.be.suppressed)
	}
	var off cpuset.Set
	for _, k := range m.be.keptOff {
		off.AddSet(&k.cpus)
	}
	floor := min(m.beFloor(), whole.Count())
	if elsewhere := left.Minus(off); elsewhere.Count() >= floor {
		return elsewhere
	}
	for _, more := range []cpuset.Set{whole.And(reserved).Minus(off), whole.Minus(off), whole} {
		more = more.Minus(left)
		for cpu := range more.All() {
			if left.Count() >= floor {
				return left
			}
			left.Add(cpu)
		}
	}
	return left
}
