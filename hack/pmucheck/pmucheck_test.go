package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/counter"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/cpi/sampler"
)

// A machine without a PMU is refused by that name, and nothing is left behind.
func TestMachinesWithoutAPMUAreRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("QUIETCORE_CI") == "1" {
			t.Fatal("counting needs root, which CI has")
		}
		t.Skip("counting needs root")
	}
	// A stand-in keeps every hardware event away, so that this is a machine without a PMU
	// whatever runs the test.
	bare := func(o counter.Options) (*counter.Counter, error) {
		o.StandIns = map[counter.Event]counter.StandIn{counter.Instructions: counter.PageFaults}
		return counter.Open(o)
	}
	c, err := open("/sys/fs/cgroup", bare)
	var none *NoPMUError
	if !errors.As(err, &none) || len(none.Missing) != 2 || none.Reason == "" || c != nil {
		t.Fatalf("refused with %v", err)
	}
	if code := try(t.Context(), plan{root: "/sys/fs/cgroup"}, bare); code != exitNoPMU {
		t.Errorf("it ends with %d, want %d", code, exitNoPMU)
	}
}

// A machine with a PMU is tested with cgroup v2, and rejected with a reason without.
func TestMachinesWithAPMUAreCheckedOnCgroupV2(t *testing.T) {
	var s counter.Status
	for _, e := range []counter.Event{counter.Cycles, counter.Instructions} {
		s.Sources[e].Kind = counter.Hardware
	}
	if err := refusal(&s, "/cgroups", false); err != nil {
		t.Errorf("cgroup v2: %v", err)
	}
	var none *NoPMUError
	if err := refusal(&s, "/cgroups", true); err == nil || errors.As(err, &none) ||
		!strings.Contains(err.Error(), "/cgroups is not cgroup v2") {
		t.Errorf("cgroup v1: %v", err)
	}
	if err := refusal(&counter.Status{}, "/cgroups", true); !errors.As(err, &none) {
		t.Errorf("cgroup v1 and no PMU: %v", err)
	}
	failing := func(counter.Options) (*counter.Counter, error) { return nil, errors.New("no BPF") }
	if code := try(t.Context(), plan{root: "/sys/fs/cgroup"}, failing); code != exitFailed {
		t.Errorf("counters that cannot be opened: it ends with %d, want %d", code, exitFailed)
	}
}

func TestWhatIsMissing(t *testing.T) {
	var s counter.Status
	s.Sources[counter.Instructions] = counter.Source{Reason: "no PMU"}
	s.Sources[counter.RefCycles].Kind = counter.Hardware
	if err := missing(&s); err == nil || !strings.Contains(err.Error(), "does not count instructions: no PMU") {
		t.Errorf("missing: %v", err)
	}
	s.Sources[counter.Instructions].Kind = counter.Declared // a stand-in is no CPI
	if missing(&s) == nil {
		t.Error("a stand-in is taken for instructions")
	}
	s.Sources[counter.Instructions].Kind = counter.Hardware
	if err := missing(&s); err != nil {
		t.Error(err)
	}
}

func TestLoads(t *testing.T) {
	w := newWalk(1000)
	for range 1000 {
		if w.step(1); w.at == 0 {
			break
		}
	}
	w.step(1000)
	if w.at != 0 {
		t.Error("the walk does not pass every word once")
	}
	a := []float64{0, 0}
	if triad(a, []float64{1, 2}, []float64{2, 4}); a[0] != 3 || a[1] != 5 {
		t.Errorf("triad %v", a)
	}
	if spin(1, 1) == 1 || runLoad("x", 1) == nil {
		t.Error("a load that does nothing, or is not known")
	}
}

func at(ratio, used float64) *sampler.Window {
	return &sampler.Window{Window: sample.Window{Containers: []sample.Result{
		{Container: &cpi.Container{ID: victim}, Sample: sample.Sample{CPI: ratio}},
		{Container: &cpi.Container{ID: antagonist}, Sample: sample.Sample{Usage: used}},
		{Container: &cpi.Container{ID: innocent}, Dropped: sample.First},
	}}}
}

func TestReport(t *testing.T) {
	s := &record{learn: 1}
	s.window(1, at(1, 0))
	s.window(2, at(3, 4))
	if s.found() || !strings.Contains(s.report(), "was not found") {
		t.Error(s.report())
	}
	s.capped(antagonist, "it scores 0.9")
	s.window(3, at(1.1, 0.01))
	if !s.inForce() || s.over() || !strings.Contains(s.line(), "capped") {
		t.Error(s.line())
	}
	s.ended(antagonist, "success")
	if text := s.report(); !s.found() || !s.over() || !strings.Contains(text, "found, 1 windows after") ||
		!strings.Contains(text, "was capped: 1.100 (1 windows)") {
		t.Error(text)
	}
	s.capped(innocent, "")
	if s.found() {
		t.Error("found, though an innocent was capped")
	}
	none := &sampler.Window{Window: sample.Window{Containers: []sample.Result{{
		Container: &cpi.Container{ID: victim}, Dropped: sample.Clock}}}}
	if s.window(4, none); !strings.Contains(s.line(), "no CPI: ") {
		t.Error(s.line())
	}
}

func TestTheMachineIsDescribed(t *testing.T) {
	var s counter.Status
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	x86 := fstest.MapFS{"sys/kernel/osrelease": file("6.18.5\n"),
		"cpuinfo": file(
			"processor\t: 0\nmodel\t\t: 1\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\nmodel name\t: AMD EPYC\n")}
	arm := fstest.MapFS{"sys/kernel/osrelease": file("6.1\n"),
		"cpuinfo": file("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n")}
	after := func(n int, release, cycles string) string {
		return fmt.Sprintf("; %d CPUs; Linux %s; CPI from %s", n, release, cycles)
	}
	n, arch := runtime.NumCPU(), "machine: "+runtime.GOARCH
	if got, want := describe(x86, &s).String(), arch+", AMD EPYC"+after(n, "6.18.5", "core cycles"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	s.Sources[counter.RefCycles].Kind = counter.Hardware
	if got, want := describe(arm, &s).String(), arch+", CPU implementer 0x41, CPU part 0xd0c"+
		after(n, "6.1", "reference cycles"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := describe(fstest.MapFS{}, &s).String(), arch+after(n, "not known", "reference cycles"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
