package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/experiment"
)

// arena is a machine under attack: containers come and go by name, one step is a minute,
// and what is throttled is obeyed. Who attacks decides in its turn.
type arena struct {
	t      *testing.T
	d      *experiment.Detector
	r      *rand.Rand
	minute int
	refs   map[string]experiment.Ref
	// throttled minutes of each job that took something away, by test and by verdict, and
	// the verdicts.
	probed, capped map[string]int
	verdicts       map[string]int
}

func newArena(t *testing.T, seed uint64) *arena {
	t.Helper()
	return newArenaOf(t, experiment.DefaultConfig(), seed)
}

func newArenaOf(t *testing.T, cfg experiment.Config, seed uint64) *arena {
	t.Helper()
	cfg.Window = cfg.Period // the arena lives in minutes
	d, err := experiment.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &arena{t: t, d: d, r: rand.New(rand.NewPCG(seed, 5)), refs: map[string]experiment.Ref{},
		probed: map[string]int{}, capped: map[string]int{}, verdicts: map[string]int{}}
}

// claim is what a container does in a minute: what it wants of the CPU, and the CPI that
// shows.
type claim struct {
	container, job, namespace string
	class                     cpi.Class
	wants, cpi                float64
}

// limit of a container's job now, in CPUs.
func (a *arena) limit(id string) float64 {
	ref, ok := a.refs[id]
	if !ok {
		return math.Inf(1)
	}
	if milli, _ := a.d.ThrottleOf(ref); milli > 0 {
		return float64(milli) / 1000
	}
	return math.Inf(1)
}

// step plays a minute. A container that is not claimed any more has ended.
func (a *arena) step(claims []claim) {
	here := map[string]bool{}
	var samples []experiment.Sample
	bitten := map[string]bool{}
	for _, c := range claims {
		here[c.container] = true
		if _, ok := a.refs[c.container]; !ok {
			ref, err := a.d.Put(&cpi.Container{ID: c.container, Job: c.job, Namespace: c.namespace, Class: c.class})
			if err != nil {
				a.t.Fatal(err)
			}
			a.refs[c.container] = ref
		}
		used := min(c.wants, a.limit(c.container))
		bitten[c.job] = bitten[c.job] || used < c.wants
		samples = append(samples, experiment.Sample{Ref: a.refs[c.container], Usage: used, CPI: c.cpi})
	}
	for job, bit := range bitten {
		switch on, verdict := a.d.Throttled(job); {
		case !on || !bit:
		case verdict:
			a.capped[job]++
		default:
			a.probed[job]++
		}
	}
	for id := range a.refs {
		if !here[id] {
			a.d.Forget(id)
			delete(a.refs, id)
		}
	}
	a.minute++
	for _, e := range a.d.Observe(epoch.Add(time.Duration(a.minute)*time.Minute), samples) {
		if e.Kind == experiment.VerdictEvent {
			a.verdicts[e.Job]++
		}
	}
	var coins []experiment.Thrown
	for _, t := range a.d.Trials() {
		coins = append(coins, experiment.Thrown{Trial: t, On: a.r.Float64() < t.P})
	}
	a.d.Throw(coins)
}

// noisy is a CPI of 1 times a factor.
func (a *arena) noisy(factor float64) float64 { return factor * math.Exp(0.06*a.r.NormFloat64()) }

// TestAttacksOfSuspects: whatever the antagonist does to escape, most of what it would do
// to the victim is taken away. Each attack says what its containers want in a minute; the
// victim's CPI doubles with 3 CPUs of it.
func TestAttacksOfSuspects(t *testing.T) {
	one := func(id string, cpus float64) []claim {
		return []claim{{container: id, job: "hog", namespace: "h", class: cpi.Batch, wants: cpus, cpi: 1}}
	}
	for name, attack := range map[string]func(a *arena) []claim{
		"none": func(*arena) []claim { return one("hog-0", 3) },
		// Four times the threads and more: a quota is a quota, and nothing ends it early.
		"threads": func(a *arena) []claim {
			if a.limit("hog-0") < 1 {
				return one("hog-0", 12)
			}
			return one("hog-0", 3)
		},
		"restarts": func(a *arena) []claim { return one(fmt.Sprint("hog-", a.minute/2), 3) },
		"rotation over eight containers": func(a *arena) []claim {
			var list []claim
			for i := range 8 {
				wants := 0.02
				if i == a.minute/2%8 {
					wants = 3
				}
				list = append(list, one(fmt.Sprint("hog-", i), wants)...)
			}
			return list
		},
		"pods of three minutes": func(a *arena) []claim { return one(fmt.Sprint("hog-", a.minute/3), 3) },
		// A new pod as soon as the old one is throttled.
		"recreated under a cap": func(a *arena) []claim {
			if on, _ := a.d.Throttled("hog"); on {
				return one(fmt.Sprint("hog-new-", a.minute), 3)
			}
			return one("hog-0", 3)
		},
		"newborn containers": func(a *arena) []claim {
			return append(one("hog-0", 1.5), one(fmt.Sprint("hog-new-", a.minute), 1.5)...)
		},
		"a thousand containers": func(a *arena) []claim {
			var list []claim
			for i := range 1000 {
				wants := 0.001
				if i == a.minute%1000 {
					wants = 3
				}
				list = append(list, one(fmt.Sprint("hog-", i), wants)...)
			}
			return list
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, 7)
			would, is := 0.0, 0.0
			minutes := 240
			for m := range minutes {
				web := claim{container: "web-0", job: "web", namespace: "w", class: cpi.LS, wants: 1}
				claims := []claim{{container: "idle-0", job: "idle", namespace: "i", class: cpi.Batch, wants: 2,
					cpi: 1}}
				api := claim{container: "api-0", job: "api", namespace: "a", class: cpi.LS, wants: 1}
				doing := 0.0
				if m >= 60 {
					list := attack(a)
					for i := range list {
						c := &list[i]
						would += c.wants
						// A container that has come since the coin is throttled as well: ThrottleOf says so
						// once it is known.
						if on, _ := a.d.Throttled("hog"); on && math.IsInf(a.limit(c.container), 1) {
							doing += min(c.wants, 0.15)
						} else {
							doing += min(c.wants, a.limit(c.container))
						}
					}
					claims = append(claims, list...)
				}
				is += doing
				web.cpi, api.cpi = a.noisy(1+min(doing/3, 2)), a.noisy(1+min(doing/6, 1))
				a.step(append(claims, web, api))
			}
			t.Logf("%d verdicts on hog, throttled in %d + %d minutes, %.0f %% of its work done; idle %d, %d minutes",
				a.verdicts["hog"], a.probed["hog"], a.capped["hog"], 100*is/would, a.verdicts["idle"], a.probed["idle"])
			if a.verdicts["hog"] == 0 || is > 0.4*would || a.verdicts["idle"] > 0 {
				t.Errorf("%.0f %% of the work of who disturbs was done; verdicts %v", 100*is/would, a.verdicts)
			}
		})
	}
}

