package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

// life drives a machine through random events and checks, after every step,
// what must hold whatever happens. It keeps its own books: a mirror of the
// decisions, and of what runs, so that it does not trust the machine's.
type life struct {
	m       *Machine
	twin    *Machine // takes what m accepted and never sees what m refused
	cfg     Config
	now     time.Time
	n       int
	pods    map[string]Pod       // by sandbox
	live    map[string]Container // by ID
	mirror  mirror
	kubelet KubeletState
	topo    *topology.Topology
	file    *Kubelet // what kubelet's own configuration said
	// kept are the CPUs that a newer version gave, by pod.
	kept map[string]cpuset.Set
	// booked are the CPUs that kubelet ever gave, by pod.
	booked map[string]cpuset.Set
	healed bool // the last step gave a pod that waited CPUs
	// came is a pod that comes with the step.
	came *Pod
	// expecting is a container that is live only if the step accepts it.
	expecting *Container
}

// mirror is what enforcement would know from decisions alone.
type mirror struct {
	pools      map[PoolID]cpuset.Set
	containers map[string]SetContainer
	pods       map[string]SetPod
	claims     map[string]ClaimGiven
}

func newMirror(m *Machine) mirror {
	r := mirror{pools: map[PoolID]cpuset.Set{}, containers: map[string]SetContainer{}, pods: map[string]SetPod{},
		claims: map[string]ClaimGiven{}}
	for _, d := range m.UsedPools() {
		r.pools[d.ID] = d.CPUs
	}
	return r
}

// take follows decisions. Each refers to pools that have been set and not dropped.
func (r *mirror) take(t rapid.TB, decisions []Decision) {
	refer := func(d Decision, n Need) {
		if _, set := r.pools[n.Pool]; set == (n.Own != nil) {
			t.Fatalf("%T refers to pool %q, set are %v", d, n.Pool, r.pools)
		}
	}
	for _, d := range decisions {
		switch d := d.(type) {
		case SetPool:
			if d.CPUs.IsEmpty() {
				t.Fatalf("pool %s is given no CPU", d.ID)
			}
			r.pools[d.ID] = d.CPUs
		case DropPool:
			if _, set := r.pools[d.ID]; !set || r.members(d.ID) > 0 {
				t.Fatalf("pool %s is dropped with %d members; set are %v", d.ID, r.members(d.ID), r.pools)
			}
			delete(r.pools, d.ID)
		case SetPod:
			refer(d, d.Need)
			r.pods[d.Pod.UID] = d
		case SetContainer:
			refer(d, d.Need)
			r.containers[d.Container.ID] = d
		case DropContainer:
			delete(r.containers, d.ID)
		case DropPod:
			delete(r.pods, d.UID)
		case ClaimGiven:
			r.claims[d.UID] = d
		case DropClaim:
			delete(r.claims, d.UID)
		}
	}
}

// members counts the pods and containers whose last decision refers to a pool.
func (r *mirror) members(id PoolID) int {
	n := 0
	for _, p := range r.pods {
		if p.Need.Pool == id {
			n++
		}
	}
	for _, c := range r.containers {
		if c.Need.Pool == id {
			n++
		}
	}
	return n
}

// checkPools: what was decided of pools is what they have, a part has what its pool has
// on its NUMA nodes, and at least one pod is in it.
func (l *life) checkPools(t rapid.TB, s *Snapshot) {
	whole := map[PoolKind]cpuset.Set{PoolShared: s.Shared, PoolBE: s.BE, PoolSystem: s.System, PoolReserved: s.Reserved}
	for kind, cpus := range whole {
		if l.mirror.pools[kind.ID()] != cpus {
			t.Fatalf("pool %s was decided to have %s, it has %s", kind, l.mirror.pools[kind.ID()], cpus)
		}
	}
	used := map[PoolID]cpuset.Set{}
	for _, p := range l.m.UsedPools() {
		used[p.ID] = p.CPUs
	}
	if !maps.Equal(used, l.mirror.pools) {
		t.Fatalf("pools in use are %v, decided were %v", used, l.mirror.pools)
	}
	for id, cpus := range l.mirror.pools {
		kind, text, part := strings.Cut(string(id), "@")
		if !part {
			continue
		}
		off, isOff := strings.CutPrefix(text, "-")
		named, err := cpuset.Parse(off)
		if err != nil {
			t.Fatal(err)
		}
		want := whole[PoolKind(kind)].And(cpusOn(l.m.topo, &named))
		if isOff {
			want = whole[PoolKind(kind)].And(whole[PoolShared]).Minus(named)
		}
		if cpus != want || l.mirror.members(id) == 0 {
			t.Fatalf("pool %s with %d members has %s, want %s", id, l.mirror.members(id), cpus, want)
		}
	}
}

func drawTopology(t *rapid.T) *topology.Topology {
	g := topology.Grid{
		Sockets: rapid.IntRange(1, 2).Draw(t, "sockets"), NodesPerSocket: rapid.IntRange(1, 2).Draw(t, "nodes"),
		L3PerNode: rapid.IntRange(1, 2).Draw(t, "l3s"), CoresPerL3: rapid.IntRange(1, 3).Draw(t, "cores"),
		ThreadsPerCore: rapid.IntRange(1, 3).Draw(t, "threads"),
		Numbering:      rapid.SampledFrom([]topology.Numbering{topology.Adjacent, topology.Split}).Draw(t, "numbering"),
	}
	m, err := g.Build()
	if err != nil {
		t.Fatal(err)
	}
	if rapid.IntRange(0, 3).Draw(t, "isolated CPUs") > 0 {
		return m
	}
	var isolated cpuset.Set
	for _, cpu := range m.CPUs() {
		if rapid.IntRange(0, 2).Draw(t, "isolated") == 0 {
			isolated.Add(cpu.ID)
		}
	}
	if m, err = topology.New(m.CPUs(), topology.Options{Isolated: isolated}); err != nil {
		t.Fatal(err)
	}
	return m
}

func drawConfig(t *rapid.T, topo *topology.Topology) Config {
	c := Config{
		Degrade:    rapid.Bool().Draw(t, "degrade"),
		Memory:     rapid.SampledFrom([]Memory{MemoryOff, MemoryStrict, MemoryPreferred}).Draw(t, "memory"),
		System:     System{Namespaces: []string{"kube-system"}},
		NodeLabels: map[string]string{},
	}
	if rapid.Bool().Draw(t, "reserve") {
		online := topo.Online()
		c.Reserved = cpuset.Of(online.First())
		c.ReservedStrict = rapid.Bool().Draw(t, "strict")
	}
	c.Allocation.SMT = rapid.SampledFrom([]cpuallocator.SMT{cpuallocator.SMTNone, cpuallocator.SMTNone,
		cpuallocator.SMTIsolate, cpuallocator.SMTRoundUp}).Draw(t, "smt")
	if rapid.Bool().Draw(t, "max") {
		c.Authority.MaxCPUs = map[string]int{"default": rapid.IntRange(0, 8).Draw(t, "most")}
	}
	c.Allocation.SMTRequired = rapid.IntRange(0, 3).Draw(t, "isolation required") == 0
	c.NoHeal = rapid.IntRange(0, 3).Draw(t, "no healing") == 0
	c.Allocation.Compact = rapid.SampledFrom([]Compact{CompactOff, CompactOff, CompactIdle, CompactAlways}).Draw(t,
		"compact")
	for i := range topo.Nodes() {
		if rapid.IntRange(0, 2).Draw(t, "shared out to claims") == 0 {
			c.ClaimShares = append(c.ClaimShares, ClaimShare{Within: topo.Nodes()[i].CPUs,
				CPUs: rapid.IntRange(0, 6).Draw(t, "of a node")})
		}
	}
	c.HealAfter = rapid.SampledFrom([]time.Duration{0, 0, time.Minute}).Draw(t, "heal after")
	c.Authority.TrustStatus = rapid.Bool().Draw(t, "trust")
	c.Authority.Profile = rapid.SampledFrom([]Profile{ProfileOpen, ProfileOpen, ProfileDefault, ProfileStrict}).Draw(t,
		"profile")
	c.Authority.Namespaces = map[Power][]string{PowerIsolatedCPUs: {"default"}}
	if rapid.Bool().Draw(t, "exempt") {
		c.Authority.Namespaces[PowerCapExemption] = []string{"kube-system"}
	}
	return c
}

