package world

import (
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
)

// Claim is a claim of the daemon's own DRA driver, of one pod. kubelet has it prepared before it asks for the pod's
// sandbox, and unprepared when the pod has ended; neither goes over the runtime's connection.
type Claim struct {
	// Holder stands for the claim where owners are compared. It is prepared if it has a grant, or is excused.
	Holder *Pod
	// Device are the CPUs of which it asks for some.
	Device cpuset.Set
	CPUs   int

	pod      *Pod
	prepared bool
	asking   *Request // which is not answered yet
	refused  int      // times
	ended    bool     // the pod is gone
	lost     bool     // with the state file: until it is prepared again, nobody knows what it has
	// seen means that the daemon has seen a container with it, or has read of one. Until then it puts all of the pod's
	// containers on its CPUs.
	seen bool
}

const (
	// claimLimit is how long a claim may wait for an answer.
	claimLimit = 5 * time.Second
	// claimSlack is what the answer may be late: kubelet waits longer.
	claimSlack = time.Second
)

// newClaim makes the claim of a pod. Even pods ask for CPUs of the first NUMA node, odd ones of the second.
func (w *World) newClaim(p *Pod, number int) *Claim {
	return &Claim{pod: p, CPUs: p.Claims, Device: w.topo.Nodes()[number%2].CPUs,
		Holder: &Pod{Name: "claim-" + p.Name, Spec: Spec{Class: policy.LSE}, phase: ready}}
}

// UID is the claim's.
func (c *Claim) UID() string { return c.Holder.UID() }

// isHolder reports whether it stands for a claim.
func (p *Pod) isHolder() bool { return len(p.parts) == 0 }

// has reports whether a container has its pod's claim: the first one has.
func (c *Container) has(claim *Claim) bool {
	return claim != nil && c.Pod.claim == claim && c.part == c.Pod.parts[0]
}

// uses reports whether a container runs on the CPUs of an owner by right.
func (c *Container) uses(owner *Pod) bool {
	return c.Pod == owner && c.owns() || c.Pod.claim != nil && c.Pod.claim.Holder == owner && c.has(c.Pod.claim)
}

// seeContainer records that the daemon knows of a container.
func (c *Container) seeContainer() {
	if claim := c.Pod.claim; c.has(claim) {
		claim.seen = true
	}
}

// readClaims records which claims have a container of which a new daemon reads.
func (w *World) readClaims(saved *state.Snapshot) {
	for _, c := range w.node.claims {
		c.seen = slices.ContainsFunc(saved.Claims, func(r policy.RecoveredClaim) bool {
			return r.UID == c.UID() && r.Named
		})
	}
}

// lends reports whether a container has been put on the CPUs of its pod's claim because no daemon knew which container
// has it, and has not left them yet.
func (c *Container) lends(owner *Pod, on cpuset.Set) bool {
	claim := c.Pod.claim
	if claim == nil || claim.Holder != owner {
		return false
	}
	c.lent = !on.IsEmpty() && (c.lent || !claim.seen)
	return c.lent
}

// owners are the pods, and what stands for the claims.
func (w *World) owners() []*Pod {
	if len(w.node.claims) == 0 {
		return w.node.pods
	}
	all := slices.Clone(w.node.pods)
	for _, c := range w.node.claims {
		all = append(all, c.Holder)
	}
	return all
}

func (w *World) claimOf(pod string) *Claim {
	for _, c := range w.node.claims {
		if c.pod.Name == pod {
			return c
		}
	}
	return nil
}

// offerClaims are kubelet's calls of the driver.
func (w *World) offerClaims(add offer) {
	for _, c := range w.node.claims {
		switch {
		case !w.alive || c.asking != nil:
		case c.ended:
			add(6, "unprepare", c.pod.Name, "")
		case !c.prepared:
			add(10, "prepare", c.pod.Name, "")
		default:
			add(1, "prepare", c.pod.Name, "") // kubelet has started again
		}
	}
}

// callDriver is a call of the driver by kubelet.
func (w *World) callDriver(c Choice) bool {
	claim := w.claimOf(c.What)
	if claim == nil || claim.asking != nil || !w.alive || (c.Do == "unprepare") != claim.ended {
		return false
	}
	r := &Request{Kind: Prepare, Claim: claim, Event: policy.ClaimPrepared{UID: claim.UID(), Namespace: "default",
		Name: claim.Holder.Name, Pods: []string{claim.pod.UID()}, Requests: []policy.ClaimRequest{
			{Device: "numa", Within: claim.Device.And(w.topo.Online()), CPUs: claim.CPUs}}}}
	if c.Do == "unprepare" {
		r.Kind, r.Event = Unprepare, policy.ClaimUnprepared{UID: claim.UID()}
		claim.prepared, claim.Holder.grant = false, cpuset.Set{} // from now on, whether the answer comes or not
	}
	claim.asking = r
	w.call(r)
	return true
}

