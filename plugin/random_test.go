package plugin

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/policy"
)

var (
	lifeSteps = flag.Int("life.steps", 400, "steps of the random life through the adaptation")
	lifeSeed  = flag.Uint64("life.seed", 1, "its seed")
)

// random is a generated life.
type random struct {
	*world
	rng  *rand.Rand
	live []spec
	next int
	off  cpuset.Set
	// resized are the pods whose CPUs the step is about.
	resized []string
}

// 31: whatever comes in whatever order, and whenever the daemon or the runtime
// dies, the books are right after every step.
func TestARandomLifeThroughTheAdaptation(t *testing.T) {
	r := &random{world: newWorld(t), rng: rand.New(rand.NewPCG(*lifeSeed, 31))}
	r.begin(r.someDoom())
	kinds := []struct {
		name   string
		weight int
		do     func()
	}{
		{"run", 30, r.runOne}, {"remove", 14, r.removeOne}, {"restart", 12, r.restartOne}, {"resize", 14, r.resizeOne},
		{"missing Stop", 5, r.loseStop}, {"missing Remove", 4, r.loseRemove}, {"twice", 6, r.twice},
		{"kill the daemon", 5, r.killDaemon}, {"kill the runtime", 3, r.killRuntime}, {"CPUs", 4, r.hotplug},
		{"collect", 3, func() {}},
	}
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	done, deaths := map[string]int{}, 0
	for i := range *lifeSteps {
		at := r.rng.IntN(total)
		before, off := r.owners(), r.off
		r.resized = nil
		for _, k := range kinds {
			if at -= k.weight; at < 0 {
				_, _ = r.log.Write([]byte(fmt.Sprintf("--- step %d: %s\n", i, k.name)))
				k.do()
				done[k.name]++
				break
			}
		}
		for r.rest(); r.plugin == nil; deaths++ {
			r.begin(r.someDoom())
		}
		r.collect()
		for r.rest(); r.plugin == nil; deaths++ {
			r.begin(r.someDoom())
			r.collect()
			r.rest()
		}
		r.sound()
		if off == r.off {
			r.stayed(before, step{touches: r.resized}, "afterwards")
		}
		if t.Failed() {
			t.Fatalf("after step %d, with -life.seed=%d", i, *lifeSeed)
		}
	}
	t.Logf("%v; the daemon was killed at a point %d times", done, deaths)
	if deaths == 0 {
		t.Error("no daemon died at a point")
	}
}

// someDoom kills a daemon at some point, sooner or later.
func (r *random) someDoom() *doom {
	all := failpoint.Points()
	return newDoom(all[r.rng.IntN(len(all))], 1+r.rng.IntN(10))
}

func (r *random) runOne() {
	r.next++
	s := spec{name: fmt.Sprint("p", r.next)}
	size := int64(1+r.rng.IntN(4)) * 1000
	switch r.rng.IntN(8) {
	case 0, 1:
		s = lse(s.name, size)
	case 2, 3:
		s = lsr(s.name, size)
	case 4:
		s = widened(s.name, size)
	case 5:
		s = bestEffort(s.name)
	case 6:
		s = noisy(s.name)
	default:
		s = burstable(s.name)
	}
	doRun(s).do(r.world)
	if r.pods["sb-"+s.name] != nil {
		r.live = append(r.live, s)
	}
}

// one is some pod that lives, with one of its containers; "" where there is none.
func (r *random) one() (at int, container string) {
	if len(r.live) == 0 {
		return 0, ""
	}
	at = r.rng.IntN(len(r.live))
	for _, id := range slices.Sorted(maps.Keys(r.containers)) {
		if r.containers[id].PodSandboxId == "sb-"+r.live[at].name {
			container = id
		}
	}
	return at, container
}

func (r *random) forget(at int) { r.live = slices.Delete(r.live, at, at+1) }

func (r *random) removeOne() {
	if at, id := r.one(); id != "" {
		r.remove(r.live[at])
		r.forget(at)
	}
}

func (r *random) restartOne() {
	at, old := r.one()
	if old == "" {
		return
	}
	early := r.rng.IntN(2) == 0
	if !early {
		r.end(old)
	}
	r.replace(at)
	if early {
		r.end(old)
	}
}

// replace starts a container anew; one that is refused is tried again, as kubelet does.
func (r *random) replace(at int) {
	r.next++
	s := r.live[at]
	if err := r.startContainer(s, fmt.Sprintf("%s-main-%d", s.name, r.next), s.ctrs[0]); err != nil {
		r.t.Errorf("restart of %s: %v", s.name, err)
	}
}

func (r *random) loseStop() {
	at, old := r.one()
	if old == "" {
		return
	}
	r.kernel.Rmdir(r.containers[old].Linux.CgroupsPath)
	delete(r.containers, old)
	r.replace(at)
}

func (r *random) loseRemove() {
	at, id := r.one()
	if id == "" {
		return
	}
	s := r.live[at]
	r.mu.Lock()
	delete(r.pods, "sb-"+s.name)
	delete(r.containers, id)
	r.mu.Unlock()
	r.kernel.Rmdir(s.parent())
	r.forget(at)
}

func (r *random) twice() {
	at, id := r.one()
	if id == "" {
		return
	}
	s := r.live[at]
	sandbox := r.pods["sb-"+s.name]
	if err := r.run(spec{name: s.name, class: s.class, qos: s.qos}); err != nil {
		r.t.Errorf("RunPodSandbox of %s again: %v", s.name, err)
	}
	stranger := r.live[at].sandbox("sb-stranger")
	r.removeSandbox(stranger)
	r.pods["sb-"+s.name] = sandbox
}

func (r *random) resizeOne() {
	at, id := r.one()
	if id == "" || r.live[at].ctrs[0].limit == 0 {
		return
	}
	s := r.live[at]
	milli := int64(1+r.rng.IntN(6)) * 1000
	r.resized = []string{s.name}
	if err := r.update(id, cpuOf(milli, milli, "")); err != nil {
		if !strings.Contains(err.Error(), "InsufficientCPUs") && !strings.Contains(err.Error(), "are offline") {
			r.t.Errorf("resize of %s: %v", s.name, err)
		}
		return
	}
	if s.class == policy.LSE || s.class == policy.LSR {
		r.setQuota(s.parent(), milli) // kubelet's; an older runtime does not announce it
	}
	r.live[at].ctrs = main1(milli)
}

func (r *random) killDaemon() {
	r.kill()
	r.begin(r.someDoom())
}

func (r *random) killRuntime() {
	r.stopRuntime()
	eventually(r.t, "the loss of the runtime is noticed", func() bool {
		return r.doom.struck() || !r.plugin.Connected()
	})
	r.startRuntime()
	eventually(r.t, "the plugin is back", func() bool { return r.doom.struck() || r.plugin.Synchronised() })
}

func (r *random) hotplug() {
	if r.off.IsEmpty() {
		first := 4 + r.rng.IntN(10)
		r.off = cpuset.Range(first, first+r.rng.IntN(2))
	} else {
		r.off = cpuset.Set{}
	}
	doOnline(cpuset.Range(0, 15).Minus(r.off).String()).do(r.world)
}
