package policy

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

// tried asks a trial, of nothing but what the machine publishes, before a pod comes; the
// result compares that with what the machine does. Only the node knows of devices and
// of what kubelet booked for the pod, and a resource-status is a scheduler's own.
func (l *life) tried(t rapid.TB, e Event) func() {
	run, ok := e.(PodRun)
	p := *l.m.withReserved(&run.Pod)
	if !ok || l.m.pods[p.UID] != nil || l.m.sandboxes[p.Sandbox] != nil || p.Recovered != nil || p.Unread ||
		p.DeviceNodes != nil || len(l.m.entriesOf(p.UID)) > 0 || p.Annotations[AnnStatus] != "" ||
		p.Resources == nil && p.Facts == nil {
		return func() {}
	}
	l.m.views.ownersStale = true
	ledger := l.m.publish(nil, l.m.floors(claim{}))
	trial, err := NewTrial(l.m.topo, *ledger.Rules)
	if err != nil {
		return func() {} // CPUs that its configuration needs are off by now
	}
	var o Offer
	trial = trial.Clone()
	a, refusal := trial.Applicant(&p)
	if refusal == nil {
		s := Standing{Ledger: ledger, SharedMilli: ledger.SharedMilli}
		refusal = trial.Judge(a, s, &o)
		var summed Offer
		sums := SumsOf(ledger.Holdings, nil)
		s.Sums = &sums
		if again := trial.Judge(a, s, &summed); !reflect.DeepEqual(again, refusal) || !reflect.DeepEqual(summed, o) {
			t.Fatalf("%s: by sums the trial says %v and offers %+v, pod by pod %v and %+v", p.Name, again, summed,
				refusal, o)
		}
	}
	hidden := !l.m.pools.Kubelet.IsEmpty() // the sentence then names what kubelet owns, pod by pod or not
	return func() { l.sameAs(t, p, refusal, &o, hidden) }
}

// sameAs compares what was foreseen with what became of a pod.
func (l *life) sameAs(t rapid.TB, in Pod, refusal *Refusal, o *Offer, hidden bool) {
	p := l.m.pods[in.UID]
	switch {
	case refusal != nil && p == nil: // compared with the machine's own words by the caller
	case refusal != nil && l.m.cfg.Degrade && strings.Contains(refusal.Error(), "(allocation.smtRequired)"):
		// It runs in the shared pool, which has too few CPUs for it: that degrades no owner.
	case refusal != nil && (!l.m.cfg.Degrade || p.degraded == "" && !p.denied()):
		t.Fatalf("%s: the trial says %v, the machine took it", in.Name, refusal)
	case refusal == nil && p == nil:
		t.Fatalf("%s: the trial offers %+v, the machine refused", in.Name, o)
	case refusal == nil && (p.degraded != "" || p.denied()):
		t.Fatalf("%s: the trial offers CPUs %s, the machine says %s", in.Name, o.CPUs, p.degraded)
	case refusal == nil:
		var got Offer
		for _, h := range p.every() {
			if h.grant != nil {
				got.CPUs.AddSet(&h.grant.cpus)
				got.Withheld.AddSet(&h.grant.withheld)
			}
			if h.grant != nil && h.name != "" {
				got.Containers = append(got.Containers, Owned{Container: h.name, CPUs: h.grant.cpus})
			}
		}
		if p.nodes != nil {
			got.Nodes = *p.nodes
		}
		if !reflect.DeepEqual(got, *o) {
			t.Fatalf("%s: the trial offers CPUs %s, withheld %s, nodes %s; the machine gave %s, %s, %s", in.Name,
				o.CPUs, o.Withheld, o.Nodes, got.CPUs, got.Withheld, got.Nodes)
		}
	}
}

// denied reports whether a container of a pod was given no CPUs of its own.
func (p *pod) denied() bool {
	return slices.ContainsFunc(p.every(), func(h *holder) bool { return h.name != "" && h.degraded != "" })
}

// TestTrialWithout: what counts as gone, and what is on its way, changes the answer as if
// it had happened.
func TestTrialWithout(t *testing.T) {
	m := small(t, Config{})
	for i := range 7 {
		told(t, m, PodRun{Pod: lsr(fmt.Sprintf("p%d", i), 2000, nil)})
	}
	ledger := m.Snapshot().Ledger
	trial, err := NewTrial(m.topo, *ledger.Rules)
	if err != nil {
		t.Fatal(err)
	}
	next := lsr("next", 2000, nil)
	a, refusal := trial.Applicant(&next)
	if refusal != nil {
		t.Fatal(refusal)
	}
	var o Offer
	if r := trial.Judge(a, Standing{Ledger: ledger}, &o); r == nil || r.Code != cpuallocator.InsufficientCPUs {
		t.Errorf("a full node says %v", r)
	}
	without := Standing{Ledger: ledger, Without: []string{"p3"}}
	if r := trial.Judge(a, without, &o); r != nil || o.CPUs.String() != "6-7" {
		t.Errorf("without p3 it gets %s, %v", o.CPUs, r)
	}
	more := a.Holding(&o)
	more.UID = "first"
	without.More = []Holding{more}
	if r := trial.Judge(a, without, &o); r == nil {
		t.Errorf("CPUs that another pod is on its way to are offered: %s", o.CPUs)
	}
}