func (l *life) step(t rapid.TB, e Event) error {
	l.now = l.now.Add(time.Second)
	before, rev, shared, had := l.text(t), l.m.Rev(), l.m.Snapshot().Shared, l.holdings()
	if l.m.pools.Overlap {
		shared = cpuset.Set{} // they were others' all the time
	}
	foreign := l.m.foreignClaimed()
	missing := l.missing(foreign)
	compare := l.tried(t, e)
	decisions, err := l.m.Step(l.now, e)
	compare()
	if err != nil {
		l.refused(t, e, err)
		if now := l.text(t); now != before || l.m.Rev() != rev {
			t.Fatalf("%T refused (%v) and still changed the machine\nbefore:\n%s\nafter:\n%s", e, err, before, now)
		}
		if l.expecting != nil {
			delete(l.live, l.expecting.ID)
		}
		l.check(t)
		return err
	}
	l.follow(t, e, decisions)
	l.mirror.take(t, decisions)
	l.check(t)
	l.healed = someHealed(decisions)
	l.checkHealed(t, e, had)
	l.checkFloors(t, e, shared)
	l.checkTakenBack(t, e)
	l.checkShares(t, e, missing, foreign)
	return nil
}

// refused checks an error, and that an immediate retry is refused for the same reason.
func (l *life) refused(t rapid.TB, e Event, err error) {
	var refusal *Refusal
	if !errors.As(err, &refusal) || refusal.Code == "" || refusal.Message == "" {
		t.Fatalf("%T: the error is not a refusal: %v", e, err)
	}
	if _, again := l.m.Step(l.now, e); again == nil || again.Error() != err.Error() {
		t.Fatalf("%T was refused (%v) and its retry is answered otherwise: %v", e, err, again)
	}
}

// follow lets the twin take what was accepted: it has to decide the same.
func (l *life) follow(t rapid.TB, e Event, decisions []Decision) {
	same, err := l.twin.Step(l.now, e)
	if err != nil {
		t.Fatalf("%T: accepted, but refused by a machine that never saw the events refused before: %v", e, err)
	}
	if !reflect.DeepEqual(decisions, same) {
		t.Fatalf("%T is decided otherwise than on a machine that never saw the events refused before\n%s\n%s", e,
			decisionText(t, decisions), decisionText(t, same))
	}
}

func decisionText(t rapid.TB, decisions []Decision) string {
	text := ""
	for _, d := range decisions {
		line, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf("%T %s\n", d, line)
	}
	return text
}

// text is all that a machine holds: what it shows, and what it would save.
func (l *life) text(t rapid.TB) string {
	checkpoint, err := json.Marshal(l.m.Checkpoint())
	if err != nil {
		t.Fatal(err)
	}
	return describe(l.m.Snapshot()) + string(checkpoint)
}

func describe(s *Snapshot) string {
	out := fmt.Sprintf("shared %s be %s exclusive %s withheld %s reserved %s\n", s.Shared, s.BE, s.Exclusive,
		s.Withheld, s.Reserved)
	for _, c := range s.Containers {
		withheld := cpuset.Set{}
		if c.Withheld != nil {
			withheld = *c.Withheld
		}
		out += fmt.Sprintf("%s/%s/%s %s %s cpus %s mems %s quota %d cap %d withheld %s\n", c.Namespace, c.Pod, c.Name,
			c.Class, c.Pool, s.CPUs(c), s.MemsOf(c), c.QuotaMilli, c.CapMilli, withheld)
	}
	for _, c := range s.Claims {
		out += fmt.Sprintf("claim %s/%s for %v: %+v\n", c.Namespace, c.Name, c.Pods, c.Requests)
	}
	return out
}

func (l *life) check(t rapid.TB) {
	s := l.m.Snapshot()
	online := s.Topology.Online()
	if s.Shared.IsEmpty() || s.BE.IsEmpty() {
		t.Fatalf("a pool is empty\n%s", describe(s))
	}
	owned, kubeletAll := cpuset.Set{}, cpuset.Set{}
	for uid, entries := range l.m.kubelet.Entries {
		l.booked[uid] = l.booked[uid].Or(union(entries))
	}
	for uid, h := range l.m.exclusive {
		p, all := h.pod, h.grant.all()
		if owned.Intersects(&all) {
			t.Fatalf("CPUs %s of pod %s have two owners\n%s", all, uid, describe(s))
		}
		owned.AddSet(&all)
		if in := s.Shared.And(all); !in.IsEmpty() && !s.Overlap {
			t.Fatalf("the shared pool has %s of %s\n%s", in, p.ref.Name, describe(s))
		}
		if in := s.BE.And(h.grant.withheld); !in.IsEmpty() {
			t.Fatalf("the BE pool has withheld %s\n%s", in, describe(s))
		}
		if had, is := l.kept[uid]; is != p.reserved() || is && had != h.grant.cpus {
			t.Fatalf("a newer version gave %s CPUs %s, it has %s\n%s", uid, had, h.grant.cpus, describe(s))
		}
		if p.reserved() && s.BE.Intersects(&all) && !s.Overlap {
			t.Fatalf("the BE pool has reserved CPUs of %s\n%s", p.ref.Name, describe(s))
		}
		if p.in.class == LSE && s.BE.Intersects(&all) {
			t.Fatalf("the BE pool has CPUs of LSE pod %s\n%s", p.ref.Name, describe(s))
		}
		if given := all.Minus(l.booked[p.ref.UID]); l.cfg.Reserved.Intersects(&given) && !p.reserved() {
			t.Fatalf("reserved CPUs were given to %s\n%s", p.ref.Name, describe(s))
		}
	}
	for uid := range l.kept {
		if p := l.m.pods[uid]; p != nil && !p.reserved() {
			t.Fatalf("what a newer version gave %s is gone\n%s", uid, describe(s))
		}
	}
	for _, p := range l.m.pods {
		if p.kubelet {
			for _, e := range p.entries {
				kubeletAll.AddSet(&e)
			}
		}
	}
	if both := owned.And(kubeletAll); !both.IsEmpty() {
		t.Fatalf("CPUs %s are ours and kubelet's\n%s", both, describe(s))
	}
	for _, c := range s.Containers {
		cpus := s.CPUs(c)
		if cpus.IsEmpty() || !cpus.SubsetOf(&online) {
			t.Fatalf("%s/%s runs on %q, online is %s\n%s", c.Pod, c.Name, cpus, online, describe(s))
		}
		d, ok := l.mirror.containers[c.ID]
		if !ok {
			t.Fatalf("nothing was ever decided for %s/%s (%s)", c.Pod, c.Name, c.ID)
		}
		if got := l.mirrorCPUs(d.Need); got != cpus {
			t.Fatalf("%s/%s: decisions add up to %s, the snapshot says %s\n%s", c.Pod, c.Name, got, cpus, describe(s))
		}
		if !d.Asked.Quota.Known() || !d.QuotaOurs && d.Quota != d.Asked.Quota {
			t.Fatalf("%s/%s: kubelet asked for %+v, decided is %+v, ours %t", c.Pod, c.Name, d.Asked, d.Quota,
				d.QuotaOurs)
		}
		least := c.QuotaMilli >= 0 && c.QuotaMilli < 100                      // the kernel takes no quota below 1 ms
		inferred := !d.QuotaOurs && d.Quota.Micros < 0 && c.QoS == Guaranteed // an owner's, see ResourcesOf
		if d.Quota.Milli() != QuotaOf(c.QuotaMilli).Milli() && !inferred && !least {
			t.Fatalf("%s/%s: decided quota %d, the snapshot says %d", c.Pod, c.Name, d.Quota.Milli(), c.QuotaMilli)
		}
		if p := l.m.pods[c.PodUID]; c.Need.Own == nil && !p.kubelet && c.Pool != PoolSystem &&
			cpus.Intersects(&owned) && c.Class != BE && !s.Overlap {
			t.Fatalf("%s/%s runs on owned CPUs %s\n%s", c.Pod, c.Name, cpus.And(owned), describe(s))
		}
	}
	l.checkPools(t, s)
	l.checkIsolated(t, s)
	l.checkBE(t, s)
	l.checkApart(t, s)
	l.checkOwners(t, s)
	l.checkClaims(t, s)
	l.checkOwnClaims(t, s)
	if want, got := len(l.newest()), len(s.Containers); want != got {
		t.Fatalf("%d containers run, the snapshot has %d\n%s", want, got, describe(s))
	}
}

