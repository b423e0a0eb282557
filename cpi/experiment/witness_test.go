package experiment

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"pgregory.net/rapid"
)

// TestWitnessesAreFair: over all sides of every coin, witnesses whose CPIs do not depend on it
// together ever reach c with probability 1/c at most, however many come, and whenever.
func TestWitnessesAreFair(t *testing.T) {
	for _, span := range []int{1, 6} {
		b := bankFor(span)
		rapid.Check(t, func(t *rapid.T) {
			n := rapid.IntRange(3, 8).Draw(t, "windows")
			p := rapid.Float64Range(0.2, 0.95).Draw(t, "p")
			comes := make([]int, rapid.IntRange(1, mostWitnesses).Draw(t, "witnesses"))
			residuals := make([][]float64, len(comes))
			for i := range comes {
				comes[i] = rapid.IntRange(0, n-1).Draw(t, "comes")
				for range n {
					residuals[i] = append(residuals[i], rapid.Float64Range(-0.2, 0.8).Draw(t, "r"))
				}
			}
			reached := map[float64]float64{1.05: 0, 1.5: 0, 2: 0, witnessE: 0}
			for sides := range 1 << n {
				chance, most := 1.0, 0.0
				q := &process{}
				for at := range n {
					on := sides>>at&1 == 1
					chance *= map[bool]float64{true: p, false: 1 - p}[on]
					w := int64(at) + 1
					q.Coins[index(w, recent)] = coin{Window: w, P: p, On: on, Active: true}
					for i := range comes {
						if comes[i] == at {
							q.Witnesses = append(q.Witnesses, witness{Job: fmt.Sprint(i), Disturbed: 0.5, SD: 0.06})
						}
					}
					for k := range q.Witnesses {
						one := &q.Witnesses[k]
						r := residuals[one.Job[0]-'0'][at]
						one.bet(b, &q.Coins, residual{w, r}, &effect{one.Disturbed, one.SD})
					}
					most = max(most, q.neutral(b))
				}
				for c := range reached {
					if most >= c {
						reached[c] += chance
					}
				}
			}
			for c, share := range reached {
				if share > 1/c+1e-9 {
					t.Fatalf("%v is reached with probability %v", c, share)
				}
			}
		})
	}
}

// accused is a batch job that works by turns beside a victim that is slow whenever it works and
// is not throttled, and beside others. level is their CPI, given whether the batch job works.
func accused(t *testing.T, cfg Config, at cpi.Place, others []cpi.Container, level func(works bool) float64) *Detector {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 11))
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var refs []Ref
	for _, c := range append([]cpi.Container{{ID: "batch", Job: "b/batch", Namespace: "b", Class: cpi.Batch},
		{ID: "accuser", Job: "a/accuser", Namespace: "a", Class: cpi.LS, Place: at}}, others...) {
		ref, err := d.Put(&c)
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, ref)
	}
	span := d.bank.span
	for n := range 300 {
		for k := range span {
			its := k == span-1
			if !its && !d.ShortWindows() {
				continue
			}
			works := n/7%2 == 1
			used := 0.02
			if works {
				used = 3
			}
			if milli, _ := d.ThrottleOf(refs[0]); milli > 0 {
				used = min(used, float64(milli)/1000)
			}
			noisy := func(level float64) float64 { return level * math.Exp(0.06*r.NormFloat64()) }
			slow := 1.0
			if used > 1 && n > 60 {
				slow = 2
			}
			samples := []Sample{{Ref: refs[0], Usage: used, CPI: 1}, {Ref: refs[1], Usage: 1, CPI: noisy(slow)}}
			for _, ref := range refs[2:] {
				samples = append(samples, Sample{Ref: ref, Usage: 1, CPI: noisy(level(used > 1 && n > 60))})
			}
			now := epoch.Add(time.Duration(n)*time.Minute + time.Duration(k+1)*d.cfg.Window)
			if its {
				d.ObserveAfter(1, now, samples)
			} else {
				d.Between(now, samples)
			}
			throw(d, r)
		}
	}
	return d
}

