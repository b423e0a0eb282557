package policy

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

// small is a machine of two sockets of four cores with two threads. Everybody may ask for
// what TestPowers is not about.
func small(t testing.TB, cfg Config) *Machine {
	t.Helper()
	if cfg.Authority.Profile == "" {
		cfg.Authority.Profile = ProfileOpen
	}
	return profiled(t, cfg)
}

func lsr(name string, milli int64, annotations map[string]string) Pod {
	r := Resources{RequestMilli: milli, LimitMilli: milli}
	return Pod{UID: name, Sandbox: name, Namespace: "default", Name: name, QoS: Guaranteed, Resources: &r,
		Labels: map[string]string{LabelClass: "LSR"}, Annotations: Relevant(annotations, "")}
}

// TestHostileAnnotations: whatever a tenant writes is refused with a short,
// printable sentence, and changes nothing.
func TestHostileAnnotations(t *testing.T) {
	huge := strings.Repeat("x", 1<<20)
	for _, c := range []struct{ key, value string }{
		{AnnSpec, "{"},
		{AnnSpec, "[]"},
		{AnnSpec, "null trailing"},
		{AnnSpec, `{"preferredCPUBindPolicy":7}`},
		{AnnSpec, `{"preferredCPUBindPolicy":"\u001b[31mred\nline"}`},
		{AnnSpec, `{"preferredCPUBindPolicy":"` + huge + `"}`},
		{AnnSpec, strings.Repeat("[", 4000)},
		{AnnSpec, `{"preferredCPUExclusivePolicy":"fullpcpus"}`},
		{AnnSMT, "isolate "},
		{AnnSMT, huge},
		{AnnNUMASpec, `{"numaTopologyPolicy":"Everywhere"}`},
		{AnnNUMASpec, huge},
		{AnnNUMASpec, `{"singleNUMANodeExclusive":"required"}`},
		{AnnNUMASpec, `{"numaTopologyPolicy":["BestEffort"]}`},
		{AnnManaged, "False"},
		{AnnManaged, huge},
		{AnnCap, "Exempt"},
		{AnnCap, huge},
		{AnnStatus, `{"numaNodeResources":[{"node":0,"resources":{"cpu":"` + strings.Repeat("9", 3000) + `"}}]}`},
		{AnnStatus, `{"numaNodeResources":[{"node":0},{"node":0}]}`},
		{AnnStatus, `{"numaNodeResources":[{"node":-2147483649}]}`},
		{AnnStatus, `{"numaNodeResources":{"node":0}}`},
		{AnnStatus, `{"cpuset":"0-2000000000"}`},
		{AnnStatus, `{"cpuset":"-1"}`},
		{AnnStatus, `{"cpuset":"3-1"}`},
		{AnnStatus, `{"cpuset":"0-3,2"}`},
		{AnnStatus, `{"cpuset":"٣"}`},
		{AnnStatus, `{"cpuSharedPools":[{"socket":0,"node":99}]}`},
		{AnnStatus, huge},
	} {
		t.Run(fmt.Sprintf("%.60s=%.40q", c.key, c.value), func(t *testing.T) {
			m := small(t, Config{Authority: Authority{TrustStatus: true}})
			before := describe(m.Snapshot())
			_, err := m.Step(time.Unix(0, 0), PodRun{Pod: lsr("a", 2000, map[string]string{c.key: c.value})})
			var refusal *Refusal
			if !errors.As(err, &refusal) || refusal.Code != InvalidAnnotation {
				t.Fatalf("got %v, want InvalidAnnotation", err)
			}
			if len(err.Error()) > 400 || strings.ContainsAny(err.Error(), "\x1b\n") {
				t.Errorf("the message is not one short printable line: %q", err)
			}
			if !strings.Contains(err.Error(), c.key) {
				t.Errorf("the message does not name the annotation: %v", err)
			}
			if after := describe(m.Snapshot()); after != before {
				t.Errorf("something changed:\n%s\n%s", before, after)
			}
		})
	}
}

