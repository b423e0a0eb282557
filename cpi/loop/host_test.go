package loop

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/cpi/sampler"
	"github.com/quietcore/quietcore/topology"
)

// A service of the host that works while web suffers is the suspect, and nothing is done about it;
// it is no job that is judged, or of which something is learned.
func TestAServiceOfTheHostIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
		n.noisy = func(int) bool { return false }
		backup := &cpi.Container{ID: "host:/system.slice/backup.service", Namespace: cpi.HostNamespace,
			Pod: "system.slice", Name: "backup.service", Class: cpi.Host, Capping: cpi.NeverCapped}
		backup.Job = backup.String()
		window := 0
		n.alter = func(w *sampler.Window) *sampler.Window {
			window++
			busy := bursts(window)
			unit := sample.Result{Container: backup}
			unit.Sample = sample.Sample{Length: w.Length, Reference: true, Usage: 0.3, CPI: 1}
			if busy {
				unit.Usage = 3
			}
			for i := range w.Containers {
				if r := &w.Containers[i]; r.Pod == "web-0" && busy {
					r.CPI = 2.5
				}
			}
			w.Containers = append(w.Containers, unit)
			return w
		}
		learned := 0
		l, err := New(Options{
			Detector: config(), Submit: n.submit, Clock: Clock{Boot: n.boot},
			OnFinding: func(f *Finding) { n.found = append(n.found, *f) },
			OnLearned: func(list []detect.Learned) {
				for i := range list {
					if strings.HasPrefix(list[i].Job, cpi.HostNamespace) {
						t.Errorf("learned of %s", list[i].Job)
					}
					learned++
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		n.drive(l, 90)
		if got := n.commands(); got != "" {
			t.Errorf("commands: %s", got)
		}
		if !n.has(func(f *Finding) bool {
			return f.Kind == detect.AnalysisEvent && len(f.Suspects) > 0 && f.Suspects[0].Class == cpi.Host
		}) {
			t.Error("the service is not the most suspicious")
		}
		for _, j := range l.Jobs() {
			if strings.HasPrefix(j.Job, cpi.HostNamespace) {
				t.Errorf("%s is a job", j.Job)
			}
		}
		if learned == 0 {
			t.Error("nothing was learned")
		}
	})
}
