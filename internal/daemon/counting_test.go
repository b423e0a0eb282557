package daemon

import (
	"testing"
	"testing/fstest"

	"github.com/quietcore/quietcore/cpi/counter"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/policy"
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
		if got.missing != want || len(got.events) != 4 || got.blind != (sources[counter.Instructions] == absent) {
			t.Errorf("missing %q, want %q; %v, %t", got.missing, want, got.events, got.blind)
		}
	}
	if sourcesOf([4]counter.Source{absent, hardware, hardware, absent}).blind ||
		!sourcesOf([4]counter.Source{absent, hardware, absent, absent}).blind {
		t.Error("reference cycles make a CPI where core cycles are absent, and nothing does without both")
	}
	declared := counter.Source{Kind: counter.Declared, Name: "page-faults"}
	got := sourcesOf([4]counter.Source{declared, declared, absent, absent})
	if got.missing != "llc-misses not counted: this machine has no PMU" ||
		got.events["instructions"] != "stand-in: page-faults" ||
		got.events["ref-cycles"] != "absent: this machine has no PMU" {
		t.Errorf("%+v", got)
	}
}

// What a window cost hides nothing of what is missing all the time.
func TestWhatIsMissingIsSaidBesideWhatAWindowSays(t *testing.T) {
	c := &counters{}
	c.events.Store(&counted{missing: "cycles not counted"})
	for window, want := range map[string]string{
		"":                         "cycles not counted",
		"half of them are counted": "half of them are counted; cycles not counted",
	} {
		if got := c.why(window); got != want {
			t.Errorf("with %q: %q, want %q", window, got, want)
		}
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

func TestCPUsThatAreLeftAlone(t *testing.T) {
	for want, files := range map[string]map[string]string{
		"":        {},
		"2-3":     {"isolated": "2-3\n"},
		"2-3,6":   {"isolated": "2-3\n", "nohz_full": "6\n"},
		"4":       {"isolated": "\n", "nohz_full": "4\n"},
		"1-3,5-7": {"isolated": "1-3,5\n", "nohz_full": "5-7\n"},
		"7":       {"isolated": "7\n", "nohz_full": "  (null)\n"},
	} {
		sys := fstest.MapFS{}
		for name, text := range files {
			sys["devices/system/cpu/"+name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := isolated(sys); got.String() != want {
			t.Errorf("%v: %q, want %q", files, got, want)
		}
	}
	s := &policy.Snapshot{Owners: []*policy.OwnerView{{CPUs: cpuset.Of(8, 9)}, {CPUs: cpuset.Of(12)}}}
	base := cpuset.Of(2)
	for skip, want := range map[config.Skip]string{config.SkipIsolated: "2", config.SkipOwners: "2,8-9,12"} {
		if got := leftAlone(skip, &base, s); got.String() != want {
			t.Errorf("%s: %s, want %s", skip, &got, want)
		}
	}
	cfg := config.Default()
	cfg.CPI.Skip, cfg.Sysfs.Root = config.SkipNone, t.TempDir()
	if o := CounterOptions(&cfg, false); !o.Skip.IsEmpty() {
		t.Errorf("none: %s are left alone", &o.Skip)
	}
}
