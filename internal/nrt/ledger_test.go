package nrt

import (
	"testing"

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
