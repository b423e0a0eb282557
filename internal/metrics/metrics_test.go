package metrics

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/experiment"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

func machine(t *testing.T) *policy.Machine {
	t.Helper()
	topo, err := topology.Grid{Sockets: 2, CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	m, err := policy.New(topo, policy.Config{})
	if err != nil {
		t.Fatal(err)
	}
	pod := policy.Pod{UID: "u", Sandbox: "s", Namespace: "default", Name: "web", QoS: policy.Guaranteed,
		Labels:    map[string]string{policy.LabelClass: "LSR"},
		Resources: &policy.Resources{RequestMilli: 4000, LimitMilli: 4000}}
	ctr := policy.Container{ID: "c", Sandbox: "s", Name: "main", Resources: *pod.Resources}
	for _, e := range []policy.Event{policy.PodRun{Pod: pod}, policy.ContainerCreate{Pod: pod, Container: ctr}} {
		if _, err := m.Step(time.Unix(0, 0), e); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func TestStateIsCountedAtTheScrape(t *testing.T) {
	m := machine(t)
	set := New("v1", func() (Stats, bool) { return FromSnapshot(m.Snapshot(), time.Unix(0, 0)), true })
	const want = `
# HELP quietcore_cpus CPUs; one can be in several states.
# TYPE quietcore_cpus gauge
quietcore_cpus{state="isolated"} 0
quietcore_cpus{state="offline"} 0
quietcore_cpus{state="online"} 16
quietcore_cpus{state="reserved"} 0
quietcore_cpus{state="withheld"} 0
# HELP quietcore_pool_containers Containers that run in each pool.
# TYPE quietcore_pool_containers gauge
quietcore_pool_containers{pool="be"} 0
quietcore_pool_containers{pool="exclusive"} 1
quietcore_pool_containers{pool="reserved"} 0
quietcore_pool_containers{pool="shared"} 0
quietcore_pool_containers{pool="system"} 0
quietcore_pool_containers{pool="unmanaged"} 0
`
	if err := testutil.GatherAndCompare(set.registry, strings.NewReader(want), "quietcore_cpus",
		"quietcore_pool_containers"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Step(time.Unix(1, 0), policy.PodRemoved{Sandbox: "s"}); err != nil {
		t.Fatal(err)
	}
	after := strings.ReplaceAll(want, `exclusive"} 1`, `exclusive"} 0`)
	if err := testutil.GatherAndCompare(set.registry, strings.NewReader(after), "quietcore_cpus",
		"quietcore_pool_containers"); err != nil {
		t.Fatal(err)
	}
}

// What alerts are made of tells what is wrong, and by itself that it is not.
func TestWhatAlertsAreMadeOf(t *testing.T) {
	m := machine(t)
	begin := time.Unix(1000, 0)
	batch := policy.Pod{UID: "b", Sandbox: "sb", Namespace: "default", Name: "batch", QoS: policy.BestEffort,
		Resources: &policy.Resources{LimitMilli: policy.NoLimit}}
	for _, e := range []policy.Event{
		policy.PodRun{Pod: batch}, policy.ContainerCreate{Pod: batch,
			Container: policy.Container{ID: "b1", Sandbox: "sb", Name: "main", Resources: *batch.Resources, Shares: 2}},
		policy.CapVerdict{ID: "b1", Milli: 100, For: time.Minute},
	} {
		if _, err := m.Step(begin, e); err != nil {
			t.Fatal(err)
		}
	}
	now := begin
	var s Stats
	set := New("v1", func() (Stats, bool) {
		one := FromSnapshot(m.Snapshot(), now)
		one.SharedFloor, one.Unsaved, one.Stale, one.Lending, one.Modes, one.Connected, one.RestartRequired =
			s.SharedFloor, s.Unsaved, s.Stale, s.Lending, s.Modes, s.Connected, s.RestartRequired
		return one, true
	})
	beat, connected := begin, true
	health := NewHealth(func() time.Time { return now }, func() time.Time { return beat })
	health.Require("not registered with the runtime", func() bool { return connected })
	Handler(set, health)
	value := func(name string, labels ...string) float64 {
		t.Helper()
		health.Look()
		families, err := set.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, one := range f.GetMetric() {
				var has []string
				for _, l := range one.GetLabel() {
					has = append(has, l.GetValue())
				}
				if f.GetName() == "quietcore_"+name && slices.Equal(has, labels) {
					return one.GetGauge().GetValue()
				}
			}
		}
		return math.NaN()
	}
	check := func(want float64, name string, labels ...string) {
		t.Helper()
		if got := value(name, labels...); got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("%s%v is %v, want %v", name, labels, got, want)
		}
	}
	check(0, "caps_overdue")
	check(1, "capped_containers")
	check(1, "ready")
	check(0, "nri_connected")
	check(math.NaN(), "lending_cpus", "production")
	for _, name := range featureNames() {
		check(0, "degraded", featureLabel(name))
	}

	s = Stats{SharedFloor: 2, Unsaved: 90 * time.Second, Stale: time.Hour, RestartRequired: 2,
		Modes: Modes{"enforce", "observe", "off", "off"}, Lending: &Lending{Capacity: 16}}
	s.Connected = true
	check(1, "nri_connected")
	now = begin.Add(time.Minute + overdueAfter)
	beat = now
	check(0, "caps_overdue") // just not yet
	now = now.Add(time.Second)
	check(1, "caps_overdue")
	check(2, "shared_pool_floor_cpus")
	check(90, "state_unsaved_seconds")
	check(3600, "node_resource_topology_stale_seconds")
	check(2, "config_restart_required")
	check(1, "config_info", "observe", "enforce", "off", "off") // cpi, mode, reclaim, suppression
	check(16, "lending_cpus", "capacity")
	check(math.NaN(), "lending_cpus", "production") // it was not measured
	s.Lending.Used = &Used{Production: 3.5}
	check(3.5, "lending_cpus", "production")

	connected = false
	systemd := "no answer"
	health.Watch(func() map[string]string { return map[string]string{FeatureSystemd: systemd} })
	health.Watch(func() map[string]string {
		return map[string]string{FeatureCPI: "no PMU", "a feature of tomorrow": "not there"}
	})
	set.RequestTimeout(3 * time.Second)
	check(0, "ready")
	check(1, "degraded", "systemd")
	check(1, "degraded", "cpu_performance")
	check(1, "degraded", "other")
	check(0, "degraded", "cgroups")
	check(3, "nri_request_timeout_seconds")
	systemd = ""
	check(0, "degraded", "systemd")

	if _, err := m.Step(now, policy.Tick{}); err != nil {
		t.Fatal(err)
	}
	check(0, "caps_overdue") // it was undone
	check(0, "capped_containers")
}

// everything calls every method with every value, hostile ones included.
func everything(m *Metrics) {
	m.CPIDetector(func() Detection { return Detection{Tests: &experiment.Counters{}} })
	hostile := "x\n\x1b[31m" + strings.Repeat("y", 300)
	m.Synchronized(1000, 80*time.Millisecond)
	m.Reloaded(time.Unix(1700000000, 5e8), nil)
	m.Saved(nil)
	m.Saved(errors.New("disk full"))
	for _, event := range append(eventValues(), hostile) {
		for _, result := range append(requestResults(), hostile) {
			m.Request(event, result, time.Millisecond)
		}
	}
	for _, v := range [][]string{connectionResults(), writeResults(), driftSources(), reasons(),
		{hostile, hostile + "2"}} {
		for _, s := range v {
			m.Connection(s)
			m.CpusetWrite(s)
			m.Drift(s)
			m.Rejected(policy.Code(s))
		}
	}
	for _, what := range append(apiParts(), hostile) {
		for _, result := range []string{"ok", "dropped", "conflict", hostile} {
			m.APIRequest(what, result)
		}
	}
	for _, s := range slices.Concat(evictionResults(), repairCauses(), []string{"gone", "absent", hostile}) {
		m.Eviction(s)
		m.LendingRepaired(s)
	}
	for _, s := range slices.Concat(verdictValues(), outcomeValues(), []string{"gone", hostile}) {
		m.CPIVerdict(detect.VerdictKind(s))
		m.CPIOutcome(detect.Result(s))
	}
	for i := range 40 {
		m.CPIBlamed(fmt.Sprint("web", i), fmt.Sprint("batch", i))
	}
	m.CPILearned([]detect.Learned{{Job: hostile, Platform: hostile, CPI: 1, Usage: 1}})
	for _, r := range append(sample.Reasons(), sample.None) {
		m.CPIWindow(&CPIWindow{Containers: []sample.Result{dropped(hostile, r), without(counted(hostile), r),
			counted(hostile)}})
	}
}

// whole is a source of everything there is.
func whole(p *policy.Machine) Source {
	return func() (Stats, bool) {
		s := FromSnapshot(p.Snapshot(), time.Unix(0, 0))
		s.Modes = Modes{Mode: "enforce", CPI: "observe", Reclaim: "off", Suppression: "off"}
		s.Lending = &Lending{Supply: 6.5, Withheld: 4, Used: &Used{}}
		return s, true
	}
}

func TestSeriesBudget(t *testing.T) {
	m := New("v1", whole(machine(t)))
	everything(m)
	everything(m)
	server := httptest.NewServer(Handler(m, NewHealth(time.Now, time.Now)))
	defer server.Close()
	body := get(t, server.URL+"/metrics", http.StatusOK)
	series := 0
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, "#") {
			series++
		}
	}
	if pairs := strings.Count(body, "\nquietcore_cpi_blamed_total{"); pairs != 21 {
		t.Errorf("%d pairs of the budget, want 21: being blamed creates no series", pairs)
	}
	t.Logf("%d series", series)
	if series > 345 || series < 100 {
		t.Errorf("%d series, the budget is 345", series)
	}
	if strings.Contains(body, "yyy") || strings.Contains(body, "\x1b") {
		t.Error("a hostile value became a label")
	}
	for _, want := range []string{
		`quietcore_admission_rejections_total{reason="InsufficientCPUs"} 2`,
		`quietcore_cpuset_drift_total{source="kernel"} 2`,
		`quietcore_state_save_total{result="error"} 2`,
		`quietcore_lending_cpus{what="supply"} 6.5`,
		`quietcore_lending_evictions_total{result="ended"} 2`,
		`quietcore_api_requests_total{result="conflict",what="lending"} 2`,
		`quietcore_config_last_reload_success_timestamp_seconds 1.7000000005e+09`,
		`quietcore_nri_request_duration_seconds_bucket{event="CreateContainer",le="0.001"}`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("/metrics has no %s", want)
		}
	}
}