// checkIsolated: CPUs that the kernel isolates are in no pool, and only those pods own them
// that ask for them, and nothing else: but for what kubelet or a newer version gave.
func (l *life) checkIsolated(t rapid.TB, s *Snapshot) {
	isolated := s.Topology.Isolated()
	if in := s.Shared.Or(s.BE).And(isolated); !in.IsEmpty() && !s.Overlap {
		t.Fatalf("pools have isolated CPUs %s\n%s", in, describe(s))
	}
	for id, h := range l.m.exclusive {
		ours := h.grant.cpus.Minus(l.booked[h.pod.ref.UID])
		wants := h.pod.in.isolated && l.m.cfg.Allows(h.pod.ref.Namespace, PowerIsolatedCPUs)
		if in := ours.And(isolated); !h.pod.reserved() && (wants && in != ours || !wants && !in.IsEmpty()) {
			t.Fatalf("%s owns %s and wants isolated CPUs: %t; these are %s\n%s", id, ours, wants, isolated, describe(s))
		}
	}
}

// checkBE: whatever limits best effort, it keeps its floor, or as much of it as its
// pool has, and nothing beyond its pool.
func (l *life) checkBE(t rapid.TB, s *Snapshot) {
	if floor := min(l.m.beFloor(), s.BEWhole.Count()); !s.BE.SubsetOf(&s.BEWhole) || s.BE.Count() < floor {
		t.Fatalf("best effort has %s of %s, its floor is %d\n%s", s.BE, s.BEWhole, floor, describe(s))
	}
	if l.m.be.suppressed.IsEmpty() && len(l.m.be.keptOff) == 0 && s.BE != s.BEWhole {
		t.Fatalf("best effort has %s of %s and nothing limits it\n%s", s.BE, s.BEWhole, describe(s))
	}
}

// checkOwners: every pod with CPUs that are on is an owner, with or without a
// container, and nothing is exclusive that has no owner but what kubelet booked for
// pods that are not there.
func (l *life) checkOwners(t rapid.TB, s *Snapshot) {
	owners := map[string]cpuset.Set{}
	var all cpuset.Set
	for i, o := range s.Owners {
		if i > 0 && compareOwners(s.Owners[i-1], o) >= 0 {
			t.Fatalf("owners are out of order: %+v before %+v", s.Owners[i-1], o)
		}
		id := o.PodUID
		if o.Container != "" {
			id += "/" + o.Container
		}
		owners[id] = o.CPUs
		all.AddSet(&o.CPUs)
	}
	online := s.Topology.Online()
	for uid, p := range l.holders() {
		var own cpuset.Set
		switch {
		case p.grant != nil:
			own = p.grant.cpus
		case p.pod.kubelet:
			own = union(p.pod.entries)
		}
		if own = own.And(online); owners[uid] != own {
			t.Fatalf("%s owns %s, the snapshot says %s\n%s", uid, own, owners[uid], describe(s))
		}
		delete(owners, uid)
	}
	if len(owners) > 0 {
		t.Fatalf("owners that are not there: %v", owners)
	}
	for uid, entries := range l.m.kubelet.Entries {
		if l.m.kubelet.PolicyName == "static" && l.m.pods[uid] == nil && !l.m.overruled[uid] {
			all = all.Or(union(entries))
		}
	}
	all.AddSet(&s.Foreign)
	claimed := claimedIn(s)
	all.AddSet(&claimed)
	if all.And(online) != s.Exclusive {
		t.Fatalf("owners have %s, exclusive are %s\n%s", all.And(online), s.Exclusive, describe(s))
	}
}

// checkApart: a pod that came after the others and asked for it shares no NUMA
// node with a pod of the other kind. Later a resize or a lost node may bring them
// together, so only the youngest is looked at, when it comes.
func (l *life) checkApart(t rapid.TB, s *Snapshot) {
	if l.came == nil {
		return
	}
	p := l.m.pods[l.came.UID]
	l.came = nil
	if p == nil || p.in.numaExclusive != NUMAExclusiveRequired || p.in.scheduled != nil ||
		kubeletPins(p.labels, p.ref.QoS) {
		return
	}
	mine := l.m.usedBy(p)
	for _, o := range l.m.pods {
		theirs := l.m.usedBy(o)
		if o != p && mine.Count() > 0 && theirs.Count() > 0 && mine.Intersects(&theirs) &&
			(mine.Count() == 1) != (theirs.Count() == 1) {
			t.Fatalf("%s on NUMA nodes %s has to keep apart from %s on %s\n%s", p.ref.Name, mine, o.ref.Name, theirs,
				describe(s))
		}
	}
}

// newest is one live container per pod and name.
func (l *life) newest() map[string]bool {
	names := map[string]bool{}
	for _, c := range l.live {
		names[l.pods[c.Sandbox].UID+"/"+c.Name] = true
	}
	return names
}

func (l *life) mirrorCPUs(n Need) cpuset.Set {
	if n.Own != nil {
		return *n.Own
	}
	return l.mirror.pools[n.Pool]
}

