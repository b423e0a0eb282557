package policy

import (
	"testing"
	"time"
)

// TestReleasedEndsEveryLimit of best effort, and what is capped has its own limit again.
func TestReleasedEndsEveryLimit(t *testing.T) {
	m := machineOf(t, 2, 4, Config{Authority: Authority{Profile: ProfileOpen}})
	now := time.Unix(1e9, 0)
	p := ls("batch", 1000, nil)
	p.Labels = map[string]string{LabelClass: string(BE)}
	events := []Event{
		PodRun{Pod: p},
		ContainerCreate{Pod: p, Container: Container{ID: "batch", Sandbox: p.Sandbox, Name: "main",
			Resources: Resources{LimitMilli: NoLimit}}},
		CapVerdict{ID: "batch", Milli: 100, For: time.Hour},
		BESuppressed{CPUs: cpus(t, "4-15"), QuotaMilli: 500},
		BEKeptOff{Victim: "web", CPUs: cpus(t, "0-7"), For: time.Hour},
		BEKeptOff{Victim: "web", CPUs: cpus(t, "0-11"), For: time.Hour, Pod: p.UID},
		PodRun{Pod: lowest("low")},
		Idled{Pod: "low", For: time.Hour},
	}
	for _, e := range events {
		if _, err := m.Step(now, e); err != nil {
			t.Fatal(err)
		}
	}
	if got := m.Snapshot().BE.String(); got != "8-15" || len(m.Caps()) != 1 {
		t.Fatalf("best effort has %s, and there are %d caps", got, len(m.Caps()))
	}
	if _, err := m.Step(now, Released{}); err != nil {
		t.Fatal(err)
	}
	if len(m.be.idled) > 0 {
		t.Error("a pod still runs on otherwise idle CPUs alone")
	}
	s := m.Snapshot()
	if on := s.CPUs(s.Containers[0]); on != s.BE {
		t.Errorf("it runs on %s, and best effort has %s", on, s.BE)
	}
	if s.BE != s.BEWhole || len(m.Caps()) != 0 || s.Containers[0].CapMilli != 0 {
		t.Errorf("best effort has %s of %s, and there are %d caps", s.BE, s.BEWhole, len(m.Caps()))
	}
	if again, err := m.Step(now, Released{}); err != nil || len(again) != 0 {
		t.Errorf("with nothing to end: %v, %v", again, err)
	}
}
