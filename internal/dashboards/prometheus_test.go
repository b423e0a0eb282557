package dashboards

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/promtest"
)

var waits = regexp.MustCompile(`(?m)^( +for): \d+[smh]$`)

// hasty are the shipped rules without the time that an alert must hold before it fires.
func hasty(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, file := range ruleFiles(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), waits.ReplaceAll(text, []byte("$1: 0s")),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// startPrometheus runs one that scrapes these daemons, named as nodes, and evaluates
// the shipped rules, until the test ends. Alerts fire at once.
func startPrometheus(t *testing.T, targets map[string]string) promtest.Server {
	t.Helper()
	var config strings.Builder
	fmt.Fprintf(&config,
		"global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nrule_files: "+
			"[%q]\nscrape_configs:\n  - job_name: quietcore\n    static_configs:\n", hasty(t)+"/*.yaml")
	for node, target := range targets {
		fmt.Fprintf(&config, "      - {targets: [%q], labels: {node: %q}}\n", strings.TrimPrefix(target, "http://"),
			node)
	}
	fmt.Fprintf(&config,
		"  - job_name: scheduler\n    static_configs:\n      - {targets: [%q], labels: {node: worker-1}}\n",
		strings.TrimPrefix(scheduler(t), "http://"))
	return promtest.Start(t, config.String())
}

// scheduler answers as quietcore-scheduler does, as far as rules and dashboards ask: a test of
// scheduler/plugin holds these series to the program.
func scheduler(t *testing.T) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `quietcore_scheduler_refusals_total{ledger="behind"} 1
quietcore_scheduler_refusals_total{ledger="same"} 0
quietcore_scheduler_refusals_total{ledger="unknown"} 0
leader_election_master_status{name="kube-scheduler"} 1
scheduler_pending_pods{queue="active"} 0
scheduler_pending_pods{queue="unschedulable"} 2
scheduler_schedule_attempts_total{profile="quietcore-scheduler",result="scheduled"} 7
`)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

type result struct {
	Result []struct {
		Metric map[string]string
		Value  [2]any
		Values [][2]any
	}
}

// finite counts the series that have a number.
func (r *result) finite() (n int) {
	for _, s := range r.Result {
		for _, v := range append(s.Values, s.Value) {
			text, ok := v[1].(string)
			if !ok {
				continue
			}
			if f, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(f) && !math.IsInf(f, 0) {
				n++
				break
			}
		}
	}
	return n
}

// moment is when everything is asked: what is scraped later changes no answer.
type moment struct {
	promtest.Server
	at time.Time
}

// ask runs a query as Grafana would: over a range, or once.
func (m moment) ask(expr string, instant bool) (result, error) {
	var r result
	at := func(t time.Time) []string {
		return []string{strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64)}
	}
	if instant {
		err := m.Get("/api/v1/query", url.Values{"query": {expr}, "time": at(m.at)}, &r)
		return r, err
	}
	err := m.Get("/api/v1/query_range", url.Values{"query": {expr}, "start": at(m.at.Add(-10 * time.Second)),
		"end": at(m.at), "step": {"5"}}, &r)
	return r, err
}

// probes have something to show at a moment at which everything has: both daemons
// were scraped (a machine with much else to do may be late), twice since somebody was
// blamed, and the rules were evaluated since.
func probes() []string {
	return []string{
		`count(up == 1) == 3`,
		`count(increase(quietcore_cpi_blamed_total[5m]) > 0) >= 2`,
		`count(quietcore_lending_cpus{what="production"} > 0) == 2`,
		`quietcore:job_cpi_spec:mean{band="all"} > 0`,
		`quietcore:run_queue_wait:ratio_rate15m > 0`,
		`count(quietcore_lending_cpus{what="published"} > 0) == 2`,
		`count(quietcore_lending_cpus{what="withheld"} > 0) == 2`,
		`count(quietcore_node_resource_topology_stale_seconds > 0) == 2`,
		`count(ALERTS{alertname=~"Quietcore.*Refusals",alertstate="firing"}) >= 2`,
	}
}

// whenAllIsThere lets time pass on both nodes until there is such a moment.
func whenAllIsThere(t *testing.T, s promtest.Server, daemons ...*daemon) moment {
	t.Helper()
	const limit = 4 * time.Minute
	var missing []string
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		for _, d := range daemons {
			d.round()
		}
		m := moment{s, time.Now()}
		missing = nil
		for _, probe := range probes() {
			r, err := m.ask(probe, true)
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Result) == 0 {
				missing = append(missing, probe)
			}
		}
		if len(missing) == 0 {
			return m
		}
	}
	t.Fatalf("after %s there was no moment at which everything was there; the last one lacked\n%s", limit,
		strings.Join(missing, "\n"))
	return moment{}
}