func (l *life) drawPod(t *rapid.T) Pod {
	l.n++
	class := rapid.SampledFrom([]string{"", "LSE", "LSR", "LS", "BE", "SYSTEM", "XXL"}).Draw(t, "class")
	cpus := rapid.SampledFrom([]int64{0, 500, 1000, 1000, 2000, 2000, 3000, 4000, 6000, 100000}).Draw(t, "milli")
	r := Resources{RequestMilli: cpus, LimitMilli: cpus}
	if cpus == 0 {
		r.LimitMilli = NoLimit
	}
	p := Pod{
		UID: fmt.Sprintf("uid-%d", l.n), Sandbox: fmt.Sprintf("sandbox-%d", l.n), Name: fmt.Sprintf("pod-%d", l.n),
		CgroupParent: fmt.Sprintf("/kubepods/pod%d", l.n),
		Namespace:    rapid.SampledFrom([]string{"default", "kube-system"}).Draw(t, "namespace"),
		Labels:       map[string]string{}, Annotations: map[string]string{}, Resources: &r, CreatedAt: l.now,
		QoS: rapid.SampledFrom([]QoS{Guaranteed, Guaranteed, Burstable, BestEffort}).Draw(t, "qos"),
	}
	if class != "" {
		p.Labels[LabelClass] = class
	}
	switch rapid.IntRange(0, 9).Draw(t, "sums") {
	case 0:
		p.Resources = nil
	case 1:
		p.Resources.LimitMilli, p.LimitHidden = NoLimit, true
	}
	if p.Resources != nil {
		p.Asked = exactly(t, p.Resources.LimitMilli)
	}
	spec := rapid.SampledFrom([]string{
		"", "", `{"preferredCPUBindPolicy":"SpreadByPCPUs"}`, `{"requiredCPUBindPolicy":"FullPCPUs"}`,
		`{"preferredCPUBindPolicy":"ConstrainedBurst"}`,
		`{"preferredCPUExclusivePolicy":"PCPULevel"}`, `{"preferredCPUExclusivePolicy":"NUMANodeLevel"}`, `{`,
		`{"preferredCPUBindPolicy":"Sideways"}`,
	}).Draw(t, "spec")
	if spec != "" {
		p.Annotations[AnnSpec] = spec
	}
	if smt := rapid.SampledFrom([]string{"", "", "", "isolate", "align", "roundup", "sideways"}).Draw(t,
		"smt"); smt != "" {
		p.Annotations[AnnSMT] = smt
	}
	if rapid.IntRange(0, 9).Draw(t, "opt out") == 0 {
		p.Annotations[AnnManaged] = "false"
	}
	if rapid.IntRange(0, 9).Draw(t, "stays ill") == 0 {
		p.Annotations[AnnHeal] = rapid.SampledFrom([]string{"off", "auto", "never"}).Draw(t, "heal")
	}
	l.drawNUMA(t, &p)
	if rapid.IntRange(0, 9).Draw(t, "containers own") == 0 {
		p.Annotations[AnnContainers] = rapid.SampledFrom([]string{"main", "side,main", "main,,", "main,main",
			"other"}).Draw(t, "which")
	}
	if rapid.IntRange(0, 3).Draw(t, "of isolated CPUs") == 0 {
		p.Annotations[AnnIsolated] = rapid.SampledFrom([]string{"required", "required", "preferred"}).Draw(t,
			"isolated")
	}
	if rapid.IntRange(0, 4).Draw(t, "cap") == 0 {
		p.Annotations[AnnCap] = rapid.SampledFrom([]string{"exempt", "exempt", "never"}).Draw(t, "how")
	}
	return p
}

// drawPlain draws a pod of the shared pool, bound to a NUMA node or not, or an owner.
func (l *life) drawPlain(t *rapid.T) Pod {
	l.n++
	milli := int64(rapid.IntRange(1, 5).Draw(t, "CPUs")) * 1000
	p := Pod{
		UID: fmt.Sprintf("uid-%d", l.n), Sandbox: fmt.Sprintf("sandbox-%d", l.n), Name: fmt.Sprintf("pod-%d", l.n),
		CgroupParent: fmt.Sprintf("/kubepods/pod%d", l.n), Namespace: "plain", QoS: Burstable, CreatedAt: l.now,
		Labels: map[string]string{}, Annotations: map[string]string{},
		Resources: &Resources{RequestMilli: milli, LimitMilli: milli},
	}
	switch kind := rapid.SampledFrom([]string{"shared", "bound", "bound", "owner", "isolate", "roundup", "mixed",
		"mixed"}).Draw(t, "kind"); kind {
	case "shared":
	case "mixed":
		l.drawMixed(t, &p)
	case "bound":
		p.Annotations[AnnNUMASpec] = `{"numaTopologyPolicy":"SingleNUMANode"}`
	default:
		p.Labels[LabelClass] = "LSR"
		if kind != "owner" {
			p.Annotations[AnnSMT] = kind
		}
	}
	return p
}

func drawName(t *rapid.T) string {
	return rapid.SampledFrom([]string{"main", "main", "side", "side", "rest"}).Draw(t, "name")
}

// drawMixed draws a pod some of whose containers own CPUs. The API server may know it already.
func (l *life) drawMixed(t *rapid.T, p *Pod) {
	p.Labels[LabelClass] = rapid.SampledFrom([]string{"LSR", "LSE"}).Draw(t, "class")
	names := rapid.SampledFrom([]string{"main", "main,side", "side"}).Draw(t, "which own")
	p.Annotations[AnnContainers] = names
	p.QoS = rapid.SampledFrom([]QoS{Guaranteed, Burstable}).Draw(t, "qos")
	p.Annotations[AnnSMT] = rapid.SampledFrom([]string{"none", "isolate", "roundup"}).Draw(t, "smt")
	rest := rapid.SampledFrom([]int64{0, 500, 1500}).Draw(t, "the rest")
	p.Resources.RequestMilli += rest
	p.Resources.LimitMilli += rest
	own := p.Resources.RequestMilli - rest
	f := PodFacts{UID: p.UID, Resources: *p.Resources}
	for i, name := range strings.Split(names, ",") {
		milli := own
		if names != name {
			milli = []int64{max(own-1000, 1000), 1000}[i]
		}
		f.Containers = append(f.Containers, ContainerFacts{Name: name,
			Resources: Resources{RequestMilli: milli, LimitMilli: milli}})
	}
	f.Containers = append(f.Containers, ContainerFacts{Name: "rest",
		Resources: Resources{RequestMilli: rest, LimitMilli: rest}})
	if rapid.Bool().Draw(t, "the API server has told") {
		p.Facts = &f
	}
}

// drawNUMA draws what a pod, a scheduler and its devices say of NUMA nodes.
func (l *life) drawNUMA(t *rapid.T, p *Pod) {
	if rapid.IntRange(0, 2).Draw(t, "numa") == 0 {
		p.Annotations[AnnNUMASpec] = rapid.SampledFrom([]string{
			`{"numaTopologyPolicy":"SingleNUMANode"}`,
			`{"numaTopologyPolicy":"Restricted","singleNUMANodeExclusive":"Required"}`,
			`{"numaTopologyPolicy":"BestEffort"}`, `{"singleNUMANodeExclusive":"Required"}`,
			`{"singleNUMANodeExclusive":"Preferred"}`, `{"numaTopologyPolicy":"Odd"}`,
		}).Draw(t, "numa spec")
	}
	if rapid.IntRange(0, 2).Draw(t, "status") == 0 {
		p.Annotations[AnnStatus] = rapid.SampledFrom([]string{
			`{"cpuset":"0-1"}`, `{"cpuset":"2"}`, `{"cpuset":"2-3","numaNodeResources":[{"node":0}]}`,
			`{"numaNodeResources":[{"node":1}]}`,
			`{"numaNodeResources":[{"node":0,"resources":{"cpu":"1"}},{"node":1,"resources":{"cpu":1}}]}`,
			`{"numaNodeResources":[{"node":1,"resources":{"cpu":"2000m"}}]}`,
			`{"cpuSharedPools":[{"socket":0,"node":0},{"socket":0,"node":1}]}`,
			`{"cpuSharedPools":[{"socket":1,"node":1}]}`, `{"cpuset":"0-900"}`,
		}).Draw(t, "resource status")
	}
	if rapid.IntRange(0, 2).Draw(t, "devices") == 0 {
		var nodes cpuset.Set
		for range rapid.IntRange(1, 2).Draw(t, "device nodes") {
			nodes.Add(rapid.IntRange(0, 4).Draw(t, "device node"))
		}
		p.DeviceNodes = &nodes
	}
}

