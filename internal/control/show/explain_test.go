package show

import (
	"strings"
	"testing"

	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/script"
)

func TestExplainPod(t *testing.T) {
	s := &control.Status{
		Containers: []script.State{{Namespace: "shop", Pod: "db", Container: "main", CPUs: "0-1", Why: "because"}},
		Owners: []control.Owner{{Namespace: "shop", Pod: "db", CPUs: "0-1"},
			{Namespace: "shop", Pod: "crashing", CPUs: "2-3"}},
		Throttled: map[string]control.Throttled{"jobs/sort/main": {Why: "it disturbs shop/db"}},
	}
	limit := int64(70)
	for _, pod := range []string{"sort", "old"} {
		s.Containers = append(s.Containers, script.State{Namespace: "jobs", Pod: pod, Container: "main",
			CapMilli: &limit})
	}
	for _, c := range []struct{ ask, has, hasNot string }{
		{"shop/db", "because", "at the moment"},
		{"shop/db/main", "because", "at the moment"},
		{"shop/db/other", "0-1, its own until the pod ends", "because"},
		{"shop/db", "because", "throttled"},
		{"jobs/sort", "throttled it disturbs shop/db\n", "before this one"},
		{"jobs/old", "throttled by the daemon before this one", "shop/db"},
		{"shop/crashing", "2-3, its own until the pod ends", "because"},
	} {
		var b strings.Builder
		found := explainPod(&b, s, strings.Split(c.ask, "/"))
		if got := b.String(); !found || !strings.Contains(got, c.has) || strings.Contains(got, c.hasNot) {
			t.Errorf("%s: found %t\n%s", c.ask, found, got)
		}
	}
	if explainPod(&strings.Builder{}, s, []string{"shop", "nobody"}) {
		t.Error("a pod that does not run is explained")
	}
}
