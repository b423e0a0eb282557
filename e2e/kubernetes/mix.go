package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
	"github.com/quietcore/quietcore/internal/control"
)

// The kinds of pods of the mix.
const (
	mixShared = "shared"
	mixBatch  = "best effort"
	mixLSE    = "LSE"
	mixLSR    = "LSR"
	mixPinned = "Guaranteed" // which kubelet's static policy pins
	mixClaim  = "claim"
)

// mixKinds has each as often as it is chosen.
var mixKinds = []string{mixShared, mixBatch, mixLSE, mixLSR, mixLSR, mixPinned, mixPinned, mixClaim, mixClaim, mixClaim}

// mixNames are those of a pod's containers. Where there are several, the last one has no claim.
var mixNames = []string{"main", "second", "helper"}

// mixPods is how many pods there are at most.
const mixPods = 10

// mixLimit bounds how long it takes until something has become of every operation of a round: kubelet may wait a minute
// before it tries again what was refused while the daemon was away.
const mixLimit = 8 * time.Minute

// mixHeals is more than the minute between kubelet's looks for sandboxes of pods that have ended.
const mixHeals = 100 * time.Second

// mixPhase is a part of the proof, with a configuration of kubelet and of the daemon.
type mixPhase struct {
	kubelet map[string]any
	daemon  map[string]any
	static  bool
}

// mixed is the proof at work.
type mixed struct {
	*claiming
	mixPhase
	umpire umpire
	rng    *rand.Rand
	pods   map[string]*mixPod
	made   int            // pods
	did    map[string]int // operations, by kind
	became map[string]int // pods, by what became of them
	away   bool           // the daemon is dead
	saw    map[string]int // looks at a pod of a kind that ran
}

// mixPod is a pod as it was asked for.
type mixPod struct {
	name, kind string
	cpus       int
	containers int
	crashes    int
	resized    bool
	ran        bool
	going      bool         // it was deleted
	unasked    bool         // it was created while no daemon could refuse it
	seen       *cluster.Pod // as it runs
}

// mix: owners by annotation, pods that kubelet's static policy pins, and pods with claims come, go, crash and change
// their size at random, while the daemon dies and kubelet restarts. After each round no two owners share a CPU, nobody
// else runs on an owner's CPUs, and no owner has moved; in the end nothing is left.
func mix(ctx context.Context, b *bench) ([]figure, error) {
	seed := b.options.seed
	if seed == 0 {
		seed = rand.Uint64N(1e6)
	}
	m := &mixed{claiming: &claiming{bench: b}, rng: rand.New(rand.NewPCG(seed, 22)), pods: map[string]*mixPod{},
		did: map[string]int{}, became: map[string]int{}, saw: map[string]int{}}
	began := time.Now()
	m.say("mix: seed %d", seed)
	err := m.class(ctx)
	for name, cpus := range map[string]int{"mix-1": 1, "mix-2": 2} {
		if err == nil {
			err = m.template(ctx, name, cpus)
		}
	}
	for i, p := range []mixPhase{
		// kubelet's own CPUs are in no device: of the other six, claims may have three.
		{static: true, daemon: map[string]any{"dra": map[string]any{"mode": "on", "share": "3"}},
			kubelet: map[string]any{"cpuManagerPolicy": "static", "reservedSystemCPUs": "0-1"}},
		{daemon: claimConfig},
	} {
		if err == nil {
			m.mixPhase = p
			err = m.phase(ctx, b.options.mix*(3+2*i)/5)
		}
	}
	if err != nil {
		return m.out, errors.Join(fmt.Errorf("seed %d, operations %v, pods %v: %w", seed, m.did, m.became, err),
			m.finish(context.WithoutCancel(ctx)))
	}
	m.note("random operations", "%d: %v, seed %d, in %s", m.total(), m.did, seed, seconds(time.Since(began)))
	m.note("what became of the pods", "%v", m.became)
	m.note("looks at the node", "%d with %d pairs compared; running pods in them: %v", m.umpire.looks, m.umpire.pairs,
		m.saw)
	if m.saw[mixClaim] < m.options.mix/20 || m.saw[mixPinned] < m.options.mix/20 || m.saw[mixLSR] < m.options.mix/20 {
		return m.out, fmt.Errorf("seed %d: pods ran at looks %v; the proof shows too little", seed, m.saw)
	}
	return m.out, m.finish(ctx)
}

