package config

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestWith(t *testing.T) {
	base, err := Parse([]byte(head + `log: {level: debug}
authority: {exclusive: {namespaces: [a, b], maxCPUs: {a: 1, b: 2}}}
listen: ""
cpi: {specs: {prometheus: {url: "http://p:9090"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := base.With([]byte(`{"memory":"off","authority":{"exclusive":{"namespaces":["c"],"maxCPUs":{"b":3}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	e := got.Authority.Exclusive
	if got.Memory != "off" || got.Log.Level != "debug" || !slices.Equal(e.Namespaces, []string{"c"}) ||
		e.MaxCPUs["a"] != 1 ||
		e.MaxCPUs["b"] != 3 || got.CPI.Specs.Prometheus.URL != "http://p:9090" || got.Listen != "" {
		t.Errorf("%+v", got)
	}
	if old := base.Authority.Exclusive; old.MaxCPUs["b"] != 2 || len(old.Namespaces) != 2 {
		t.Errorf("the file has changed: %+v", old)
	}
	base.Kubernetes.Labels = false
	for policy, want := range map[string]string{
		`{"memory":"sometimes"}`:         "memory: is \"sometimes\", must be",
		`{"memry":"off"}`:                `unknown key "memry"; did you mean "memory"?`,
		`{"listen":":9464"}`:             "listen: only the node's own file may say it",
		`{"state":{"dir":"/x"}}`:         "state.dir: only the node's own file may say it",
		`{"kubernetes":{"policy":true}}`: "kubernetes.policy: only the node's own file may say it",
		`{"kind":"Other"}`:               "kind: ",
		`{"reclaim":{"mode":"enforce"}}`: "reclaim.mode: takes effect after a restart only",
		`{"cpi":{"window":"31s"}}`:       "cpi.window: is 31s, must be 100ms to 30s",
		`{"system":{"exclusive":true}}`:  "system.exclusive: is true and system.cpus is empty",
		`[]`:                             "must be a mapping",
		`{"cpi":{"specs":{"prometheus":{"caFile":"/etc"}}}}`: "cpi.specs.prometheus.caFile: only the node's own file",
	} {
		if _, err := base.With([]byte(policy)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", policy, err, want)
		}
	}
}

// Whatever a policy says: what it does not name is the file's, the same twice is the same, and what waits for a restart
// stays.
func TestWithChangesNothingElse(t *testing.T) {
	keys := map[string]string{
		`"memory":"strict"`: "memory", `"log":{"level":"warn"}`: "log.level", `"cpi":{"mode":"off"}`: "cpi.mode",
		`"pools":{"sharedFloor":3}`: "pools.sharedFloor", `"reclaim":{"reserve":2}`: "reclaim.reserve",
		`"allocation":{"smt":"align"}`: "allocation.smt", `"mode":"observe"`: "mode",
	}
	var all []string
	for text := range keys {
		all = append(all, text)
	}
	slices.Sort(all)
	rapid.Check(t, func(t *rapid.T) {
		draw := func(what string) []string {
			return rapid.SliceOfNDistinct(rapid.SampledFrom(all), 0, len(all), rapid.ID).Draw(t, what)
		}
		policy := []byte("{" + strings.Join(draw("policy"), ",") + "}")
		file := Default()
		base, err := file.With([]byte("{" + strings.Join(draw("file"), ",") + "}"))
		if err != nil {
			t.Fatal(err)
		}
		once, err := base.With(policy)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := once.With(policy)
		if err != nil {
			t.Fatal(err)
		}
		if changes, err := Changes(once, twice); err != nil || len(changes) > 0 {
			t.Fatalf("said twice: %v, %v", changes, err)
		}
		changes, err := Changes(base, once)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			if c.Restart || !slices.ContainsFunc(all, func(text string) bool {
				return keys[text] == c.Key && strings.Contains(string(policy), text)
			}) {
				t.Fatalf("%s makes %+v", policy, c)
			}
		}
	})
}

func TestInPolicies(t *testing.T) {
	for key, want := range map[string]bool{"memory": true, "kubernetes": true, "kubernetes.batchSlice": true,
		"kubernetes.api": false, "nri": false, "nri.index": false, "cpi": true, "cpi.specs": false,
		"cpi.specs.prometheus.url": false, "log.level": true, "log.format": false, "listen": false, "apiVersion": false,
		"healthy": true, "node.kubelet.stateFile": false, "node.kubelet.options": true} {
		if InPolicies(key) != want {
			t.Errorf("%s: %t", key, !want)
		}
	}
}
