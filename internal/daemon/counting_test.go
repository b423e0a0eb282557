package daemon

import (
	"testing"

	"github.com/quietcore/quietcore/cpi/counter"
)

func TestWhatIsMissingIsNamedWithItsReason(t *testing.T) {
	hardware := counter.Source{Kind: counter.Hardware, Name: "event"}
	absent := counter.Source{Kind: counter.Absent, Reason: "this machine has no PMU"}
	for want, sources := range map[string][4]counter.Source{
		"": {hardware, hardware, hardware, hardware},
		"cycles, instructions, llc-misses not counted: this machine has no PMU": {absent, absent, absent, absent},
		"llc-misses not counted: this machine has no PMU":                       {absent, hardware, hardware, absent},
	} {
		got := sourcesOf(sources)
		if got.missing != want || len(got.events) != 4 {
			t.Errorf("missing %q, want %q; %v", got.missing, want, got.events)
		}
	}
	declared := counter.Source{Kind: counter.Declared, Name: "page-faults"}
	got := sourcesOf([4]counter.Source{declared, declared, absent, absent})
	if got.missing != "llc-misses not counted: this machine has no PMU" ||
		got.events["instructions"] != "stand-in: page-faults" ||
		got.events["ref-cycles"] != "absent: this machine has no PMU" {
		t.Errorf("%+v", got)
	}
}

// An event that was opened again says what happened; one that takes turns does, too, but it is
// only missed where CPI is made of it.
func TestWhatHappenedToAnEventIsSaid(t *testing.T) {
	hardware := counter.Source{Kind: counter.Hardware, Name: "event"}
	reopened := counter.Source{Kind: counter.Hardware, Reopened: true, Reason: "was opened again on 2 CPUs"}
	shared := counter.Source{Kind: counter.Hardware, Reason: "had a counter for 60 % of the time"}
	for want, sources := range map[string][4]counter.Source{
		"ref-cycles was opened again on 2 CPUs": {hardware, hardware, reopened, hardware},
		"":                                      {hardware, hardware, hardware, shared},
		"cycles had a counter for 60 % of the time": {shared, hardware, hardware, hardware},
	} {
		got := sourcesOf(sources)
		if got.missing != want {
			t.Errorf("missing %q, want %q", got.missing, want)
		}
		for e, s := range sources {
			if name := counter.Event(e).String(); s.Reason != "" && got.events[name] != "hardware: "+s.Reason {
				t.Errorf("%s is said to be %q", name, got.events[name])
			}
		}
	}
}

func sourcesOf(s [4]counter.Source) *counted { return sources(&counter.Status{Sources: s}) }
