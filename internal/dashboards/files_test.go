package dashboards

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const chartDir = "../../charts/quietcore/dashboards"

var update = flag.Bool("update", false, "write the dashboards into the chart")

func TestDerivedDashboards(t *testing.T) {
	files, err := All()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for _, f := range files {
		want[f.Name] = true
		name := filepath.Join(chartDir, f.Name)
		if *update {
			if err := os.WriteFile(name, f.JSON, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		have, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(have, f.JSON) {
			t.Errorf("%s is not what internal/dashboards makes: go test ./internal/dashboards -run Derived -update",
				name)
		}
		if len(f.JSON) > 500<<10 {
			t.Errorf("%s has %d bytes, and a ConfigMap takes a million", f.Name, len(f.JSON))
		}
	}
	entries, err := os.ReadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !want[e.Name()] {
			t.Errorf("%s is none of ours", e.Name())
		}
	}
}

// shipped reads what users load, not what the code has in hand.
func shipped(t *testing.T) map[string]grafanaDashboard {
	t.Helper()
	names, err := filepath.Glob(chartDir + "/*.json")
	if err != nil || len(names) == 0 {
		t.Fatalf("dashboards %v: %v", names, err)
	}
	list := map[string]grafanaDashboard{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		var d grafanaDashboard
		if err := decoder.Decode(&d); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		list[filepath.Base(name)] = d
	}
	return list
}

// knownPanels are the plugins of Grafana that panels use, and knownUnits the names of
// units that it knows (packages/grafana-data/src/valueFormats/categories.ts).
func knownPanels() []string {
	return []string{"row", "timeseries", "stat", "table", "heatmap", "state-timeline"}
}
func knownUnits() []string {
	return []string{"none", "short", "percentunit", "s", "ops", "bytes", "bool_yes_no"}
}

func TestDashboardsAreWhatGrafanaLoads(t *testing.T) {
	uids, titles := map[string]bool{}, map[string]bool{}
	anchors, known := sections(t), words(t)
	for name, d := range shipped(t) {
		if d.UID != "quietcore-"+strings.TrimSuffix(name, ".json") || len(d.UID) > 40 || uids[d.UID] ||
			titles[d.Title] {
			t.Errorf("%s: uid %q, title %q", name, d.UID, d.Title)
		}
		uids[d.UID], titles[d.Title] = true, true
		if d.SchemaVersion != schemaVersion || len(d.Description) < 40 || !slices.Contains(d.Tags, "quietcore") {
			t.Errorf("%s: schema %d, tags %v, description %q", name, d.SchemaVersion, d.Tags, d.Description)
		}
		checkVariables(t, name, d.Templating.List)
		checkGrid(t, name, d.Panels)
		ids := map[int]bool{}
		seen := map[string]bool{}
		for _, p := range d.Panels {
			where := name + ": " + p.Title
			if p.ID <= 0 || ids[p.ID] || p.Title == "" || !slices.Contains(knownPanels(), p.Type) {
				t.Errorf("%s: id %d, type %q", where, p.ID, p.Type)
			}
			ids[p.ID] = true
			if p.Type == "row" {
				continue
			}
			if seen[p.Title] {
				t.Errorf("%s: there are two panels of that name", where)
			}
			seen[p.Title] = true
			checkPanel(t, where, &p, anchors)
			for _, q := range p.Targets {
				for _, name := range known.unknown(q.Expr) {
					t.Errorf("%s: there is no metric %s", where, name)
				}
			}
		}
	}
}

func checkPanel(t *testing.T, where string, p *grafanaPanel, anchors map[string]bool) {
	t.Helper()
	if len(p.Description) < 8 || !strings.HasSuffix(p.Description, ".") {
		t.Errorf("%s: description %q", where, p.Description)
	}
	if p.Datasource == nil || *p.Datasource != prometheus() {
		t.Errorf("%s: data source %v", where, p.Datasource)
	}
	unit := p.FieldConfig.Defaults.Unit
	if !slices.Contains(knownUnits(), unit) && !strings.HasPrefix(unit, "suffix:") {
		t.Errorf("%s: unit %q", where, unit)
	}
	steps := p.FieldConfig.Defaults.Thresholds.Steps
	if len(steps) == 0 || steps[0].Value != nil {
		t.Errorf("%s: the first threshold is the colour of everything below: %v", where, steps)
	}
	for i := 2; i < len(steps); i++ {
		if *steps[i].Value <= *steps[i-1].Value {
			t.Errorf("%s: thresholds do not rise", where)
		}
	}
	if len(p.Links) != 1 || !anchors[strings.TrimPrefix(p.Links[0].URL, "${runbook}#")] {
		t.Errorf("%s: docs/runbook.md has no section for %v", where, p.Links)
	}
	if len(p.Targets) == 0 {
		t.Errorf("%s asks nothing", where)
	}
	for i, q := range p.Targets {
		if q.RefID != string(rune('A'+i)) || q.Datasource != prometheus() || q.Range == q.Instant {
			t.Errorf("%s: query %d: %+v", where, i, q)
		}
		if !strings.Contains(q.Expr, "$node") && !strings.Contains(q.Expr, "$workload") {
			t.Errorf("%s: query %s does not depend on what is chosen: %s", where, q.RefID, q.Expr)
		}
		if strings.Contains(q.Expr, "@") || strings.Count(q.Expr, "(") != strings.Count(q.Expr, ")") {
			t.Errorf("%s: query %s: %s", where, q.RefID, q.Expr)
		}
		if len(p.Targets) > 1 && q.LegendFormat == "" && p.Type != "table" {
			t.Errorf("%s: query %s has no legend", where, q.RefID)
		}
	}
}

func checkVariables(t *testing.T, name string, list []grafanaVariable) {
	t.Helper()
	have := map[string]string{}
	for _, v := range list {
		have[v.Name] = v.Type
		if v.Description == "" || v.Label == "" {
			t.Errorf("%s: variable %s says nothing of itself", name, v.Name)
		}
		if v.Type == "query" && (v.AllValue != ".*" || !v.IncludeAll || !v.Multi || v.Datasource == nil ||
			*v.Datasource != prometheus()) {
			t.Errorf("%s: variable %s: %+v", name, v.Name, v)
		}
	}
	for want, kind := range map[string]string{"datasource": "datasource", "job": "query", "node": "query",
		"runbook": "constant"} {
		if have[want] != kind {
			t.Errorf("%s: variable %s is of type %q", name, want, have[want])
		}
	}
}

// No panel lies on another or outside of the grid, and none floats: Grafana would move it.
func checkGrid(t *testing.T, name string, panels []grafanaPanel) {
	t.Helper()
	taken := map[[2]int]string{}
	for _, p := range panels {
		g := p.GridPos
		if g.X < 0 || g.W < 1 || g.H < 1 || g.X+g.W > columns {
			t.Errorf("%s: %s is at %+v", name, p.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Errorf("%s: %q lies on %q", name, p.Title, other)
					return
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
	for _, p := range panels {
		above := p.GridPos.Y == 0
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			above = above || taken[[2]int{x, p.GridPos.Y - 1}] != ""
		}
		if !above {
			t.Errorf("%s: nothing is above %q", name, p.Title)
		}
	}
}

// What leads from a table to another dashboard leads to one that there is.
func TestLinksLeadSomewhere(t *testing.T) {
	uids := map[string]bool{}
	all := shipped(t)
	for _, d := range all {
		uids[d.UID] = true
	}
	found := 0
	for name, d := range all {
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`/d/([a-z-]+)`).FindAllStringSubmatch(string(text), -1) {
			found++
			if !uids[m[1]] {
				t.Errorf("%s: there is no dashboard %s", name, m[1])
			}
		}
	}
	if found == 0 {
		t.Error("no table leads anywhere")
	}
}
