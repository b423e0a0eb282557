package policy

import (
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// prepare prepares a claim, or one that was prepared before again, for other pods.
func (l *life) prepare(t *rapid.T) {
	uid := rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "claim")
	e := ClaimPrepared{UID: uid, Namespace: "default", Name: "claim-" + uid}
	for range rapid.IntRange(1, 2).Draw(t, "requests") {
		e.Requests = append(e.Requests, l.drawRequest(t))
	}
	if known := l.m.claims[uid]; known != nil && rapid.IntRange(0, 3).Draw(t, "other devices") > 0 {
		e.Requests = known.asked.Requests
	}
	for sandbox := range l.pods {
		e.Pods = append(e.Pods, l.pods[sandbox].UID)
	}
	slices.Sort(e.Pods)
	e.Pods = slices.DeleteFunc(slices.Compact(e.Pods), func(string) bool {
		return rapid.Bool().Draw(t, "not for a pod")
	})
	if next := "uid-" + string('0'+rune(l.n%10)); rapid.Bool().Draw(t, "for a pod that comes") {
		e.Pods = append(e.Pods, next)
	}
	owed, had := l.m.claims[uid] == nil && l.isOwed(&e), l.mirror.claims[uid]
	err := l.step(t, e)
	now := l.mirror.claims[uid]
	switch {
	case err != nil && owed && !strings.Contains(err.Error(), "the shared pool"):
		t.Fatalf("%d CPUs of %s are kept for claims, and one is refused: %v\n%s", e.Requests[0].CPUs,
			e.Requests[0].Within, err, describe(l.m.Snapshot()))
	case err != nil:
		return
	case len(now.CPUs) != len(e.Requests):
		t.Fatalf("%d requests were given %v", len(e.Requests), now.CPUs)
	}
	for i, cpus := range now.CPUs {
		if len(had.CPUs) == 0 && cpus.Count() < e.Requests[i].CPUs {
			t.Fatalf("%d CPUs were asked for, given are %s", e.Requests[i].CPUs, cpus)
		}
		if len(had.CPUs) > 0 && !had.CPUs[i].IsEmpty() && had.CPUs[i] != cpus {
			t.Fatalf("a claim that had %s has %s after it was prepared again", had.CPUs[i], cpus)
		}
	}
}

func (l *life) drawRequest(t *rapid.T) ClaimRequest {
	isolate, roundUp, spread := cpuallocator.SMTIsolate, cpuallocator.SMTRoundUp, cpuallocator.SpreadByPCPUs
	nodes := l.topo.Nodes()
	r := ClaimRequest{Device: rapid.SampledFrom([]string{"d", "e"}).Draw(t, "device"),
		Within: nodes[rapid.IntRange(0, len(nodes)-1).Draw(t, "node")].CPUs,
		CPUs:   rapid.SampledFrom([]int{1, 1, 2, 2, 3, 4, 0}).Draw(t, "CPUs"),
		SMT:    rapid.SampledFrom([]*cpuallocator.SMT{nil, nil, nil, &isolate, &roundUp}).Draw(t, "smt"),
		Bind:   rapid.SampledFrom([]*cpuallocator.BindPolicy{nil, nil, &spread}).Draw(t, "bind")}
	if rapid.IntRange(0, 3).Draw(t, "other CPUs") == 0 {
		r.Within = l.someCPUs(t, "of the device")
	}
	r.Containers = rapid.SampledFrom([][]string{nil, nil, nil, {"main"}, {"side"}}).Draw(t, "containers")
	return r
}

func (l *life) unprepare(t *rapid.T) {
	uid := rapid.SampledFrom([]string{"x", "y", "z", "never heard of"}).Draw(t, "claim")
	if err := l.step(t, ClaimUnprepared{UID: uid}); err != nil {
		t.Fatal(err)
	}
	if _, has := l.mirror.claims[uid]; has {
		t.Fatalf("claim %s has CPUs after it was unprepared", uid)
	}
}

// isOwed reports whether a claim asks for no more than is kept for claims, and for nothing that a rule may refuse.
func (l *life) isOwed(e *ClaimPrepared) bool {
	r, c := &e.Requests[0], &l.m.cfg
	at := slices.IndexFunc(c.ClaimShares, func(s ClaimShare) bool { return s.Within == r.Within })
	if at < 0 || len(e.Requests) > 1 || r.CPUs < 1 || r.SMT != nil || c.Allocation.SMT != cpuallocator.SMTNone ||
		c.Authority.MaxCPUs != nil || !c.Allows(e.Namespace, PowerExclusive) || l.m.Unread() > 0 || l.m.pools.Overlap {
		return false
	}
	bind, source := l.m.nodeBind()
	if source != "" && (bind == cpuallocator.FullPCPUs || r.Bind != nil || r.CPUs > 1) {
		return false // cores may be left that are too few to spread over, or not whole
	}
	s := &c.ClaimShares[at]
	return r.CPUs <= l.m.owed(s) && l.missing(cpuset.Set{})[at] == 0
}

