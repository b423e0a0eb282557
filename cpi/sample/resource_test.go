package sample

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// windows are samples of a victim, of which the last are bad.
func windows(good, bad Sample, n int) (list []Sample) {
	for range 10 {
		list = append(list, good)
	}
	for range n {
		list = append(list, bad)
	}
	return list
}

func TestWhichResourceWasLacking(t *testing.T) {
	normal := Sample{CPI: 1, MPKI: 2, HasMPKI: true, Wait: 0.01, HasWait: true, Speed: 1.2, Reference: true}
	bad := func(change func(*Sample)) Sample {
		s := normal
		s.CPI = 2
		change(&s)
		return s
	}
	few := normal
	few.MPKI = 0.1
	for _, c := range []struct {
		what    string
		good    Sample
		bad     Sample
		sibling bool
		want    string
	}{
		{"it misses more", normal, bad(func(s *Sample) { s.MPKI = 6 }), true,
			"resource: L3 (CPI 1.00, now 2.00, misses in 1,000 instructions 2.00, now 6.00, waited 1 % of its time, " +
				"now 1 %, core cycles a reference cycle 1.20, now 1.20)"},
		{"it misses as often", normal, bad(func(*Sample) {}), true, "resource: memory bandwidth ("},
		{"it hardly misses, and has a sibling", few, bad(func(s *Sample) { s.MPKI = 0.2 }), true,
			"resource: SMT sibling ("},
		{"it hardly misses, and has none", few, bad(func(s *Sample) { s.MPKI = 0.2 }), false, "resource: unknown ("},
		{"its CPUs are slow", normal, bad(func(s *Sample) { s.Speed, s.MPKI = 0.6, 1.9 }), true,
			"resource: frequency ("},
		{"a little slower is not why", normal, bad(func(s *Sample) { s.Speed = 1.1 }), true,
			"resource: memory bandwidth ("},
		{"it waits, too", normal, bad(func(s *Sample) { s.MPKI, s.Wait = 6, 0.3 }), true, "resource: L3 and queue ("},
		{"it waits, and that is all", few, bad(func(s *Sample) { s.MPKI, s.Wait = 0.1, 0.3 }), false,
			"resource: queue ("},
		{"no misses are counted", Sample{CPI: 1, Reference: true}, Sample{CPI: 2, Reference: true}, true,
			"resource: SMT sibling (CPI 1.00, now 2.00)"},
		{"in core cycles frequency explains nothing", Sample{CPI: 1, Speed: 1.2}, Sample{CPI: 2, Speed: 0.6}, false,
			"resource: unknown ("},
		{"it was never well", bad(func(*Sample) {}), bad(func(*Sample) {}), true,
			"resource: unknown (no window to compare with)"},
	} {
		e := Blame(windows(c.good, c.bad, 3), 1.5, Near{Sibling: c.sibling})
		if text := e.String(); !strings.HasPrefix(text, c.want) {
			t.Errorf("%s: %s, want %s", c.what, text, c.want)
		}
	}
}

// What was long ago, and what was counted in other cycles, is no evidence of the present.
func TestOldWindowsAreNoEvidence(t *testing.T) {
	good := Sample{CPI: 1, MPKI: 2, HasMPKI: true, Reference: true}
	old := Sample{CPI: 2, MPKI: 50, HasMPKI: true, Reference: true}
	now := Sample{CPI: 2, MPKI: 2, HasMPKI: true, Reference: true}
	core := Sample{CPI: 1.4, MPKI: 90, HasMPKI: true}
	list := append(windows(old, core, 3), windows(good, now, 3)...)
	if e := Blame(list, 1.5, Near{}); e.Resource != Memory || e.Bad.Windows != 3 || e.Good.Windows != 10 {
		t.Errorf("%+v", e)
	}
	if e := Blame(nil, 1.5, Near{Sibling: true}); e.Resource != Unknown {
		t.Errorf("of nothing: %+v", e)
	}
}

// Whatever the figures are, something is said, and never a resource without a figure that
// moved.
func TestBlameIsNeverEmptyHanded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		figure := rapid.Float64Range(0, 100)
		list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Sample {
			return Sample{
				CPI: figure.Draw(t, "CPI"), MPKI: figure.Draw(t, "MPKI"), HasMPKI: rapid.Bool().Draw(t, "misses"),
				Wait: rapid.Float64Range(0, 1).Draw(t, "wait"), HasWait: rapid.Bool().Draw(t, "waits"),
				Speed: rapid.Float64Range(0, 2).Draw(t, "speed"), Reference: rapid.Bool().Draw(t, "reference"),
				NoCPI: rapid.SampledFrom([]Reason{None, None, Idle}).Draw(t, "no CPI")}
		}), 0, 20).Draw(t, "history")
		e := Blame(list, figure.Draw(t, "threshold"), Near{Sibling: rapid.Bool().Draw(t, "sibling")})
		text := e.String()
		if strings.Contains(text, "NaN") || !strings.HasPrefix(text, "resource: "+string(e.Resource)) {
			t.Fatalf("says %q", text)
		}
		switch {
		case e.Resource == Cache && !(e.Bad.MPKI > e.Good.MPKI), e.Resource == Queue && !(e.Bad.Wait > e.Good.Wait),
			e.Resource == Frequency && !(e.Bad.Speed < e.Good.Speed),
			e.Resource != Unknown && (e.Good.Windows == 0 || e.Bad.Windows == 0):
			t.Fatalf("%s", text)
		}
	})
}