func TestReloadFailureKeepsTheTimeOfTheLastSuccess(t *testing.T) {
	m := New("v1", func() (Stats, bool) { return Stats{}, false })
	m.Reloaded(time.Unix(1000, 0), nil)
	m.Reloaded(time.Unix(2000, 0), errors.New("bad"))
	if ok, at := testutil.ToFloat64(m.enforced.reloadOK), testutil.ToFloat64(m.enforced.reloadTime); ok != 0 ||
		at != 1000 {
		t.Fatalf("successful %v at %v", ok, at)
	}
}

func get(t *testing.T, url string, status int) string {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	if r.StatusCode != status {
		t.Errorf("%s: status %d, want %d: %s", url, r.StatusCode, status, body)
	}
	return string(body)
}

func TestHealth(t *testing.T) {
	now := time.Unix(0, 0)
	beat, topology, registered, synchronized := now, false, false, false
	h := NewHealth(func() time.Time { return now }, func() time.Time { return beat })
	h.Require("the topology is not known", func() bool { return topology })
	h.Require("not registered with the runtime", func() bool { return registered })
	h.Require("what runs is not taken over yet", func() bool { return synchronized })
	server := httptest.NewServer(h.Probes())
	defer server.Close()
	for _, path := range []string{"/livez", "/readyz"} {
		body := get(t, server.URL+path, http.StatusServiceUnavailable)
		if !strings.Contains(body, "nothing is decided yet") {
			t.Errorf("%s before anything is decided: %s", path, body)
		}
	}
	read := func(path string, status int, reasons ...string) Report {
		t.Helper()
		var r Report
		if err := json.Unmarshal([]byte(get(t, server.URL+path, status)), &r); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(r.Reasons, reasons) || r.OK != (status == http.StatusOK) {
			t.Errorf("%s: %+v, want %q", path, r, reasons)
		}
		return r
	}
	probe := func(path string, status int, reasons ...string) Report {
		t.Helper()
		h.Look()
		return read(path, status, reasons...)
	}
	probe("/livez", 200)
	probe("/readyz", 503, "not registered with the runtime", "the topology is not known",
		"what runs is not taken over yet")
	topology, registered = true, true
	probe("/readyz", 503, "what runs is not taken over yet")
	synchronized = true
	why := "no API server"
	h.Watch(func() map[string]string { return map[string]string{"kube": why} })
	if r := probe("/readyz", 200); r.Degraded["kube"] != "no API server" {
		t.Errorf("degraded: %+v", r)
	}
	why = ""
	if r := probe("/readyz", 200); len(r.Degraded) != 0 {
		t.Errorf("degraded: %+v", r)
	}
	registered = false // the runtime went away: not ready, still alive
	probe("/livez", 200)
	probe("/readyz", 503, "not registered with the runtime")
	registered = true
	now = now.Add(stalled + time.Second)
	const stuck = "the event loop has not moved for 31s, the limit is 30s"
	probe("/livez", 503, stuck)
	probe("/healthz", 503, stuck)
	probe("/readyz", 503, stuck)
	beat = now
	probe("/healthz", 200)
	probe("/readyz", 200)
	// A part hangs, and the event loop goes on: nothing is decided any more.
	now = now.Add(stalled)
	beat = now
	read("/livez", 200)
	now = now.Add(time.Second)
	beat = now
	const silent = "a part of the daemon has not said how it is for 31s, the limit is 30s"
	read("/livez", 503, silent)
	read("/readyz", 503, silent)
	probe("/livez", 200)
	get(t, server.URL+"/other", http.StatusNotFound)
	get(t, server.URL+"/metrics", http.StatusNotFound)
	r, err := http.Post(server.URL+"/livez", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST /livez: %d", r.StatusCode)
	}
}

