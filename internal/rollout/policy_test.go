package rollout

import (
	"strings"
	"testing"
	"time"
)

func policyOf(t *testing.T, name, spec string) Policy {
	t.Helper()
	p := ReadPolicy(name, 1, []byte(spec))
	if p.Bad != "" {
		t.Fatalf("%s: %s", spec, p.Bad)
	}
	return p
}

func TestReadPolicy(t *testing.T) {
	p := policyOf(t, "a", `{"nodeSelector":{"matchLabels":{"pool":"batch"}},"priority":7,
		"rollout":{"maxUnavailable":3,"settleFor":"1m30s"},
		"config":{"mode":"enforce","cpi":{"mode":"off","budget":{"node":0.10}}}}`)
	if p.Priority != 7 || p.MaxUnavailable != 3 || p.SettleFor != 90*time.Second ||
		string(p.Config) != `{"cpi":{"budget":{"node":0.10},"mode":"off"},"mode":"enforce"}` {
		t.Errorf("%+v with %s", p, p.Config)
	}
	if p := policyOf(t, "a", `{}`); p.MaxUnavailable != 1 || p.SettleFor != UsualSettle || string(p.Config) != "{}" ||
		!p.Selects(map[string]string{}) {
		t.Errorf("an empty one: %+v", p)
	}
	for spec, want := range map[string]string{
		`{"rollout":{"maxUnavailable":0}}`:                                      "is 0, must be 1 to 1000",
		`{"rollout":{"maxUnavailable":1001}}`:                                   "is 1001, must be 1 to 1000",
		`{"rollout":{"settleFor":"-1s"}}`:                                       "must be 0s to 1h0m0s",
		`{"rollout":{"settleFor":"61m"}}`:                                       "must be 0s to 1h0m0s",
		`{"config":[]}`:                                                         "config: ",
		`{"nodeSelector":{"matchExpressions":[{"key":"a","operator":"Near"}]}}`: "nodeSelector: ",
		`[]`: "spec: ",
		`{"config":{"a":"` + strings.Repeat("x", MaxSpec) + `"}}`: "more than 65536 bytes",
	} {
		p := ReadPolicy("a", 1, []byte(spec))
		if !strings.Contains(p.Bad, want) {
			t.Errorf("%.80s: %q, want %q", spec, p.Bad, want)
		}
		if p.Selects(nil) {
			t.Errorf("%.80s: selects a node", spec)
		}
	}
}

func TestChoose(t *testing.T) {
	batch, web := map[string]string{"pool": "batch"}, map[string]string{"pool": "web"}
	all := policyOf(t, "all", `{}`)
	some := policyOf(t, "some", `{"priority":1,"nodeSelector":{"matchLabels":{"pool":"batch"}}}`)
	same := policyOf(t, "same", `{"priority":1,
		"nodeSelector":{"matchExpressions":[{"key":"pool","operator":"Exists"}]}}`)
	above := policyOf(t, "above", `{"priority":2,"nodeSelector":{"matchLabels":{"pool":"batch"}}}`)
	for _, c := range []struct {
		policies    []Policy
		node        map[string]string
		want, doubt string
	}{
		{nil, batch, "", ""},
		{[]Policy{some}, web, "", ""},
		{[]Policy{all, some}, web, "all", ""},
		{[]Policy{all, some}, batch, "some", ""},
		{[]Policy{some, all}, batch, "some", ""},
		{[]Policy{some, same, all}, batch, "", "the policies same and some select this node with the same priority, 1"},
		{[]Policy{some, same, above}, batch, "above", ""},
		{[]Policy{above, same, some}, batch, "above", ""},
		{[]Policy{some, same}, web, "same", ""},
		{[]Policy{all, ReadPolicy("odd", 1, []byte("7"))}, web, "", "QuietcorePolicy odd cannot be read: spec: "},
	} {
		p, doubt := Choose(c.policies, c.node)
		got := ""
		if p != nil {
			got = p.Name
		}
		if got != c.want || !strings.HasPrefix(doubt, c.doubt) || (doubt == "") != (c.doubt == "") {
			t.Errorf("%v on %v: %q, %q; want %q, %q", c.policies, c.node, got, doubt, c.want, c.doubt)
		}
	}
}

func TestStopped(t *testing.T) {
	for text, want := range map[string]string{
		"": `{"mode":"observe"}`, "null": `{"mode":"observe"}`, "{}": `{"mode":"observe"}`, "[": `{"mode":"observe"}`,
		`{"mode":"enforce","cpi":{"z":1,"a":1e30}}`: `{"cpi":{"a":1e30,"z":1},"mode":"observe"}`,
		`{"a":"<b>"}`: `{"a":"<b>","mode":"observe"}`,
	} {
		got := Stopped([]byte(text))
		if string(got) != want || !Stops(got) || string(Stopped(got)) != want {
			t.Errorf("%s becomes %s, want %s", text, got, want)
		}
	}
}
