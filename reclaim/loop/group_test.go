package loop

import (
	"slices"
	"testing"
	"time"

	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/reclaim"
)

// What holds one pod down touches that pod's samples; what holds best effort down as a
// whole (the slice's quota, or suppression while it uses all that it is left with)
// freezes what is known of everybody.
func TestWhoIsHeldDown(t *testing.T) {
	busy := map[string]float64{"busy-a": 1, "busy-b": 1, "idle-a": 0.01, "idle-b": 0.01}
	both, none := []string{"idle-a", "idle-b"}, []string(nil)
	for name, c := range map[string]struct {
		waits, stops map[string]float64
		production   float64
		free         bool // nobody suppresses
		idle         []string
		frozen       bool
	}{
		"nobody":                                 {idle: both},
		"two busy pods wait as on a busy host":   {waits: map[string]float64{"busy-a": 0.3, "busy-b": 0.3, bestEffort: 0.4}, idle: both},
		"the same where nobody suppresses":       {waits: map[string]float64{"busy-a": 0.3, "busy-b": 0.3, bestEffort: 0.4}, free: true, idle: both},
		"a busy pod is at its own quota":         {stops: map[string]float64{"busy-a": 0.8}, idle: both},
		"an idle pod is at its own quota":        {stops: map[string]float64{"idle-a": 0.8}, idle: both[1:]},
		"an idle pod waits":                      {waits: map[string]float64{"idle-b": 0.2, bestEffort: 0.2}, idle: both[:1]},
		"the slice's quota":                      {stops: map[string]float64{bestEffort: 0.2}, idle: none, frozen: true},
		"suppression, and all of it is used":     {waits: map[string]float64{"busy-a": 0.3, bestEffort: 0.4}, production: 9, idle: none, frozen: true},
		"suppression, and nobody waits":          {production: 9, idle: both},
		"production's use where none suppresses": {waits: map[string]float64{bestEffort: 0.4}, production: 9, free: true, idle: both},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := reclaim.Default()
			cfg.Idle.Window, cfg.Idle.Sample = reclaim.Duration(4*time.Minute), reclaim.Duration(10*time.Second)
			estimator, err := reclaim.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			n := newNode(t)
			n.run("web", policy.LS, 2000, 0)
			n.load["web"] = c.production
			for uid, use := range busy {
				n.run(uid, policy.BE, 0, 2000)
				n.load[uid] = use
			}
			n.waits, n.stops = c.waits, c.stops
			o := n.options(estimator)
			if c.free {
				o.Suppress = nil
			}
			l, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			if err := n.Follow(rootID, "/"); err != nil {
				t.Fatal(err)
			}
			n.seconds(l, 400)
			var idle []string
			for uid := range busy {
				if v, _ := estimator.View(uid); v.Idle {
					idle = append(idle, uid)
				}
			}
			slices.Sort(idle)
			if s := l.Status(); !slices.Equal(idle, c.idle) || s.Frozen != c.frozen {
				t.Errorf("idle are %v, want %v; frozen is %v, want %v; status %+v", idle, c.idle, s.Frozen, c.frozen, s)
			}
		})
	}
}
