package dashboards

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/quietcore/quietcore/internal/doctext"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/promtest"
)

const (
	rulesDir   = "../../charts/quietcore/rules"
	alertTests = "testdata/alerts.test.yaml"
	valueTests = "testdata/recording.test.yaml"
)

// rule is a rule of Prometheus.
type rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

func ruleFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(rulesDir + "/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("rules %v: %v", files, err)
	}
	return files
}

func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func readRules(t *testing.T) []rule {
	t.Helper()
	var list []rule
	for _, name := range ruleFiles(t) {
		var file struct{ Groups []struct{ Rules []rule } }
		readYAML(t, name, &file)
		for _, g := range file.Groups {
			list = append(list, g.Rules...)
		}
	}
	return list
}

func TestRulesAreGood(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(promtest.Tool(t, "promtool"), append([]string{"check", "rules", "--lint=all",
		"--lint-fatal"}, ruleFiles(t)...)...).CombinedOutput()
	if err != nil {
		t.Errorf("promtool check rules: %v\n%s", err, out)
	}
	out, err = exec.Command(promtest.Tool(t, "promtool"), "test", "rules", alertTests, valueTests).CombinedOutput()
	if err != nil {
		t.Errorf("promtool test rules: %v\n%s", err, out)
	}
}

// Each recording rule is seen to record the right value. What specs of jobs are made of is
// judged by internal/clusterspec, which reads them.
func TestRecordingRulesAreTested(t *testing.T) {
	var recording struct{ Groups []struct{ Rules []rule } }
	readYAML(t, filepath.Join(rulesDir, "recording.yaml"), &recording)
	var tests struct {
		Tests []struct {
			Expr []struct {
				Expr    string
				Samples []any `yaml:"exp_samples"`
			} `yaml:"promql_expr_test"`
		}
	}
	readYAML(t, valueTests, &tests)
	n := 0
	for _, g := range recording.Groups {
		for _, r := range g.Rules {
			n++
			seen := false
			for _, test := range tests.Tests {
				for _, e := range test.Expr {
					seen = seen || strings.Contains(e.Expr, r.Record) && len(e.Samples) > 0
				}
			}
			if !seen {
				t.Errorf("%s has no test of its value in %s", r.Record, valueTests)
			}
		}
	}
	if n == 0 {
		t.Error("there are no recording rules")
	}
}

// Each alert says what is so, for which users it matters and what to do, and is seen to fire
// and not to fire.
func TestAlertsAreCompleteAndTested(t *testing.T) {
	var file struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string
				ExpAlerts []any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	readYAML(t, alertTests, &file)
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, a := range test.AlertRuleTest {
			if len(a.ExpAlerts) > 0 {
				fires[a.Alertname] = true
			} else {
				quiet[a.Alertname] = true
			}
		}
	}
	anchors := sections(t)
	used := map[string]bool{}
	for _, r := range readRules(t) {
		if r.Alert == "" {
			continue
		}
		if !fires[r.Alert] || !quiet[r.Alert] {
			t.Errorf("%s: tested to fire: %t, tested not to fire: %t", r.Alert, fires[r.Alert], quiet[r.Alert])
		}
		if r.For == "" || !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s: for %q, severity %q", r.Alert, r.For, r.Labels["severity"])
		}
		if len(r.Annotations["summary"]) < 20 || len(r.Annotations["description"]) < 60 {
			t.Errorf("%s says too little: %v", r.Alert, r.Annotations)
		}
		if !strings.HasSuffix(r.Alert, "Absent") && !strings.Contains(r.Annotations["summary"], "$labels.node") {
			t.Errorf("%s does not name the node: %s", r.Alert, r.Annotations["summary"])
		}
		anchor, ok := strings.CutPrefix(r.Annotations["runbook"], "docs/runbook.md#")
		if !ok || !anchors[anchor] {
			t.Errorf("%s: docs/runbook.md has no section %s", r.Alert, r.Annotations["runbook"])
		}
		if !strings.Contains(runbook(t), "`"+r.Alert+"`") {
			t.Errorf("docs/runbook.md does not name %s", r.Alert)
		}
		used[r.Alert] = true
	}
	if len(used) < 13 {
		t.Errorf("only %d alerts", len(used))
	}
	for name := range fires {
		if !used[name] {
			t.Errorf("%s is tested and does not exist", name)
		}
	}
	for _, name := range regexp.MustCompile("`(Quietcore[A-Z][A-Za-z]+)`").FindAllStringSubmatch(runbook(t), -1) {
		if !used[name[1]] {
			t.Errorf("docs/runbook.md names %s, which is no alert", name[1])
		}
	}
}

func runbook(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// sections are the anchors of the runbook's headlines.
func sections(t *testing.T) map[string]bool {
	t.Helper()
	pages, err := doctext.Pages("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages {
		if p.Path == "docs/runbook.md" {
			return p.Anchors
		}
	}
	t.Fatal("there is no runbook")
	return nil
}

var (
	metricName   = regexp.MustCompile(`\bquietcore_[a-z0-9_]+`)
	recordedName = regexp.MustCompile(`\bquietcore:[a-z0-9_:]+`)
)

// catalogue has the types of all metrics by name.
func catalogue(t *testing.T) map[string]string {
	t.Helper()
	list, err := metrics.Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]string{}
	for _, m := range list {
		types[m.Name] = m.Type
	}
	return types
}

// vocabulary is every metric that the daemon or a rule makes.
type vocabulary struct {
	types    map[string]string
	recorded map[string]bool
}

func words(t *testing.T) vocabulary {
	t.Helper()
	v := vocabulary{catalogue(t), map[string]bool{}}
	v.types["quietcore_scheduler_refusals_total"] = "counter" // of another program, in a module of its own
	for _, r := range readRules(t) {
		v.recorded[r.Record] = true
	}
	return v
}

// unknown are the metrics of an expression that nobody makes.
func (v vocabulary) unknown(expr string) []string {
	var list []string
	for _, name := range metricName.FindAllString(expr, -1) {
		base := name
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			if cut, ok := strings.CutSuffix(name, part); ok && v.types[cut] == "histogram" {
				base = cut
			}
		}
		if v.types[base] == "" {
			list = append(list, name)
		}
	}
	for _, name := range recordedName.FindAllString(expr, -1) {
		if !v.recorded[name] {
			list = append(list, name)
		}
	}
	return list
}

func TestRulesKnowTheirMetrics(t *testing.T) {
	known := words(t)
	if len(known.types) < 50 {
		t.Fatalf("the catalogue has only %d metrics", len(known.types))
	}
	for _, r := range readRules(t) {
		for _, name := range known.unknown(r.Expr) {
			t.Errorf("%s%s: there is no metric %s", r.Alert, r.Record, name)
		}
	}
}
