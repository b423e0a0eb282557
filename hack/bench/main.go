// Command bench runs the benchmarks that the budgets name and prints one table:
// what was measured, the budget, and the ratio of the two, all from one run. A
// ratio below 1 is within budget. `make bench` calls it.
package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"
)

// row is one line of the table: a unit of a benchmark against its budget.
type row struct {
	what    string
	pkg     string
	bench   string // anchored expression of the benchmark's full name
	unit    string
	budget  float64
	display func(float64) string
}

var rows = []row{
	{"allocator: slowest of all requests, 512 CPUs, 8 nodes", "./cpuallocator", "BenchmarkWorst/8nodes", "worst-ns/request", 10e3, micros},
	{"allocator: slowest, 2 nodes of 16 L3s", "./cpuallocator", "BenchmarkWorst/2nodes-16l3", "worst-ns/request", 10e3, micros},
	{"allocator: slowest, 2 nodes of 1 L3", "./cpuallocator", "BenchmarkWorst/2nodes-1l3", "worst-ns/request", 10e3, micros},
	{"step of a create beside 1,000 containers, LS", "./policy", "BenchmarkCreate/LS", "µs/step", 50, func(v float64) string { return fmt.Sprintf("%.1f µs", v) }},
	{"step of a create beside 1,000 containers, LSR", "./policy", "BenchmarkCreate/LSR", "µs/step", 50, func(v float64) string { return fmt.Sprintf("%.1f µs", v) }},
	{"synchronize 1,000 containers, state machine alone", "./policy", "BenchmarkSynchronize", "ns/op", 100e6, millis},
	{"synchronize 1,000 containers on 512 CPUs, cgroups read", "./plugin", "BenchmarkSynchronize", "ns/op", 100e6, millis},
	{"CreateContainer over NRI beside 500, p99 against a plugin that does nothing", "./plugin", "BenchmarkCreateContainer", "p99-ratio", 1.25, times},
	{"the same, median", "./plugin", "BenchmarkCreateContainer", "p50-ratio", 1.25, times},
	{"masks for an exclusive pod beside 1,000 containers", "./internal/cgroup", "BenchmarkPlanExclusiveBeside1000", "ns/op", 1e6, micros},
	{"audit of 1,000 containers through files, CPU", "./internal/cgroup", "BenchmarkAuditFiles1000", "cpu-ms/op", 20, func(v float64) string { return fmt.Sprintf("%.1f ms", v) }},
}

func micros(v float64) string { return fmt.Sprintf("%.1f µs", v/1e3) }
func millis(v float64) string { return fmt.Sprintf("%.1f ms", v/1e6) }
func times(v float64) string  { return fmt.Sprintf("%.2f x", v) }

func main() {
	benchtime := flag.String("benchtime", "1s", "passed to go test")
	flag.Parse()
	measured := map[string]map[string]float64{}
	for _, pkg := range packages() {
		fmt.Fprintf(os.Stderr, "bench: %s\n", pkg)
		if err := measure(pkg, *benchtime, measured); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", pkg, err)
			os.Exit(1)
		}
	}
	if !table(measured) {
		os.Exit(1)
	}
}

func packages() []string {
	var list []string
	for _, r := range rows {
		if len(list) == 0 || list[len(list)-1] != r.pkg {
			list = append(list, r.pkg)
		}
	}
	return list
}

// measure runs the benchmarks of one package that the table needs.
func measure(pkg, benchtime string, into map[string]map[string]float64) error {
	tops := map[string]bool{}
	for _, r := range rows {
		if r.pkg == pkg {
			top, _, _ := strings.Cut(r.bench, "/")
			tops[regexp.QuoteMeta(top)] = true
		}
	}
	names := make([]string, 0, len(tops))
	for n := range tops {
		names = append(names, n)
	}
	cmd := exec.Command("go", "test", pkg, "-run", "^$", "-bench", "^("+strings.Join(names, "|")+")$", "-benchtime", benchtime)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	scan := bufio.NewScanner(bytes.NewReader(out))
	for scan.Scan() {
		name, values := parse(scan.Text())
		if name != "" {
			into[pkg+" "+name] = values
		}
	}
	return scan.Err()
}

// parse reads one line of the benchmark format: name-N, count, then pairs of
// value and unit.
func parse(line string) (string, map[string]float64) {
	f := strings.Fields(line)
	if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
		return "", nil
	}
	name := strings.TrimSuffix(f[0], "-"+strconv.Itoa(runtime.GOMAXPROCS(0)))
	values := map[string]float64{}
	for i := 2; i+1 < len(f); i += 2 {
		if v, err := strconv.ParseFloat(f[i], 64); err == nil {
			values[f[i+1]] = v
		}
	}
	return name, values
}

// table prints what was measured; false if a benchmark is missing.
func table(measured map[string]map[string]float64) bool {
	complete := true
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "what\tmeasured\tbudget\tmeasured/budget\n")
	for _, r := range rows {
		v, ok := measured[r.pkg+" "+r.bench][r.unit]
		if !ok {
			fmt.Fprintf(w, "%s\tmissing: %s %s %s\t\t\n", r.what, r.pkg, r.bench, r.unit)
			complete = false
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%.2f\n", r.what, r.display(v), r.display(r.budget), v/r.budget)
	}
	w.Flush()
	fmt.Printf("\n%s/%s, %d CPUs, %s\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	return complete
}
