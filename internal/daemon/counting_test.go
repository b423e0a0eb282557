package daemon

import (
	"testing"

	"github.com/quietcore/quietcore/cpi/counter"
	"github.com/quietcore/quietcore/cpi/sample"
)

func TestWhatIsMissingIsNamedWithItsReason(t *testing.T) {
	hardware := counter.Source{Kind: counter.Hardware, Name: "event"}
	absent := counter.Source{Kind: counter.Absent, Reason: "this machine has no PMU"}
	for want, sources := range map[string][4]counter.Source{
		"": {hardware, hardware, hardware, hardware},
		"cycles, instructions, llc-misses not counted: this machine has no PMU": {absent, absent, absent, absent},
		"llc-misses not counted: this machine has no PMU":                       {absent, hardware, hardware, absent},
	} {
		present, events, missing := sourcesOf(sources)
		if missing != want || present[counter.Cycles] != (sources[counter.Cycles] == hardware) || len(events) != 4 {
			t.Errorf("missing %q, want %q; %v %v", missing, want, present, events)
		}
	}
	declared := counter.Source{Kind: counter.Declared, Name: "page-faults"}
	_, events, missing := sourcesOf([4]counter.Source{declared, declared, absent, absent})
	if missing != "llc-misses not counted: this machine has no PMU" ||
		events["instructions"] != "stand-in: page-faults" ||
		events["ref-cycles"] != "absent: this machine has no PMU" {
		t.Errorf("missing %q, %v", missing, events)
	}
}

func sourcesOf(s [4]counter.Source) ([sample.NumEvents]bool, map[string]string, string) {
	return sources(&counter.Status{Sources: s})
}
