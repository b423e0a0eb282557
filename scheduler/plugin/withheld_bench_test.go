package plugin

import (
	"slices"
	"testing"

	"k8s.io/klog/v2"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/ledger"
)

// withheld are the nodes of ledgers, each of whose owners has half of its CPUs, and their siblings kept idle.
func withheld(b *testing.B) (list []map[string]string) {
	b.Helper()
	d := ledger.NewDecoder()
	for _, text := range ledgers(b) {
		n, err := d.Decode(text)
		if err != nil {
			b.Fatal(err)
		}
		l := *n.Ledger
		l.Holdings = slices.Clone(l.Holdings)
		for i := range l.Holdings {
			h := &l.Holdings[i]
			var own, idle cpuset.Set
			all := h.CPUs.Set()
			for cpu := range all.All() {
				if siblings := n.Topology.Siblings(cpuset.Of(cpu)); siblings.Intersects(&own) {
					idle.Add(cpu)
				} else {
					own.Add(cpu)
				}
			}
			h.CPUs, h.Withheld, h.Requested = own.Pack(), idle.Pack(), int32(own.Count())
		}
		if text, err = ledger.Encode(n.Topology, &l, 1); err != nil {
			b.Fatal(err)
		}
		list = append(list, text)
	}
	return list
}

// BenchmarkWithheld is what pods without a wish pay where nodes keep siblings idle, so that each is compared with
// what is left beside those, and not skipped.
func BenchmarkWithheld(b *testing.B) {
	klog.SetLogger(klog.Logger{})
	say := withheld(b)
	nodes := sizeFrom("QUIETCORE_NODES", 1000)
	stock, plain := pace{nodes: nodes}, pace{nodes: nodes}
	for b.Loop() {
		for range sizeFrom("QUIETCORE_ROUNDS", 5) {
			stock.measure(b, options{noPlugin: true}, "", say)
			plain.measure(b, options{}, "", say)
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(stock.cpu), "stock-us/pod")
	b.ReportMetric(median(plain.cpu), "plain-us/pod")
	ratio := median(stock.cpu) / median(plain.cpu)
	budget(b, "pace without a wish to stock's where nodes keep siblings idle, by the processor's time", ratio,
		"at least 0.9", ratio >= 0.9)
	ratio = median(plain.rate) / median(stock.rate)
	budget(b, "the same by the clock", ratio, "at least 0.9", ratio >= 0.9)
}
