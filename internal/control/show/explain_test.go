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
	}
	for _, c := range []struct{ ask, has, hasNot string }{
		{"shop/db", "because", "at the moment"},
		{"shop/db/main", "because", "at the moment"},
		{"shop/db/other", "0-1, its own until the pod ends", "because"},
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