// A probe waits for no part: one that hangs in its report delays the next decision only.
func TestAProbeWaitsForNoPart(t *testing.T) {
	now := time.Unix(0, 0)
	h := NewHealth(func() time.Time { return now }, func() time.Time { return now })
	hangs, asked := make(chan struct{}), make(chan struct{})
	first := true
	h.Watch(func() map[string]string {
		if !first {
			close(asked)
			<-hangs
		}
		first = false
		return nil
	})
	h.Look()
	ended := make(chan struct{})
	go func() { h.Look(); close(ended) }()
	<-asked
	if live, ready := h.Live(), h.Ready(); !live.OK || !ready.OK {
		t.Errorf("live %+v, ready %+v", live, ready)
	}
	close(hangs)
	<-ended
}

// The log has it when the watchdog gives the daemon up: kubelet says only that a probe
// failed.
func TestTheWatchdogLogs(t *testing.T) {
	now := time.Unix(0, 0)
	h := NewHealth(func() time.Time { return now.Add(stalled + time.Second) }, func() time.Time { return now })
	var text bytes.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // it looks once
	h.Run(ctx, slog.New(slog.NewTextHandler(&text, nil)))
	if !strings.Contains(text.String(), "alive=false") || !strings.Contains(text.String(), "has not moved") {
		t.Errorf("the log: %s", &text)
	}
}

