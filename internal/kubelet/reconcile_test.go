package kubelet

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

// Which CPUs kubelet reserves is looked for until it is known, and missed aloud once.
func TestReservedCPUsAreReconciled(t *testing.T) {
	var log bytes.Buffer
	var events []policy.Event
	r := &Reconciler{
		Submit: func(_ context.Context, e policy.Event) error { events = append(events, e); return nil },
		Online: func() cpuset.Set { return cpuset.Of(0, 1, 2, 3) },
		Log:    slog.New(slog.NewTextHandler(&log, nil)),
	}
	last := func() policy.Kubelet {
		t.Helper()
		e, ok := events[len(events)-1].(policy.KubeletConfigured)
		if !ok {
			t.Fatalf("the last event is %T", events[len(events)-1])
		}
		return e.Kubelet
	}
	if err := r.TakeInventory(t.Context(), Inventory{}); err != nil || len(events) != 0 {
		t.Fatalf("%v without a configuration, %v", events, err)
	}
	c, err := Parse(source("cpuManagerPolicy: static\nkubeReserved: {cpu: 1500m}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.TakeConfig(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if got := last().Reserved; !got.IsEmpty() {
		t.Errorf("reserved are %s, and nothing says so", got)
	}
	if n := strings.Count(log.String(), "cannot determine which CPUs kubelet reserves"); n != 1 {
		t.Errorf("%d warnings, want 1:\n%s", n, &log)
	}
	if err := r.TakeInventory(t.Context(), Inventory{CPUs: cpuset.Of(2, 3)}); err != nil {
		t.Fatal(err)
	}
	if got := last().Reserved; got != cpuset.Of(0, 1) {
		t.Errorf("reserved are %s, want 0-1", got)
	}
	before := len(events)
	if err := r.TakeState(t.Context(), policy.KubeletState{PolicyName: "static"}); err != nil || len(events) != before+
		1 {
		t.Errorf("%d events follow a state, want the state alone; %v", len(events)-before, err)
	}
	if k := r.Known(); k.Config == nil || k.State.PolicyName != "static" || k.Inventory.CPUs != cpuset.Of(2, 3) {
		t.Errorf("known is %+v", k)
	}
}
