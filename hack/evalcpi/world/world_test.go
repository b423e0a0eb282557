package world

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// run plays a machine and returns the sums of what the guilty did and would have done.
func run(t *testing.T, kind Kind, seed uint64, each func(*Machine)) (is, wouldBe float64) {
	t.Helper()
	m := New(kind, seed)
	for m.Step() {
		if each != nil {
			each(m)
		}
		a, b := m.Disturbance()
		is, wouldBe = is+a, wouldBe+b
	}
	return is, wouldBe
}

func TestEveryKindIsWhatItSays(t *testing.T) {
	disturbed := slices.Concat(WithGuilty(), QueuesWithGuilty())
	for _, kind := range slices.Concat(disturbed, Calm(), CalmQueues()) {
		guilty := slices.Contains(disturbed, kind)
		for seed := range uint64(5) {
			is, wouldBe := run(t, kind, seed, nil)
			if kind != Protected && guilty != (is > 0) {
				t.Errorf("%s, seed %d: disturbance %v", kind, seed, is)
			}
			// Work that was put off does not exist where nobody is throttled.
			if math.Abs(is-wouldBe) > 1e-6*(1+is) {
				t.Errorf("%s, seed %d: %v is done, %v would be, and nobody is throttled", kind, seed, is, wouldBe)
			}
		}
	}
}

func TestThrottleHelpsTheVictim(t *testing.T) {
	for _, kind := range slices.Concat(WithGuilty(), QueuesWithGuilty()) {
		is, wouldBe := run(t, kind, 3, func(m *Machine) {
			for _, j := range m.Jobs {
				if j.Guilty {
					m.Throttle(j.Name, 0.1)
				}
			}
		})
		if is > 0.15*wouldBe {
			t.Errorf("%s: throttled all the time it does %.1f of %.1f", kind, is, wouldBe)
		}
	}
}

// TestSameSeedSameMachine: whatever is throttled, demands and noise are the same.
func TestSameSeedSameMachine(t *testing.T) {
	innocents := func(throttle bool) []Row {
		m := New(Base, 7)
		var rows, all []Row
		for m.Step() {
			if throttle {
				m.Throttle("antagonist", 0.1)
			}
			rows = m.Rows(rows[:0])
			for _, r := range rows {
				if r.Job == "n00" {
					all = append(all, r)
				}
			}
		}
		return all
	}
	a, b := innocents(false), innocents(false)
	if !slices.Equal(a, b) {
		t.Error("the same seed gave two machines")
	}
	c := innocents(true)
	if len(a) != len(c) {
		t.Fatalf("%d and %d samples of an innocent", len(a), len(c))
	}
	if New(Base, 7).Jobs[0].suffers {
		t.Fatal("the test needs an innocent that does not suffer: choose another seed")
	}
	for i := range a {
		if a[i] != c[i] {
			t.Fatalf("sample %d of an innocent is %+v, and %+v where another is throttled", i, a[i], c[i])
		}
	}
}

// TestWorkIsPutOff: who catches up does more than its demand once it is let.
func TestWorkIsPutOff(t *testing.T) {
	j := (&Job{Name: "j", level: 4, catchesUp: true}).on(2, 0, 100)
	j.demand = make([]float32, 100)
	for i := range j.demand {
		j.demand[i] = 2
	}
	var done float64
	for i := range 100 {
		for k := range j.pods {
			j.pods[k].limit = noLimit
			if i < 6 {
				j.pods[k].limit = 0.1
			}
		}
		j.run(i)
		if i < 6 && (j.used != 0.2 || !j.pods[0].bitten) {
			t.Fatalf("step %d: %v CPUs in two containers of at most 0.1", i, j.used)
		}
		done += j.used
	}
	if math.Abs(done-200) > 1e-9 {
		t.Errorf("%v CPU-steps were done, 200 were wanted", done)
	}
}

func TestNoise(t *testing.T) {
	m := New(Quiet, 1)
	n := skewed(m.r, 400_000, 0.5)
	var sum, squares float64
	for _, x := range n {
		sum += float64(x)
		squares += float64(x) * float64(x)
	}
	mean := sum / float64(len(n))
	if sd := math.Sqrt(squares/float64(len(n)) - mean*mean); math.Abs(mean-1) > 0.01 || math.Abs(sd-0.089) > 0.005 {
		t.Errorf("mean %.4f, deviation %.4f; want 1 and 0.089", mean, sd)
	}
}

// TestAPoolHandsOutItsCPUs: nobody gets more than it wants, together they get no more than there
// is, the victim gets what its weight is worth, and it waits the longer the more others want.
func TestAPoolHandsOutItsCPUs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &pool{cpus: rapid.Float64Range(1, 64).Draw(t, "CPUs"), slices: rapid.Float64Range(0, 2).Draw(t, "slices")}
		p.share = p.cpus * rapid.Float64Range(0.05, 1).Draw(t, "share")
		want := p.cpus * rapid.Float64Range(0.01, 1).Draw(t, "want")
		was := -1.0
		for others := 0.0; others <= 2; others += 0.1 {
			waits, own := p.waits(want, others*p.cpus)
			if !(waits >= was-1e-9) || own > want || own < min(want, p.share)-1e-9 {
				t.Fatalf("%v of %v CPUs wanted, %v by others: %v waited, %v had", want, p.cpus, others*p.cpus, waits,
					own)
			}
			was = waits
		}
	})
}