// claimAnswered is kubelet's reaction to the driver's answer.
func (w *World) claimAnswered(a Answer) {
	c := a.To.Claim
	if c.asking != a.To {
		return // the daemon that was asked is gone
	}
	c.asking = nil
	w.note("answers: %s %s %v err=%v", a.To.Kind, c.pod.Name, a.Claim, a.Err)
	switch {
	case c.ended && a.To.Kind == Prepare: // the pod has ended meanwhile
	case a.Err != nil && a.To.Kind == Unprepare, a.Err != nil && c.prepared:
	case a.Err != nil:
		if c.refused++; c.refused == maxAttempts {
			w.end(c.pod, true)
		}
	case a.To.Kind == Unprepare:
		w.node.claims = slices.DeleteFunc(w.node.claims, func(o *Claim) bool { return o == c })
	default:
		w.claimPrepared(c, a)
	}
}

// claimPrepared checks what a claim was given.
func (w *World) claimPrepared(c *Claim, a Answer) {
	h := c.Holder
	var cpus cpuset.Set
	for i := range a.Claim {
		cpus.AddSet(&a.Claim[i])
	}
	if saved, well := w.file(); well {
		if place := saved[h.UID()].CPUs; place != cpus {
			w.violate(PropGrant, "%s is given %s, but the state file has %q", h.Name, cpus, place)
		}
	}
	if c.prepared && h.live() && cpus != h.grant {
		w.violate(PropGrant, "%s has %s and is given %s when it is prepared again", h.Name, h.grant, cpus)
	}
	fresh := !c.prepared || c.lost
	c.prepared, c.lost = true, false
	mayLack := c.pod.phase != wanted && h.excused // the shared pool has taken some of a pod that runs
	if cpus.Count() != c.CPUs && !(mayLack && cpus.Count() < c.CPUs) || !cpus.SubsetOf(&c.Device) {
		w.violate(PropGrant, "%s asks for %d CPUs of %s and is given %s", h.Name, c.CPUs, c.Device, cpus)
	}
	if !fresh {
		return
	}
	w.followResizes(w.shell.View(), w.shell.View().Grants())
	for _, other := range w.owners() {
		if others := w.kept(other).And(cpus); other != h && other.live() && !others.IsEmpty() {
			w.violate(PropStart, "%s is given %s, of which %s owns %s", h.Name, cpus, other.Name, others)
		}
	}
	off := w.heldOff(w.shell.View()) // it may not know that they are back, and runs the pod in the pool meanwhile
	h.excused, h.off = cpus.Intersects(&off), cpuset.Set{}
	// A pod whose claim was lost with the state file runs already. The answer starts nothing: its containers may be on
	// these CPUs while the daemon does not know which of them has the claim, and checkClaimed wants them off when that
	// one is created.
	w.intruders(PropStart, h, cpus, slices.DeleteFunc(w.tasks(), func(t task) bool {
		return t.ctr.lends(h, cpus.And(t.cpus))
	}))
	h.grant = cpus
}

// checkClaimed checks the reply about a container that has a claim.
func (w *World) checkClaimed(c *Container) {
	claim := c.Pod.claim
	own, err := cpuset.Parse(c.cpus)
	if !c.has(claim) || !claim.Holder.live() || err != nil {
		return
	}
	h := claim.Holder
	if w.owned(h, own) != w.owned(h, h.grant) {
		w.violate(PropGrant, "%s has %s, but a container with it gets %q in the reply", h.Name, h.grant, c.cpus)
	}
	w.intruders(PropStart, h, h.grant, w.tasks())
}

// checkClaimDeadlines requires an answer to each call of the driver.
func (w *World) checkClaimDeadlines() {
	for _, c := range w.node.claims {
		if r := c.asking; r != nil && w.clock().Sub(r.sent) > claimLimit+claimSlack {
			w.violate(PropDeadline, "%s of %s has no answer after %s", r.Kind, c.Holder.Name, w.clock().Sub(r.sent))
		}
	}
}

// forgetClaims ends the calls of a daemon that was killed.
func (w *World) forgetClaims() {
	for _, c := range w.node.claims {
		c.asking = nil
	}
}

// loseClaims records that the state file is lost, which alone has the CPUs of claims.
func (w *World) loseClaims() {
	for _, c := range w.node.claims {
		c.lost, c.Holder.grant = true, cpuset.Set{}
	}
}

// endClaim has kubelet take back the claim of a pod that has ended.
func (p *Pod) endClaim() {
	if p.claim != nil {
		p.claim.ended = true
	}
}

// settleClaims are the calls of the driver that are due.
func (w *World) settleClaims() {
	for _, c := range slices.Clone(w.node.claims) {
		switch {
		case c.ended:
			w.do(Choice{Do: "unprepare", What: c.pod.Name})
		case !c.prepared || c.lost:
			w.do(Choice{Do: "prepare", What: c.pod.Name})
		default:
			continue
		}
		w.drain()
	}
}

// claimPlaces adds the CPUs of claims to those of pods in a state file.
func claimPlaces(places map[string]state.Pod, s *state.Snapshot) map[string]state.Pod {
	for i := range s.Claims {
		r := &s.Claims[i]
		var cpus cpuset.Set
		for j := range r.Given {
			if r.Given[j].CPUs != nil {
				cpus.AddSet(r.Given[j].CPUs)
			}
		}
		places[r.UID] = state.Pod{UID: r.UID, CPUs: cpus}
	}
	return places
}
