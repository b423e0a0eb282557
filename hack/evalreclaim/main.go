// Command evalreclaim measures the rule for idle pods and the predictors of package
// reclaim on recorded data. It prints tables and, with -write, puts them and the plots
// into docs. `make eval-reclaim` calls it.
//
// It takes a directory with three public traces as CSV files. It skips missing ones and
// says so:
//
//	bitbrains_faststorage_sample.csv.gz     vm,t_s,cores,cap_mhz,usage_mhz
//	google2011_node_1_20vms.csv.gz          step,vm0,vm1,… in percent of a VM's size
//	alibaba2018_machine_usage_sample.csv.gz machine,seconds,percent,… without a header
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	traces := flag.String("traces", filepath.Join("..", "shared", "testdata", "traces"), "folder of the traces")
	write := flag.Bool("write", false, "put tables and plots into docs/evidence/lending.md")
	flag.Parse()
	if err := run(os.Stdout, *traces, *write); err != nil {
		fmt.Fprintln(os.Stderr, "evalreclaim:", err)
		os.Exit(1)
	}
}

// page is the document with the places for the results; the plots lie next to it.
const page = "docs/evidence/lending.md"

func run(out io.Writer, folder string, write bool) error {
	sets, err := load(folder)
	if err != nil {
		return err
	}
	results := map[string]string{}
	var idle []idleRow
	if results["idle"], idle, err = idleTable(sets); err != nil {
		return err
	}
	results["ablation"], _ = scoreTable(sets, ablations())
	results["cross"] = crossTable(sets)
	results["hindsight"] = hindsightTable(sets)
	if results["production"], err = productionTable(sets); err != nil {
		return err
	}
	if results["replay"], err = replayTable(sets); err != nil {
		return err
	}
	for _, name := range []string{"idle", "ablation", "cross", "hindsight", "production", "replay"} {
		fmt.Fprintf(out, "%s\n", results[name])
	}
	if !write {
		return nil
	}
	if err := plots(sets, idle); err != nil {
		return err
	}
	return fill(page, results)
}

// fill replaces what is between the marks of each name.
func fill(name string, results map[string]string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	for key, table := range results {
		begin, end := []byte("<!-- "+key+" -->\n"), []byte("<!-- /"+key+" -->")
		i, j := bytes.Index(text, begin), bytes.Index(text, end)
		if i < 0 || j < i {
			return fmt.Errorf("%s has no place %q", name, begin)
		}
		text = bytes.Join([][]byte{text[:i+len(begin)], []byte(table), text[j:]}, nil)
	}
	return os.WriteFile(name, text, 0o644)
}
