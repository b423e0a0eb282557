package loop

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/cpi/sampler"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// withoutPMU turns what a window says of CPI into what a machine without one says of waits.
func withoutPMU(w *sampler.Window) *sampler.Window {
	w.Reference, w.ByQueue = false, true
	for i := range w.Containers {
		r := &w.Containers[i]
		if r.NoCPI != sample.None {
			continue
		}
		if r.Queue = 1; r.CPI > 2 {
			r.Queue = r.CPI
			r.Delays = []sample.Delay{{By: "batch-main", For: 9 * time.Second}, {By: "", For: time.Second}}
		}
		r.NoCPI, r.CPI, r.Reference = sample.Uncounted, 0, false
	}
	return w
}

// Without a PMU waiting in the run queue judges: the antagonist is found and capped, and what is
// said names the resource and who had the CPU.
func TestWithoutAPMUTheQueueJudges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
		n.noisy = bursts
		l, err := New(Options{
			Detector: config(), Submit: n.submit, Clock: Clock{Boot: n.boot},
			OnFinding: func(f *Finding) { n.found = append(n.found, *f) },
			History: func(string) []sample.Sample {
				return []sample.Sample{{Queue: 1.1, Pressure: 0.01}, {Queue: 2.5, Pressure: 0.6}}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		n.alter = withoutPMU
		n.drive(l, 60)
		if got := n.commands(); !strings.Contains(got, "cap batch-main 10m") || strings.Contains(got, "steady") {
			t.Errorf("commands %q", got)
		}
		at := slices.IndexFunc(n.found, func(f Finding) bool {
			return f.Kind == detect.AnalysisEvent && len(f.Antagonists) > 0
		})
		if at < 0 {
			for _, f := range n.found {
				t.Logf("%s %s %.2f %.2f %v %+v", f.Kind, f.Why, f.CPI, f.Threshold, f.Verdict, f.Spec)
			}
			t.Fatal("nobody was found")
		}
		f := &n.found[at]
		if !f.ByQueue || f.Evidence.Resource != sample.Queue || !strings.Contains(f.Why,
			"resource: queue (waited for default/batch/main 90 %, what is no container 10 %") {
			t.Errorf("by queue %t, %q", f.ByQueue, f.Why)
		}
		if !strings.HasSuffix(f.Victim.Platform, sample.QueuePlatform) {
			t.Errorf("the platform is %q", f.Victim.Platform)
		}
	})
}

// The same by experiment: the coin says whether the waits come from the suspect.
func TestTheQueueJudgesByExperiment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
		n.noisy, n.alter = bursts, withoutPMU
		n.drive(n.byExperiment(nil), 240)
		capped := false
		for _, e := range n.events {
			c, is := e.(policy.CapVerdict)
			if is && c.ID != "batch-main" {
				t.Errorf("%+v", c)
			}
			capped = capped || is
		}
		if !capped || !n.has(func(f *Finding) bool {
			return f.ByQueue && f.Kind == detect.OutcomeEvent && f.Outcome.Result == detect.Success
		}) {
			t.Error("nothing was proven")
		}
	})
}

// Who really ran on the victim's siblings is named, and makes them the resource: where the suspect
// ran elsewhere it was not they, whatever CPUs it might have run on.
func TestWhoRanBesideTheVictimIsEvidence(t *testing.T) {
	for _, c := range []struct {
		where    string
		sibling  bool
		resource sample.Resource
		want     string
	}{
		{"sibling", true, sample.Sibling, "resource: SMT sibling (on its SMT siblings: default/batch/main 0.90 CPUs"},
		{"elsewhere", false, sample.Unknown, "resource: unknown (in its L3 domain: default/batch/main 0.90 CPUs"},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
			n.noisy = bursts
			n.alter = func(w *sampler.Window) *sampler.Window {
				at := 0
				for _, cpu := range w.Topology.CPUs() {
					if w.Topology.CoreOf(cpu.ID) == w.Topology.CoreOf(0) == c.sibling && cpu.ID != 0 {
						at = cpu.ID
					}
				}
				rows := []sample.Row{{CPU: 0, Who: 1, OnCPU: 5}, {CPU: at, Who: 0, OnCPU: 9}}
				w.ByCPU = sample.NewByCPU(10, []string{"batch-main", "web-0-main"}, len(rows),
					func(i int) sample.Row { return rows[i] }, nil)
				return w
			}
			l, err := New(Options{
				Detector: config(), Submit: n.submit, Clock: Clock{Boot: n.boot},
				OnFinding: func(f *Finding) { n.found = append(n.found, *f) },
				History: func(string) []sample.Sample {
					return []sample.Sample{{CPI: 1, Reference: true}, {CPI: 2.5, Reference: true}}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			n.drive(l, 60)
			at := slices.IndexFunc(n.found, func(f Finding) bool {
				return f.Kind == detect.AnalysisEvent && len(f.Antagonists) > 0
			})
			if at < 0 {
				t.Fatal("nobody was found")
			}
			f := &n.found[at]
			if f.Evidence.Resource != c.resource || !strings.Contains(f.Why, c.want) {
				t.Errorf("batch ran %s: %s", c.where, f.Why)
			}
			if f.Names["batch-main"] != "default/batch/main" {
				t.Errorf("batch is called %q", f.Names["batch-main"])
			}
		})
	}
}
