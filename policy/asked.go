package policy

import "slices"

// Quota is a CFS quota: microseconds of CPU time in each period. The zero value means that the
// quota is unknown.
type Quota struct {
	Micros int64 `json:"micros"` // -1: no limit
	Period int64 `json:"period"`
}

const (
	// MaxShares is where kubelet clips cpu.shares: 256 CPUs.
	MaxShares = 262144
	// noShares is what kubelet writes when a container requests no CPU.
	noShares = 2
	// defaultPeriod is kubelet's default CFS period in microseconds, maxPeriod the
	// kernel's longest.
	defaultPeriod, maxPeriod = 100_000, 1_000_000
	// leastQuota is the kernel's smallest quota in microseconds.
	leastQuota = 1000
)

// QuotaOf is a limit in milli-CPUs as kubelet writes it.
func QuotaOf(milli int64) Quota {
	q := Quota{Micros: -1, Period: defaultPeriod}
	if milli >= 0 {
		q.Micros = max(milli*(defaultPeriod/1000), leastQuota)
	}
	return q
}

// Known reports whether the quota is known.
func (q Quota) Known() bool { return q.Period > 0 }

// Milli is the quota in thousandths of a CPU, or NoLimit if there is none.
func (q Quota) Milli() int64 {
	if q.Micros <= 0 || !q.Known() {
		return NoLimit
	}
	// Whole CPUs first, so that no quota overflows.
	whole, rest := q.Micros/q.Period, q.Micros%q.Period
	const most = 1 << 40
	return min(whole, most)*1000 + (rest*1000+q.Period/2)/q.Period
}

// With returns the quota after a change. 0, and a period that the kernel does not accept, leave a
// value unchanged. An unknown quota counts as no limit.
func (q Quota) With(micros, period int64) Quota {
	if !q.Known() {
		q = Quota{Micros: -1, Period: defaultPeriod}
	}
	if period > 0 && period <= maxPeriod {
		q.Period = period
	}
	switch {
	case micros > 0:
		q.Micros = micros
	case micros < 0:
		q.Micros = -1
	}
	return q
}

// Asked is exactly what kubelet last requested for a container, and what the runtime's own store
// holds of it: the runtime writes the stored values again at every update.
type Asked struct {
	Quota Quota `json:"quota,omitzero"`
	// CPUs is set if the store has a cpuset, OurQuota if it has a quota set by us.
	CPUs     bool `json:"cpus,omitempty"`
	OurQuota bool `json:"ourQuota,omitempty"`
}

// RequestOf inverts shares = floor(milli x 1024 / 1000). Rounding up is exact for
// every request; rounding to the nearest would turn 122m into 121m.
func RequestOf(shares int64) int64 {
	if shares <= noShares {
		return 0
	}
	return (min(shares, MaxShares)*1000 + 1023) / 1024
}

// ResourcesOf inverts what kubelet wrote for a pod, or for a container of an owner. A Guaranteed
// pod has equal request and limit, which fills the gap when one of them cannot be read: there is no
// quota with cpuCFSQuota off (or after we lifted it), and shares are clipped at 256 CPUs.
func ResourcesOf(shares int64, q Quota, qos QoS) Resources {
	r := Resources{RequestMilli: RequestOf(shares), LimitMilli: q.Milli()}
	if shares >= MaxShares && r.LimitMilli > r.RequestMilli && qos == Guaranteed {
		r.RequestMilli = r.LimitMilli
	}
	return r.inferred(qos)
}

func (r Resources) inferred(qos QoS) Resources {
	if r.LimitMilli == NoLimit && qos == Guaranteed && r.RequestMilli > 0 {
		r.LimitMilli = r.RequestMilli
	}
	return r
}

// ContainerResourcesOf inverts what kubelet wrote for a container of a pod with these labels. A
// missing limit is inferred only for an owner, whose request and limit are equal. Any other
// container without a quota is unlimited, as is one that kubelet's static policy pins.
func ContainerResourcesOf(shares int64, q Quota, qos QoS, labels map[string]string) Resources {
	r := ResourcesOf(shares, q, qos)
	if c := Class(labels[LabelClass]); c != LSE && c != LSR {
		r.LimitMilli = q.Milli()
	}
	return r
}

// resize is the state of a container after an update.
type resize struct {
	resources Resources
	shares    int64
	asked     Asked
	changed   bool // more than the cpuset changed
}

// after merges an update into what kubelet requested before.
func (c *container) after(e *ContainerUpdate) resize {
	next := resize{resources: c.resources, shares: c.shares, asked: c.asked}
	next.asked.CPUs = next.asked.CPUs || e.CPUs != ""
	change := e.Shares > 0 || e.Quota != 0 || e.Period > 0
	if next.changed = change || e.Resources != nil; !next.changed {
		return next
	}
	if e.Shares > 0 {
		next.shares = min(e.Shares, MaxShares)
	}
	if e.Resources == nil {
		next.asked.Quota = c.asked.Quota.With(e.Quota, e.Period)
		next.resources = ContainerResourcesOf(next.shares, next.asked.Quota, c.pod.ref.QoS, c.pod.labels)
		return next
	}
	next.resources = *e.Resources
	next.asked.Quota = c.asked.Quota.following(next.resources.LimitMilli)
	return next
}

