package chart

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/helm-unittest/helm-unittest/pkg/unittest"
	"github.com/helm-unittest/helm-unittest/pkg/unittest/printer"
)

// TestHelmUnittest runs charts/quietcore/tests, as `helm unittest charts/quietcore`
// does. What is there reads as examples of values; what takes the daemon's own code to
// judge is in this package.
func TestHelmUnittest(t *testing.T) {
	suites, err := filepath.Glob(filepath.Join(chartDir, "tests/*_test.yaml"))
	if err != nil || len(suites) == 0 {
		t.Fatalf("there are no suites: %v", err)
	}
	// It makes a folder for snapshots next to the suites, needed or not.
	dir := filepath.Join(t.TempDir(), "quietcore")
	if err := os.CopyFS(dir, os.DirFS(chartDir)); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	plain := false
	run := unittest.TestRunner{Printer: printer.NewPrinter(&out, &plain), Strict: true,
		TestFiles: []string{"tests/*_test.yaml"}}
	if !run.RunV3([]string{dir}) {
		t.Errorf("%s", out.Bytes())
	}
}
