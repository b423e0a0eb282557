package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/counter"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/cpi/sampler"
	"github.com/quietcore/quietcore/policy"
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
	c, _, err := open("/sys/fs/cgroup", bare)
	var none *NoPMUError
	if !errors.As(err, &none) || len(none.Missing) != 2 || none.Reason == "" || c != nil {
		t.Fatalf("refused with %v", err)
	}
	if code := try(t.Context(), plan{root: "/sys/fs/cgroup"}, bare); code != exitNoPMU {
		t.Errorf("it ends with %d, want %d", code, exitNoPMU)
	}
}

func TestCountersThatCannotBeOpened(t *testing.T) {
	failing := func(counter.Options) (*counter.Counter, error) { return nil, errors.New("no BPF") }
	if code := try(t.Context(), plan{root: "/sys/fs/cgroup"}, failing); code != exitFailed {
		t.Errorf("it ends with %d, want %d", code, exitFailed)
	}
	dir := t.TempDir()
	if _, _, err := open(dir, failing); err == nil || !strings.Contains(err.Error(), dir+" is neither cgroup v2 nor") {
		t.Errorf("where no cgroups are: %v", err)
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
		{Container: &cpi.Container{ID: victim}, Sample: sample.Sample{CPI: ratio, Counted: 0.5}},
		{Container: &cpi.Container{ID: antagonist}, Sample: sample.Sample{Usage: used}},
		{Container: &cpi.Container{ID: innocent}, Dropped: sample.First},
	}}}
}

func TestReport(t *testing.T) {
	s := &record{}
	s.window(1, at(1, 0))
	if s.since(1, 1) != 0 {
		t.Error("the antagonist does not begin after learning")
	}
	s.window(2, at(3, 4))
	if s.since(2, 1) != 1 {
		t.Error("it begins twice")
	}
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
		!strings.Contains(text, "was capped: 1.100 (1 windows)") ||
		!strings.Contains(text, "windows with a CPI: 3 of 3; of the victim's time in them counted: 0.500 (3 windows)") {
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
			"processor\t: 0\nmodel\t\t: 1\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\nmodel name\t: AMD EPYC\n" +
				"flags\t: sse hypervisor lahf_lm\n")}
	arm := fstest.MapFS{"sys/kernel/osrelease": file("6.1\n"),
		"cpuinfo": file("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n")}
	after := func(n int, release, cycles string) string {
		return fmt.Sprintf("; %d CPUs; Linux %s; CPI from %s", n, release, cycles)
	}
	n, arch := runtime.NumCPU(), "machine: "+runtime.GOARCH
	if got, want := describe(x86, &s).String(), arch+", AMD EPYC"+after(n, "6.18.5", "core cycles")+
		"; a virtual machine"; got != want {
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

// Beside another user of the PMU many windows have no CPI: the antagonist waits for enough that do,
// and not for ever.
func TestLearningWaitsForCPIs(t *testing.T) {
	none := &sampler.Window{Window: sample.Window{Containers: []sample.Result{{
		Container: &cpi.Container{ID: victim}, Dropped: sample.Missed}}}}
	began := func(every int) int {
		s := &record{}
		for n := 1; ; n++ {
			w := none
			if n%every == 0 {
				w = at(1, 0)
			}
			if s.window(n, w); s.since(n, 10) >= 0 {
				return n
			}
		}
	}
	for every, want := range map[int]int{1: 10, 3: 30, 1000: mostLearning * 10} {
		if got := began(every); got != want {
			t.Errorf("a CPI in every %d windows: it began in window %d, want %d", every, got, want)
		}
	}
}

func TestSizesFollowTheCache(t *testing.T) {
	const file = "devices/system/cpu/cpu0/cache/index3/size"
	for text, want := range map[string]sizes{
		"":           {4 * mebibyte, 128 * mebibyte},
		"2048K\n":    {1 * mebibyte, 128 * mebibyte},
		"32768K\n":   {4 * mebibyte, 128 * mebibyte},
		"262144K\n":  {4 * mebibyte, 1024 * mebibyte},
		"-5K":        {4 * mebibyte, 128 * mebibyte},
		"9999999999": {4 * mebibyte, 128 * mebibyte},
	} {
		if got := sizesFor(fstest.MapFS{file: &fstest.MapFile{Data: []byte(text)}}); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

// TestMain runs a load where the command starts itself for one.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "-load" {
		fmt.Fprintln(os.Stderr, runLoad(os.Args[2], 1))
		os.Exit(exitFailed)
	}
	os.Exit(m.Run())
}

// The loads run in cgroups of their own, stand still when told, are limited by whatever file this
// machine's hierarchy has for that, and leave nothing behind.
func TestLoadsInCgroups(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("QUIETCORE_CI") == "1" {
			t.Fatal("cgroups need root, which CI has")
		}
		t.Skip("cgroups need root")
	}
	h, err := hierarchyAt("/sys/fs/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	s := newExperiment(plan{threads: 1}, h)
	err = s.build()
	defer func() {
		if err := s.cleanUp(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(s.path("")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a cgroup is left: %v", err)
		}
	}()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{victim, antagonist, innocent} {
		want := fmt.Sprintf("%d\n", s.loads[name].Process.Pid)
		if text := s.read(t, name, "cgroup.procs"); text != want {
			t.Errorf("%s: processes %q, want %q", name, text, want)
		}
	}
	s.await(t, antagonist, true)
	if err := s.stop(antagonist, false); err != nil {
		t.Fatal(err)
	}
	s.await(t, antagonist, false)
	file, limited, free := "cpu.max", "5000 100000\n", "max 100000\n"
	if h.v1 {
		file, limited, free = "cpu.cfs_quota_us", "5000\n", "-1\n"
	}
	for _, e := range []struct {
		event policy.Event
		want  string
	}{{policy.CapVerdict{ID: antagonist, Milli: 50, For: time.Minute}, limited},
		{policy.CapReleased{ID: antagonist}, free}} {
		if err := s.submit(t.Context(), e.event); err != nil {
			t.Fatal(err)
		}
		if text := s.read(t, antagonist, file); text != e.want {
			t.Errorf("after %T %s is %q, want %q", e.event, file, text, e.want)
		}
	}
}

func (s *experiment) read(t *testing.T, name, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.path(name), file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// await that a load stands still (state T of proc(5)), or goes on, for as long as the test may take.
func (s *experiment) await(t *testing.T, name string, still bool) {
	t.Helper()
	for {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.loads[name].Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.LastIndex(text, []byte(") ")); at > 0 && (text[at+2] == 'T') == still {
			return
		}
		runtime.Gosched()
	}
}

// BenchmarkWalk is how much the antagonist's streams slow the victim's walk: nanoseconds a step, of
// the fastest of many batches.
func BenchmarkWalk(b *testing.B) {
	size := sizesFor(os.DirFS("/sys"))
	w := newWalk(size.walk / wordBytes)
	fastest := func(b *testing.B) {
		const batch = 1 << 16
		best := time.Hour
		for b.Loop() {
			began := time.Now()
			w.step(batch)
			best = min(best, time.Since(began))
		}
		b.ReportMetric(float64(best.Nanoseconds())/batch, "ns/step")
	}
	b.Run("alone", fastest)
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	for range max(runtime.NumCPU()/2, 1) {
		cmd := exec.CommandContext(b.Context(), self, "-load", antagonist)
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		defer func() { _ = cmd.Wait() }() // killed
		defer func() { _ = cmd.Process.Kill() }()
	}
	b.Run("beside-streams", fastest)
}