func (m *mixed) total() (n int) {
	for _, k := range m.did {
		n += k
	}
	return n
}

// phase makes operations until there were so many in all, and empties the node.
func (m *mixed) phase(ctx context.Context, until int) error {
	if err := m.changePolicy(ctx, m.kubelet); err != nil {
		return err
	}
	if err := m.restartDaemon(ctx, m.daemon); err != nil {
		return err
	}
	empty, err := m.emptyPool(ctx)
	if err != nil {
		return err
	}
	for m.total() < until {
		if err := m.round(ctx); err != nil {
			return err
		}
		m.say("  mix: %d of %d operations, pods %d, %v", m.total(), m.options.mix, len(m.pods), m.became)
	}
	for _, name := range slices.Sorted(maps.Keys(m.pods)) {
		if err := m.end(ctx, m.pods[name], "deleted"); err != nil {
			return err
		}
	}
	if err := m.decide(ctx); err != nil {
		return err
	}
	if err := cluster.Until(ctx, freeLimit, m.nothing); err != nil {
		return err
	}
	left, err := m.emptyPool(ctx)
	if err == nil && left != empty {
		err = fmt.Errorf("the shared pool of the empty node was %s and is %s", empty, left)
	}
	m.note("shared pool when all pods are gone, as before", "%s", left)
	return err
}

// emptyPool is where a shared pod runs that is alone on the node.
func (m *mixed) emptyPool(ctx context.Context) (string, error) {
	pod, err := m.start(ctx, burstable("alone"))
	if err != nil {
		return "", err
	}
	place, err := m.place(ctx, pod)
	return place[pod.Key()+"/main"], errors.Join(err, m.DeletePod(ctx, namespace, "alone"))
}

// nothing fails if the daemon, its state file or a folder has something of a claim or of a pod.
func (m *mixed) nothing(ctx context.Context) error {
	if err := m.node.Forget(ctx); err != nil {
		return err
	}
	status, err := m.settle(ctx)
	if err != nil {
		return err
	}
	specs, err := m.specs(ctx)
	if err != nil {
		return err
	}
	remembered, text, err := m.remembered(ctx)
	if err != nil {
		return err
	}
	if len(status.Claims)+len(status.Owners)+len(specs)+remembered > 0 {
		return fmt.Errorf("all pods are gone; left are claims %+v, owners %+v, CDI specs %q and in the state file %s",
			status.Claims, status.Owners, specs, text)
	}
	return nil
}

func (m *mixed) specs(ctx context.Context) ([]string, error) {
	// The first claim makes the folder.
	out, err := m.node.Exec(ctx, "busybox", "sh", "-c", "mkdir -p /var/run/cdi && ls /var/run/cdi")
	return strings.Fields(out.Stdout), err
}

// round makes a few operations at once, at times while the daemon or kubelet is away, and looks at what became of them.
func (m *mixed) round(ctx context.Context) error {
	back, err := m.disturb(ctx)
	if err != nil {
		return err
	}
	touched := map[string]bool{}
	for range 3 + m.rng.IntN(6) {
		if err := m.operate(ctx, touched); err != nil {
			return errors.Join(err, back(ctx))
		}
	}
	if err := pass(time.Duration(m.rng.IntN(2000)) * time.Millisecond)(ctx); err != nil {
		return err
	}
	if err := back(ctx); err != nil {
		return err
	}
	if err := m.decide(ctx); err != nil {
		return err
	}
	return m.check(ctx)
}

