package world

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

// weighted is a possible choice with its weight.
type weighted struct {
	choice Choice
	weight int
}

// maxPods is how many pods there are at most.
const maxPods = 7

// choose lets the seed choose among all possible choices.
func (w *World) choose() Choice {
	var all []weighted
	add := func(weight int, do, what, how string) {
		all = append(all, weighted{Choice{do, what, how}, weight})
	}
	w.offerOps(add)
	w.offerKubelet(add)
	w.offerDaemon(add)
	w.offerFaults(add)
	total := 0
	for _, o := range all {
		total += o.weight
	}
	at := w.rng.IntN(total)
	for _, o := range all {
		if at -= o.weight; at < 0 {
			return o.choice
		}
	}
	panic("unreachable")
}

type offer func(weight int, do, what, how string)

func (w *World) offerOps(add offer) {
	offered := map[string]bool{}
	for _, o := range w.ops {
		do, what, _ := strings.Cut(o.key(), " ")
		switch {
		case o.hung && !offered["hung "+o.key()]:
			offered["hung "+o.key()] = true
			add(2, "release", o.key(), "")
		case !o.hung && !offered[o.key()]:
			offered[o.key()] = true
			add(24, do, what, howOK)
			bad := w.endings(o)
			for _, how := range bad {
				add(12/len(bad)+1, do, what, how)
			}
		}
	}
}

func (w *World) offerKubelet(add offer) {
	n := &w.node
	if len(n.pods) < maxPods && len(n.queue) < 4 {
		for _, k := range kindWeights {
			add(k.weight, "pod", n.newName(k.kind), "")
		}
		if w.cfg.Claims {
			for _, k := range claimWeights {
				add(k.weight, "pod", n.newName(k.kind), "")
			}
		}
	}
	for _, p := range n.pods {
		switch {
		case n.due(p) && w.alive:
			add(10, "next", p.Name, "")
		case n.due(p):
			add(2, "next", p.Name, "")
		case n.busy(p):
			continue
		}
		if p.phase == ready {
			add(1, "end", p.Name, "")
			if w.has(Unsaid) {
				add(1, "end", p.Name, "unsaid")
			}
		}
		if p.phase == ready {
			for _, o := range p.running() {
				add(2, "restart", p.Name, p.nameOf(o))
			}
			w.offerResize(add, p)
		}
	}
}

func (w *World) offerDaemon(add offer) {
	n := &w.node
	for _, d := range []string{"1ms", "20ms", "300ms", "1.1s", "6s"} {
		add(2, "wait", d, "")
	}
	add(1, "wait", "31s", "")
	if !w.alive {
		add(20, "start", "", "")
		if w.has(Disk) {
			add(2, "lose", "", "")
		}
		if w.has(Clock) {
			add(2, "clock", "24h0m0s", "")
			add(2, "clock", "-24h0m0s", "")
		}
		return
	}
	if !n.connected {
		add(20, "connect", "", "")
	}
	add(2, "tick", "", "")
	add(2, "audit", "", "")
	add(2, "vanish", "", "")
	if w.has(Kills) {
		add(1, "kill", "", "")
		if len(w.active.late) > 0 {
			add(1, "kill", "", howLate)
		}
	}
	if n.connected && w.has(Reconnects) {
		add(1, "disconnect", "", "")
	}
	for _, p := range n.pods {
		if p.isBE() && p.parts[0].is(running) {
			add(1, "cap", p.Name, "")
			add(1, "away", p.Name, "0-3")
		}
		if p.isBE() && p.QoS == policy.BestEffort && p.parts[0].is(running) {
			add(1, "idle", p.Name, "")
		}
	}
	add(1, "suppress", "0-3", "")
	add(1, "suppress", "none", "")
	w.offerClaims(add)
}

func (w *World) offerFaults(add offer) {
	if len(w.active.late) > 0 {
		for _, path := range w.latePaths() {
			add(4, "late", path, "")
		}
	}
	if w.has(Panics) && w.active.panicking == "" {
		for _, how := range []string{"before", "after", "before lasting", "after lasting"} {
			add(1, "panic", "", how)
		}
	}
	switch {
	case !w.has(Defects):
	case w.active.defect == "":
		place := Places[w.rng.IntN(len(Places))]
		add(3, "defect", place, "")
		add(1, "defect", place, "lasting")
	default:
		add(3, "defect", "", "")
	}
	w.offerReadFaults(add)
	if w.has(Unplugs) {
		if w.offline.IsEmpty() {
			first := 2 * (1 + w.rng.IntN(7))
			add(1, "offline", cpuset.Range(first, first+w.rng.IntN(2)).String(), "")
		} else {
			add(2, "online", "", "")
		}
	}
}

