package chart

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// rules are those of the PrometheusRule, by the name of their group.
func rules(t *testing.T, values string) map[string][]monitoringv1.Rule {
	t.Helper()
	objects := decode(t, render(t, Release{Values: parseValues(t, values), Kinds: monitoring}))
	found := map[string][]monitoringv1.Rule{}
	if r, ok := first[*monitoringv1.PrometheusRule](objects); ok {
		for _, g := range r.Spec.Groups {
			found[g.Name] = g.Rules
		}
	}
	return found
}

func count(groups map[string][]monitoringv1.Rule) (alerts, ofScheduler, records, specs int) {
	for name, list := range groups {
		for _, r := range list {
			switch {
			case name == "quietcore-scheduler":
				ofScheduler++
			case r.Alert != "":
				alerts++
			case strings.HasPrefix(name, "quietcore-cpi-specs"):
				specs++
			default:
				records++
			}
		}
	}
	return alerts, ofScheduler, records, specs
}

// inFiles are the rules of the chart's files.
func inFiles(t *testing.T) map[string][]monitoringv1.Rule {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(chartDir, "rules/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no rules: %v", err)
	}
	found := map[string][]monitoringv1.Rule{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var spec monitoringv1.PrometheusRuleSpec
		if err := yaml.UnmarshalStrict(text, &spec); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		for _, g := range spec.Groups {
			found[g.Name] = g.Rules
		}
	}
	return found
}

func TestRulesAreThoseOfTheFiles(t *testing.T) {
	alerts, ofScheduler, records, specs := count(inFiles(t))
	if alerts == 0 || ofScheduler == 0 || records == 0 || specs == 0 {
		t.Fatalf("the files have %d alerts, %d of the scheduler, %d recordings and %d of specs", alerts, ofScheduler,
			records, specs)
	}
	for values, want := range map[string][4]int{
		"{}":                                {},
		"metrics: {rules: {enabled: true}}": {alerts, 0, records, specs},
		"{scheduler: {enabled: true}, metrics: {rules: {enabled: true}}}": {
			alerts, ofScheduler, records, specs},
		"metrics: {rules: {enabled: true, specs: false}}":                            {alerts, 0, records, 0},
		"metrics: {rules: {enabled: true, alerts: false}}":                           {0, 0, records, specs},
		"metrics: {rules: {enabled: true, disabledAlerts: [QuietcoreDisconnected]}}": {alerts - 1, 0, records, specs},
	} {
		a, o, r, s := count(rules(t, values))
		if got := [4]int{a, o, r, s}; got != want {
			t.Errorf("%s: %v alerts, of the scheduler, recordings and specs, want %v", values, got, want)
		}
	}
}

func TestAlertsAreRoutedAndLeadSomewhere(t *testing.T) {
	was := map[string]monitoringv1.Rule{}
	for _, list := range inFiles(t) {
		for _, r := range list {
			was[r.Alert] = r
		}
	}
	groups := rules(t,
		`{runbookPrefix: "https://wiki.example/quietcore/", metrics: {rules: {enabled: true, alertLabels: {team: `+
			`nodes, severity: page}}}}`)
	for _, list := range groups {
		for _, r := range list {
			if r.Alert == "" {
				if len(r.Labels) > 0 && r.Labels["team"] != "" {
					t.Errorf("%s is a recording with the labels of alerts", r.Record)
				}
				continue
			}
			if r.Labels["team"] != "nodes" || r.Labels["severity"] != "page" {
				t.Errorf("%s has labels %v", r.Alert, r.Labels)
			}
			if want := "https://wiki.example/quietcore/" +
				r.Annotations["runbook"]; r.Annotations["runbook_url"] != want ||
				!strings.Contains(want, "docs/runbook.md#") {
				t.Errorf("%s leads to %q, want %q", r.Alert, r.Annotations["runbook_url"], want)
			}
			if f := was[r.Alert]; r.Expr != f.Expr || *r.For != *f.For ||
				r.Annotations["summary"] != f.Annotations["summary"] {
				t.Errorf("%s is not what the file says: %+v", r.Alert, r)
			}
		}
	}
}

// TestRulesArePrometheus lets promtool read what is rendered.
func TestRulesArePrometheus(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("QUIETCORE_CI") == "1" {
			t.Fatal(err)
		}
		t.Skip("needs promtool, of Debian's package prometheus")
	}
	objects := decode(t, render(t, Release{Values: parseValues(t,
		"metrics: {rules: {enabled: true, alertLabels: {team: nodes}}}"), Kinds: monitoring}))
	r, ok := first[*monitoringv1.PrometheusRule](objects)
	if !ok {
		t.Fatal("no PrometheusRule")
	}
	text, err := yaml.Marshal(r.Spec)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(tool, "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestDashboardsAreThoseOfTheFiles: each fits into a ConfigMap, and arrives as it is but
// for where the runbook is.
func TestDashboardsAreThoseOfTheFiles(t *testing.T) {
	const (
		most   = 1 << 20
		prefix = "https://wiki.example/"
		theirs = "https://github.com/quietcore/quietcore/blob/main/docs/runbook.md"
	)
	files, err := filepath.Glob(filepath.Join(chartDir, "dashboards/*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	values := `{runbookPrefix: "` + prefix + `", dashboards: {enabled: true}}`
	objects := decode(t, render(t, Release{Values: parseValues(t, values)}))
	found := map[string]string{}
	for _, o := range objects {
		m, ok := o.(*corev1.ConfigMap)
		if !ok || m.Labels["grafana_dashboard"] == "" {
			continue
		}
		if size := m.Size(); size >= most {
			t.Errorf("%s has %d bytes, a ConfigMap may have %d", m.Name, size, most)
		}
		if len(m.Data) != 1 || m.Annotations["grafana_folder"] != "Quietcore" || m.Labels["grafana_dashboard"] != "1" {
			t.Errorf("%s: labels %v, annotations %v, files %v", m.Name, m.Labels, m.Annotations,
				slices.Collect(maps.Keys(m.Data)))
		}
		maps.Copy(found, m.Data)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), theirs) {
			t.Errorf("%s does not name %s, which the chart replaces", f, theirs)
		}
		key := "quietcore-" + strings.TrimPrefix(filepath.Base(f), "quietcore-")
		if want := strings.ReplaceAll(string(text), theirs, prefix+"docs/runbook.md"); found[key] != want ||
			!json.Valid([]byte(found[key])) {
			t.Errorf("%s is not what %s says", key, f)
		}
		delete(found, key)
	}
	for key := range found {
		t.Errorf("no file has %s", key)
	}
}