// disturb may kill the daemon, or end kubelet, and returns what brings it back.
func (m *mixed) disturb(ctx context.Context) (back func(context.Context) error, err error) {
	switch m.rng.IntN(12) {
	case 0, 1:
		m.did["daemon killed"]++
		m.away = true
		return func(ctx context.Context) error {
			m.away = false
			return m.startDaemonOn(ctx, m.node, m.daemon)
		}, m.killDaemon(ctx)
	case 2:
		m.did["kubelet restarted"]++
		signal := []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}[m.rng.IntN(2)]
		return func(ctx context.Context) error {
			if err := m.node.StartKubelet(ctx); err != nil {
				return err
			}
			return m.node.WaitReady(ctx)
		}, m.node.Signal(ctx, cluster.Kubelet, int(signal))
	}
	return func(context.Context) error { return nil }, nil
}

// operate makes one operation on a pod that was left alone in this round, or on a new one.
func (m *mixed) operate(ctx context.Context, touched map[string]bool) error {
	var there []*mixPod
	for _, name := range slices.Sorted(maps.Keys(m.pods)) {
		if !touched[name] {
			there = append(there, m.pods[name])
		}
	}
	choice := m.rng.IntN(10)
	if len(there) == 0 || choice < 4 && len(m.pods) < mixPods {
		m.did["created"]++
		p := m.invent()
		touched[p.name] = true
		return m.create(ctx, p)
	}
	p := there[m.rng.IntN(len(there))]
	touched[p.name] = true
	switch {
	case choice >= 8 && p.crashes == 0:
		m.did["crashed"]++
		return m.crash(ctx, p)
	case choice >= 6 && (p.kind == mixShared || p.kind == mixLSR && !m.static):
		m.did["resized"]++
		return m.grow(ctx, p)
	}
	m.did["deleted"]++
	return m.end(ctx, p, "deleted")
}

// invent is a new pod of any kind.
func (m *mixed) invent() *mixPod {
	m.made++
	p := &mixPod{name: fmt.Sprintf("mix-%d", m.made), kind: mixKinds[m.rng.IntN(len(mixKinds))],
		cpus: 1 + m.rng.IntN(2), containers: 1, unasked: m.away}
	if p.kind == mixClaim {
		p.containers = 1 + m.rng.IntN(3)
	}
	m.pods[p.name] = p
	return p
}

func (m *mixed) create(ctx context.Context, p *mixPod) error {
	var k *kubelet.Pod
	switch p.kind {
	case mixClaim:
		o := fromTemplate(claimPod(p.name, mixNames[:p.containers]...), fmt.Sprintf("mix-%d", p.cpus))
		return m.Create(ctx, cluster.PodsPath(namespace), o, nil)
	case mixShared:
		k = burstable(p.name)
	case mixBatch:
		k = bestEffort(p.name)
	case mixPinned:
		k = owner(p.name, "", int64(p.cpus))
	default:
		k = with(owner(p.name, p.kind, int64(p.cpus)), smtKey, "none")
	}
	k.Namespace = namespace
	return m.CreatePod(ctx, k)
}

// end deletes a pod. Nobody waits for it yet.
func (m *mixed) end(ctx context.Context, p *mixPod, why string) error {
	if p.going {
		return nil
	}
	p.going = true
	m.became[why]++
	return ignoreMissing(m.Delete(ctx, cluster.PodsPath(namespace)+"/"+p.name))
}

// crash kills a container, which kubelet starts again. More than once it would wait before it does.
func (m *mixed) crash(ctx context.Context, p *mixPod) error {
	p.crashes++
	dir := m.node.ContainerDir(p.seen, &p.seen.Status.ContainerStatuses[0])
	_, err := m.node.Exec(ctx, "busybox", "sh", "-c", "echo 1 > "+dir+"/cgroup.kill")
	return err
}