// facts is the API server telling of a pod, late and perhaps of other sums than
// the runtime's. Whoever owns something keeps it.
func (l *life) facts(t *rapid.T) {
	p, ok := l.someSandbox(t)
	if !ok {
		return
	}
	l.settle(t)
	owns := map[string]cpuset.Set{}
	for uid, o := range l.m.exclusive {
		owns[uid] = o.grant.cpus
	}
	cpus := rapid.SampledFrom([]int64{500, 1000, 2000, 4000, 100000}).Draw(t, "milli")
	f := PodFacts{UID: p.UID, Resources: Resources{RequestMilli: cpus,
		LimitMilli: rapid.SampledFrom([]int64{cpus, cpus + 500, NoLimit}).Draw(t, "limit")}, Owner: "Deployment/web",
		Counted: rapid.SampledFrom([]Counted{nil, nil, nil, {"": 1000, "main": 1000}, {"": 4000}}).Draw(t, "counted")}
	_ = l.step(t, PodFacts{UID: "never heard of"})
	_ = l.step(t, f)
	online := l.m.topo.Online()
	for uid, had := range owns {
		o, kept := l.m.exclusive[uid], had.And(online)
		if o != nil && l.healed && kept.SubsetOf(&o.grant.cpus) {
			continue // the pod requests less than was known
		}
		// A request that becomes known may take surplus back, nothing else.
		if o == nil || o.grant.cpus != had && (!o.grant.cpus.SubsetOf(&had) ||
			o.grant.cpus.Count() < o.grant.request.CPUs) {
			t.Fatalf("facts of %s moved the owner %s of %s", p.UID, uid, had)
		}
	}
}

// configured is kubelet's configuration file read anew: what was given stays given.
func (l *life) configured(t *rapid.T) {
	k := Kubelet{Options: map[string]string{}, TopologyPolicy: rapid.SampledFrom([]string{"", "none", "best-effort",
		"restricted", "single-numa-node"}).Draw(t, "topology policy")}
	for _, option := range []string{"full-pcpus-only", "distribute-cpus-across-numa", "distribute-cpus-across-cores",
		"strict-cpu-reservation"} {
		if rapid.IntRange(0, 3).Draw(t, option) == 0 {
			k.Options[option] = "true"
		}
	}
	if rapid.Bool().Draw(t, "reserved") {
		k.Reserved = cpuset.Of(rapid.IntRange(0, 3).Draw(t, "reserved CPU"))
	}
	owns := map[string]cpuset.Set{}
	for uid, o := range l.m.exclusive {
		owns[uid] = o.grant.cpus
	}
	if l.step(t, KubeletConfigured{Kubelet: k}) != nil {
		return
	}
	l.file = &k
	for uid, had := range owns {
		// A strict reservation may take the shared pool's last CPU; then the youngest owner pays.
		if o := l.m.exclusive[uid]; (o == nil || o.grant.cpus != had) && !l.m.cfg.reservedStrict() {
			t.Fatalf("kubelet's configuration moved the owner %s of %s", uid, had)
		}
	}
	if err := l.step(t, Reconfigured{Config: l.cfg}); err == nil && !reflect.DeepEqual(l.m.cfg.Kubelet, k) {
		t.Fatalf("a reload of the configuration undid what kubelet's own said: %+v", l.m.cfg.Kubelet)
	}
}

func (l *life) someSandbox(t *rapid.T) (Pod, bool) {
	if len(l.pods) == 0 {
		return Pod{}, false
	}
	return l.pods[rapid.SampledFrom(slices.Sorted(maps.Keys(l.pods))).Draw(t, "sandbox")], true
}

func (l *life) someContainer(t *rapid.T) (Container, bool) {
	if len(l.live) == 0 {
		return Container{}, false
	}
	return l.live[rapid.SampledFrom(slices.Sorted(maps.Keys(l.live))).Draw(t, "container")], true
}

func (l *life) createContainer(t *rapid.T, p Pod, name string) {
	l.n++
	c := Container{ID: fmt.Sprintf("ctr-%d", l.n), Sandbox: p.Sandbox, Name: name,
		Resources: Resources{LimitMilli: NoLimit}, CreatedAt: l.now}
	if p.Resources != nil {
		c.Resources = *p.Resources
	} else if milli := rapid.SampledFrom([]int64{0, 1000, 2000}).Draw(t, "asked by the container"); milli > 0 {
		c.Resources = Resources{RequestMilli: milli, LimitMilli: milli}
	}
	if _, mixed := p.Annotations[AnnContainers]; mixed {
		milli := rapid.SampledFrom([]int64{500, 1000, 1000, 2000}).Draw(t, "asked by one")
		c.Resources = Resources{RequestMilli: milli, LimitMilli: milli}
	}
	if p.LimitHidden && rapid.Bool().Draw(t, "unequal") {
		c.Resources.RequestMilli, c.Resources.LimitMilli = 1000, NoLimit
	}
	if milli := c.Resources.RequestMilli; p.QoS == Guaranteed && milli > 0 && milli%1000 == 0 &&
		rapid.IntRange(0, 3).Draw(t, "pinned by kubelet") == 0 {
		c.CPUs = l.pin(t, int(milli/1000)).String()
	}
	c.Asked = Asked{Quota: exactly(t, c.Resources.LimitMilli)}
	c.Claims = rapid.SampledFrom([][]string{nil, nil, nil, {"a"}, {"b"}, {"a", "c"},
		{ClaimDevice("x", 0)}, {ClaimDevice("y", 0), "a"}}).Draw(t, "claims")
	l.create(t, p, c)
}

// create starts a container of a pod, whose sandbox may not have been announced.
func (l *life) create(t rapid.TB, p Pod, c Container) {
	_, known := l.pods[p.Sandbox]
	l.expecting = &c
	l.live[c.ID], l.pods[p.Sandbox] = c, p
	err := l.step(t, ContainerCreate{Pod: p, Container: c})
	l.expecting = nil
	l.kubelet = l.m.kubelet // kubelet saves a pin before it creates the container
	if err != nil && !known {
		delete(l.pods, p.Sandbox)
	}
}

// exactly is a limit as kubelet wrote it, or nothing, from which it follows.
func exactly(t *rapid.T, limitMilli int64) Quota {
	q := QuotaOf(limitMilli)
	switch {
	case rapid.Bool().Draw(t, "said exactly"):
		return Quota{}
	case limitMilli <= 0:
		return q
	}
	return Quota{Micros: q.Micros / 4, Period: q.Period / 4}
}

// asked is what kubelet asked for of every pod and container.
func (l *life) asked() map[string]any {
	all := map[string]any{}
	for uid, p := range l.m.pods {
		all[uid] = p.asked
	}
	for id, c := range l.m.containers {
		all[id] = c.asked
	}
	return all
}

// change is a resize of kubelet's, in the kernel's words.
type change struct{ shares, quota, period int64 }

func drawChange(t *rapid.T) change {
	if milli := rapid.SampledFrom([]int64{0, 1000, 2000, 5000, 99000}).Draw(t, "both"); milli > 0 {
		return change{shares: milli * 1024 / 1000, quota: milli * 100, period: 100_000}
	}
	return change{
		shares: rapid.SampledFrom([]int64{0, 0, 2, 1024, 2048, MaxShares}).Draw(t, "shares"),
		quota:  rapid.SampledFrom([]int64{0, 0, -1, 100_000, 200_000, 9_900_000}).Draw(t, "quota"),
		period: rapid.SampledFrom([]int64{0, 0, 50_000, 100_000, 2_000_000}).Draw(t, "period"),
	}
}

// pin is n CPUs that kubelet may give to a container: none of those that it gave away.
func (l *life) pin(t *rapid.T, n int) cpuset.Set {
	free := l.m.Snapshot().Topology.Online()
	for _, entries := range l.m.kubelet.Entries {
		free = free.Minus(union(entries))
	}
	var cpus cpuset.Set
	for range n {
		if free.Count() > 1 {
			cpu := rapid.SampledFrom(slices.Collect(free.All())).Draw(t, "cpu")
			free.Remove(cpu)
			cpus.Add(cpu)
		}
	}
	return cpus
}

