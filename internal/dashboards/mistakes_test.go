package dashboards

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/quietcore/quietcore/internal/promtest"
)

// mistakes are the codes that a tenant brings about with labels, annotations and requests.
func mistakes() []string {
	return []string{"InvalidQoS", "InvalidAnnotation", "InvalidRequest", "SMTAlignmentError", "TopologyAffinityError",
		"Unauthorized"}
}

// Nothing pages for a tenant's typo: while kubelet tries pods with every mistake once a minute
// on a node on which all else is well, no alert above info fires.
func TestATenantsTypoPagesNobody(t *testing.T) {
	t.Parallel()
	const target = `job="quietcore",node="a",instance="10.0.0.1:9464"`
	type series struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	}
	var input []series
	add := func(values, name, labels string) {
		input = append(input, series{name + "{" + strings.Trim(target+","+labels, ",") + "}", values})
	}
	for _, code := range mistakes() {
		add("0+1x240", "quietcore_admission_rejections_total", fmt.Sprintf("reason=%q", code))
	}
	for _, event := range []string{"RunPodSandbox", "CreateContainer"} {
		add("0+6x240", "quietcore_nri_requests_total", fmt.Sprintf(`event=%q,result="refused"`, event))
		add("0x240", "quietcore_nri_requests_total", fmt.Sprintf(`event=%q,result="deadline"`, event))
	}
	for name, value := range map[string]string{"up": "1", "quietcore_build_info": "1", "quietcore_ready": "1",
		"quietcore_nri_connected": "1", "quietcore_unpinned_containers": "0", "quietcore_caps_overdue": "0",
		"quietcore_state_unsaved_seconds": "0", "quietcore_config_last_reload_successful": "1"} {
		add(value+"x240", name, "")
	}
	// The chart runs no scheduler here, and then has no alert about one.
	type check struct {
		Time   string `yaml:"eval_time"`
		Alert  string `yaml:"alertname"`
		Alerts []any  `yaml:"exp_alerts"`
	}
	var checks []check
	for _, r := range readRules(t) {
		if r.Alert == "" || r.Labels["severity"] == "info" || strings.HasPrefix(r.Alert, "QuietcoreScheduler") {
			continue
		}
		for _, at := range []string{"30m", "2h", "4h"} {
			checks = append(checks, check{at, r.Alert, []any{}})
		}
	}
	if len(checks) < 30 {
		t.Fatalf("only %d checks", len(checks))
	}
	rules, err := filepath.Abs(filepath.Join(rulesDir, "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(map[string]any{
		"rule_files": []string{rules}, "evaluation_interval": "1m",
		"tests": []any{map[string]any{"interval": "1m", "input_series": input, "alert_rule_test": checks}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "test.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(promtest.Tool(t, "promtool"), "test", "rules", file).CombinedOutput()
	if err != nil {
		t.Errorf("promtool test rules: %v\n%s", err, out)
	}
}

// Every code is in one alert: mistakes in one, and all others, those to come too, in the other.
func TestARefusalIsInOneAlert(t *testing.T) {
	t.Parallel()
	reasons := regexp.MustCompile(`reason(=~|!~)"([^"]*)"`)
	want := strings.Join(mistakes(), "|")
	for name, operator := range map[string]string{"QuietcoreCapacityRefusals": "!~", "QuietcoreRequestRefusals": "=~"} {
		found := false
		for _, r := range readRules(t) {
			if r.Alert != name {
				continue
			}
			m := reasons.FindStringSubmatch(r.Expr)
			found = m != nil && m[1] == operator && m[2] == want
		}
		if !found {
			t.Errorf("%s is not for reason%s%q", name, operator, want)
		}
	}
}
