package loop

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/experiment"
	"github.com/quietcore/quietcore/cpi/sampler"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// TestAVerdictIdlesBeforeItCaps: who is found guilty and shares CPUs with the victim runs on otherwise idle ones, for
// as long as that helps. Where it does not, or the policy refuses, a quota follows.
func TestAVerdictIdlesBeforeItCaps(t *testing.T) {
	for _, c := range []struct {
		name           string
		helps, refused bool
	}{{"helps", true, false}, {"does not", false, false}, {"refused", true, true}} {
		synctest.Test(t, func(t *testing.T) {
			n := nodeWithIdle(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
			for _, v := range n.view.Node(n.snapshot()).Containers {
				if v.MayIdle != (v.Class == cpi.BE) {
					t.Errorf("%s may idle: %t", v, v.MayIdle)
				}
			}
			n.noisy = bursts
			var l *Loop
			idle, capped := 0, 0
			n.alter = func(w *sampler.Window) *sampler.Window {
				for _, th := range l.Throttles() {
					switch left := time.Until(th.Until); {
					case !th.Idle && th.Verdict:
						capped++
					case !th.Idle:
					case !th.Verdict || th.Off != "" || th.Target.Pod != "batch" || th.Victim.Pod != "web-0" ||
						left < 0 || left > 45*time.Minute ||
						!strings.HasPrefix(th.Why, "runs only on otherwise idle CPUs"):
						t.Errorf("%s: %+v, for %s", c.name, th, left)
					default:
						idle++
						n.spare(w, c.helps)
					}
				}
				return w
			}
			l = n.byExperiment(func(o *Options) {
				o.Submit = func(ctx context.Context, e policy.Event) error {
					if e, is := e.(policy.Idled); is && c.refused && e.For > 0 {
						return errors.New("not here")
					}
					return n.submit(ctx, e)
				}
			})
			n.drive(l, 400)
			for reason, want := range map[string]bool{ReasonIdle: !c.refused, ReasonAwake: !c.refused,
				ReasonCapped: !c.helps || c.refused, ReasonAway: false} {
				if slices.Contains(n.notices, "batch "+reason) != want {
					t.Errorf("%s: a notice with %s: %t", c.name, reason, !want)
				}
			}
			why := "on otherwise idle CPUs it disturbs it"
			if fails := !c.helps; fails != n.has(func(f *Finding) bool {
				return f.Command == detect.DoWake && strings.HasPrefix(f.Why, why)
			}) {
				t.Errorf("%s: it ends since %q: %t", c.name, why, !fails)
			}
			got := l.Counters().Tests.Steps
			if s := got[experiment.ByIdling]; s.Begun != 1 || (s.Failed == 0) != (c.helps && !c.refused) ||
				got[experiment.ByMove].Begun > 0 || (idle == 0) != c.refused || (capped > 0) != (s.Failed > 0) {
				t.Errorf("%s: %+v, %d windows on idle CPUs, %d capped", c.name, got, idle, capped)
			}
			released := 0
			for _, e := range n.events {
				if e, is := e.(policy.Idled); is && e.For == 0 {
					released++
				}
				if e, is := e.(policy.Idled); is && (e.Pod != "batch" || e.For != 0 && e.For != 2*time.Minute) {
					t.Errorf("%s: %+v", c.name, e)
				}
			}
			if (released == 0) != c.refused {
				t.Errorf("%s: it is let go %d times", c.name, released)
			}
		})
	}
}

// spare the victim in a window, where that helps.
func (n *node) spare(w *sampler.Window, helps bool) {
	for i := range w.Containers {
		if c := &w.Containers[i]; c.Pod == "web-0" && helps {
			c.CPI = 1 + float64(n.window%11)/100
		}
	}
}
