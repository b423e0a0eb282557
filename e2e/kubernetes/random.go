package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/e2e/kubelet"
)

// arrivals are random pods that come several at a time, and go when others have come.
type arrivals struct {
	*pair
	rng                   *rand.Rand
	there                 []string
	told, shared, pending int
}

// random is scenario 3: whatever is asked for, what a pod was told is what its container has, and no
// node refuses.
func (p *pair) random(ctx context.Context) error {
	const seed = 21
	a := &arrivals{pair: p, rng: rand.New(rand.NewPCG(seed, 0))}
	for made := 0; made < p.options.random; {
		batch := make([]*kubelet.Pod, min(1+a.rng.IntN(5), p.options.random-made))
		for i := range batch {
			batch[i] = a.pod(fmt.Sprintf("random-%d", made))
			if err := p.create(ctx, batch[i], ours, ""); err != nil {
				return err
			}
			made++
		}
		for _, k := range batch {
			if err := a.look(ctx, k); err != nil {
				return fmt.Errorf("seed %d, %d told, %d sharing, %d pending: %w", seed, a.told, a.shared, a.pending,
					err)
			}
		}
		a.say("  %d of %d: %d told, %d sharing, %d pending, none refused", made, p.options.random, a.told, a.shared,
			a.pending)
		if err := a.leave(ctx); err != nil {
			return err
		}
	}
	if a.told < p.options.random/4 || a.shared < p.options.random/10 {
		return fmt.Errorf("seed %d: of %d pods %d were told CPUs and %d share; the proof shows too little", seed,
			p.options.random, a.told, a.shared)
	}
	p.note("random pods that come and go", "%d: of %d resource-status is the container's cpuset, %d share, %d were "+
		"pending, none is refused", p.options.random, a.told, a.shared, a.pending)
	return nil
}

func (a *arrivals) pod(name string) *kubelet.Pod {
	cpus := 1 + a.rng.Int64N(3)
	switch a.rng.IntN(7) {
	case 0:
		k := burstable(name)
		k.Containers[0].RequestMilli = 100 * (1 + a.rng.Int64N(9))
		return k
	case 1:
		return bestEffort(name)
	case 2:
		return with(owner(name, "LSR", cpus), smtKey, "isolate")
	case 3:
		return with(owner(name, "LSR", cpus), smtKey, "roundup")
	case 4:
		return with(owner(name, "LSR", cpus), numaKey, `{"numaTopologyPolicy":"SingleNUMANode"}`, smtKey, "none")
	}
	return with(owner(name, "LSR", cpus), smtKey, "none")
}

// look waits until a pod runs, or has no place for want of CPUs, and then takes it away.
func (a *arrivals) look(ctx context.Context, k *kubelet.Pod) error {
	node, why, err := a.placed(ctx, k.Name)
	if err != nil {
		return err
	}
	if node == "" {
		if a.pending++; !strings.Contains(strings.ToLower(why), "cpu") {
			return fmt.Errorf("pod %s is pending: %s", k.Name, why)
		}
		return a.DeletePod(ctx, namespace, k.Name)
	}
	pod, err := a.WaitRunning(ctx, namespace, k.Name)
	if err != nil {
		return err
	}
	for _, is := range pod.Status.Conditions {
		if is.Type == refusedByNode { // whatever it says by now
			return fmt.Errorf("pod %s was refused on %s: %s", k.Name, node, is.Message)
		}
	}
	if _, _, err := a.compared(ctx, pod); err != nil {
		return err
	}
	if a.there = append(a.there, k.Name); pod.Metadata.Labels["koordinator.sh/qosClass"] == "LSR" {
		a.told++
	} else {
		a.shared++
	}
	return nil
}

// leave removes up to half of the pods, and more where there are many.
func (a *arrivals) leave(ctx context.Context) error {
	for n := a.rng.IntN(len(a.there)/2+1) + max(len(a.there)-12, 0); n > 0; n-- {
		i := a.rng.IntN(len(a.there))
		if err := a.DeletePod(ctx, namespace, a.there[i]); err != nil {
			return err
		}
		a.there = slices.Delete(a.there, i, i+1)
	}
	return nil
}
