package config

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi/experiment"
	"github.com/quietcore/quietcore/cpuset"
)

// A running daemon takes over what it can, and what is read at a start alone stays.
func TestReloaded(t *testing.T) {
	running, next := Default(), Default()
	next.Log.Level, next.Admission.Mode, next.Reserved.CPUs = "debug", Degrade, cpuset.Of(0)
	next.Mode, next.CPI.Mode, next.Suppress.Mode, next.Node.Name = Observe, CPIEnforce, SwitchEnforce, "other"
	next.Kubernetes.BatchSlice, next.Kubernetes.Events = SwitchEnforce, false
	got := running.Reloaded(&next)
	if got.Log.Level != "debug" || got.Admission.Mode != Degrade || got.Reserved.CPUs != cpuset.Of(0) ||
		got.Mode != Observe || got.CPI.Mode != CPIEnforce || got.Suppress.Mode != SwitchEnforce ||
		got.Kubernetes.BatchSlice != SwitchEnforce {
		t.Errorf("what can change at run time did not: %+v", got)
	}
	if keys := NeedsRestart(&running, got); len(keys) > 0 {
		t.Errorf("%v changed without a restart", keys)
	}
	if next.Mode != Observe {
		t.Error("the configuration that was read changed")
	}
	changes, err := Changes(got, &next)
	if err != nil {
		t.Fatal(err)
	}
	var waiting []string
	for _, c := range changes {
		if !c.Restart {
			t.Errorf("%s waits for a restart without need", c.Key)
		}
		waiting = append(waiting, c.Key)
	}
	if want := []string{"kubernetes.events", "node.name"}; !slices.Equal(waiting, want) {
		t.Errorf("%v wait for a restart, want %v", waiting, want)
	}
}

// CPUs are lent on a Node that is followed; without kubernetes.labels that begins at a start alone.
func TestLendingOnANodeThatIsNotFollowedWaits(t *testing.T) {
	running := Default()
	running.Kubernetes.Labels = false
	next := running
	next.Reclaim.Mode, next.Reclaim.Reserve = SwitchEnforce, 1
	got := running.Reloaded(&next)
	if got.Reclaim.Mode != SwitchOff || got.Reclaim.Reserve != 1 {
		t.Errorf("lending is %s with %v reserved", got.Reclaim.Mode, got.Reclaim.Reserve)
	}
	changes, err := Changes(got, &next)
	if err != nil || len(changes) != 1 || changes[0].Key != "reclaim.mode" || !changes[0].Restart {
		t.Errorf("%+v, %v", changes, err)
	}
	running.Kubernetes.Labels, next.Kubernetes.Labels = true, true
	if got := running.Reloaded(&next); got.Reclaim.Mode != SwitchEnforce {
		t.Error("lending waits where the Node is followed")
	}
}

// Only what decides about CPUs is a change of the policy.
func TestSamePolicy(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		same   bool
	}{
		"nothing":       {func(*Config) {}, true},
		"the log level": {func(c *Config) { c.Log.Level = "debug" }, true},
		"a listener":    {func(c *Config) { c.Listen = "" }, true},
		"the page":      {func(c *Config) { c.Page.Listen = "" }, true},
		"admission":     {func(c *Config) { c.Admission.Mode = Degrade }, false},
		"a node label":  {func(c *Config) { c.Node.Labels = map[string]string{"a": "b"} }, false},
		"a floor":       {func(c *Config) { c.Pools.SharedFloor = 4 }, false},
	} {
		a, b := Default(), Default()
		if c.change(&b); SamePolicy(&a, &b) != c.same {
			t.Errorf("%s: the same policy is %t, want %t", name, !c.same, c.same)
		}
	}
}

func TestWrittenChangesMoveNoCursor(t *testing.T) {
	var out bytes.Buffer
	err := WriteChanges(&out, []Change{{Key: "a\x1b[2J", Old: json.RawMessage(`"\u001b"`), Restart: true}})
	if want := "a?[2J  \"\\u001b\" -> (none)  restart\n"; err != nil || out.String() != want {
		t.Errorf("%q, %v; want %q", out.String(), err, want)
	}
}

// What is set for a detector that was not chosen is said, by the names of its keys.
func TestUnusedKeys(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "",
		"cpi: {detector: contrast, capFor: 10m}": "",
		"cpi: {detector: classic, minScore: 0.5}":       "",
		"cpi: {probe: {budget: 2}, evictAfter: 3}":      "",
		"cpi: {capFor: 10m, history: 2h}":               "cpi.history, cpi.capFor: without effect with cpi.detector",
		"cpi: {detector: classic, probe: {budget: 2}}":  "cpi.probe.budget has no effect with cpi.detector: classic",
		"cpi: {detector: classic, probe: {window: 5s}}": "cpi.probe.window has no effect with cpi.detector: classic",
		"cpi: {detector: classic, probe: {witness: true}}": "" +
			"cpi.probe.witness has no effect with cpi.detector: classic",
	} {
		c, err := Parse([]byte(head + text))
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(c.CPI.Unused(), "\n")
		if !strings.HasPrefix(got, want) || (want == "") != (got == "") {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// What the detector by experiment is to do follows from the keys it shares with the others, and
// the budget.
func TestExperiment(t *testing.T) {
	c := Default()
	for _, other := range []Detector{DetectorClassic, DetectorContrast} {
		if c.CPI.Detector = other; c.CPI.Experiment() != nil {
			t.Errorf("%s makes experiments", other)
		}
	}
	c = Default()
	got := c.CPI.Experiment()
	if usual := experiment.DefaultConfig(); got.Enforce || got.NeedWitness || got.Budget != usual.Budget ||
		got.Period != time.Minute || got.CapBatchMilli != usual.CapBatchMilli || got.CapBEMilli != usual.CapBEMilli {
		t.Errorf("by default: %+v", got)
	}
	parsed, err := Parse([]byte(head + "cpi: {mode: enforce, interval: 20s, " +
		"probe: {budget: 0, witness: true}, capBatch: 0.2, capBestEffort: 0.05, evictAfter: 3, " +
		"maxContainers: 77}"))
	if err != nil {
		t.Fatal(err)
	}
	if got = parsed.CPI.Experiment(); !got.Enforce || got.Budget != 0 || !got.NeedWitness ||
		got.Period != 20*time.Second || got.CapBatchMilli != 200 || got.CapBEMilli != 50 || got.EvictAfter != 3 ||
		got.MaxContainers != 77 {
		t.Errorf("as the file says: %+v", got)
	}
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
	for text, want := range map[string]time.Duration{
		"cpi: {interval: 1m}": 10 * time.Second, "cpi: {interval: 2m}": 20 * time.Second,
		"cpi: {interval: 20s, window: 5s}":                     10 * time.Second,
		"cpi: {interval: 1s, window: 200ms}":                   time.Second,
		"cpi: {probe: {window: 1m}}":                           time.Minute,
		"cpi: {probe: {window: 1h}}":                           time.Minute,
		"cpi: {interval: 7s, window: 1s, probe: {window: 1s}}": 7 * time.Second / 6,
	} {
		c, err := Parse([]byte(head + text))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.CPI.Experiment(); got.Window != want || got.Validate() != nil {
			t.Errorf("%s: tests have windows of %v, want %v: %v", text, got.Window, want, got.Validate())
		}
	}
	if keys := NeedsRestart(&c, parsed); len(keys) != 0 {
		t.Errorf("%v need a restart", keys)
	}
}
