package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
	"github.com/quietcore/quietcore/internal/soak"
)

// What becomes of a pod of the soak.
const (
	lifeEnds    = "ends at once"
	lifeDeleted = "deleted when it runs"
	lifeHurried = "deleted while it starts"
)

// soakKinds and soakLives have each as often as it is drawn; an owner for whom there is no room becomes a shared pod.
var (
	soakKinds = []string{mixShared, mixBatch, mixBatch, mixBatch, mixLSR, mixLSR, mixLSE, mixLSE, soakPinned,
		soakPinned, soakPinned}
	soakLives = []string{lifeEnds, lifeEnds, lifeEnds, lifeEnds, lifeEnds, lifeDeleted, lifeDeleted, lifeDeleted,
		lifeDeleted, lifeHurried}
)

// soakPinned is an owner whose annotations say which CPUs it is to have.
const soakPinned = "pinned by annotation"

// Bounds of a wave.
const (
	waveMost = 20
	// waveCPUs is how many CPUs owners have at most, with those that nobody else may have for their sake. Half of the
	// guest's are left, so that no owner finds cores in pieces.
	waveCPUs = 4
	// waveHurry is in how long at most pods are deleted that are not to run: kubelet and the runtime are at work then.
	waveHurry = 3 * time.Second
	// soakJobs is how many jobs the pods are of: as many as ever after a few waves.
	soakJobs = 8
)

// soakPod is a pod of the soak and what is to become of it.
type soakPod struct {
	spec       *kubelet.Pod
	kind, life string
	cpus       int   // that an owner takes from others
	grace      int64 // seconds; 0: the API server forgets the pod while it runs
}

// wave is the pods that are there at once.
type wave struct {
	pods  []*soakPod
	hurry time.Duration // after which those are deleted that are not to run
}

// soakPlan is what a seed has come, wave by wave.
type soakPlan struct {
	rng         *rand.Rand
	pods        int // in all
	made        int
	least, most int // of a wave
}

// newSoakPlan makes waves that are small enough for the node to be empty as often as a slope needs.
func newSoakPlan(seed uint64, pods int) *soakPlan {
	most := min(waveMost, pods/soak.Least)
	return &soakPlan{rng: rand.New(rand.NewPCG(seed, 29)), pods: pods, least: (most + 1) / 2, most: most}
}

// next is nil when all have been.
func (p *soakPlan) next() *wave {
	n := min(p.least+p.rng.IntN(p.most-p.least+1), p.pods-p.made)
	if n == 0 {
		return nil
	}
	w := &wave{hurry: time.Duration(p.rng.Int64N(int64(waveHurry)))}
	free := waveCPUs
	for range n {
		one := p.pod(free)
		free -= one.cpus
		w.pods = append(w.pods, one)
	}
	return w
}

// pod is one that takes so many CPUs from others at most.
func (p *soakPlan) pod(free int) *soakPod {
	p.made++
	name := fmt.Sprintf("soak-%d", p.made)
	one := &soakPod{kind: soakKinds[p.rng.IntN(len(soakKinds))], life: soakLives[p.rng.IntN(len(soakLives))],
		grace: p.rng.Int64N(2)}
	cpus := 1 + p.rng.IntN(2)
	how := p.rng.IntN(3)
	switch one.kind {
	case mixLSR, mixLSE:
		one.spec, one.cpus = with(owner(name, one.kind, int64(cpus)), smtKey, "none"), cpus
	case soakPinned:
		one.spec, one.cpus = pinned(name, cpus, how)
	}
	if one.cpus > free || one.kind == mixShared {
		one.kind, one.spec, one.cpus = mixShared, burstable(name), 0
	}
	if one.kind == mixBatch {
		one.spec = bestEffort(name)
	}
	if one.spec.Labels == nil {
		one.spec.Labels = map[string]string{}
	}
	if class := map[string]string{mixShared: "LS", mixBatch: "BE"}[one.kind]; class != "" && how == 0 {
		one.spec.Labels["koordinator.sh/qosClass"] = class
	}
	one.spec.Labels["app"] = fmt.Sprintf("job-%d", p.rng.IntN(soakJobs))
	one.spec.Namespace = namespace
	return one
}

// pinned is an owner with annotations, and how many CPUs it takes.
func pinned(name string, cpus, how int) (*kubelet.Pod, int) {
	k := owner(name, mixLSR, int64(cpus))
	switch how {
	case 0:
		return with(k, smtKey, "isolate"), 2 * cpus
	case 1:
		return with(k, smtKey, "roundup"), 2
	}
	return with(k, smtKey, "none", numaKey, `{"numaTopologyPolicy":"SingleNUMANode"}`,
		specKey, `{"preferredCPUBindPolicy":"SpreadByPCPUs"}`), cpus
}

// object is the pod as one posts it.
func (p *soakPod) object() map[string]any {
	o := cluster.PodObject(p.spec)
	spec := o["spec"].(map[string]any)
	spec["terminationGracePeriodSeconds"] = p.grace
	if p.life == lifeEnds {
		spec["restartPolicy"] = "Never"
		spec["containers"].([]any)[0].(map[string]any)["command"] = []string{"/bin/busybox", "true"}
	}
	return o
}