// following returns the quota for a pod or container of which only the limit is known: the exact
// old quota if it still equals that limit, else a quota in the same period.
func (q Quota) following(limitMilli int64) Quota {
	switch {
	case !q.Known():
		return QuotaOf(limitMilli)
	case q.Milli() == limitMilli:
		return q
	case limitMilli < 0:
		return q.With(-1, 0)
	}
	return Quota{Micros: max(limitMilli*q.Period/1000, leastQuota), Period: q.Period}
}

// after returns a pod's sums, without its claims, and its quota after kubelet has announced a resize.
func (p *pod) after(e *PodResized) (Resources, Quota) {
	r, q := p.announced(e)
	return p.counted.Without(r), q
}

// announced are the sums and the quota that kubelet has announced.
func (p *pod) announced(e *PodResized) (Resources, Quota) {
	r, q := e.Resources, p.asked.following(e.Resources.LimitMilli)
	if e.Shares > 0 || e.Quota != 0 {
		q = p.asked.With(e.Quota, e.Period)
		switch {
		case e.Shares > 0:
			r = ResourcesOf(e.Shares, q, p.ref.QoS)
		case p.resources != nil:
			r = Resources{RequestMilli: p.whole().RequestMilli, LimitMilli: q.Milli()}.inferred(p.ref.QoS)
		default:
			r = Resources{LimitMilli: q.Milli()}
		}
	}
	if p.asked.Known() && q.Micros <= 0 {
		q = p.asked // kubelet never removes a limit: it reads "none" because we lifted the quota
	}
	return r, q
}

// askedFor is what kubelet requested for the container of an event.
func (in *Container) askedFor() Asked {
	a := in.Asked
	if !a.Quota.Known() {
		a.Quota = QuotaOf(in.Resources.LimitMilli)
	}
	a.CPUs = a.CPUs || in.CPUs != ""
	return a
}

// notKnown is the period of a quota that is unknown although the sums of its pod are known.
const notKnown = -1

// askedFor is the quota of the pod of an event; unknown if the runtime does not report it.
func (in *Pod) askedFor() Quota {
	switch {
	case in.Asked.Known():
		return in.Asked
	case in.Asked.Period == notKnown || in.Resources == nil:
		return Quota{}
	}
	return QuotaOf(in.Resources.LimitMilli)
}

// take takes over a running container as an event reports it. For a container that was already
// known, the runtime's store is trusted unless it holds a quota of ours that was not recognized.
func (c *container) take(in *Container, synchronized bool) {
	next := in.askedFor()
	if next.OurQuota && !c.asked.OurQuota {
		c.storedLimits = in.StoredLimits
	}
	next.OurQuota = next.OurQuota || c.asked.OurQuota
	next.CPUs = next.CPUs || c.asked.CPUs && synchronized
	resources := in.Resources
	ours := c.asked.OurQuota && !in.Asked.OurQuota && c.mayStore(next.Quota.Milli(), resources.RequestMilli)
	if synchronized && ours {
		next.Quota = c.asked.Quota
		resources.LimitMilli = c.resources.LimitMilli
	}
	c.asked, c.resources, c.shares = next, resources, in.Shares
}

// replied records what the runtime stores once it has the reply to an event about a container. From
// then on a quota of ours counts as stored: it is never certain that a later reply, which takes the
// quota back, has arrived.
func (m *Machine) replied(e Event) {
	id := ""
	switch e := e.(type) {
	case ContainerCreate:
		id = e.Container.ID
	case ContainerUpdate:
		id = e.ID
	}
	c := m.containers[id]
	if c == nil || c.pod.unread {
		return
	}
	q, ours := m.quotaDue(c)
	if !ours {
		return
	}
	switch milli := q.Milli(); {
	case !c.asked.OurQuota:
		c.storedLimits = []int64{milli}
	case c.storedLimits == nil || slices.Contains(c.storedLimits, milli):
	case len(c.storedLimits) >= maxStoredLimits:
		c.storedLimits = nil
	default:
		c.storedLimits = append(c.storedLimits, milli)
	}
	c.asked.OurQuota = true
}

// maxStoredLimits bounds the list of limits of ours that can be distinguished from kubelet's.
const maxStoredLimits = 8

// mayStore reports whether a limit that the runtime stores together with a request may be one of
// ours. systemd rounds up. If it may be any of ours, a changed request means that the limit came
// from kubelet, unless it equals the cap.
func (c *container) mayStore(milli, request int64) bool {
	const rounding = 10
	is := func(ours int64) bool {
		return ours == milli || ours != NoLimit && ours <= milli && milli <= ours+rounding
	}
	if c.storedLimits != nil {
		return slices.ContainsFunc(c.storedLimits, is)
	}
	cap, capped := c.pod.caps[c.ref.Name]
	return request == c.resources.RequestMilli || milli == NoLimit || capped && is(cap.Milli)
}
