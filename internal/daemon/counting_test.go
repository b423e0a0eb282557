package daemon

import (
	"testing"

	"github.com/quietcore/quietcore/cpi/counter"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/topodoc"
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
	if _, events, missing := sourcesOf([4]counter.Source{hardware, declared, absent, hardware}); missing != "" ||
		events["instructions"] != "stand-in: page-faults" || events["ref-cycles"] != "absent: this machine has no PMU" {
		t.Errorf("missing %q, %v", missing, events)
	}
}

func sourcesOf(s [4]counter.Source) ([sample.NumEvents]bool, map[string]string, string) {
	return sources(&counter.Status{Sources: s})
}

func TestKindsOfCores(t *testing.T) {
	slow := cpuset.Of(2, 3)
	for want, cpus := range map[string]cpuset.Set{"performance": cpuset.Of(0, 1), "efficiency": cpuset.Of(3),
		"mixed": cpuset.Of(1, 2)} {
		if got := kindOf(cpus, slow); got != want {
			t.Errorf("CPUs %s of a machine whose slow ones are %s: %q, want %q", cpus, slow, got, want)
		}
	}
	doc := topodoc.Doc{CPUs: []topodoc.CPU{{ID: 0, Kind: "performance"}, {ID: 1, Core: 1, Kind: "efficiency"}}}
	machine, _, err := doc.Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, hybrid := efficiencyCPUs(machine); !hybrid || got != cpuset.Of(1) {
		t.Errorf("slow CPUs %s, hybrid %t", got, hybrid)
	}
}
