package show

import (
	"encoding/json"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/script"
)

func TestExplainPod(t *testing.T) {
	s := &control.Status{
		Containers: []script.State{{Namespace: "shop", Pod: "db", Container: "main", CPUs: "0-1", Why: "because"}},
		Owners: []control.Owner{{Namespace: "shop", Pod: "db", CPUs: "0-1"},
			{Namespace: "shop", Pod: "crashing", CPUs: "2-3"}},
		Throttled: map[string]control.Throttled{"jobs/sort/main": {Why: "it disturbs shop/db"},
			"jobs/away/main":   {MovedOff: "0-7", Why: "moved off CPUs 0-7"},
			"jobs/idle/main":   {IdleOnly: true, Why: "runs only on otherwise idle CPUs"},
			"jobs/narrow/main": {LeastBandwidth: true, Why: "gets the least memory bandwidth"}},
	}
	limit := int64(70)
	for _, pod := range []string{"sort", "old", "away", "idle", "narrow"} {
		s.Containers = append(s.Containers, script.State{Namespace: "jobs", Pod: pod, Container: "main",
			CapMilli: &limit})
	}
	for _, c := range []struct{ ask, has, hasNot string }{
		{"shop/db", "because", "at the moment"},
		{"shop/db/main", "because", "at the moment"},
		{"shop/db/other", "0-1, its own until the pod ends", "because"},
		{"shop/db", "because", "throttled"},
		{"jobs/sort", "throttled it disturbs shop/db\n", "before this one"},
		{"jobs/away", "moved     moved off CPUs 0-7\n", "throttled"},
		{"jobs/idle", "idle only runs only on otherwise idle CPUs\n", "throttled"},
		{"jobs/narrow", "bandwidth gets the least memory bandwidth\n", "throttled"},
		{"jobs/old", "throttled by the daemon before this one", "shop/db"},
		{"shop/crashing", "2-3, its own until the pod ends", "because"},
	} {
		var b strings.Builder
		found := explained(&b, s, strings.Split(c.ask, "/"))
		if got := b.String(); !found || !strings.Contains(got, c.has) || strings.Contains(got, c.hasNot) {
			t.Errorf("%s: found %t\n%s", c.ask, found, got)
		}
	}
	if explained(&strings.Builder{}, s, []string{"shop", "nobody"}) {
		t.Error("a pod that does not run is explained")
	}
}

// explained reports whether there was something to explain.
func explained(w io.Writer, s *control.Status, want []string) bool {
	e := s.Explain(want)
	if e == nil {
		return false
	}
	explanationText(w, e)
	return true
}

// The form of explain -o json is a promise: this is all of it.
const wholeExplanation = `{
  "schema": "quietcore.dev/explain/v1",
  "namespace": "jobs",
  "pod": "sort",
  "connected": true,
  "containers": [
    {
      "container": "main",
      "class": "BE",
      "pool": "be",
      "cpus": "0-3",
      "withheld": "4",
      "mems": "0",
      "quotaMilli": -1,
      "capMilli": 70,
      "managedByKubelet": true,
      "why": "because",
      "throttled": {
        "victim": "shop/db/main",
        "verdict": true,
        "movedOff": "4-7",
        "idleOnly": true,
        "leastBandwidth": true,
        "until": "2026-11-21T12:05:00Z",
        "why": "it disturbs shop/db"
      }
    },
    {
      "container": "side",
      "class": "",
      "pool": "",
      "cpus": "",
      "withheld": "",
      "mems": "",
      "quotaMilli": 0,
      "capMilli": null,
      "managedByKubelet": false,
      "why": "",
      "throttled": null
    }
  ],
  "owners": [
    {
      "container": "main",
      "cpus": "0-1",
      "managedByKubelet": true
    }
  ],
  "pools": {
    "shared": "4-15",
    "be": "0-15",
    "reserved": "",
    "exclusive": "0-3"
  },
  "lending": {
    "requests": 4,
    "counts": 4,
    "idle": false,
    "why": "not idle: 3 of 5 samples",
    "budget": {
      "mode": "observe",
      "cpus": 3.15,
      "on": "0-3",
      "quota": 0
    },
    "part": {
      "mode": "enforce",
      "cpus": 0.35
    },
    "taken": [
      {
        "at": "2001-09-09T01:46:40Z",
        "what": "4 of 16 CPUs are left, were 8",
        "why": "production uses 7.00 of 16 CPUs"
      },
      {
        "at": "2001-09-09T01:46:40Z",
        "pod": "jobs/sort",
        "what": "evicted",
        "why": "batch pods need 5.00 CPUs",
        "observed": true
      }
    ]
  }
}`

func TestExplainAsJSONIsAsDocumented(t *testing.T) {
	limit := int64(70)
	l := lent()
	l.Group = &control.Group{Mode: "enforce"}
	l.Pods[0].Part, l.Taken[0].At = 0.35, l.Taken[0].At.UTC()
	l.Taken = append(l.Taken, control.Taken{At: l.Taken[0].At, Pod: "jobs/sort", What: "evicted",
		Why: "batch pods need 5.00 CPUs", Observed: true})
	s := &control.Status{Connected: true, Synchronised: true, Lending: l,
		Pools: script.Pools{Shared: "4-15", BE: "0-15", Exclusive: "0-3"},
		Containers: []script.State{
			{Namespace: "jobs", Pod: "sort", Container: "main", Class: "BE", Pool: "be", CPUs: "0-3", Mems: "0",
				Withheld: "4", QuotaMilli: -1, Shares: 2, CapMilli: &limit, ByKubelet: true, Why: "because"},
			{Namespace: "jobs", Pod: "sort", Container: "side"}, {Namespace: "jobs", Pod: "other", Container: "main"}},
		Owners: []control.Owner{
			{Namespace: "jobs", Pod: "sort", Container: "main", CPUs: "0-1", ManagedByKubelet: true},
			{Namespace: "jobs", Pod: "other", CPUs: "5"}},
		Throttled: map[string]control.Throttled{"jobs/sort/main": {Victim: "shop/db/main", Verdict: true,
			MovedOff: "4-7", IdleOnly: true, LeastBandwidth: true,
			Until: time.Date(2026, 11, 21, 12, 5, 0, 0, time.UTC), Why: "it disturbs shop/db"}},
	}
	text, err := json.MarshalIndent(s.Explain([]string{"jobs", "sort"}), "", "  ")
	if err != nil || string(text) != wholeExplanation {
		t.Errorf("%v\n%s", err, cmp.Diff(wholeExplanation, string(text)))
	}
	page, err := os.ReadFile("../../../docs/explain.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range regexp.MustCompile(`"([a-zA-Z]+)":`).FindAllStringSubmatch(wholeExplanation, -1) {
		if !regexp.MustCompile("`[^`]*\\b" + key[1] + "(\\[\\])?`").Match(page) {
			t.Errorf("docs/explain.md does not name %s", key[1])
		}
	}
	if !strings.Contains(string(page), control.ExplainSchema) {
		t.Errorf("docs/explain.md does not name %s", control.ExplainSchema)
	}
	bare, err := json.Marshal((&control.Status{Owners: []control.Owner{{Namespace: "a", Pod: "b"}}}).Explain(
		[]string{"a", "b", "c"}))
	if err != nil || strings.Contains(string(bare), `"containers":null`) || !strings.Contains(string(bare),
		`"lending":null`) {
		t.Errorf("%v, %s", err, bare)
	}
}
