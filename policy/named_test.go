package policy

import (
	"strings"
	"testing"
	"time"
)

// mixed is an LSR pod with sums, of which these containers are to own CPUs.
func mixed(name, names string, milli int64) Pod {
	p := lsr(name, milli, map[string]string{AnnContainers: names})
	p.QoS = Burstable
	return p
}

// part is a container of a pod, with its limit equal to its request.
func part(p Pod, name string, milli int64) ContainerCreate {
	return ContainerCreate{Pod: p, Container: Container{ID: p.UID + "-" + name, Sandbox: p.Sandbox, Name: name,
		Resources: Resources{RequestMilli: milli, LimitMilli: milli}}}
}

// where is what each container of a pod runs on, by name.
func where(m *Machine, uid string) string {
	var all []string
	s := m.Snapshot()
	for _, c := range s.Containers {
		if c.PodUID == uid {
			all = append(all, c.Name+" "+string(c.Pool)+" "+s.CPUs(c).String())
		}
	}
	return strings.Join(all, ", ")
}

// Without the API server a container is given its CPUs when it starts. It keeps them while it
// does not run, and the pod's end frees them.
func TestContainersOwnFromTheirStart(t *testing.T) {
	m := small(t, Config{})
	p := mixed("a", "worker,main", 3500)
	told(t, m, PodRun{Pod: p})
	if got := m.Snapshot().Exclusive; !got.IsEmpty() {
		t.Fatalf("before anything starts %s are exclusive", got)
	}
	told(t, m, part(p, "main", 2000))
	told(t, m, part(p, "rest", 500))
	told(t, m, part(p, "worker", 1000))
	const want = "main exclusive 0-1, rest shared 3-15, worker exclusive 2"
	if got := where(m, "a"); got != want {
		t.Fatalf("got %s", got)
	}
	told(t, m, ContainerStopped{ID: "a-main"})
	told(t, m, PodRun{Pod: lsr("b", 2000, nil)})
	again := part(p, "main", 2000)
	again.Container.ID = "again"
	told(t, m, again)
	if got := where(m, "a"); !strings.Contains(got, "main exclusive 0-1,") {
		t.Errorf("after a restart: %s", got)
	}
	told(t, m, PodRemoved{Sandbox: "a"})
	if got := m.Snapshot().Exclusive.Count(); got != 2 {
		t.Errorf("after its end %d CPUs are exclusive", got)
	}
}

// With admission: degrade only the container runs in the shared pool that does not fit. It gets
// its CPUs as soon as there are enough.
func TestAContainerWaits(t *testing.T) {
	m := small(t, Config{Degrade: true, Authority: Authority{MaxCPUs: map[string]int{"default": 10}}})
	run(t, m, lsr("big", 6000, nil))
	p := mixed("a", "main,worker", 5500)
	p.CreatedAt = time.Unix(9, 0)
	told(t, m, PodRun{Pod: p})
	told(t, m, part(p, "main", 2000))
	told(t, m, part(p, "rest", 500))
	if got := told(t, m, part(p, "worker", 3000)); got != "Unauthorized" {
		t.Errorf("told %q", got)
	}
	if got := where(m, "a"); got != "main exclusive 6-7, rest shared 8-15, worker shared 8-15" {
		t.Fatalf("got %s", got)
	}
	if w := m.Snapshot().Waiting; len(w) != 1 || w[0].Container != "worker" || w[0].CPUs != 3 {
		t.Errorf("waiting are %+v", w)
	}
	if got := told(t, m, PodRemoved{Sandbox: "big"}); got != "CPUsHealed" {
		t.Errorf("told %q", got)
	}
	if got := where(m, "a"); !strings.Contains(got, "worker exclusive") || len(m.Snapshot().Waiting) != 0 {
		t.Errorf("afterwards: %s", got)
	}
}

// A collision with kubelet replaces the CPUs of the containers that kubelet pinned, each by as
// many; the fractional one keeps the shared pool, and its request counts there.
func TestACollisionIsOfAContainer(t *testing.T) {
	m := small(t, Config{Kubelet: Kubelet{Static: true}})
	run(t, m, lsr("db", 4000, nil))
	told(t, m, pins("static", nil))
	p := pinned("a", 3500)
	told(t, m, PodRun{Pod: p})
	for name, milli := range map[string]int64{"main": 2000, "side": 1000, "rest": 500} {
		told(t, m, part(p, name, milli))
	}
	state := booked(t, map[string]string{"a": "2-3"})
	state.Entries["a"]["side"] = cpus(t, "8")
	if got := told(t, m, state); got != "KubeletPinMoved" {
		t.Errorf("told %q", got)
	}
	if got := where(m, "a"); got != "main exclusive 4-5, rest shared 6-7,9-15, side exclusive 8" {
		t.Errorf("got %s", got)
	}
	if !m.Mixed("a") || m.Mixed("db") {
		t.Error("containers of a own CPUs, db owns as a whole")
	}
	if got := m.requestedFrom(m.pods["a"]); got != 500 {
		t.Errorf("it requests %dm of the shared pool", got)
	}
	if r := m.pods["a"].recoverable(); len(r.Owners) != 2 || r.CPUs != nil {
		t.Errorf("saved is %+v", r)
	}
}

// A name that is wrong is reported when the API server's facts arrive late.
func TestLateFactsNameTheContainer(t *testing.T) {
	m := small(t, Config{})
	p := mixed("a", "other", 2000)
	told(t, m, PodRun{Pod: p})
	f := PodFacts{UID: "a", Resources: *p.Resources,
		Containers: []ContainerFacts{{Name: "main", Resources: *p.Resources}}}
	if got := told(t, m, f); got != "InvalidAnnotation" {
		t.Errorf("told %q", got)
	}
	p = mixed("b", "main", 2000)
	told(t, m, PodRun{Pod: p})
	f.UID = "b"
	if got := told(t, m, f); got != "" || owns(m, "b") == "nothing" {
		t.Errorf("told %q, it owns %s", got, owns(m, "b"))
	}
}
