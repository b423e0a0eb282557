package loop

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/experiment"
	"github.com/quietcore/quietcore/cpi/sampler"
	"github.com/quietcore/quietcore/topology"
)

// bandwidth is what limits memory bandwidth here. Like everything else it is asked by the loop alone.
type bandwidth struct {
	t       *testing.T
	until   map[string]time.Time
	refuses bool
	held    int // times that it was asked to hold
	freed   int
}

func (m *bandwidth) Hold(id, cgroup string, d time.Duration) error {
	m.held++
	if id != "batch-main" || cgroup != "pods/batch" || d != 2*time.Minute {
		m.t.Errorf("%s in %s is held for %s", id, cgroup, d)
	}
	if m.refuses {
		return errors.New("it has a class of its own")
	}
	m.until[id] = time.Now().Add(d)
	return nil
}

func (m *bandwidth) Release(id string) error {
	m.freed++
	delete(m.until, id)
	return nil
}

// TestAVerdictLimitsBandwidthBeforeItCaps: who is found guilty and shares memory with the victim gets little of it, for
// as long as that helps. Where it does not, or that is refused, a quota follows.
func TestAVerdictLimitsBandwidthBeforeItCaps(t *testing.T) {
	for _, c := range []struct {
		name           string
		helps, refused bool
	}{{"helps", true, false}, {"does not", false, false}, {"refused", true, true}} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
			n.view.Narrowing(func(id string) bool { return strings.HasPrefix(id, "batch") })
			m := &bandwidth{t: t, until: map[string]time.Time{}, refuses: c.refused}
			for _, v := range n.view.Node(n.snapshot()).Containers {
				if v.MayNarrow != (v.Pod == "batch") {
					t.Errorf("%s may be held back from memory: %t", v, v.MayNarrow)
				}
			}
			n.noisy = bursts
			var l *Loop
			narrow, capped := 0, 0
			n.alter = func(w *sampler.Window) *sampler.Window {
				for _, th := range l.Throttles() {
					switch left := time.Until(th.Until); {
					case !th.Narrow && th.Verdict:
						capped++
					case !th.Narrow:
					case !th.Verdict || th.Off != "" || th.Idle || th.Target.Pod != "batch" ||
						th.Victim.Pod != "web-0" || left < 0 || left > 45*time.Minute ||
						time.Now().After(m.until["batch-main"]) ||
						!strings.HasPrefix(th.Why, "gets the least memory bandwidth"):
						t.Errorf("%s: %+v, for %s", c.name, th, left)
					default:
						narrow++
						n.spare(w, c.helps)
					}
				}
				return w
			}
			l = n.byExperiment(func(o *Options) { o.Bandwidth = m })
			n.drive(l, 400)
			for reason, want := range map[string]bool{ReasonNarrow: !c.refused, ReasonWide: !c.refused,
				ReasonCapped: !c.helps || c.refused, ReasonAway: false, ReasonIdle: false} {
				if slices.Contains(n.notices, "batch "+reason) != want {
					t.Errorf("%s: a notice with %s: %t", c.name, reason, !want)
				}
			}
			why := "with the least memory bandwidth it disturbs it"
			if fails := !c.helps; fails != n.has(func(f *Finding) bool {
				return f.Command == detect.DoWiden && strings.HasPrefix(f.Why, why)
			}) {
				t.Errorf("%s: it ends since %q: %t", c.name, why, !fails)
			}
			if c.refused != n.has(func(f *Finding) bool {
				return f.Outcome != nil && f.Outcome.Kind == detect.DoNarrow && f.Outcome.Result == detect.Refused
			}) {
				t.Errorf("%s: an outcome says so: %t", c.name, !c.refused)
			}
			got := l.Counters().Tests.Steps
			if s := got[experiment.ByBandwidth]; s.Begun != 1 || (s.Failed == 0) != (c.helps && !c.refused) ||
				got[experiment.ByMove].Begun+got[experiment.ByIdling].Begun > 0 || (narrow == 0) != c.refused ||
				(capped > 0) != (s.Failed > 0) || (m.freed == 0) != c.refused || c.refused && m.held != 1 {
				t.Errorf("%s: %+v, %d windows with little bandwidth, %d capped; %+v", c.name, got, narrow, capped, m)
			}
			if !c.helps && len(m.until) > 0 {
				t.Errorf("%s: with a quota %v are held", c.name, slices.Collect(maps.Keys(m.until)))
			}
		})
	}
}

// TestNobodyLimitsBandwidth: a step that nothing carries out is refused, and a quota follows.
func TestNobodyLimitsBandwidth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
		n.view.Narrowing(func(string) bool { return true })
		n.noisy = bursts
		l := n.byExperiment(nil)
		n.drive(l, 400)
		if s := l.Counters().Tests.Steps[experiment.ByBandwidth]; s.Begun != 1 || s.Failed != 1 ||
			!slices.Contains(n.notices, "batch "+ReasonCapped) || slices.Contains(n.notices, "batch "+ReasonNarrow) {
			t.Errorf("%+v, %v", s, n.notices)
		}
	})
}
