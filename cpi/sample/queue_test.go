package sample

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/cpi"
)

// starved is a window on a machine without cycles and instructions in which web ran for 4 s and
// waited 2 s for batch, 1 s for itself and 1 s for what is no container.
func starved() (from, to *Edge) {
	from, to = edges()
	from.Present, to.Present = [NumEvents]bool{}, [NumEvents]bool{}
	web := &cpi.Container{ID: "web", Class: cpi.LS, Platform: "model"}
	batch := &cpi.Container{ID: "batch", Class: cpi.BE, Platform: "model"}
	account := Account{Known: true, Pressure: true}
	from.Groups = []Group{{Container: web, CgroupID: 1, Account: account},
		{Container: batch, CgroupID: 2, Account: account}}
	to.Groups = []Group{
		{Container: web, CgroupID: 1, Counts: Counts{OnCPU: 4 * time.Second, Wait: 4 * time.Second},
			Account: Account{Known: true, Before: 4 * time.Second, After: 4 * time.Second, Pressure: true,
				Waiting: 4 * time.Second}},
		{Container: batch, CgroupID: 2, Counts: Counts{OnCPU: 10 * time.Second},
			Account: Account{Known: true, Before: 10 * time.Second, After: 10 * time.Second, Pressure: true}},
	}
	to.Causes = true
	to.Delays = []Wait{{"web", Delay{By: "", For: time.Second}}, {"web", Delay{By: "batch", For: 2 * time.Second}},
		{"web", Delay{By: "web", For: time.Second}}}
	return from, to
}

// Each case changes the window in one way.
func TestQueueIsWhatOthersTook(t *testing.T) {
	for name, c := range map[string]struct {
		change func(from, to *Edge)
		queue  float64
	}{
		"it waits for batch, for itself and for the host": {func(_, _ *Edge) {}, 1.5},
		"it waits for itself alone":                       {func(_, to *Edge) { to.Delays = to.Delays[2:] }, 1},
		"for the host alone":                              {func(_, to *Edge) { to.Delays = to.Delays[:1] }, 1},
		"the kernel says that no task waited": {func(_, to *Edge) {
			to.Groups[0].Account.Waiting = 400 * time.Millisecond
		}, 1},
		"the kernel says nothing of waits": {func(from, to *Edge) {
			from.Groups[0].Account.Pressure, to.Groups[0].Account.Waiting = false, 0
		}, 1.5},
		"its own quota stopped it": {func(_, to *Edge) { to.Groups[0].Account.Stopped = time.Second }, 0},
		"it hardly ran": {func(_, to *Edge) {
			to.Groups[0].OnCPU, to.Groups[0].Account = time.Microsecond, Account{}
		}, 0},
		"batch is a unit of the host": {func(from, to *Edge) {
			unit := *to.Groups[1].Container
			unit.Class = cpi.Host
			from.Groups[1].Container, to.Groups[1].Container = &unit, &unit
		}, 1},
		"causes are not known": {func(_, to *Edge) { to.Causes = false }, 0},
		"no bound of a ratio":  {func(_, to *Edge) { to.Delays[1].For = 1e6 * time.Second }, mostQueue},
	} {
		from, to := starved()
		c.change(from, to)
		w := Judge(from, to, Hardware(window))
		if got := w.Containers[0].Queue; got != c.queue || w.ByQueue != to.Causes {
			t.Errorf("%s: %v, want %v", name, got, c.queue)
		}
	}
}

func TestDelaysNameWhoHadTheCPU(t *testing.T) {
	from, to := starved()
	w := Judge(from, to, Hardware(window))
	web, batch := &w.Containers[0], &w.Containers[1]
	if len(web.Delays) != 2 || web.Delays[0] != (Delay{By: "batch", For: 2 * time.Second}) || web.Delays[1].By != "" {
		t.Errorf("%+v", web.Delays)
	}
	if batch.Caused != 0.2 || web.Caused != 0 {
		t.Errorf("batch cost others %v CPUs, want 0.2; web %v", batch.Caused, web.Caused)
	}
	judged := ByQueue(w.Containers)
	if web.NoCPI != Uncounted || web.Platform != "model" {
		t.Error("the window itself was changed")
	}
	if got := &judged[0]; got.NoCPI != None || got.CPI != 1.5 || got.Usage != 0.4 ||
		got.Platform != "model"+QueuePlatform {
		t.Errorf("web is judged as %+v", got)
	}
	if got := &judged[1]; got.CPI != 1 || got.Usage != 1 {
		t.Errorf("batch is judged as %+v", got)
	}
	// A PMU's window is not judged by waits, but says who delayed whom.
	to.Present = [NumEvents]bool{true, true, true, true}
	from.Present = to.Present
	if w := Judge(from, to, Hardware(window)); w.ByQueue || len(w.Containers[0].Delays) != 2 {
		t.Errorf("with a PMU: by queue %t, delays %+v", w.ByQueue, w.Containers[0].Delays)
	}
}

// Who waits little is well, however little that was before.
func TestAShortWaitIsNoChange(t *testing.T) {
	all := []Result{{Container: &cpi.Container{Class: cpi.LS}, Sample: Sample{NoCPI: Uncounted, Queue: 1.2, Usage: 1}}}
	if got := ByQueue(all)[0].CPI; got != leastQueue {
		t.Errorf("judged as %v, want %v", got, leastQueue)
	}
}

func TestBlameOfTheQueue(t *testing.T) {
	history := windows(Sample{Queue: 1.1, Pressure: 0.02, Wait: 0.1, HasWait: true},
		Sample{Queue: 2, Pressure: 0.6, Wait: 0.5, HasWait: true}, 3)
	e := BlameQueue(history, 1.4, []Delay{{By: "b", For: 9 * time.Second}, {By: "", For: time.Second}})
	const want = "resource: queue (waited for default/batch/main 90 %, what is no container 10 %, " +
		"waited 10 % of its time, now 50 %, work took 1.10 times as long as alone, now 2.00, " +
		"CPU pressure 2 %, now 60 %)"
	if got := e.Text(func(string) string { return "default/batch/main" }); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	alone := Evidence{Resource: Queue, Waited: true}
	if got := alone.String(); got != "resource: queue (no window to compare with)" {
		t.Error(got)
	}
}

// Whatever waits there are, Queue is 0 or between 1 and its bound, nobody is delayed by itself,
// and what is kept is bounded and in order.
func TestQueueIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := starved()
		id := rapid.SampledFrom([]string{"", "web", "batch", "gone", "a", "b", "c", "d", "e", "f"})
		to.Delays = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Wait {
			return Wait{id.Draw(t, "victim"), Delay{By: id.Draw(t, "by"),
				For: time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "for"))}}
		}), 0, 40).Draw(t, "delays")
		to.Groups[0].OnCPU = time.Duration(rapid.Int64Range(0, int64(5*time.Second)).Draw(t, "ran"))
		for _, r := range Judge(from, to, Hardware(window)).Containers {
			if r.Queue != 0 && !(r.Queue >= 1 && r.Queue <= mostQueue) || len(r.Delays) > maxDelays {
				t.Fatalf("%s: %v, %+v", r.ID, r.Queue, r.Delays)
			}
			for i, d := range r.Delays {
				if d.By == r.ID || i > 0 && d.For > r.Delays[i-1].For {
					t.Fatalf("%s: %+v", r.ID, r.Delays)
				}
			}
			if text := blamed(r.Delays, strings.ToUpper); len(text) > 200 {
				t.Fatal(text)
			}
		}
	})
}
