package policy

import (
	"strings"
	"testing"
	"time"
)

// lowest is a pod of best effort of Kubernetes' class BestEffort.
func lowest(name string) Pod {
	p := bestEffort(name, 0)
	p.QoS, p.Resources = BestEffort, &Resources{0, NoLimit}
	return p
}

// TestOneIdles: one pod of best effort runs on otherwise idle CPUs for a time, and what it weighs for lent CPUs is not
// forgotten.
func TestOneIdles(t *testing.T) {
	now := time.Unix(1e9, 0)
	m := machineOf(t, 2, 4, Config{})
	for _, p := range []Pod{lowest("loud"), lowest("calm")} {
		told(t, m, PodRun{Pod: p})
		told(t, m, mainOf(p))
	}
	step := func(e Event) (idle, weight string) {
		t.Helper()
		list, err := m.Step(now, e)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range list {
			if d, is := d.(SetPod); is {
				idle += d.Pod.UID + " "
				if d.Idle {
					idle += "idle "
				}
				if d.WeightMilli > 0 {
					weight += "weighs "
				}
			}
		}
		return idle, weight
	}
	is := func(when string, want bool) {
		t.Helper()
		for _, c := range m.Snapshot().Containers {
			if told := strings.Contains(c.Why, "no other task wants"); told != (want && c.Pod == "loud") || !c.MayIdle {
				t.Errorf("%s: %s, may idle %t: %s", when, c.Pod, c.MayIdle, c.Why)
			}
		}
		if got := m.idles(m.pods["loud"]); got != want || m.idles(m.pods["calm"]) {
			t.Errorf("%s: loud idles %t, want %t", when, got, want)
		}
	}
	is("before", false)
	if got, _ := step(Idled{Pod: "loud", For: time.Minute}); got != "loud idle " {
		t.Errorf("decided is %q", got)
	}
	is("for a minute", true)
	now = now.Add(30 * time.Second)
	if got, _ := step(Idled{Pod: "loud", For: time.Minute}); got != "" {
		t.Errorf("for a minute more, decided is %q", got)
	}
	now = now.Add(59 * time.Second)
	step(Tick{})
	is("before the deadline", true)
	now = now.Add(time.Second)
	if got, _ := step(Tick{}); got != "loud " {
		t.Errorf("at the deadline, decided is %q", got)
	}
	is("at the deadline", false)
	step(Idled{Pod: "loud", For: time.Minute})
	if got, _ := step(Idled{Pod: "loud"}); got != "loud " {
		t.Errorf("taken back, decided is %q", got)
	}
	is("taken back", false)
	step(PodFacts{UID: "loud", BatchMilli: 4000, Resources: Resources{LimitMilli: NoLimit}})
	if got, weight := step(Idled{Pod: "loud", For: time.Minute}); got != "loud idle " || weight == "" {
		t.Errorf("lent CPUs, decided is %q, %q", got, weight)
	}
	step(PodRemoved{Sandbox: "loud"})
	if len(m.be.idled) > 0 {
		t.Errorf("of a pod that has ended, %v is left", m.be.idled)
	}
}

// Who is production, exempt, resized by Kubernetes or idle anyway is not made idle, and nobody once the kernel has
// refused.
func TestWhoDoesNotIdle(t *testing.T) {
	m := machineOf(t, 2, 4, Config{})
	burstable := ls("burstable", 1000, nil)
	burstable.Labels = map[string]string{LabelClass: string(BE)}
	for _, p := range []Pod{ls("web", 1000, map[string]string{AnnCap: "allow"}), burstable, lowest("low")} {
		told(t, m, PodRun{Pod: p})
		told(t, m, mainOf(p))
	}
	for pod, want := range map[string]Code{"web": InvalidRequest, "burstable": InvalidRequest, "nobody": InvalidRequest,
		"low": ""} {
		if got := code(t, m, Idled{Pod: pod, For: time.Minute}); got != want {
			t.Errorf("%s: refused with %q, want %q", pod, got, want)
		}
	}
	if got := code(t, m, Idled{Pod: "low", For: -1}); got != InvalidRequest {
		t.Errorf("for less than no time: %q", got)
	}
	told(t, m, IdleRefused{})
	for _, c := range m.Snapshot().Containers {
		if c.MayIdle || m.idles(m.pods["low"]) {
			t.Errorf("after the kernel has refused, %s may idle: %t", c.Pod, c.MayIdle)
		}
	}
	if got := code(t, m, Idled{Pod: "low", For: time.Minute}); got != InvalidRequest {
		t.Errorf("after the kernel has refused: %q", got)
	}
	always := machineOf(t, 2, 4, Config{BEIdle: true})
	told(t, always, PodRun{Pod: lowest("low")})
	if got := code(t, always, Idled{Pod: "low", For: time.Minute}); got != InvalidRequest {
		t.Errorf("who idles always: %q", got)
	}
}