// grow changes a pod's size, or that of its limit.
func (m *mixed) grow(ctx context.Context, p *mixPod) error {
	p.resized = true
	if p.kind == mixShared {
		return m.patchSize(ctx, p.seen, cpuOf("100m", fmt.Sprint(1+m.rng.IntN(3))))
	}
	p.cpus = 3 - p.cpus
	n := fmt.Sprint(p.cpus)
	return m.patchSize(ctx, p.seen, cpuOf(n, n))
}

// decide waits until each pod runs, is gone, or has no place; those without a place are deleted.
func (m *mixed) decide(ctx context.Context) error {
	return cluster.Until(ctx, mixLimit, func(ctx context.Context) error {
		list, err := m.Pods(ctx, namespace)
		if err != nil {
			return err
		}
		at := map[string]*cluster.Pod{}
		for _, p := range list {
			at[p.Metadata.Name] = p
		}
		var waiting []error
		for _, name := range slices.Sorted(maps.Keys(m.pods)) {
			p := m.pods[name]
			// Kubernetes itself deletes pods of a node that is not heard of for minutes, as on a host with much to do.
			if now := at[name]; !p.going && p.ran && (now == nil || now.Metadata.DeletionTimestamp != "") {
				p.going = true
				m.became["evicted"]++
			}
			if p.going && at[name] == nil {
				delete(m.pods, name)
				continue
			}
			if err := m.decided(ctx, p, at[name]); err != nil {
				waiting = append(waiting, err)
			}
		}
		return errors.Join(waiting...)
	})
}

// decided says what is still waited for.
func (m *mixed) decided(ctx context.Context, p *mixPod, now *cluster.Pod) error {
	waiting := fmt.Errorf("pod %s (%s of %d CPUs), which ran: %t, is waited for", p.name, p.kind, p.cpus, p.ran)
	if now == nil || p.going {
		return waiting
	}
	waiting = fmt.Errorf("%w: %s, %+v", waiting, now.Status.Phase, now.Status.Conditions)
	if now.Status.Phase == "Failed" {
		return errors.Join(waiting, m.end(ctx, p, "failed: "+now.Status.Reason))
	}
	for _, c := range now.Status.Conditions {
		switch {
		case c.Type == "PodScheduled" && c.Status == "False":
			return errors.Join(waiting, m.end(ctx, p, "pending"))
		case strings.HasPrefix(c.Type, "PodResize") && c.Status == "True" &&
			(c.Reason == "Infeasible" || c.Reason == "Deferred" || strings.Contains(c.Message, "InsufficientCPUs")):
			return errors.Join(waiting, m.end(ctx, p, "resize refused: "+c.Reason))
		}
	}
	if now.Running() && now.Status.ContainerStatuses[0].RestartCount >= p.crashes {
		if err := m.resizeDone(ctx, now); err != nil {
			return err
		}
		if !p.ran {
			m.became["ran"]++
		}
		p.ran, p.seen = true, now
		return nil
	}
	if p.ran { // who had CPUs has them again
		return waiting
	}
	events, err := m.eventsOf(ctx, now)
	for _, e := range events {
		for _, code := range []string{"InsufficientCPUs", "KubeletOwned"} {
			if err == nil && e.Type == "Warning" && strings.Contains(e.Message, code) {
				err = m.end(ctx, p, "refused: "+code)
			}
		}
	}
	return errors.Join(waiting, err)
}