func (l *life) removeSandbox(t rapid.TB, p Pod) {
	delete(l.pods, p.Sandbox)
	for id, c := range l.live {
		if c.Sandbox == p.Sandbox {
			delete(l.live, id)
		}
	}
	_ = l.step(t, PodRemoved{Sandbox: p.Sandbox})
}

func begin(topo *topology.Topology, cfg Config) (*life, error) {
	m, err := New(topo, cfg)
	if err != nil {
		return nil, err
	}
	twin, err := New(topo, cfg)
	if err != nil {
		return nil, err
	}
	return &life{m: m, twin: twin, cfg: cfg, now: time.Unix(1e9, 0), pods: map[string]Pod{},
		live: map[string]Container{}, mirror: newMirror(m), topo: topo, kept: map[string]cpuset.Set{},
		booked: map[string]cpuset.Set{}}, nil
}

// TestLivesOnceFailed: lives that random ones failed on, without the luck to meet them again.
func TestLivesOnceFailed(t *testing.T) {
	cores := topology.Grid{Sockets: 1, NodesPerSocket: 1, L3PerNode: 1, CoresPerL3: 2, ThreadsPerCore: 2}
	nodes := topology.Grid{Sockets: 2, NodesPerSocket: 2, L3PerNode: 1, CoresPerL3: 1, ThreadsPerCore: 2}
	halves := topology.Grid{Sockets: 1, NodesPerSocket: 2, L3PerNode: 1, CoresPerL3: 2, ThreadsPerCore: 2}
	open := Config{Degrade: true, Authority: Authority{Profile: ProfileOpen}}
	patient := open
	patient.HealAfter = time.Minute
	strict := open
	strict.Reserved, strict.ReservedStrict = cpuset.Of(4, 5, 6, 7), true
	for _, c := range []struct {
		name string
		grid topology.Grid
		cfg  Config
		live func(t *testing.T, l *life)
	}{
		{"a pod that waited for nothing is resized and heals beside one that waits", cores, open,
			func(t *testing.T, l *life) {
				l.run(t, ls("a", 2000, nil))
				l.run(t, lsr("large", 3000, nil))
				none := lsr("none", 0, nil)
				none.Resources.LimitMilli = NoLimit
				l.run(t, none)
				one := Resources{RequestMilli: 1000, LimitMilli: 1000}
				_ = l.step(t, ContainerUpdate{ID: "none-main", Resources: &one, Pod: &one})
				if got := owns(l.m, "none"); got != "0" {
					t.Errorf("it owns %q", got)
				}
			}},
		{"containers of one pod that own CPUs on two NUMA nodes bar both to a pod that uses one", nodes, open,
			func(t *testing.T, l *life) {
				own := lsr("own", 1000, map[string]string{AnnContainers: "main,side"})
				l.run(t, own)
				l.create(t, own, Container{ID: "own-side", Sandbox: "own", Name: "side", Resources: *own.Resources})
				l.run(t, ls("one", 0, map[string]string{AnnNUMASpec: `{"numaTopologyPolicy":"Restricted",` +
					`"singleNUMANodeExclusive":"Required"}`}))
				if p := l.m.pods["one"]; p == nil || p.nodes == nil || p.nodes.String() != "2" {
					t.Errorf("it is bound to %v", p)
				}
			}},
		{"a pin of kubelet's that collides leaves a bound pod what it requests", halves, open,
			func(t *testing.T, l *life) {
				l.run(t, ls("bound", 3000, map[string]string{AnnNUMASpec: `{"numaTopologyPolicy":"SingleNUMANode"}`}))
				l.run(t, lsr("own", 2000, nil))
				pin := ls("pin", 3000, nil)
				pin.QoS = Guaranteed
				l.run(t, pin)
				_ = l.step(t, booked(t, map[string]string{"pin": "0-1,4"}))
				if got := owns(l.m, "pin"); got != "0,6-7" {
					t.Errorf("it owns %q", got)
				}
			}},
		{"a pod that kubelet pinned in part heals if there is room for the rest of it", cores, open,
			func(t *testing.T, l *life) {
				l.run(t, lsr("own", 1000, nil))
				l.run(t, ls("ls", 2000, nil))
				pin := ls("pin", 3000, nil)
				pin.QoS = Guaranteed
				l.run(t, pin)
				_ = l.step(t, booked(t, map[string]string{"pin": "0"}))
				l.removeSandbox(t, l.pods["own"])
				if got := l.m.Snapshot().Shared.String(); got != "0-3" {
					t.Errorf("the shared pool has %q for 5000m", got)
				}
			}},
		{"a pod that kubelet pinned heals container by container when time passes", halves, patient,
			func(t *testing.T, l *life) {
				l.run(t, lsr("own", 2000, nil))
				l.run(t, ls("ls", 5000, nil))
				pin := ls("pin", 2000, nil)
				pin.QoS = Guaranteed
				l.run(t, pin)
				_ = l.step(t, booked(t, map[string]string{"pin": "0-1"}))
				l.removeSandbox(t, l.pods["ls"])
				l.settle(t)
				if got := owns(l.m, "pin"); got != "2-3" {
					t.Errorf("it owns %q", got)
				}
			}},
		{"isolation withholds no sibling that is off and kubelet's", halves, open,
			func(t *testing.T, l *life) {
				pin := ls("pin", 2000, nil)
				pin.QoS = Guaranteed
				l.run(t, pin)
				_ = l.step(t, booked(t, map[string]string{"pin": "0,2"}))
				_ = l.step(t, Hardware{Online: l.m.topo.Online().Minus(cpuset.Of(2))})
				l.run(t, lsr("own", 1000, map[string]string{AnnSMT: "isolate"}))
				if got := owns(l.m, "own"); got != "3" {
					t.Errorf("it owns %q", got)
				}
			}},
		{"a best-effort pod that heals to an owner keeps no cap", cores, Config{Degrade: true},
			func(t *testing.T, l *life) {
				pod := lsr("pod", 500, nil)
				pod.QoS = BestEffort
				l.run(t, pod)
				_ = l.step(t, CapVerdict{ID: "pod-main", Milli: 2, For: time.Minute})
				one := Resources{RequestMilli: 1000, LimitMilli: 1000}
				_ = l.step(t, ContainerUpdate{ID: "pod-main", Resources: &one, Pod: &one})
				if got, caps := owns(l.m, "pod"), l.m.Caps(); got != "0" || len(caps) > 0 {
					t.Errorf("it owns %q and is capped %+v", got, caps)
				}
				l.restart(t)
			}},
		{"a pod stays bound to reserved CPUs, which the shared pool has while it overlaps kubelet's", halves, strict,
			func(t *testing.T, l *life) {
				pin := ls("pin", 4000, nil)
				pin.QoS = Guaranteed
				l.run(t, pin)
				l.kubelet = booked(t, map[string]string{"pin": "0-3"})
				_ = l.step(t, l.kubelet)
				bound, node := ls("bound", 1000, numa("SingleNUMANode", "")), cpuset.Of(1)
				bound.DeviceNodes = &node
				l.run(t, bound)
				if p := l.m.pods["bound"]; p == nil || p.nodes == nil || p.nodes.String() != "1" {
					t.Fatalf("it is bound to %v", p)
				}
				l.restart(t)
			}},
		{"a pod whose containers have not got their CPUs is no newcomer after a restart", cores, open,
			func(t *testing.T, l *life) {
				l.run(t, lsr("own", 1000, map[string]string{AnnSMT: "isolate"}))
				l.run(t, lsr("later", 2000, map[string]string{AnnContainers: "side"}))
				_ = l.step(t, Hardware{Online: cpuset.Of(0, 1, 2)})
				l.restart(t)
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			topo, err := c.grid.Build()
			if err != nil {
				t.Fatal(err)
			}
			l, err := begin(topo, c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			c.live(t, l)
		})
	}
}

// run starts a pod of one container.
func (l *life) run(t rapid.TB, p Pod) {
	if l.step(t, PodRun{Pod: p}) == nil {
		l.pods[p.Sandbox] = p
		l.create(t, p, Container{ID: p.Name + "-main", Sandbox: p.Sandbox, Name: "main", Resources: *p.Resources})
	}
}

func TestRandomLives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topo := drawTopology(t)
		cfg := drawConfig(t, topo)
		l, err := begin(topo, cfg)
		if err != nil {
			return // a machine too small for its own configuration
		}
		if rapid.IntRange(0, 2).Draw(t, "replaces a newer version") == 0 {
			l.inherit(t)
		}
		t.Repeat(map[string]func(*rapid.T){
			"pod": func(t *rapid.T) {
				p := l.drawPod(t)
				l.came = &p
				if l.step(t, PodRun{Pod: p}) == nil {
					l.pods[p.Sandbox] = p
					l.createContainer(t, p, "main")
				}
			},
			// Pods that ask for nothing odd: enough of them that the pool gets tight.
			"plain pod": func(t *rapid.T) {
				p := l.drawPlain(t)
				if l.step(t, PodRun{Pod: p}) == nil {
					l.pods[p.Sandbox] = p
					l.createContainer(t, p, "main")
				}
			},
			"unannounced pod": func(t *rapid.T) { l.createContainer(t, l.drawPod(t), "main") },
			"container": func(t *rapid.T) {
				if p, ok := l.someSandbox(t); ok {
					l.createContainer(t, p, drawName(t))
				}
			},
			// A sandbox that was never announced, of a pod that is known: both enter the
			// pod at once, or neither does.
			"another sandbox": func(t *rapid.T) {
				if p, ok := l.someSandbox(t); ok {
					l.n++
					p.Sandbox = fmt.Sprintf("sandbox-%d", l.n)
					p.CgroupParent = rapid.SampledFrom([]string{p.CgroupParent, "",
						fmt.Sprintf("/other/pod%d", l.n)}).Draw(t, "cgroup")
					l.createContainer(t, p, drawName(t))
				}
			},
			"same again": func(t *rapid.T) {
				if c, ok := l.someContainer(t); ok {
					c.CPUs = "" // kubelet may have given its old pin to another container
					_ = l.step(t, ContainerCreate{Pod: l.pods[c.Sandbox], Container: c})
				}
			},
			"stop": func(t *rapid.T) {
				if c, ok := l.someContainer(t); ok {
					delete(l.live, c.ID)
					_ = l.step(t, ContainerStopped{ID: c.ID})
				}
				_ = l.step(t, ContainerStopped{ID: "never heard of"})
			},
			"remove": func(t *rapid.T) {
				if p, ok := l.someSandbox(t); ok {
					l.removeSandbox(t, p)
				}
				_ = l.step(t, PodRemoved{Sandbox: "never heard of"})
			},
			"resize": func(t *rapid.T) {
				c, ok := l.someContainer(t)
				if !ok {
					return
				}
				milli := rapid.SampledFrom([]int64{500, 1000, 2000, 3000, 5000, 99000}).Draw(t, "to")
				r := Resources{RequestMilli: milli, LimitMilli: milli}
				owns, h := cpuset.Set{}, l.m.containers[c.ID].pod.named(c.Name)
				if h != nil && h.grant != nil {
					owns = h.grant.cpus.And(l.m.topo.Online())
				}
				if l.step(t, ContainerUpdate{ID: c.ID, Resources: &r, Pod: &r}) != nil || owns.IsEmpty() {
					return
				}
				if h.grant != nil && !owns.SubsetOf(&h.grant.cpus) && !h.grant.cpus.SubsetOf(&owns) {
					t.Fatalf("resize moved %s from %s to %s", h, owns, h.grant.cpus)
				}
			},
			"resized pod": func(t *rapid.T) {
				p, ok := l.someSandbox(t)
				if !ok {
					return
				}
				milli := rapid.SampledFrom([]int64{0, 500, 1000, 1999, 2000, 3000, 5000, 99000}).Draw(t, "to")
				limit := rapid.SampledFrom([]int64{milli, milli, milli + 1000, NoLimit}).Draw(t, "limit")
				_ = l.step(t, PodResized{Sandbox: p.Sandbox,
					Resources: Resources{RequestMilli: milli, LimitMilli: limit}})
			},
			"resized container": func(t *rapid.T) {
				if c, ok := l.someContainer(t); ok {
					milli := rapid.SampledFrom([]int64{0, 500, 1000, 2000, 3000, 99000}).Draw(t, "to")
					r := Resources{RequestMilli: milli, LimitMilli: rapid.SampledFrom([]int64{milli, milli + 1000,
						NoLimit}).Draw(t, "limit")}
					_ = l.step(t, ContainerUpdate{ID: c.ID, Resources: &r})
				}
			},
			"change of a pod": func(t *rapid.T) {
				if p, ok := l.someSandbox(t); ok {
					c := drawChange(t)
					_ = l.step(t, PodResized{Sandbox: p.Sandbox, Shares: c.shares, Quota: c.quota, Period: c.period})
				}
			},
			"change of a container": func(t *rapid.T) {
				if c, ok := l.someContainer(t); ok {
					to := drawChange(t)
					_ = l.step(t, ContainerUpdate{ID: c.ID, Shares: to.shares, Quota: to.quota, Period: to.period,
						CPUs: rapid.SampledFrom([]string{"", "0"}).Draw(t, "cpuset")})
				}
			},
			"power": func(t *rapid.T) {
				cpus := l.topo.CPUs()
				cpu := cpus[rapid.IntRange(0, len(cpus)-1).Draw(t, "cpu")].ID
				online := l.m.Snapshot().Topology.Online()
				if online.Has(cpu) {
					online.Remove(cpu)
				} else {
					online.Add(cpu)
				}
				_ = l.step(t, Hardware{Online: online})
			},
			"cap": func(t *rapid.T) {
				if c, ok := l.someContainer(t); ok {
					_ = l.step(t, CapVerdict{ID: c.ID, Milli: rapid.Int64Range(0, 500).Draw(t, "cap"),
						For: time.Minute})
				}
			},
			"release": func(t *rapid.T) {
				if c, ok := l.someContainer(t); ok {
					_ = l.step(t, CapReleased{ID: c.ID})
					if n := len(l.m.containers[c.ID].pod.caps); n > 0 &&
						l.m.containers[c.ID].pod.caps[c.Name] != (Cap{}) {
						t.Fatalf("the cap of %s is still there", c.Name)
					}
				}
				_ = l.step(t, CapReleased{ID: "never heard of"})
			},
			"suppress": func(t *rapid.T) { _ = l.step(t, BESuppressed{CPUs: l.someCPUs(t, "left to best effort")}) },
			"limit": func(t *rapid.T) {
				e := BESuppressed{QuotaMilli: rapid.Int64Range(0, 4000).Draw(t, "quota"),
					Grouped: rapid.Bool().Draw(t, "grouped"), PodMilli: map[string]int64{}}
				for uid := range l.m.pods {
					e.PodMilli[uid] = rapid.Int64Range(0, 1000).Draw(t, "part")
				}
				_ = l.step(t, e)
			},
			"keep off": func(t *rapid.T) {
				_ = l.step(t, BEKeptOff{
					Victim: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "victim"), CPUs: l.someCPUs(t, "around it"),
					For: time.Duration(rapid.IntRange(0, 100).Draw(t, "seconds")) * time.Second,
				})
			},
			"keep one off": func(t *rapid.T) {
				e := BEKeptOff{Victim: "a", CPUs: l.someCPUs(t, "around it"),
					Least: rapid.IntRange(0, 3).Draw(t, "least"), Pod: "never heard of",
					For: time.Duration(rapid.IntRange(0, 100).Draw(t, "seconds")) * time.Second}
				if c, ok := l.someContainer(t); ok {
					e.Pod = l.m.containers[c.ID].pod.ref.UID
				}
				if l.step(t, e) != nil || e.ends() {
					return
				}
				s := l.m.Snapshot()
				for _, c := range s.Containers {
					if on := s.CPUs(c); c.PodUID == e.Pod && (on.Intersects(&e.CPUs) || on.Intersects(&s.Exclusive) ||
						!on.SubsetOf(&s.BE) || on.Count() < max(e.Least, 1)) {
						t.Fatalf("%s is kept off %s and runs on %s", c.ID, e.CPUs, on)
					}
				}
			},
			"idle": func(t *rapid.T) {
				e := Idled{Pod: "never heard of",
					For: time.Duration(rapid.IntRange(-1, 100).Draw(t, "seconds")) * time.Second}
				if c, ok := l.someContainer(t); ok {
					e.Pod = l.m.containers[c.ID].pod.ref.UID
				}
				if l.step(t, e) != nil || e.For == 0 {
					return
				}
				if p := l.m.pods[e.Pod]; p.in.class != BE || p.ref.QoS != BestEffort || !l.m.idles(p) {
					t.Fatalf("pod %s of class %s runs on idle CPUs: %t", e.Pod, p.in.class, l.m.idles(p))
				}
			},
			"time": func(t *rapid.T) {
				l.now = l.now.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "seconds")) * time.Second)
				_ = l.step(t, Tick{})
			},
			"labels": func(t *rapid.T) {
				l.settle(t)
				l.now = l.now.Add(-time.Second) // so that no cap ends in between
				before := describe(l.m.Snapshot())
				_ = l.step(t, NodeLabels{Labels: map[string]string{
					LabelBind: rapid.SampledFrom([]string{"", "FullPCPUsOnly", "SpreadByPCPUs", "odd"}).Draw(t,
						"bind"),
					LabelStrategy: rapid.SampledFrom([]string{"", "LeastAllocated", "DistributeEvenly"}).Draw(t,
						"strategy"),
					LabelAlignment: rapid.SampledFrom([]string{"", "Restricted", "SingleNUMANode",
						"BestEffort"}).Draw(t, "alignment"),
				}})
				if after := describe(l.m.Snapshot()); after != before {
					t.Fatalf("a label moved a running pod\n%s\n%s", before, after)
				}
			},
			"kubelet":        func(t *rapid.T) { l.drawKubelet(t) },
			"claims":         func(t *rapid.T) { l.drawClaims(t) },
			"prepare":        func(t *rapid.T) { l.prepare(t) },
			"unprepare":      func(t *rapid.T) { l.unprepare(t) },
			"kubelet's file": func(t *rapid.T) { l.configured(t) },
			"facts":          func(t *rapid.T) { l.facts(t) },
			"restart":        func(t *rapid.T) { l.restart(t) },
		})
	})
}

