package policy

import (
	"testing"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
)

// Pods that ask for the same share one request, of two kilobytes, and what becomes of one
// of them changes no other's.
func TestPodsThatAskForTheSameShareARequest(t *testing.T) {
	m := small(t, Config{})
	isolated := lsr("x", 2000, map[string]string{AnnSMT: "isolate"})
	for _, p := range []Pod{ls("a", 100, nil), isolated, ls("b", 200, nil)} {
		told(t, m, PodRun{Pod: p})
	}
	request := func(uid string) *cpuallocator.Request { return m.pods[uid].in.request }
	if request(ls("a", 0, nil).UID) != request(ls("b", 0, nil).UID) {
		t.Error("two pods that ask for the same hold a request each")
	}
	if request(ls("a", 0, nil).UID) == request(isolated.UID) {
		t.Error("a pod that asks for something else has the same request")
	}
	bound := m.shared(&cpuallocator.Request{Nodes: cpuset.Of(1)})
	p := &pod{place: place{in: intent{class: LS, request: bound}}}
	m.share(p, "it does not fit")
	if bound.Nodes != cpuset.Of(1) || !p.in.request.Nodes.IsEmpty() {
		t.Errorf("a pod is degraded: the request that others share has nodes %s, its own %s", bound.Nodes,
			p.in.request.Nodes)
	}
	for i := range 100 {
		m.shared(&cpuallocator.Request{CPUs: i + 10})
	}
	if n := len(m.requests); n > 8 {
		t.Errorf("%d requests are kept for the next pod", n)
	}
}
