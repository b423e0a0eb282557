package reclaim

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestRandomLives throws everything at an estimator and checks after every step
// what it promises: nothing is lent that is not there, nothing rises between
// samples or right after an eviction, no pod is evicted twice.
func TestRandomLives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Default()
		cfg.From = rapid.SampledFrom([]From{FromSlack, FromUsage}).Draw(t, "from")
		cfg.Idle.Window, cfg.Idle.Sample = Duration(20*time.Minute), Duration(time.Minute)
		cfg.Idle.Threshold = rapid.SampledFrom([]float64{0, 10, 100}).Draw(t, "threshold")
		cfg.Reserve = rapid.SampledFrom([]float64{0, 2, 64}).Draw(t, "reserve")
		e, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		now := began
		evicted := map[string]bool{}
		pods := map[string]Pod{}
		offer := 0.0
		for step := range rapid.IntRange(1, 80).Draw(t, "steps") {
			id := fmt.Sprint("pod", rapid.IntRange(0, 7).Draw(t, "pod"))
			switch rapid.IntRange(0, 5).Draw(t, "op") {
			case 0, 1:
				if _, there := pods[id]; !there {
					pods[id] = Pod{ID: id, Batch: rapid.Bool().Draw(t, "batch"),
						Request: rapid.SampledFrom([]float64{0, 0.5, 2, 8}).Draw(t, "request"), Created: now}
				}
			case 2:
				delete(pods, id)
				delete(evicted, id) // its name may come again, as a new pod
			}
			r := Report{Capacity: rapid.SampledFrom([]float64{16, 16, 16, 8, 0}).Draw(t, "capacity"),
				Throttled: rapid.IntRange(0, 9).Draw(t, "throttled") == 0}
			if rapid.IntRange(0, 3).Draw(t, "sampled") > 0 {
				r.Span = time.Duration(rapid.SampledFrom([]int{1, 20, 60, 600}).Draw(t, "span")) * time.Second
			}
			now = now.Add(r.Span)
			if rapid.IntRange(0, 19).Draw(t, "jump") == 0 {
				now = now.Add(time.Duration(rapid.IntRange(-60, 60).Draw(t, "by")) * time.Minute)
			}
			for _, id := range slices.Sorted(maps.Keys(pods)) {
				p := pods[id]
				p.Sampled = r.Span > 0 && rapid.IntRange(0, 9).Draw(t, "missing") > 0
				p.Use = rapid.SampledFrom([]float64{0, 0, 0.01, 0.3, 2, 9, -1}).Draw(t, "use")
				r.Pods = append(r.Pods, p)
			}
			o, err := e.Step(now, r)
			if err != nil {
				t.Fatal(err)
			}
			requested := 0.0
			for _, p := range r.Pods {
				if p.Batch {
					requested += p.Request
				}
			}
			switch {
			case o.Reclaimable > max(0, o.Supply)+o.Unutilised+tiny, o.Reclaimable < 0,
				o.Supply > r.Capacity-cfg.Reserve+tiny:
				t.Fatalf("step %d: %v is reclaimable of a supply of %v and %v unutilised", step, o.Reclaimable,
					o.Supply, o.Unutilised)
			case o.Unutilised < 0 || o.Unutilised > requested+tiny || o.Demand > requested+tiny:
				t.Fatalf("step %d: %v unutilised, %v demanded, of %v requested", step, o.Unutilised, o.Demand,
					requested)
			case o.Offer > o.Reclaimable+tiny || o.Offer < 0 || cfg.Idle.Threshold > 0 &&
				o.Offer*cfg.Idle.Threshold/100 > max(0, o.Supply)+tiny:
				t.Fatalf("step %d: %v is offered of %v, with a supply of %v", step, o.Offer, o.Reclaimable, o.Supply)
			case r.Span == 0 && (o.Offer > offer+tiny || len(o.Evict) > 0):
				t.Fatalf("step %d: the offer rose from %v to %v or a pod was evicted without a measurement",
					step, offer, o.Offer)
			case cfg.Idle.Threshold == 0 && len(o.Idle) > 0:
				t.Fatalf("step %d: %v are idle below a threshold of 0", step, o.Idle)
			}
			left := requested
			for _, v := range o.Evict {
				if evicted[v.Pod] || !pods[v.Pod].Batch || v.Why == "" {
					t.Fatalf("step %d: evicts %v; evicted before: %v", step, v, evicted)
				}
				evicted[v.Pod] = true
				left -= pods[v.Pod].Request
			}
			if len(o.Evict) > 0 && o.Offer > left+tiny {
				t.Fatalf("step %d: offers %v right after an eviction that leaves requests of %v", step, o.Offer, left)
			}
			offer = o.Offer
			if len(evicted) > 0 && rapid.IntRange(0, 9).Draw(t, "refused") == 0 {
				for id := range evicted {
					e.Refused(now, id)
				}
				clear(evicted)
			}
		}
	})
}
