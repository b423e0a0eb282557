package cgroup_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/internal/cgroup"
)

// The kernel takes no weight while a cgroup is idle and forgets the one from before.
func TestIdleFiles(t *testing.T) {
	d := newDir(t)
	const pod = "kubepods/besteffort/pod1"
	d.Mkdir(pod, 1)
	on, off := true, false
	look := func(idle bool, weight uint64) {
		t.Helper()
		if e, err := d.Effective(pod); err != nil || !e.HasIdle || e.Idle != idle || e.Weight != weight {
			t.Errorf("idle %t (%t) with weight %d, want %t and %d (%v)", e.Idle, e.HasIdle, e.Weight, idle, weight, err)
		}
	}
	apply := func(v cgroup.Values) error { t.Helper(); return d.Apply(context.Background(), pod, v) }
	if err := apply(cgroup.Values{Idle: &on}); err != nil {
		t.Fatal(err)
	}
	look(true, 0)
	if text, err := os.ReadFile(filepath.Join(d.Root(), pod, "cpu.idle")); err != nil ||
		strings.TrimSpace(string(text)) != "1" {
		t.Errorf("cpu.idle is %q, %v", text, err)
	}
	for _, v := range []cgroup.Values{{Idle: &on, Weight: 5}, {Idle: &off}} {
		if err := d.FS().Apply(context.Background(), pod, v); err == nil {
			t.Errorf("%+v is taken", v)
		}
	}
	if err := apply(cgroup.Values{Idle: &off, Weight: 7}); err != nil {
		t.Fatal(err)
	}
	look(false, 7)
	if err := os.Remove(filepath.Join(d.Root(), pod, "cpu.idle")); err != nil {
		t.Fatal(err)
	}
	if e, err := d.Effective(pod); err != nil || e.HasIdle {
		t.Errorf("a kernel without the file: %+v, %v", e, err)
	}
	if err := d.FS().Apply(context.Background(), pod, cgroup.Values{Idle: &on}); !errors.Is(err, cgroup.ErrNoIdle) {
		t.Errorf("a kernel without the file: %v", err)
	}
}

// Systemd keeps what it was given as a property; what was written to the file would end
// with its next change of the unit. Before 252 it knows no idle.
func TestIdleUnits(t *testing.T) {
	for _, old := range []bool{false, true} {
		n := newSystemdNode(t, cgroup.BusOptions{})
		n.systemd.Old = old
		const pod = "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod2.slice"
		n.systemd.Start(pod, 1)
		on, off := true, false
		err := n.driver.Apply(context.Background(), pod, cgroup.Values{Idle: &on})
		if old {
			if !errors.Is(err, cgroup.ErrNoIdle) {
				t.Errorf("an old systemd: %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		n.systemd.Reload()
		if e, err := n.Effective(pod); err != nil || !e.Idle {
			t.Errorf("after a reload: %+v, %v", e, err)
		}
		if err := n.driver.Apply(context.Background(), pod, cgroup.Values{Idle: &off, Weight: 1}); err != nil {
			t.Fatal(err)
		}
		if e, err := n.Effective(pod); err != nil || e.Idle || e.Weight != 1 {
			t.Errorf("undone: %+v, %v", e, err)
		}
	}
}
