package metrics

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

//go:generate go test -run TestCatalogue . -update
var update = flag.Bool("update", false, "write the table of docs/metrics.md")

const catalogueMD = "../../docs/metrics.md"

// more links words of a metric's help to the pages that explain them.
func more() map[string][2]string {
	const below = "#what-is-normal-for-a-job"
	return map[string][2]string{
		"quietcore_admission_rejections_total": {"code", "semantics/refusals.md"},
		"quietcore_cpi_analyses_total":         {"what follows", "detection.md#what-is-done"},
		"quietcore_cpi_cluster_queries_total":  {"asked for specs", below},
		"quietcore_cpi_container_cycles_total": {"in windows", "#cpu-performance"},
		"quietcore_cpi_samples_dropped_total":  {"reason", "cpi.md#what-is-dropped"},
		"quietcore_cpi_window_seconds_total":   {"sums over windows", "#cpu-performance"},
		"quietcore_degraded":                   {"/readyz", "#health"},
		"quietcore_job_cpi":                    {"normal for it", below},
		"quietcore_lending_cpus":               {"lent to best effort", "#lending"},
		"quietcore_lending_evictions_total":    {"the others", "lending-api.md#eviction"},
		"quietcore_lending_repairs_total":      {"another writer", "lending-api.md#when-somebody-else-writes-it"},
		"quietcore_ready":                      {"/readyz", "#health"},
	}
}

// code are words of a help that a page sets as code: keys of the configuration and
// their like, names of metrics, paths of the server.
var code = regexp.MustCompile(`\b(?:[a-z]+\.[a-zA-Z.]*[a-zA-Z]|quietcore_[a-z_]+)|/readyz`)

func row(e Entry) (string, error) {
	var labels []string
	for _, l := range e.Labels {
		text := "`" + l.Name + "`"
		if l.Values != nil {
			text += ": " + strings.Join(l.Values, ", ")
		}
		labels = append(labels, text)
	}
	help := code.ReplaceAllString(e.Help, "`$0`")
	if link, ok := more()[e.Name]; ok {
		word := code.ReplaceAllString(link[0], "`$0`")
		if strings.Count(help, word) != 1 {
			return "", fmt.Errorf("%s: its help %q has to have %q once, which is a link", e.Name, e.Help, link[0])
		}
		help = strings.Replace(help, word, "["+word+"]("+link[1]+")", 1)
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", e.Name, e.Type, strings.Join(labels, "; "), help), nil
}

// TestCatalogue: the table of docs/metrics.md is what the registry has; -update
// writes it.
func TestCatalogue(t *testing.T) {
	list, err := Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	table.WriteString("| Name | Type | Labels | Meaning |\n|---|---|---|---|\n")
	for _, e := range list {
		line, err := row(e)
		if err != nil {
			t.Error(err)
		}
		table.WriteString(line)
	}
	page, err := os.ReadFile(catalogueMD)
	if err != nil {
		t.Fatal(err)
	}
	at := regexp.MustCompile(`(?m)^\| Name \| Type \|.*\n(?:\|.*\n)+`).FindIndex(page)
	if at == nil {
		t.Fatalf("%s has no table to put the catalogue into", catalogueMD)
	}
	if got := page[at[0]:at[1]]; !bytes.Equal(got, table.Bytes()) {
		if !*update {
			t.Errorf("the table of docs/metrics.md is not what the registry has; go generate ./internal/metrics\n%s",
				missing(string(got), table.String()))
			return
		}
		if err := os.WriteFile(catalogueMD, slices.Concat(page[:at[0]], table.Bytes(), page[at[1]:]),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// missing are the lines of want that got has not.
func missing(got, want string) string {
	has := strings.Split(got, "\n")
	var b strings.Builder
	for line := range strings.Lines(want) {
		if !slices.Contains(has, strings.TrimSuffix(line, "\n")) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// A daemon that did all that daemons do has no metric and no value of a label that
// the catalogue does not have, and the other way round.
func TestCatalogueIsWhatADaemonHas(t *testing.T) {
	list, err := Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	busy := New("v1", whole(machine(t)))
	busy.CPICounting(true, perContainer)
	everything(busy)
	full(busy)
	Handler(busy, NewHealth(time.Now, time.Now))
	families, err := busy.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if len(families) != len(list) {
		t.Errorf("the catalogue has %d metrics, a busy daemon %d", len(list), len(families))
	}
	for _, f := range families {
		if has := entry(f); !slices.ContainsFunc(list, func(e Entry) bool { return reflect.DeepEqual(e, has) }) {
			t.Errorf("a busy daemon has %+v, the catalogue has not", has)
		}
	}
}

// A catalogue explains every metric, and promtool's rules hold.
func TestCatalogueIsClean(t *testing.T) {
	list, err := Catalogue()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if len(e.Help) < 10 || !strings.HasSuffix(e.Help, ".") || strings.ContainsAny(e.Help, "\n`|") {
			t.Errorf("%s: the help %q is no sentence for a table", e.Name, e.Help)
		}
	}
	problems, err := testutil.GatherAndLint(everythingOn().registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		if strings.HasPrefix(problem.Metric, prefix) {
			t.Errorf("%s: %s", problem.Metric, problem.Text)
		}
	}
}