// The event loop of a process that was frozen has not moved, either: the clock goes on while the kernel suspends the
// machine or wakes it, and where a virtual machine is paused.
func TestTheWatchdogWasFrozenToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var jump time.Duration
		beat := time.Now()
		h := NewHealth(func() time.Time { return time.Now().Add(jump) }, func() time.Time { return beat })
		ctx, cancel := context.WithCancel(t.Context())
		go h.Run(ctx, slog.New(slog.DiscardHandler))
		step := func(d, jumps time.Duration, want bool) {
			t.Helper()
			time.Sleep(d)
			jump += jumps
			time.Sleep(2 * lookEvery)
			synctest.Wait()
			if live := h.Live(); live.OK != want {
				t.Errorf("after %s and a leap of %s: alive %t, want %t: %v", d, jumps, live.OK, want, live.Reasons)
			}
		}
		step(20*time.Second, stalled+time.Second, true)
		step(stalled, 0, false) // and it has not moved since
		beat = time.Now().Add(jump)
		step(0, 0, true)
		cancel()
	})
}

// Claims are counted by whether they have what they were given.
func TestClaimsAreCounted(t *testing.T) {
	topo, err := topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	m, err := policy.New(topo, policy.Config{})
	if err != nil {
		t.Fatal(err)
	}
	claim := policy.ClaimPrepared{UID: "u", Namespace: "ns", Name: "c", Requests: []policy.ClaimRequest{
		{Device: "numa-0", Within: topo.Online(), CPUs: 2}}}
	if _, err := m.Step(time.Unix(0, 0), claim); err != nil {
		t.Fatal(err)
	}
	set := New("v1", func() (Stats, bool) { return FromSnapshot(m.Snapshot(), time.Unix(0, 0)), true })
	const want = `
# HELP quietcore_claims ResourceClaims to which Quietcore's own DRA driver gave CPUs, by what became of these.
# TYPE quietcore_claims gauge
quietcore_claims{state="lost"} 0
quietcore_claims{state="prepared"} 1
`
	if err := testutil.GatherAndCompare(set.registry, strings.NewReader(want), "quietcore_claims"); err != nil {
		t.Error(err)
	}
	lost := []policy.ClaimView{{Requests: []policy.ClaimPart{{Lost: "gone"}, {CPUs: topo.Online()}}}}
	if have, gone := countClaims(lost); have != 0 || gone != 1 {
		t.Errorf("%d have their CPUs, %d lost some", have, gone)
	}
}