// TestWhoIsAWitness: a job of another namespace, near the victim, that depends on the coins, or one
// with a verdict of its own.
func TestWhoIsAWitness(t *testing.T) {
	domain := func(i int) (p cpi.Place) { p.L3s.Add(i); p.Nodes.Add(i); return p }
	suffers := func(works bool) float64 {
		if works {
			return 1.6
		}
		return 1
	}
	calm := func(bool) float64 { return 1 }
	one := func(c cpi.Container) []cpi.Container {
		if c.ID, c.Class = "one", cpi.LS; c.Place.L3s.IsEmpty() {
			c.Place = domain(0)
		}
		return []cpi.Container{c}
	}
	for _, c := range []struct {
		name   string
		others []cpi.Container
		level  func(bool) float64
		want   bool
		jobs   int
	}{
		{"nobody", nil, calm, false, 0},
		{"of the same namespace", one(cpi.Container{Job: "a/twin", Namespace: "a"}), suffers, false, 0},
		{"of the same namespace, by the job's name", one(cpi.Container{Job: "a/twin"}), suffers, false, 0},
		{"of another, and calm", one(cpi.Container{Job: "c/calm", Namespace: "c"}), calm, false, 1},
		{"of another, and suffers", one(cpi.Container{Job: "c/web", Namespace: "c"}), suffers, true, 1},
		{"by the job's name", one(cpi.Container{Job: "c/web"}), suffers, true, 1},
		{"elsewhere, with a verdict of its own", one(cpi.Container{Job: "c/web", Namespace: "c", Place: domain(1)}),
			suffers, true, 0},
	} {
		for _, cfg := range []Config{byMinute(), DefaultConfig()} {
			d := accused(t, cfg, domain(0), c.others, c.level)
			p := d.pairs[PairKey{Victim: "a/accuser", Suspect: "b/batch"}]
			if p == nil || p.stage != Verdict {
				t.Fatalf("%s, windows of %v: no verdict: %+v", c.name, cfg.Window, p)
			}
			got := d.TestOf(p.key).Witness
			if (got.Job != "") != c.want || got.Jobs != c.jobs {
				t.Errorf("%s, windows of %v: %+v", c.name, cfg.Window, got)
			}
			if d.doubtful(p) {
				t.Errorf("%s, windows of %v: needs a witness without being told so", c.name, cfg.Window)
			}
			d.cfg.NeedWitness = true
			if d.doubtful(p) == c.want || strings.Contains(got.Text(), "no neutral witness") == c.want {
				t.Errorf("%s, windows of %v: %s, doubtful %t", c.name, cfg.Window, got.Text(), d.doubtful(p))
			}
		}
	}
}

// TestWitnessesGoOn with the state. A state without any, of an older version, is read.
func TestWitnessesGoOn(t *testing.T) {
	others := []cpi.Container{{ID: "calm", Job: "c/calm", Namespace: "c", Class: cpi.LS}}
	d := accused(t, byMinute(), cpi.Place{}, others, func(bool) float64 { return 1 })
	text, err := json.Marshal(d.Save())
	if err != nil {
		t.Fatal(err)
	}
	read := func(edit func(*State)) (*Detector, error) {
		var s State
		if err := json.Unmarshal(text, &s); err != nil {
			t.Fatal(err)
		}
		edit(&s)
		again, err := New(byMinute())
		if err != nil {
			t.Fatal(err)
		}
		return again, again.Restore(s.At.Add(time.Minute), s)
	}
	key := PairKey{Victim: "a/accuser", Suspect: "b/batch"}
	again, err := read(func(*State) {})
	if got, want := again.TestOf(key).Witness, d.TestOf(key).Witness; err != nil || want.Jobs != 1 ||
		got.Jobs != 1 || math.Abs(got.E-want.E) > 1e-9 {
		t.Errorf("%v: %+v, it was %+v", err, got, want)
	}
	older, err := read(func(s *State) { s.Pairs[0].Process.Witnesses = nil })
	if p := older.pairs[key]; err != nil || p == nil || p.stage != Verdict || p.confirmed() {
		t.Errorf("without witnesses: %v, %+v", err, p)
	}
	for name, spoil := range map[string]func(*process){
		"e-value": func(p *process) { p.Witnesses[0].Now[1] = 1e9 },
		"effect":  func(p *process) { p.Witnesses[0].SD = -1 },
		"number":  func(p *process) { p.Witnesses = make([]witness, mostWitnesses+1) },
	} {
		if _, err := read(func(s *State) { spoil(&s.Pairs[0].Process) }); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