// inherit starts with a pod that a newer version gave CPUs in a way unknown here.
func (l *life) inherit(t *rapid.T) {
	p, cpus := l.drawPod(t), l.someCPUs(t, "given by a newer version")
	r := &Recovered{From: fromState, CPUs: &cpus, Reservation: &Reservation{Kind: "lease"}}
	first := p
	first.Recovered = r
	l.pods[p.Sandbox], l.kept[p.UID] = p, cpus
	_ = l.step(t, Synchronized{Pods: []Pod{first}})
	l.createContainer(t, p, "main")
}

func (l *life) someCPUs(t *rapid.T, label string) cpuset.Set {
	var cpus cpuset.Set
	for _, cpu := range l.topo.CPUs() {
		if rapid.Bool().Draw(t, label) {
			cpus.Add(cpu.ID)
		}
	}
	return cpus
}

func (l *life) drawKubelet(t *rapid.T) {
	k := KubeletState{PolicyName: rapid.SampledFrom([]string{"static", "static", "none"}).Draw(t, "policy"),
		Entries: map[string]map[string]cpuset.Set{}}
	free := l.m.Snapshot().Topology.Online()
	for _, sandbox := range slices.Sorted(maps.Keys(l.pods)) {
		p := l.pods[sandbox]
		if p.QoS != Guaranteed || rapid.IntRange(0, 2).Draw(t, "pinned") > 0 {
			continue
		}
		var cpus cpuset.Set
		for range rapid.IntRange(1, 3).Draw(t, "cpus") {
			if free.Count() > 1 {
				cpu := rapid.SampledFrom(slices.Collect(free.All())).Draw(t, "cpu")
				free.Remove(cpu)
				cpus.Add(cpu)
			}
		}
		if !cpus.IsEmpty() {
			k.Entries[p.UID] = map[string]cpuset.Set{"main": cpus}
			if cpu := last(cpus); cpus.Count() > 1 && rapid.Bool().Draw(t, "two of its containers") {
				cpus.Remove(cpu)
				k.Entries[p.UID] = map[string]cpuset.Set{"main": cpus, "side": cpuset.Of(cpu)}
			}
		}
	}
	l.kubelet = k
	_ = l.step(t, k)
}