func (w *World) offerReadFaults(add offer) {
	if w.has(Blind) && len(w.active.blind) == 0 {
		for _, path := range w.places() {
			add(1, "blind", path, "")
		}
	}
	if w.has(Unreadable) && len(w.active.unreadable) == 0 {
		for _, path := range w.places() {
			add(1, "unreadable", path, "")
		}
	}
	if len(w.active.blind) > 0 {
		add(6, "sight", "", "")
	}
	if len(w.active.unreadable) > 0 {
		add(6, "readable", "", "")
	}
}

// places are the cgroups that may look gone or unreadable.
func (w *World) places() []string {
	all := []string{"/", "kubepods/burstable"}
	for _, p := range w.node.pods {
		if p.phase == ready {
			all = append(all, p.Parent())
			break
		}
	}
	return all
}

func (w *World) latePaths() []string {
	var all []string
	for _, l := range w.active.late {
		if !slices.Contains(all, l.path) {
			all = append(all, l.path)
		}
	}
	return all
}

// do makes a choice and checks the result; false: it cannot be made now.
func (w *World) do(c Choice) bool {
	mark := len(w.log)
	w.note("chooses: %s", c)
	if !w.act(c) {
		w.log = w.log[:mark]
		return false
	}
	w.run(0)
	w.check(c)
	return true
}

func (w *World) act(c Choice) bool {
	switch c.Do {
	case string(Write), string(Read), string(Save), string(Point):
		return w.endOp(c)
	case "release":
		o := w.waiting(c.What, true)
		if o != nil {
			o.hung = false
		}
		return o != nil
	case "pod", "next", "restart", "resize", "end":
		return w.kubelet(c)
	case "prepare", "unprepare":
		return w.callDriver(c)
	case "wait":
		d, err := time.ParseDuration(c.What)
		if err == nil {
			w.run(d)
		}
		return err == nil
	case "start", "kill", "clock", "lose", "connect", "disconnect":
		return w.daemon(c)
	case "tick", "audit", "vanish", "cap", "away", "idle", "suppress":
		return w.alive && w.event(c)
	}
	return w.setFault(c)
}

func (w *World) waiting(key string, hung bool) *Op {
	for _, o := range w.ops {
		if o.key() == key && o.hung == hung {
			return o
		}
	}
	return nil
}

func (w *World) endOp(c Choice) bool {
	key := c.Do
	if c.What != "" {
		key += " " + c.What
	}
	o := w.waiting(key, false)
	if o == nil {
		return false
	}
	if c.How == howHangs {
		o.hung = true
		return true
	}
	w.finish(o, c.How)
	return true
}

func (w *World) kubelet(c Choice) bool {
	n := &w.node
	if c.Do == "pod" {
		return w.addPod(c.What)
	}
	p := n.pod(c.What)
	if p == nil || n.busy(p) || n.inFlight != nil && n.inFlight.Pod == p {
		return false
	}
	switch c.Do {
	case "next":
		return w.next(p)
	case "restart":
		o := p.part(c.How)
		if p.phase != ready || o == nil || !o.is(running) {
			return false
		}
		w.stop(o)
		return true
	case "resize":
		return w.wantResize(p, c.How)
	}
	if p.phase != ready {
		return false
	}
	w.end(p, c.How == "unsaid")
	return true
}

// addPod adds a pod, and the claim that it has.
func (w *World) addPod(name string) bool {
	n := &w.node
	if !n.add(name) {
		return false
	}
	if p := n.pod(name); p.Claims > 0 {
		p.claim = w.newClaim(p, n.named)
		n.claims = append(n.claims, p.claim)
	}
	return true
}

// next is kubelet's next step for a pod: its sandbox, its container, or starting it.
func (w *World) next(p *Pod) bool {
	n := &w.node
	switch {
	case !n.due(p):
		return false
	case p.phase == wanted:
		p.attempts++
		p.sandbox, p.phase, p.reported = fmt.Sprintf("sb-%s-%d", p.Name, p.attempts), asked, p.size()
		p.inPlace.written = p.reported
		w.kernel.Mkdir(p.Parent(), 0)
		quota := cgroupQuota(p.reported.limit)
		if err := w.apply(p.Parent(), quota); err != nil {
			panic(err) // of a cgroup that was just made
		}
		w.weigh(p)
		n.enqueue(RunPod, p, nil)
	case !slices.ContainsFunc(p.parts, (*part).due):
		w.beginResize(p)
	default:
		w.nextContainer(p)
	}
	w.dispatch()
	return true
}

// nextContainer creates or starts the first of a pod's containers that is due.
func (w *World) nextContainer(p *Pod) {
	o := p.parts[slices.IndexFunc(p.parts, (*part).due)]
	if o.is(ready) {
		w.node.enqueue(StartCtr, p, o.ctr)
		return
	}
	p.made++
	o.ctr = &Container{ID: fmt.Sprintf("%s-%d", p.Name, p.made), Pod: p, part: o, size: o.size, phase: asked,
		created: w.clock().Add(time.Duration(p.made))} // no two at the same moment
	w.node.enqueue(Create, p, o.ctr)
}