// filled puts in what Grafana puts in for its variables.
func filled(t *testing.T, expr, node string) string {
	t.Helper()
	expr = strings.NewReplacer("$__rate_interval", "5m", "$__range", "5m", "$datasource", "", "$job", "quietcore",
		"$node", node, "$workload", ".*").Replace(expr)
	if left := regexp.MustCompile(`\$\w+`).FindString(expr); left != "" {
		t.Errorf("nobody knows the variable %s in %s", left, expr)
	}
	return expr
}

// Every query of every dashboard, those of variables and annotations included, is run
// against a Prometheus that scrapes two daemons under load, and has numbers.
func TestEveryQueryHasData(t *testing.T) {
	t.Parallel()
	promtest.Tool(t, "prometheus")
	a, b := startDaemon(t), startDaemon(t)
	prom := startPrometheus(t, map[string]string{"worker-1": a.url, "worker-2": b.url})
	now := whenAllIsThere(t, prom, a, b)
	noBadRule(t, prom)
	queries := 0
	for name, d := range shipped(t) {
		for _, node := range []string{".*", "worker-1"} {
			for _, p := range d.Panels {
				for _, q := range p.Targets {
					queries++
					r, err := now.ask(filled(t, q.Expr, node), q.Instant)
					if err != nil || r.finite() == 0 {
						t.Errorf("%s: %s, query %s: %d series, %v\n%s", name, p.Title, q.RefID, len(r.Result), err,
							filled(t, q.Expr, node))
					}
					checkLegend(t, name+": "+p.Title, q.LegendFormat, &r)
					checkColumns(t, name, &p, &r)
				}
			}
		}
		for _, v := range d.Templating.List {
			if v.Type == "query" {
				checkVariable(t, prom, name, v.Definition)
			}
		}
		for _, annotation := range d.Annotations.List {
			r, err := now.ask(filled(t, annotation.Expr, ".*"), false)
			if err != nil || r.finite() == 0 {
				t.Errorf("%s: annotation %s: %d series, %v", name, annotation.Name, len(r.Result), err)
			}
			checkLegend(t, name+": annotation "+annotation.Name, annotation.TitleFormat, &r)
		}
	}
	t.Logf("%d queries", queries)
}

var inLegend = regexp.MustCompile(`\{\{(\w+)\}\}`)

// A legend names labels that the series have.
func checkLegend(t *testing.T, where, legend string, r *result) {
	t.Helper()
	for _, label := range inLegend.FindAllStringSubmatch(legend, -1) {
		for _, s := range r.Result {
			if s.Metric[label[1]] == "" {
				t.Errorf("%s: the legend names %s, and the series are %v", where, label[1], s.Metric)
				return
			}
		}
	}
}

// A table of one query has a column for every label, and no other.
func checkColumns(t *testing.T, name string, p *grafanaPanel, r *result) {
	t.Helper()
	if p.Type != "table" || len(p.Targets) > 1 {
		return
	}
	options := p.Transformations[len(p.Transformations)-1].Options
	renamed, excluded := options["renameByName"].(map[string]any), options["excludeByName"].(map[string]any)
	for _, s := range r.Result {
		for label := range s.Metric {
			if renamed[label] == nil && excluded[label] == nil {
				t.Errorf("%s: %s has a column %s that nobody named", name, p.Title, label)
			}
		}
	}
}

var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

func checkVariable(t *testing.T, prom promtest.Server, name, definition string) {
	t.Helper()
	m := labelValues.FindStringSubmatch(definition)
	if m == nil {
		t.Errorf("%s: variable %s", name, definition)
		return
	}
	var values []string
	if err := prom.Get("/api/v1/label/"+m[2]+"/values", url.Values{"match[]": {filled(t, m[1], ".*")}},
		&values); err != nil || len(values) == 0 {
		t.Errorf("%s: variable %s: %v, %v", name, definition, values, err)
	}
}

// twice is what Prometheus says of a rule that it evaluated again for the same moment: a tick of its own that came late
// is followed by one that comes early. The next evaluation is of another moment.
const twice = "duplicate sample for timestamp"

// noBadRule asks Prometheus whether it could evaluate every rule.
func noBadRule(t *testing.T, prom promtest.Server) {
	t.Helper()
	var got struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	promtest.Until(t, "every rule was evaluated", func() bool {
		if err := prom.Get("/api/v1/rules", nil, &got); err != nil {
			t.Fatal(err)
		}
		for _, g := range got.Groups {
			for _, r := range g.Rules {
				if r.Health == "unknown" || strings.Contains(r.LastError, twice) {
					return false
				}
			}
		}
		return true
	})
	rules := 0
	for _, g := range got.Groups {
		for _, r := range g.Rules {
			rules++
			if r.Health != "ok" {
				t.Errorf("rule %s: %s %s", r.Name, r.Health, r.LastError)
			}
		}
	}
	if rules != len(readRules(t)) {
		t.Errorf("Prometheus has %d rules, the files %d", rules, len(readRules(t)))
	}
}
