package experiment

import (
	"slices"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"pgregory.net/rapid"
)

// TestTerms begin with five windows and double, up to forty periods.
func TestTerms(t *testing.T) {
	for span, want := range map[int][]int{
		1: {5, 10, 20, 40},
		2: {5, 10, 20, 40, 80},
		3: {5, 10, 20, 40, 80, 120},
		6: {5, 10, 20, 40, 80, 160, 240},
	} {
		b := bankFor(span)
		if !slices.Equal(b.terms, want) {
			t.Errorf("%d windows in a period: %v, want %v", span, b.terms, want)
		}
		p := &pair{stage: Verdict}
		for i, n := range want {
			if got := 1 / (1 - p.propensity(b, 200, 1, true)); int(got+0.5) != n+1 {
				t.Errorf("%d windows in a period, term %d: let go in one of %v windows, want %d", span, i, got, n+1)
			}
			for range n {
				p.serve(b)
			}
		}
		if p.term != len(want)-1 {
			t.Errorf("%d windows in a period: the last term is %d", span, p.term)
		}
	}
}

// TestAVerdictThrottlesDeeper with each term that it has survived, down to what the class keeps; a
// test does not, and a limit that is tighter stays.
func TestAVerdictThrottlesDeeper(t *testing.T) {
	for _, c := range []struct {
		name  string
		class cpi.Class
		limit int64
		stage Stage
		want  []int64 // after so many terms, of a job of 4 CPUs in two containers
	}{
		{"test", cpi.Batch, 0, Testing, []int64{140, 140, 140, 140, 140, 140, 140}},
		{"batch", cpi.Batch, 0, Verdict, []int64{140, 100, 100, 100, 100, 100, 100}},
		{"best effort", cpi.BE, 0, Verdict, []int64{140, 70, 30, 10, 10, 10, 10}},
		{"limit", cpi.BE, 50, Verdict, []int64{50, 50, 30, 10, 10, 10, 10}},
	} {
		d, err := New(DefaultConfig())
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"a", "b"} {
			if _, err := d.Put(&cpi.Container{ID: id, Job: "job", Class: c.class, LimitMilli: c.limit}); err != nil {
				t.Fatal(err)
			}
		}
		s := d.suspects["job"]
		s.peak, s.lead = 4, &pair{stage: c.stage}
		for term, want := range c.want {
			s.lead.term = term
			if got := d.depth(&d.all[0]); got != want {
				t.Errorf("%s, after %d terms: %d thousandths of a CPU, want %d", c.name, term, got, want)
			}
		}
	}
}

// TestDepth is between what the class keeps and the limit, whatever a job is like, and never grows
// with a verdict's terms.
func TestDepth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := DefaultConfig()
		d, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		class := rapid.SampledFrom([]cpi.Class{cpi.Batch, cpi.BE}).Draw(t, "class")
		limit := rapid.Int64Range(0, 8000).Draw(t, "limit")
		n := rapid.IntRange(1, 20).Draw(t, "containers")
		for i := range n {
			c := &cpi.Container{ID: string(rune('a' + i)), Job: "job", Class: class, LimitMilli: limit}
			if _, err := d.Put(c); err != nil {
				t.Fatal(err)
			}
		}
		s := d.suspects["job"]
		s.peak = rapid.Float64Range(0, 200).Draw(t, "peak")
		least := cfg.CapBatchMilli
		if class == cpi.BE {
			least = cfg.CapBEMilli
		}
		if limit > 0 {
			least = min(least, limit)
		}
		if least > percent {
			least -= least % percent
		}
		was := d.depth(&d.all[0])
		s.lead = &pair{stage: Verdict}
		for term := range d.bank.terms {
			s.lead.term = term
			got := d.depth(&d.all[0])
			if got > was || got < least || limit > 0 && got > limit {
				t.Fatalf("after %d terms: %d thousandths of a CPU, %d before, at least %d", term, got, was, least)
			}
			was = got
		}
	})
}

// TestTheGuiltyIsLetGoSeldom once a verdict has survived its terms. No cap is said to last longer than
// forty periods.
func TestTheGuiltyIsLetGoSeldom(t *testing.T) {
	w, next := convicted(t, DefaultConfig())
	key := PairKey{Victim: "victim", Suspect: "job0"}
	const minutes = 600
	busy, free := 0, 0
	for n := range minutes {
		throttled, _ := w.d.Throttled("job0")
		if n > minutes/2 && w.wants[0] > 1 {
			if busy++; !throttled {
				free++
			}
		}
		w.minute(guilty, next+n)
	}
	p, s := w.d.pairs[key], w.d.suspects["job0"]
	if p.stage != Verdict || p.term != len(w.d.bank.terms)-1 {
		t.Fatalf("after %d minutes: %s, term %d", minutes, p.stage, p.term)
	}
	w.d.clear()
	s.lead, s.next, s.until = p, true, time.Time{}
	w.d.actuate(s)
	e := w.d.work.events
	if len(e) != 1 || e[0].Kind != CapEvent || e[0].Until.Sub(e[0].At) != longestTerm*time.Minute {
		t.Errorf("%+v, want a cap of %d minutes", e, longestTerm)
	}
	for _, saved := range w.d.Save().Pairs {
		if saved.Stage == Verdict && saved.Term != savedTerms-1 {
			t.Errorf("term %d is saved: a reader of this version refuses it", saved.Term)
		}
	}
	if busy < 100 || 50*free > busy {
		t.Errorf("let go in %d of %d windows in which it was busy", free, busy)
	}
}
