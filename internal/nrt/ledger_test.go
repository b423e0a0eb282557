package nrt

import (
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/ledger"
	"github.com/quietcore/quietcore/policy"
)

// TestLedgerIsPublished: what the object says of owners is what the node decides by, and pods
// of the shared pool make no new generation of it.
func TestLedgerIsPublished(t *testing.T) {
	m := newMachine(t, grid(t), policy.Config{})
	must(t, m.run("lsr", "LSR", 2))
	var stamp ledger.Stamp
	decoder := ledger.NewDecoder()
	publish := func() (*ledger.Node, string) {
		in := Input{Node: "n", Snapshot: m.Snapshot()}
		in.Ledger, in.Generation = stamp.Of(in.Snapshot)
		o := Build(in)
		n, err := decoder.Decode(o.Annotations)
		must(t, err)
		return n, o.Annotations[ledger.AnnLedger]
	}
	first, text := publish()
	if h := first.Ledger.Holdings; len(h) != 1 || h[0].UID != "uid-lsr" || h[0].CPUs.String() != "0-1" {
		t.Errorf("published are %+v", h)
	}
	must(t, m.run("web", "LS", 1))
	if _, again := publish(); again != text {
		t.Errorf("a pod of the shared pool made %s of %s", again, text)
	}
	must(t, m.run("more", "LSR", 2))
	if next, _ := publish(); next.Generation <= first.Generation || next.Ledger.SharedMilli != 1000 {
		t.Errorf("generation %d after %d, %dm of the shared pool", next.Generation, first.Generation,
			next.Ledger.SharedMilli)
	}
	must(t, m.step(policy.NodeLabels{Labels: map[string]string{policy.LabelBind: "FullPCPUsOnly"}}))
	if next, _ := publish(); next.Ledger.Rules.NodeLabels[policy.LabelBind] != "FullPCPUsOnly" {
		t.Error("rules are as before a label")
	}
}

// TestBesideTheLedger: pods that were turned away and the heartbeat are said beside the ledger,
// bounded, and make no new generation of it.
func TestBesideTheLedger(t *testing.T) {
	m := newMachine(t, grid(t), policy.Config{})
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var stamp ledger.Stamp
	build := func(refused []policy.RefusedPod, now time.Time) map[string]string {
		in := Input{Node: "n", Snapshot: m.Snapshot(), Refused: refused, Alive: now}
		in.Ledger, in.Generation = stamp.Of(in.Snapshot)
		return Build(in).Annotations
	}
	quiet := build(nil, at)
	if _, ok := quiet[ledger.AnnRefused]; ok || quiet[ledger.AnnAlive] != "2026-01-02T03:00:00Z" {
		t.Errorf("refused are %q, alive at %q", quiet[ledger.AnnRefused], quiet[ledger.AnnAlive])
	}
	var many []policy.RefusedPod
	for range 100 {
		many = append(many, policy.RefusedPod{UID: "u", Namespace: "shop", Pod: "db", Code: "InsufficientCPUs",
			Message: strings.Repeat("no", 5000), Since: at})
	}
	loud := build(many, at.Add(ledger.Beat))
	if list := ledger.DecodeRefused(loud[ledger.AnnRefused]); len(list) != 64 || list[0].Pod != "db" ||
		len(list[0].Message) != 512 || !list[0].Since.Equal(at) {
		t.Errorf("%d are said to be refused", len(list))
	}
	if loud[ledger.AnnLedger] != quiet[ledger.AnnLedger] {
		t.Error("a refusal makes a new ledger")
	}
	first, next := ledger.DecodeAlive(quiet[ledger.AnnAlive]), ledger.DecodeAlive(loud[ledger.AnnAlive])
	if d := next.Sub(first); d != ledger.Beat {
		t.Errorf("the next beat is %s after the one before", d)
	}
}
