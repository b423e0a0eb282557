package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/cpi/sampler"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/dayreport"
	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/page"
	cgroupusage "github.com/quietcore/quietcore/internal/usage"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// seenNode is a machine with 16 CPUs on which db owns 4 of them, or would, and a pod was refused.
type seenNode struct {
	*policy.Machine
	busy, lost bool
}

func (n *seenNode) Synchronised() bool { return !n.lost }

func (n *seenNode) Pods(context.Context) ([]policy.PodView, error) {
	if n.busy {
		return nil, errors.New("busy")
	}
	return n.Machine.Pods(), nil
}

func (n *seenNode) Refused() []policy.RefusedPod {
	return []policy.RefusedPod{{UID: "uid-many", Namespace: "shop", Pod: "many", Code: "InsufficientCPUs",
		Message: "no room"}}
}

func seenMachine(t *testing.T) *seenNode {
	t.Helper()
	topo, err := topology.Grid{CoresPerL3: 8, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	m, err := policy.New(topo, policy.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for name, one := range map[string]struct {
		class string
		qos   policy.QoS
		milli int64
	}{
		"db": {"LSE", policy.Guaranteed, 4000}, "web": {"LS", policy.Burstable, 6000},
		"batch": {"BE", policy.BestEffort, 0},
	} {
		pod := policy.Pod{UID: "uid-" + name, Sandbox: "sb-" + name, Namespace: "shop", Name: name, QoS: one.qos,
			CreatedAt: noonOfDay, CgroupParent: "/kubepods/" + name,
			Labels:    policy.Relevant(map[string]string{policy.LabelClass: one.class}, ""),
			Resources: &policy.Resources{RequestMilli: one.milli, LimitMilli: one.milli}}
		for _, e := range []policy.Event{policy.PodRun{Pod: pod}, policy.ContainerCreate{Pod: pod,
			Container: policy.Container{ID: name, Sandbox: pod.Sandbox, Name: "main", Resources: *pod.Resources,
				Shares: 2, CreatedAt: noonOfDay}}} {
			if _, err := m.Step(noonOfDay, e); err != nil {
				t.Fatal(err)
			}
		}
	}
	return &seenNode{Machine: m}
}

var noonOfDay = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// usageOf are cgroups that use so many CPUs since noon.
func usageOf(now *time.Time, cpus map[string]float64) func(map[string]string) []cgroupusage.Reading {
	return func(cgroups map[string]string) (list []cgroupusage.Reading) {
		for id, at := range cgroups {
			used := time.Duration(cpus[at] * float64(now.Sub(noonOfDay)))
			list = append(list, cgroupusage.Reading{ID: id, At: *now, CPU: used})
		}
		return list
	}
}

func testDay(t *testing.T, n seen, now *time.Time) *day {
	t.Helper()
	cfg := config.Default()
	cfg.Mode, cfg.Node.Name, cfg.Reclaim.Mode = config.Observe, "node-a", config.SwitchObserve
	store := incidents.New(incidents.Options{Path: filepath.Join(t.TempDir(), "incidents.db"), Pause: time.Millisecond})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); store.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	return newDay(dayOptions{node: n, config: func() *config.Config { return &cfg }, incidents: store,
		usage: usageOf(now, map[string]float64{"/": 8, "/kubepods/db": 1, "/kubepods/web": 2,
			"/kubepods/batch": 4.5}),
		lending: func() *page.Lending { return &page.Lending{Offered: true, Offer: 3} },
		counts:  func() string { return "" }, file: filepath.Join(t.TempDir(), "day.json"),
		log: slog.New(slog.NewTextHandler(t.Output(), nil))})
}

// An hour of a node becomes a report: what is decided by the policy, used by cgroups, and found by the detector.
func TestAnHourBecomesAReport(t *testing.T) {
	n, now := seenMachine(t), noonOfDay
	d := testDay(t, n, &now)
	d.o.incidents.Put(incidents.Incident{At: now.Add(time.Minute), Node: "node-a", DisturbedSeconds: 300,
		Victim: incidents.Subject{Namespace: "shop", Pod: "db", Container: "main", Job: "Pod/db/main"}})
	for range 62 {
		d.minute(t.Context(), now)
		d.take(windowOf(t, n, now))
		now = now.Add(time.Minute)
	}
	r, err := d.report(t.Context(), noonOfDay, now, 0)
	if err != nil {
		t.Fatal(err)
	}
	type figures struct {
		looked, online, owned, requested, production, batch, outside, idle, lendable float64
	}
	c := r.CPUs
	got := figures{r.LookedMinutes, c.Online, c.Owned, *c.Requested, *c.Production, *c.Batch, *c.Outside, *c.Idle,
		*c.Lendable}
	if want := (figures{61, 16, 4, 10, 3, 4.5, 0.5, 7, 3}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if r.Node != "node-a" || r.Mode != "observe" || r.EnforcedMinutes != 0 || len(r.Missing) > 0 {
		t.Errorf("%+v", r)
	}
	want := []dayreport.Sharing{{Pod: "shop/db", With: "shop/batch", Minutes: 62, CPUs: 0.5, PartedMinutes: 62}}
	if diff := cmp.Diff(want, r.Shared); diff != "" {
		t.Error(diff)
	}
	if len(r.Disturbed) != 1 || r.Disturbed[0].Minutes != 5 || len(r.Costs) != 1 || r.Costs[0].Who != "shop/many" {
		t.Errorf("%+v, %+v", r.Disturbed, r.Costs)
	}
	if line := d.reports().Line(); line != "in 1h1m: 1 incidents, 5 minutes disturbed; 1 owners shared cores that "+
		"enforcing keeps for them; 7.0 allocated CPUs idle, 3.0 to lend; 1 pods refused" {
		t.Errorf("the line is %q", line)
	}
	t.Log("a daemon that starts has the facts of the one before")
	d.save()
	after := newDay(d.o)
	if diff := cmp.Diff(d.facts.Facts(), after.facts.Facts()); diff != "" {
		t.Error(diff)
	}
	if err := os.WriteFile(d.o.file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if damaged := newDay(d.o); len(damaged.facts.Facts()) != 0 {
		t.Error("facts of a file that is none")
	}
}

// windowOf is one in which batch had half a CPU of db's cores, and web had others.
func windowOf(t *testing.T, n *seenNode, at time.Time) *sampler.Window {
	t.Helper()
	view := n.Snapshot()
	w := &sampler.Window{Topology: view.Topology, Window: sample.Window{End: at}}
	var ids []string
	for _, c := range view.Containers {
		cpus := view.CPUs(c)
		ids = append(ids, c.ID)
		w.Containers = append(w.Containers, sample.Result{Container: &cpi.Container{ID: c.ID, PodUID: c.PodUID,
			Namespace: c.Namespace, Pod: c.Pod, PodClass: string(c.Class), Class: cpi.LS,
			Place: cpi.Place{CPUs: &cpus}}})
	}
	ids = append(ids, kernelID)
	w.Containers = append(w.Containers, sample.Result{Container: &cpi.Container{ID: kernelID, Class: cpi.Host}})
	rows := []sample.Row{{CPU: 10, Who: 1, OnCPU: 4}, {CPU: 11, Who: 0, OnCPU: 5}, {CPU: 10, Who: 3, OnCPU: 1},
		{CPU: 12, Who: 2, OnCPU: 9}}
	w.ByCPU = sample.NewByCPU(10, ids, len(rows), func(i int) sample.Row { return rows[i] }, nil)
	return w
}

// Two share cores still where enforcing leaves them a core in common, and where nobody knows where one may run.
func TestWhoIsParted(t *testing.T) {
	n := seenMachine(t)
	w := windowOf(t, n, noonOfDay)
	for _, c := range []struct {
		cpus *cpuset.Set
		want bool
	}{{w.Containers[0].Place.CPUs, true}, {w.Containers[1].Place.CPUs, false}, {nil, false}} {
		w.Containers[0].Place.CPUs = c.cpus
		pairs := pairsOf(w, n.Snapshot())
		if len(pairs) != 1 || pairs[0].Parts != c.want || pairs[0].CPUs != 0.5 || pairs[0].Other.Name != "batch" ||
			pairs[0].Owner.Class != "LSE" {
			t.Errorf("with CPUs %v: %+v, want %t", c.cpus, pairs, c.want)
		}
	}
}

// What is not known is not taken for nothing.
func TestALookThatSeesNothing(t *testing.T) {
	n, now := seenMachine(t), noonOfDay
	d := testDay(t, n, &now)
	looked := func() (seconds, known float64) {
		for _, f := range d.facts.Facts() {
			seconds, known = seconds+f.Seconds, known+f.Known
		}
		return seconds, known
	}
	step := func() { now = now.Add(time.Minute); d.look(t.Context(), now) }
	step()
	if step(); true {
		if seconds, known := looked(); seconds != 60 || known != 60 {
			t.Errorf("%v s, %v known", seconds, known)
		}
	}
	n.busy = true
	step()
	n.busy, n.lost = false, true
	step()
	if seconds, _ := looked(); seconds != 60 {
		t.Errorf("%v s of a node that does not answer", seconds)
	}
	n.lost, d.o.usage = false, func(map[string]string) []cgroupusage.Reading { return nil }
	step()
	if seconds, known := looked(); seconds != 240 || known != 60 {
		t.Errorf("%v s, %v known where nothing can be read", seconds, known)
	}
	for _, w := range []*sampler.Window{{Failed: errors.New("x")}, {Between: true}, {}} {
		d.take(w)
	}
	if f := d.facts.Facts(); f[0].Counted != 0 {
		t.Errorf("%v s counted", f[0].Counted)
	}
}

// In mode observe nothing is kept among the node's own.
func TestWhereADayIsKept(t *testing.T) {
	cfg := config.Default()
	for mode, want := range map[config.Mode]string{config.Enforce: cfg.State.Dir,
		config.Observe: filepath.Dir(cfg.Socket)} {
		cfg.Mode = mode
		if got := dayFile(&cfg); filepath.Dir(got) != want {
			t.Errorf("%s: %s", mode, got)
		}
	}
}