// healed waits until no pod waits for CPUs of its own: kubelet gives those of a pod that ended to the next one before
// its sandbox is gone. Too many pods may have started while the daemon was dead; who waits for longer is deleted.
func (m *mixed) healed(ctx context.Context) (*control.Status, error) {
	var status *control.Status
	waits := cluster.Until(ctx, mixHeals, func(ctx context.Context) error {
		now, err := m.settle(ctx)
		if err != nil {
			return err
		}
		if status = now; len(now.Waiting) > 0 {
			return fmt.Errorf("pods wait for CPUs: %+v", now.Waiting)
		}
		return nil
	})
	if waits == nil {
		return status, nil
	}
	if status == nil {
		return nil, waits
	}
	for i := range status.Waiting {
		p := m.pods[status.Waiting[i].Pod]
		if p == nil || !p.unasked {
			return nil, fmt.Errorf("%w; the daemon was there when they were created", waits)
		}
		if err := m.end(ctx, p, "waited for CPUs"); err != nil {
			return nil, err
		}
	}
	if err := m.decide(ctx); err != nil {
		return nil, err
	}
	return m.settle(ctx)
}

// check looks at the node between two rounds.
func (m *mixed) check(ctx context.Context) error {
	status, err := m.healed(ctx)
	if err != nil {
		return err
	}
	specs, err := m.specs(ctx)
	if err != nil {
		return err
	}
	var pods []*cluster.Pod
	for _, p := range m.pods {
		pods = append(pods, p.seen)
	}
	place, err := m.node.CPUs(ctx, pods...)
	if err != nil {
		return err
	}
	owners, err := m.owners(status)
	if err != nil {
		return err
	}
	if len(specs) != len(status.Claims) {
		return fmt.Errorf("there are %d claims and CDI specs %q", len(status.Claims), specs)
	}
	seats, err := m.seats(place, owners)
	if err != nil {
		return err
	}
	if err := m.umpire.look(owners, seats); err != nil {
		return fmt.Errorf("%w\nthe kernel has %v\nthe daemon has %+v", err, place, status)
	}
	if m.became["evicted"] > m.became["ran"]/4 {
		return fmt.Errorf("too many pods were evicted by Kubernetes itself for this to show anything: %v", m.became)
	}
	for _, p := range m.pods {
		p.resized = false
		m.saw[p.kind]++
	}
	return nil
}

// owners are the pods with CPUs of their own, and the claims that the daemon has, each of a pod that is there.
func (m *mixed) owners(status *control.Status) (map[string]holder, error) {
	owners := map[string]holder{}
	for _, p := range m.pods {
		switch {
		case p.kind == mixLSE || p.kind == mixLSR || p.kind == mixPinned && m.static:
			owners[p.name] = holder{count: p.cpus, lends: p.kind == mixLSR, resized: p.resized}
		case p.kind == mixClaim:
			given, err := cpuset.Parse(givenTo(status, p.name+"-cpus"))
			if err != nil || given.IsEmpty() {
				return nil, fmt.Errorf("pod %s runs and its claim has no CPUs: %+v", p.name, status.Claims)
			}
			owners[p.name] = holder{count: p.cpus, given: given}
		}
	}
	for _, c := range status.Claims {
		pod, _, _ := strings.Cut(c.Name, "-cpus-")
		if p := m.pods[pod]; p == nil || p.kind != mixClaim {
			return nil, fmt.Errorf("claim %s has CPUs %+v and its pod is gone", c.Name, c.Requests)
		}
	}
	return owners, nil
}

// seats are the containers as the kernel has them.
func (m *mixed) seats(place cluster.Placement, owners map[string]holder) ([]seat, error) {
	var seats []seat
	for _, name := range slices.Sorted(maps.Keys(m.pods)) {
		p := m.pods[name]
		of := place.Of(p.seen)
		if len(of) != p.containers {
			return nil, fmt.Errorf("of pod %s %v run, want %d containers", name, of, p.containers)
		}
		for _, where := range slices.Sorted(maps.Keys(of)) {
			cpus, err := cpuset.Parse(of[where])
			if err != nil {
				return nil, err
			}
			s := seat{name: where, cpus: cpus, best: p.kind == mixBatch}
			last := p.containers > 1 && strings.HasSuffix(where, "/"+mixNames[p.containers-1])
			if _, owns := owners[name]; owns && !last {
				s.owner = name
			}
			seats = append(seats, s)
		}
	}
	return seats, nil
}
