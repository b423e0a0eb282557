package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

// asking are pods that ask for a power each, in every way that there is.
func asking() map[string]struct {
	power Power
	pod   Pod
} {
	type ask = struct {
		power Power
		pod   Pod
	}
	required := map[string]string{AnnNUMASpec: `{"singleNUMANodeExclusive":"Required"}`}
	burst := map[string]string{AnnSpec: `{"preferredCPUBindPolicy":"ConstrainedBurst"}`,
		AnnNUMASpec: `{"SINGLENUMANODEEXCLUSIVE":"\u0052equired"}`}
	nothing := ls("p", 0, nil)
	nothing.QoS, nothing.Resources, nothing.Labels = BestEffort, &Resources{LimitMilli: NoLimit},
		map[string]string{LabelClass: "LS"}
	alone := lsr("p", 2000, map[string]string{AnnManaged: "false", AnnSMT: "isolate"})
	idle := bestEffort("p", 0)
	idle.QoS, idle.Labels, idle.Annotations = BestEffort, nil, map[string]string{AnnManaged: "false"}
	system := ls("p", 1000, nil)
	system.Labels = map[string]string{LabelClass: "SYSTEM"}
	return map[string]ask{
		"LSR":                      {PowerExclusive, lsr("p", 2000, nil)},
		"isolate":                  {PowerWholeCores, isolated("p", 2000)},
		"roundup":                  {PowerWholeCores, rounded("p", 1000)},
		"Required, LSR":            {PowerNUMAExclusive, lsr("p", 1000, required)},
		"Required, LS and escaped": {PowerNUMAExclusive, ls("p", 1, burst)},
		"managed":                  {PowerUnmanaged, alone},
		"managed, best effort":     {PowerUnmanaged, idle},
		"LS on BestEffort":         {PowerWithoutRequest, nothing},
		"isolated CPUs":            {PowerIsolatedCPUs, lsr("p", 2000, map[string]string{AnnIsolated: "required"})},
		"SYSTEM":                   {PowerSystem, system},
	}
}

// Who may, by profile: every namespace, and one that is listed.
func TestPowers(t *testing.T) {
	open := map[Profile][]Power{
		"":             {PowerExclusive},
		ProfileDefault: {PowerExclusive},
		ProfileOpen:    {PowerExclusive, PowerWholeCores, PowerNUMAExclusive, PowerUnmanaged, PowerWithoutRequest},
		ProfileStrict:  {},
	}
	for name, ask := range asking() {
		for profile, all := range open {
			for _, list := range []string{"", "default", "other", "*"} {
				cfg := Config{Authority: Authority{Profile: profile, Namespaces: map[Power][]string{}}}
				if ask.power != PowerExclusive {
					cfg.Authority.Namespaces[PowerExclusive] = []string{"default"}
				}
				want := slices.Contains(all, ask.power)
				if list != "" {
					cfg.Authority.Namespaces[ask.power], want = []string{list}, list != "other"
				}
				cfg.System.Namespaces = cfg.Authority.Namespaces[PowerSystem]
				got := refusal(isolating(t, cfg, cpuset.Of(14, 15)), PodRun{Pod: ask.pod})
				refused := strings.HasPrefix(got, "Unauthorized: namespace \"default\" may not ")
				if want && got != "" || !want && !refused {
					t.Errorf("%s, profile %q, listed %q: got %q", name, profile, list, got)
				}
				key := "authority." + string(ask.power) + ".namespaces"
				if ask.power == PowerSystem {
					key = "system.namespaces"
				}
				if !want && !strings.Contains(got, key) {
					t.Errorf("%s: %q does not name %s", name, got, key)
				}
			}
		}
	}
}

// profiled is small with the profile as it is.
func profiled(t testing.TB, cfg Config) *Machine { return isolating(t, cfg, cpuset.Set{}) }

