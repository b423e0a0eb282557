package chart

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what is derived: schema, README, golden files")

const (
	chartDir = "../../charts/quietcore"
	begin    = "<!-- values: begin -->\n"
	end      = "<!-- values: end -->\n"
)

func readValues(t *testing.T) []Value {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	values, err := ReadValues(text)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// golden compares with a file that -update writes.
func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s is not what is derived now; run `go test ./... -update` in hack/chart and read the difference\ngot:\n%s", name, got)
	}
}

func TestSchemaIsDerivedFromTheValues(t *testing.T) {
	about, err := ConfigKeys("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	schema, err := Schema(readValues(t), about)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, filepath.Join(chartDir, "values.schema.json"), string(schema))
}

func TestTableOfValuesIsDerived(t *testing.T) {
	name := filepath.Join(chartDir, "README.md")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has lost its marks %q and %q", name, begin, end)
	}
	table, err := Table(readValues(t))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, name, head+begin+table+end+tail)
}