// TestLiars: victims that invent their CPI so that a rival is throttled get no more of it
// than the budget of their namespace, however many they are; rivals are throttled twice
// as much at most, whoever asks.
func TestLiars(t *testing.T) {
	const hours = 8
	budget := experiment.DefaultConfig().Budget
	for _, c := range []struct {
		name       string
		liars      int
		namespaces int
		most       float64 // minutes of the rival in those hours
	}{
		{"one", 1, 1, budget * (hours + 2)},
		{"a hundred of one namespace", 100, 1, budget * (hours + 2)},
		{"a hundred of a hundred namespaces", 100, 100, 2 * budget * (hours + 2)},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newArena(t, 3)
			turn := 0.0
			for m := range 60 * (hours + 1) {
				if m%20 == 0 {
					turn = float64(m / 20 % 2)
				}
				// The rival works by turns, in plain sight; the liars claim to suffer then.
				claims := []claim{{container: "rival-0", job: "rival", namespace: "r", class: cpi.Batch,
					wants: 0.1 + 3*turn, cpi: 1}}
				for i := range c.liars {
					lie := 1.0
					if m >= 60 {
						lie += turn
					}
					claims = append(claims, claim{container: fmt.Sprint("liar-", i), job: fmt.Sprint("liar", i),
						namespace: fmt.Sprint("n", i%c.namespaces), class: cpi.LS, wants: 1, cpi: a.noisy(lie)})
				}
				a.step(claims)
			}
			t.Logf("the rival was probed in %d minutes, capped in %d; %d verdicts", a.probed["rival"],
				a.capped["rival"], a.verdicts["rival"])
			if float64(a.probed["rival"]) > c.most+2 {
				t.Errorf("the rival was probed in %d minutes, at most %.0f are to be had", a.probed["rival"], c.most)
			}
			if a.probed["rival"] == 0 {
				t.Error("nobody was probed: nothing is shown")
			}
		})
	}
}

// TestLiarsInStep: victims that feel whether their rival is throttled, and claim to suffer while it is
// not, get a verdict as if it were true. Where a witness is needed it costs as much as a test, unless
// somebody of another namespace says the same.
func TestLiarsInStep(t *testing.T) {
	for _, c := range []struct {
		name       string
		liars      int
		namespaces int
		need       bool
		most       float64 // of the rival's work that is kept from it
	}{
		{"one", 1, 1, false, 1},
		{"one, a witness is needed", 1, 1, true, 0.25},
		{"a hundred of one namespace, a witness is needed", 100, 1, true, 0.25},
		{"two of two namespaces, a witness is needed", 2, 2, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := experiment.DefaultConfig()
			cfg.NeedWitness = c.need
			a := newArenaOf(t, cfg, 3)
			would, done := 0.0, 0.0
			for m := range 60 * 13 {
				wants := 0.1 + 3*float64(m/20%2)
				is := min(wants, a.limit("rival-0"))
				if m >= 60 {
					would, done = would+wants, done+is
				}
				lie := 1.0
				if m >= 60 && is > 1 {
					lie = 2
				}
				claims := []claim{{container: "rival-0", job: "rival", namespace: "r", class: cpi.Batch, wants: wants,
					cpi: 1}}
				for i := range c.liars {
					claims = append(claims, claim{container: fmt.Sprint("liar-", i), job: fmt.Sprint("liar", i),
						namespace: fmt.Sprint("n", i%c.namespaces), class: cpi.LS, wants: 1, cpi: a.noisy(lie)})
				}
				// Neutral ones tell the truth: nobody disturbs them.
				for i := range 3 {
					claims = append(claims, claim{container: fmt.Sprint("true-", i), job: fmt.Sprint("true", i),
						namespace: "t", class: cpi.LS, wants: 1, cpi: a.noisy(1)})
				}
				a.step(claims)
			}
			t.Logf("%d verdicts, throttled in %d + %d minutes, %.0f %% of its work done", a.verdicts["rival"],
				a.probed["rival"], a.capped["rival"], 100*done/would)
			if a.verdicts["rival"] == 0 {
				t.Error("no verdict: nothing is shown")
			}
			if kept := 1 - done/would; kept > c.most || c.most == 1 && kept < 0.5 {
				t.Errorf("%.2f of its work is kept from the rival, at most %.2f", kept, c.most)
			}
		})
	}
}