// missing is how many CPUs that claims may still have are not free, for each share; given are others that are not
// missing.
func (l *life) missing(given cpuset.Set) []int {
	free := l.m.pools.Shared.Minus(l.m.pools.Reserved).Minus(l.m.pools.System)
	if l.m.pools.Overlap {
		free = cpuset.Set{} // all of them are others'
	}
	free = free.Or(given)
	missing := make([]int, len(l.m.cfg.ClaimShares))
	for i := range missing {
		s := &l.m.cfg.ClaimShares[i]
		owed := s.CPUs
		for _, c := range l.m.claims {
			for _, p := range c.parts {
				if p.grant != nil {
					// One that is offline, or that kubelet has reserved since, is missing in any case.
					all := p.grant.all().And(l.m.topo.Online()).Minus(given).Minus(l.m.cfg.reserved())
					owed -= all.CountAnd(&s.Within)
				}
			}
		}
		missing[i] = max(max(owed, 0)-free.CountAnd(&s.Within), 0)
	}
	return missing
}

// checkShares: owners take no CPU that claims may still have. What another driver had given away before the event,
// foreign, is not missing, whoever has it.
func (l *life) checkShares(t rapid.TB, e Event, before []int, foreign cpuset.Set) {
	switch e := e.(type) {
	case PodRun, PodResized, PodFacts, ContainerUpdate, ContainerStopped, Tick, ClaimPrepared, ClaimUnprepared:
	case ContainerCreate:
		if e.Container.CPUs != "" {
			return // kubelet pins it
		}
	default:
		return
	}
	if l.m.kubelet.PolicyName == "static" {
		return
	}
	for i, now := range l.missing(foreign) {
		if now > before[i] {
			t.Fatalf("%T: of the %d CPUs of %s for claims %d are missing, before it %d\n%s", e,
				l.m.cfg.ClaimShares[i].CPUs, l.m.cfg.ClaimShares[i].Within, now, before[i], describe(l.m.Snapshot()))
		}
	}
}

// claimedIn are the CPUs of all claims of our own driver.
func claimedIn(s *Snapshot) (all cpuset.Set) {
	for _, c := range s.Claims {
		for i := range c.Requests {
			all.AddSet(&c.Requests[i].CPUs)
		}
	}
	return all
}

// checkOwnClaims: claims have what was decided, of their devices, and nobody else has any of it; a container of a pod
// with a claim runs on it.
func (l *life) checkOwnClaims(t rapid.TB, s *Snapshot) {
	t.Helper()
	if len(s.Claims) != len(l.mirror.claims) {
		t.Fatalf("%d claims were decided, there are %d\n%s", len(l.mirror.claims), len(s.Claims), describe(s))
	}
	online, of := s.Topology.Online(), map[string]cpuset.Set{}
	for _, c := range s.Claims {
		var all cpuset.Set
		for i := range c.Requests {
			has, decided := c.Requests[i].CPUs, l.mirror.claims[c.UID].CPUs[i]
			if decided.And(online) != has {
				t.Fatalf("claim %s was decided to have %s, it has %s\n%s", c.UID, decided, has, describe(s))
			}
			if within := l.m.claims[c.UID].asked.Requests[i].Within; !has.SubsetOf(&within) {
				t.Fatalf("claim %s has %s of a device with %s", c.UID, has, within)
			}
			all.AddSet(&has)
		}
		if in := s.Shared.Or(s.BE).Or(s.Reserved).Or(s.System).And(all); !in.IsEmpty() && !s.Overlap {
			t.Fatalf("pools have %s of claim %s\n%s", in, c.UID, describe(s))
		}
		of[c.UID] = all
	}
	for _, c := range s.Containers {
		p := l.m.pods[c.PodUID]
		for _, claim := range s.Claims {
			l.checkOwnClaim(t, s, p, c, &claim, of[claim.UID])
		}
	}
}

func (l *life) checkOwnClaim(t rapid.TB, s *Snapshot, p *pod, c *ContainerView, claim *ClaimView, all cpuset.Set) {
	cpus, asked := s.CPUs(c), l.m.claims[claim.UID].asked
	reserved, byDevice := slices.Contains(claim.Pods, c.PodUID) && !p.unread, false
	for _, devices := range p.claims {
		for i := range asked.Requests {
			byDevice = byDevice || slices.Contains(devices, ClaimDevice(claim.UID, i))
		}
	}
	if cpus.Intersects(&all) && !byDevice && !s.Overlap {
		t.Fatalf("%s/%s runs on %s of claim %s, which it does not have\n%s", c.Pod, c.Name, cpus, claim.UID,
			describe(s))
	}
	if reserved && !byDevice {
		t.Fatalf("%s does not know that claim %s is reserved for it\n%s", c.Pod, claim.UID, describe(s))
	}
	if reserved && c.Class == BE && p.labels[LabelClass] != string(BE) {
		t.Fatalf("%s/%s has a claim and is best effort\n%s", c.Pod, c.Name, describe(s))
	}
	some := slices.ContainsFunc(asked.Requests, func(r ClaimRequest) bool { return len(r.Containers) > 0 })
	if reserved && !some && len(p.claims) == 1 && !p.owns() && !p.kubelet && !all.SubsetOf(&cpus) {
		t.Fatalf("%s/%s has claim %s with %s and runs on %s\n%s", c.Pod, c.Name, claim.UID, all, cpus, describe(s))
	}
}