// stop ends a container.
func (w *World) stop(o *part) {
	c, p := o.ctr, o.ctr.Pod
	w.kernel.Rmdir(c.Path())
	c.phase = over
	w.node.enqueue(StopCtr, p, c)
	w.node.enqueue(RemoveCtr, p, c)
	w.dispatch()
}

// end ends a pod; unsaid: the runtime does not announce it.
func (w *World) end(p *Pod, unsaid bool) {
	n := &w.node
	w.kernel.Rmdir(p.Parent())
	p.phase = over
	p.endClaim()
	n.pods = slices.DeleteFunc(n.pods, func(o *Pod) bool { return o == p })
	unsaid = unsaid || !w.alive
	for _, o := range p.parts {
		c := o.ctr
		if c == nil || c.phase == over {
			continue
		}
		c.phase = over
		if !unsaid {
			n.enqueue(StopCtr, p, c)
			n.enqueue(RemoveCtr, p, c)
		}
	}
	if !unsaid {
		n.enqueue(StopPod, p, nil)
		n.enqueue(RemovePod, p, nil)
	}
	w.dispatch()
}

func (w *World) daemon(c Choice) bool {
	n := &w.node
	switch {
	case c.Do == "start" && !w.alive:
		w.alive = true
		saved := w.disk.load(w.clock().Add(w.jump), w.elapsed)
		w.revokeUnrecorded(saved.Places(), false)
		w.readClaims(&saved)
		w.shell.Start(saved)
	case c.Do == "kill" && w.alive:
		w.shell.Kill()
		w.alive, w.ops = false, nil
		w.active.panicking = ""
		w.forgetClaims()
		if n.inFlight != nil {
			n.inFlight.sent = time.Time{} // the next daemon does not know of it
		}
		n.drop()
		w.dispatch()
		// By the time that a new daemon reads cgroups, systemd has completed or lost its jobs.
		if c.How == howLate {
			w.landLate(func(lateWrite) bool { return true })
		}
		w.active.late = nil
	case c.Do == "clock" && !w.alive:
		d, err := time.ParseDuration(c.What)
		if err != nil {
			return false
		}
		w.jump += d
	case c.Do == "lose" && !w.alive:
		w.disk = disk{}
		w.loseLimits()
		w.loseClaims()
	case c.Do == "connect" && w.alive && !n.connected:
		if view := w.shell.View(); !view.Synced || view.Unread {
			saved := w.disk.load(w.clock().Add(w.jump), w.elapsed)
			if !view.Synced {
				w.revokeUnrecorded(saved.Places(), true)
			}
			w.revokeUnrecordedSizes(saved.Places())
		}
		n.connected = true
		w.call(&Request{Kind: Connected})
		r := &Request{Kind: Synchronize}
		r.Pods, r.Containers = n.lists()
		n.inFlight = r
		w.call(r)
	case c.Do == "disconnect" && w.alive && n.connected:
		n.drop()
		w.call(&Request{Kind: Lost})
		w.dispatch()
	default:
		return false
	}
	return true
}

// event is an event that does not come from the runtime.
func (w *World) event(c Choice) bool {
	r := &Request{Kind: RequestKind(c.Do)}
	switch c.Do {
	case "cap":
		p := w.node.pod(c.What)
		if p == nil || p.parts[0].ctr == nil {
			return false
		}
		r = &Request{Kind: Happened, Event: policy.CapVerdict{ID: p.parts[0].ctr.ID, Milli: 100, For: time.Minute}}
	case "away":
		off, err := cpuset.Parse(c.How)
		if err != nil {
			return false
		}
		r = &Request{Kind: Happened, Event: policy.BEKeptOff{Victim: "victim", CPUs: off, For: time.Minute,
			Pod: (&Pod{Name: c.What}).UID()}}
	case "idle":
		r = &Request{Kind: Happened, Event: policy.Idled{Pod: (&Pod{Name: c.What}).UID(), For: time.Minute}}
	case "suppress":
		var cpus cpuset.Set
		if c.What != "none" {
			var err error
			if cpus, err = cpuset.Parse(c.What); err != nil {
				return false
			}
		}
		r = &Request{Kind: Happened, Event: policy.BESuppressed{CPUs: cpus}}
	}
	w.call(r)
	return true
}

func (w *World) setFault(c Choice) bool {
	f := &w.active
	switch c.Do {
	case "late":
		before := len(f.late)
		w.landLate(func(l lateWrite) bool { return l.path == c.What })
		return len(f.late) < before
	case "panic":
		how, lasting := strings.CutSuffix(c.How, " lasting")
		f.panicking, f.lasting = how, lasting
		return how == "before" || how == "after"
	case "defect":
		f.defect, f.stays = c.What, c.How == "lasting"
	case "blind":
		f.blind = append(f.blind, c.What)
	case "unreadable":
		f.unreadable = append(f.unreadable, c.What)
	case "sight":
		f.blind = nil
	case "readable":
		f.unreadable = nil
	case "offline", "online":
		return w.hotplug(c)
	default:
		return false
	}
	return true
}