// TestResourceStatus: a scheduler's choice counts only where the operator trusts
// it, and then only if the ledger agrees.
func TestResourceStatus(t *testing.T) {
	status := func(s string) map[string]string { return map[string]string{AnnStatus: s} }
	m := small(t, Config{})
	decisions, err := m.Step(time.Unix(0, 0), PodRun{Pod: lsr("forged", 2000, status(`{"cpuset":"8-9"}`))})
	if err != nil {
		t.Fatal(err)
	}
	if got := m.pods["forged"].grant.cpus.String(); got != "0-1" {
		t.Errorf("an untrusted resource-status decided: %s", got)
	}
	told := false
	for _, d := range decisions {
		if n, ok := d.(Notice); ok && n.Reason == "ResourceStatusIgnored" {
			told = true
		}
	}
	if !told {
		t.Error("nobody was told that resource-status is ignored")
	}

	m = small(t, Config{Authority: Authority{TrustStatus: true}, Reserved: cpuset.Of(0, 1)})
	for _, c := range []struct {
		name, status, want string
		code               Code
	}{
		{"honoured", `{"cpuset":"8-9"}`, "8-9", ""},
		{"taken", `{"cpuset":"9-10"}`, "", "InsufficientCPUs"},
		{"reserved", `{"cpuset":"1-2"}`, "", "InsufficientCPUs"},
		{"nowhere", `{"cpuset":"15-16"}`, "", "InsufficientCPUs"},
		{"miscounted", `{"cpuset":"10-12"}`, "", InvalidRequest},
	} {
		_, err := m.Step(time.Unix(0, 0), PodRun{Pod: lsr(c.name, 2000, status(c.status))})
		var refusal *Refusal
		switch {
		case c.code == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.code == "" && m.pods[c.name].grant.cpus.String() != c.want:
			t.Errorf("%s: got %s, want %s", c.name, m.pods[c.name].grant.cpus, c.want)
		case c.code != "" && (!errors.As(err, &refusal) || refusal.Code != c.code):
			t.Errorf("%s: got %v, want %s", c.name, err, c.code)
		}
	}
}

// TestConfigThatThisMachineCannotHave is refused at the start and at a reload,
// and a refused reload changes nothing.
func TestConfigThatThisMachineCannotHave(t *testing.T) {
	topo, err := topology.Grid{CoresPerL3: 2, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"reserved elsewhere", Config{Reserved: cpuset.Of(3, 4)}, "no CPU 4"},
		{"system elsewhere", Config{System: System{CPUs: cpuset.Of(9)}}, "no CPU 9"},
		{"nothing left", Config{Reserved: cpuset.Range(0, 3), ReservedStrict: true}, "reserve fewer"},
		{"floor above all", Config{SharedFloor: 5}, "floor is 5"},
	} {
		if _, err := New(topo, c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		m, err := New(topo, Config{})
		if err != nil {
			t.Fatal(err)
		}
		before := describe(m.Snapshot())
		if _, err := m.Step(time.Unix(0, 0), Reconfigured{Config: c.cfg}); err == nil {
			t.Errorf("%s: accepted at a reload", c.name)
		}
		if after := describe(m.Snapshot()); after != before {
			t.Errorf("%s: a refused reload changed something", c.name)
		}
	}
}

// TestRefusedSandboxesForEver: kubelet retries a refused pod without end, each
// time with a new sandbox of the same UID. Nothing may stay behind.
func TestRefusedSandboxesForEver(t *testing.T) {
	m := small(t, Config{})
	for i := range 1000 {
		p := lsr("retried", 100000, nil)
		p.Sandbox = fmt.Sprintf("sandbox-%d", i)
		if _, err := m.Step(time.Unix(int64(i), 0), PodRun{Pod: p}); err == nil {
			t.Fatal("accepted")
		}
		if _, err := m.Step(time.Unix(int64(i), 0), PodRemoved{Sandbox: p.Sandbox}); err != nil {
			t.Fatal(err)
		}
	}
	if len(m.pods)+len(m.sandboxes)+len(m.containers)+len(m.overruled) != 0 {
		t.Errorf("%d pods, %d sandboxes, %d containers stayed behind", len(m.pods), len(m.sandboxes), len(m.containers))
	}
}

// TestSecondSandboxKeepsTheAllocation: a sandbox that died is replaced by one of
// the same pod before the old one is removed.
func TestSecondSandboxKeepsTheAllocation(t *testing.T) {
	m := small(t, Config{})
	first, second := lsr("db", 4000, nil), lsr("db", 4000, nil)
	second.Sandbox = "another"
	for _, e := range []Event{PodRun{Pod: first}, PodRun{Pod: second}, PodRemoved{Sandbox: first.Sandbox}} {
		if _, err := m.Step(time.Unix(0, 0), e); err != nil {
			t.Fatal(err)
		}
	}
	if got := m.pods["db"].grant.cpus.String(); got != "0-3" {
		t.Errorf("the pod owns %s", got)
	}
	if _, err := m.Step(time.Unix(0, 0), PodRemoved{Sandbox: "another"}); err != nil {
		t.Fatal(err)
	}
	if s := m.Snapshot(); s.Shared.Count() != 16 {
		t.Errorf("the shared pool has %s after the last sandbox went", s.Shared)
	}
}
