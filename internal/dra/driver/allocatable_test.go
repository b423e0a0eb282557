package driver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/quietcore/quietcore/internal/config"
)

// gates says who has the feature gate DRANodeAllocatableResources.
type gates struct {
	server, kubelet bool
	noRight         bool // nobody may write slices
}

// admit does what the API server does: without the gate it drops the mapping, with it the node must have it, too.
func (g gates) admit(d *resourceapi.Device) error {
	forbidden := func(why string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "resourceslices"}, "n1", errors.New(why))
	}
	switch {
	case g.noRight:
		return forbidden("no right")
	case !g.server:
		d.NodeAllocatableResources = nil
	case !g.kubelet && len(d.NodeAllocatableResources) > 0:
		return forbidden(`node "n1" does not support DRANodeAllocatableResources feature`)
	}
	return nil
}

// The mapping on the node's CPUs is published where both have the gate. Elsewhere claims work without it, and the state
// says so; once the gate is there and kubelet comes back, the mapping is there.
func TestNodeAllocatable(t *testing.T) {
	w := newWorld(t)
	w.maps = true
	p := newPublisher(w.driver)
	at := func(what string, writes int, mapped bool, state string) {
		t.Helper()
		before := w.api.writes
		p.attempt(t.Context())
		list, _ := w.api.Slices(t.Context(), "n1")
		if len(list) != 1 || len(list[0].Spec.Devices) != 2 {
			t.Fatalf("%s: slices %+v", what, list)
		}
		for _, d := range list[0].Spec.Devices {
			has := d.NodeAllocatableResources["cpu"].Mapping != nil
			if has != mapped || d.AllowMultipleAllocations == nil {
				t.Errorf("%s: device %s has a mapping: %v", what, d.Name, has)
			}
		}
		if got := w.api.writes - before; got != writes || !strings.Contains(w.driver.slices, state) ||
			(w.driver.slices == "") != (state == "") {
			t.Errorf("%s: %d writes, state %q", what, got, w.driver.slices)
		}
	}
	at("no gate", 1, false, "drops nodeAllocatableResources")
	at("no gate, again", 0, false, "feature DRANodeAllocatableResources (alpha and off in Kubernetes 1.37)")
	w.api.gates.server = true
	at("the API server has it", 0, false, "drops nodeAllocatableResources")
	p.forget() // kubelet was restarted
	at("kubelet has not", 0, false, `refuses nodeAllocatableResources in ResourceSlices for this node (resourceslices `+
		`"n1" is forbidden: node "n1" does not support`)
	w.api.gates.kubelet = true
	at("both have it", 1, true, "")
	at("both have it, again", 0, true, "")
	w.api.gates.kubelet = false
	w.share = "4"
	at("kubelet lost it", 1, false, "or set dra.nodeAllocatable to false")
	w.maps = false
	at("nobody wants it", 0, false, "")
}

// A change of the node that changes nothing of its slices costs no request; one that does is published.
func TestOnlyOtherSlicesCostRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := newPublisher(w.driver)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); p.run(ctx) }()
		for i, c := range []struct {
			share config.Share
			lists int
		}{{"50%", 1}, {"50%", 1}, {"8", 1}, {"4", 2}, {"4", 2}} {
			w.share = c.share
			w.driver.Changed()
			time.Sleep(2 * writeEvery)
			synctest.Wait()
			if w.api.lists != c.lists {
				t.Errorf("change %d: the slices were listed %d times, want %d", i, w.api.lists, c.lists)
			}
		}
		p.look()
		time.Sleep(2 * writeEvery)
		synctest.Wait()
		if w.api.lists != 3 {
			t.Errorf("kubelet has taken the driver in: listed %d times, want 3", w.api.lists)
		}
		time.Sleep(wipedWithin)
		synctest.Wait()
		if w.api.lists != 4 {
			t.Errorf("kubelet may have deleted them: listed %d times, want 4", w.api.lists)
		}
		cancel()
		<-done
	})
}

// A dropped field is tried again after an hour of looks.
func TestDroppedFieldsAreTriedAgain(t *testing.T) {
	w := newWorld(t)
	w.maps = true
	p := newPublisher(w.driver)
	p.attempt(t.Context())
	w.api.gates = gates{server: true, kubelet: true}
	for range lacksFor {
		if w.driver.slices == "" {
			t.Fatal("written again at once")
		}
		p.attempt(t.Context())
	}
	if w.driver.slices != "" || w.api.writes != 2 {
		t.Errorf("%d writes, state %q", w.api.writes, w.driver.slices)
	}
}

// Who may not write slices at all is told so, not of a gate.
func TestForbiddenSlices(t *testing.T) {
	w := newWorld(t)
	w.maps = true
	w.api.gates.noRight = true
	newPublisher(w.driver).attempt(t.Context())
	got := w.driver.slices
	if !strings.HasPrefix(got, "ResourceSlices are not written") || !strings.Contains(got, "no right") ||
		strings.Contains(got, "DRANodeAllocatable") {
		t.Errorf("state %q", got)
	}
}