// TestSums: what a pod is offered by sums is what it is offered pod by pod, whatever it is that
// others hold: siblings kept idle, cores for one owner alone, what kubelet pinned, a pool that is
// bound.
func TestSums(t *testing.T) {
	alone := map[string]string{AnnSpec: `{"preferredCPUExclusivePolicy":"PCPULevel"}`}
	held := map[string]Holding{
		"plain":    {UID: "plain", Class: LSR, CPUs: packed(0, 1), Requested: 2},
		"withheld": {UID: "withheld", Class: LSR, CPUs: packed(2), Withheld: packed(3), Requested: 1},
		"alone":    {UID: "alone", Class: LSR, CPUs: packed(4), Requested: 1, Exclusive: cpuallocator.PCPULevel},
		"kubelet's": {UID: "kubelet's", Class: LSR, CPUs: packed(6, 7), Requested: 2,
			Kind: KindKubelet},
		"bound": {UID: "bound", Class: LS, Nodes: packed(0), Milli: 3000},
	}
	m := small(t, Config{})
	trial, err := NewTrial(m.topo, *m.Snapshot().Ledger.Rules)
	if err != nil {
		t.Fatal(err)
	}
	for subset := range 1 << len(held) {
		l := Ledger{Rules: m.Snapshot().Ledger.Rules}
		for i, name := range sortedKeys(held) {
			if subset>>i&1 == 1 {
				l.Holdings = append(l.Holdings, held[name])
			}
		}
		sums := SumsOf(l.Holdings[:len(l.Holdings)/2], l.Holdings[len(l.Holdings)/2:])
		for _, next := range []Pod{lsr("next", 4000, nil), lsr("next", 1000, nil), lsr("next", 1000, alone),
			lsr("next", 9000, nil)} {
			a, refusal := trial.Applicant(&next)
			if refusal != nil {
				t.Fatal(refusal)
			}
			var o, summed Offer
			first := trial.Judge(a, Standing{Ledger: &l}, &o)
			again := trial.Judge(a, Standing{Ledger: &l, Sums: &sums}, &summed)
			if !reflect.DeepEqual(first, again) || !reflect.DeepEqual(o, summed) {
				t.Errorf("%+v: by sums %v, %s; pod by pod %v, %s", l.Holdings, again, summed.CPUs, first, o.CPUs)
			}
		}
	}
}

func packed(cpus ...int) cpuset.Packed {
	s := cpuset.Of(cpus...)
	return s.Pack()
}

// TestAnOfferIsHonoured: a node that trusts its scheduler gives a pod what a trial offered, and
// says so in its ledger in the same words.
func TestAnOfferIsHonoured(t *testing.T) {
	burst := map[string]string{AnnSpec: `{"preferredCPUBindPolicy":"ConstrainedBurst"}`}
	odd := lsr("odd", 3000, map[string]string{AnnSMT: "roundup"})
	pods := []Pod{odd, lsr("alone", 3000, map[string]string{AnnSMT: "isolate"}), lsr("two", 2000, nil),
		ls("burst", 1000, burst)}
	m := small(t, Config{Authority: Authority{TrustStatus: true}, Reserved: cpuset.Of(0)})
	for _, p := range pods {
		ledger := m.Snapshot().Ledger
		trial, err := NewTrial(m.topo, *ledger.Rules)
		if err != nil {
			t.Fatal(err)
		}
		p.Annotations = maps.Clone(p.Annotations)
		var o Offer
		a, refusal := trial.Applicant(&p)
		if refusal == nil {
			refusal = trial.Judge(a, Standing{Ledger: ledger, SharedMilli: ledger.SharedMilli}, &o)
		}
		if refusal != nil {
			t.Fatal(refusal)
		}
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[AnnStatus] = o.Status()
		told(t, m, PodRun{Pod: p})
		want := a.Holding(&o)
		if !slices.Contains(m.Snapshot().Ledger.Holdings, want) {
			t.Errorf("%s %s: the ledger has %+v, want %+v among them", p.Name, o.Status(), m.Snapshot().Ledger.Holdings,
				want)
		}
	}
}

// BenchmarkTrial is one node of 512 CPUs asked for a place, with as many owners as hold
// half of it: what a scheduler pays for each node that it looks at in earnest.
func BenchmarkTrial(b *testing.B) {
	topo, err := topology.Grid{Sockets: 2, NodesPerSocket: 4, L3PerNode: 4, CoresPerL3: 8, ThreadsPerCore: 2,
		Numbering: topology.Split}.Build()
	if err != nil {
		b.Fatal(err)
	}
	for _, kind := range []struct {
		name string
		anns map[string]string
	}{{"plain", nil}, {"exclusive", map[string]string{AnnSpec: `{"preferredCPUExclusivePolicy":"PCPULevel"}`}}} {
		m, err := New(topo, Config{})
		if err != nil {
			b.Fatal(err)
		}
		for i := range 64 {
			if _, err := m.Step(time.Unix(0, 0), PodRun{Pod: lsr(fmt.Sprintf("p%d", i), 4000, kind.anns)}); err != nil {
				b.Fatal(err)
			}
		}
		ledger := m.Snapshot().Ledger
		trial, err := NewTrial(topo, *ledger.Rules)
		if err != nil {
			b.Fatal(err)
		}
		next := lsr("next", 4000, kind.anns)
		a, _ := trial.Applicant(&next)
		s := Standing{Ledger: ledger}
		b.Run("take over/"+kind.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				trial.load(a, &s)
			}
		})
		b.Run("judge/"+kind.name, func(b *testing.B) {
			b.ReportAllocs()
			var o Offer
			for b.Loop() {
				if r := trial.Judge(a, s, &o); r != nil {
					b.Fatal(r)
				}
			}
		})
	}
}