// restart is kill -9: nothing may move, and what was owned is still owned.
func (l *life) restart(t rapid.TB) {
	l.settle(t)                   // a refused step undoes no cap that is due
	_ = l.step(t, BESuppressed{}) // what limits best effort is found anew
	for _, victim := range []string{"a", "b"} {
		_ = l.step(t, BEKeptOff{Victim: victim})
	}
	for uid := range l.m.pods {
		_ = l.step(t, BEKeptOff{Victim: "a", Pod: uid})
		_ = l.step(t, Idled{Pod: uid})
	}
	before, asked := describe(l.m.Snapshot()), l.asked()
	checkpoint := l.m.Checkpoint()
	claims, gone := l.m.foreignRecords()
	cfg := l.m.cfg
	m, err := New(l.m.topo, cfg)
	if err != nil {
		return // so many CPUs are offline that a start would be refused
	}
	l.m, l.mirror = m, newMirror(m)
	if l.twin, err = New(m.Topology(), cfg); err != nil {
		t.Fatal(err)
	}
	if l.file != nil {
		_ = l.step2(t, KubeletConfigured{Kubelet: *l.file})
	}
	_ = l.step2(t, l.kubelet)
	for _, e := range claims {
		_ = l.step2(t, e)
	}
	if err := l.step2(t, checkpoint); err != nil {
		t.Fatal(err)
	}
	for _, e := range gone {
		_ = l.step2(t, e)
	}
	l.check(t)
	if after := describe(l.m.Snapshot()); after != before {
		t.Fatalf("a restart changed something\nbefore:\n%s\nafter:\n%s", before, after)
	}
	if after := l.asked(); !reflect.DeepEqual(after, asked) {
		t.Fatalf("a restart changed what kubelet asked for\nbefore:\n%v\nafter:\n%v", asked, after)
	}
}

// step2 steps without checking: the containers are not known yet.
func (l *life) step2(t rapid.TB, e Event) error {
	decisions, err := l.m.Step(l.now, e)
	if err == nil {
		l.mirror.take(t, decisions)
		l.follow(t, e, decisions)
	}
	return err
}