// isolating is profiled where the kernel isolates CPUs.
func isolating(t testing.TB, cfg Config, cpus cpuset.Set) *Machine {
	t.Helper()
	topo, err := topology.Grid{Sockets: 2, CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err == nil {
		topo, err = topo.WithIsolated(cpus)
	}
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(topo, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// With admission: degrade a pod runs, without the power: it owns nothing that it did not
// pay for, keeps no pod off, and can be capped where it requests nothing.
func TestADegradedPodHasNoPower(t *testing.T) {
	for name, ask := range asking() {
		if ask.power == PowerExclusive {
			continue
		}
		m := profiled(t, Config{Degrade: true})
		decided(t, m, PodRun{Pod: ask.pod})
		p := m.pods["p"]
		if p.degraded == "" || p.grant != nil || p.in.unmanaged || p.in.numaExclusive != numaShared ||
			len(m.kept(p)) > 0 {
			t.Errorf("%s: %+v", name, p.place)
		}
		if ask.pod.QoS == BestEffort && !p.cappable() {
			t.Errorf("%s escapes caps", name)
		}
		again := profiled(t, Config{Degrade: true})
		decided(t, again, m.Checkpoint())
		if q := again.pods["p"]; q.in.class != p.in.class || q.in.unmanaged || q.degraded == "" {
			t.Errorf("%s: a restart makes it %+v", name, q.place)
		}
	}
	// An owner that requests nothing is refused for that, and must not end as one that nothing may cap.
	owner := lsr("p", 0, nil)
	owner.QoS, owner.Resources = BestEffort, &Resources{LimitMilli: NoLimit}
	m := profiled(t, Config{Degrade: true})
	decided(t, m, PodRun{Pod: owner})
	if p := m.pods["p"]; !p.cappable() {
		t.Errorf("got %+v", p.place)
	}
}

// What runs at an upgrade keeps its class and powers until it is gone, and is counted; a
// pod of the same kind that comes later is refused.
func TestPodsThatRunKeepTheirPowers(t *testing.T) {
	for name, ask := range asking() {
		before := Config{Authority: Authority{Profile: ProfileOpen,
			Namespaces: map[Power][]string{PowerIsolatedCPUs: {"default"}}},
			System: System{Namespaces: []string{"default"}}}
		m := isolating(t, before, cpuset.Of(14, 15))
		decided(t, m, PodRun{Pod: ask.pod})
		was := m.pods["p"]
		now := isolating(t, Config{Authority: Authority{Profile: ProfileStrict}, System: before.System},
			cpuset.Of(14, 15))
		decided(t, now, m.Checkpoint())
		is := now.pods["p"]
		same := is.in.class == was.in.class && is.in.unmanaged == was.in.unmanaged && is.degraded == "" &&
			(is.grant == nil) == (was.grant == nil)
		if same = same && (is.grant == nil || is.grant.all() == was.grant.all()); !same {
			t.Errorf("%s had %+v and has %+v", name, was.place, is.place)
		}
		counted := now.Snapshot().Powers
		if ask.power != PowerSystem && (len(counted) != 1 || !slices.Contains(counted[0].Kept, ask.power)) {
			t.Errorf("%s: counted are %+v", name, counted)
		}
		later := ask.pod
		later.UID, later.Sandbox, later.Name = "later", "later", "later"
		got := refusal(now, PodRun{Pod: later})
		if ask.power != PowerSystem && !strings.HasPrefix(got, "Unauthorized") {
			t.Errorf("%s: a later one got %q", name, got)
		}
	}
}

// What the operator configured for every pod needs no authority, and asks for none.
func TestTheConfigurationIsAuthority(t *testing.T) {
	for smt, word := range map[cpuallocator.SMT]string{cpuallocator.SMTIsolate: "isolate",
		cpuallocator.SMTRoundUp: "roundup"} {
		m := profiled(t, Config{Allocation: Allocation{SMT: smt}})
		for _, annotation := range []string{"", word} {
			name := "p" + annotation
			decided(t, m, PodRun{Pod: lsr(name, 1000, map[string]string{AnnSMT: annotation})})
			if g := m.pods[name].grant; g.all().Count() != 2 {
				t.Errorf("%s by %q: %s", word, annotation, g.all())
			}
		}
	}
	nodes := map[string]string{AnnSpec: `{"preferredCPUExclusivePolicy":"NUMANodeLevel"}`}
	required := Allocation{ExclusiveRequired: true}
	if got := refusal(profiled(t, Config{Allocation: required}), PodRun{Pod: lsr("p", 1000, nodes)}); got == "" {
		t.Error("NUMANodeLevel that is required keeps others off a whole node, without authority")
	}
	required.Exclusive = cpuallocator.NUMANodeLevel
	decided(t, profiled(t, Config{Allocation: required}), PodRun{Pod: lsr("p", 1000, nodes)})
	decided(t, profiled(t, Config{}), PodRun{Pod: lsr("p", 1000, nodes)}) // it is only preferred
}
