// Command bench runs the benchmarks that the budgets name and prints one table:
// what was measured, the budget, and the ratio of the two, all from one run. A
// ratio below 1 is within budget. `make bench` calls it.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
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
	{"allocator: slowest of all requests, 512 CPUs, 8 nodes", "./cpuallocator", "BenchmarkWorst/8nodes",
		"worst-ns/request", 10e3, micros},
	{"allocator: slowest, 2 nodes of 16 L3s", "./cpuallocator", "BenchmarkWorst/2nodes-16l3", "worst-ns/request", 10e3,
		micros},
	{"allocator: slowest, 2 nodes of 1 L3", "./cpuallocator", "BenchmarkWorst/2nodes-1l3", "worst-ns/request", 10e3,
		micros},
	{"a node's state taken over for a what-if, 64 owners on 512 CPUs", "./policy", "BenchmarkTrial/take_over/plain",
		"ns/op", 5e3, micros},
	{"step of a create with 1,000 containers, LS", "./policy", "BenchmarkCreate/LS", "µs/step", 50, microseconds},
	{"step of a create with 1,000 containers, LSR", "./policy", "BenchmarkCreate/LSR", "µs/step", 50, microseconds},
	{"synchronize 1,000 containers, state machine alone", "./policy", "BenchmarkSynchronize", "ns/op", 100e6, millis},
	{"synchronize 1,000 containers on 512 CPUs, cgroups read", "./plugin", "BenchmarkSynchronize", "ns/op", 100e6,
		millis},
	{"CreateContainer over NRI with 500, p99 against a plugin that does nothing", "./plugin",
		"BenchmarkCreateContainer", "p99-ratio", 1.25, times},
	{"the same, median", "./plugin", "BenchmarkCreateContainer", "p50-ratio", 1.25, times},
	{"masks for an exclusive pod with 1,000 containers", "./internal/cgroup", "BenchmarkPlanExclusiveBeside1000",
		"ns/op", 1e6, micros},
	{"audit of 1,000 containers through files, CPU", "./internal/cgroup", "BenchmarkAuditFiles1000", "cpu-ms/op", 20,
		milliseconds},
	{"counting: a cgroup switch against a program that only reads the same events", "./cpi/counter",
		"BenchmarkSwitch/sched_switch", "ratio", 2, times},
	{"the same by the event cgroup-switches", "./cpi/counter", "BenchmarkSwitch/cgroup-switches", "ratio", 2, times},
	{"counting: a switch within one cgroup, by cgroup-switches", "./cpi/counter", "BenchmarkSwitch/cgroup-switches",
		"ns/same-cgroup-switch", 30, nanos},
	{"counting: CPU at 10,000 switches/s in default windows, time alone", "./cpi/counter",
		"BenchmarkSwitchWithoutEvents", "%CPU-at-10k/s", 0.1, percent},
	{"the same with four software events: the budget is for a PMU's", "./cpi/counter", "BenchmarkSwitch/sched_switch",
		"%CPU-at-10k/s", 0.1, percent},
	{"counting: between windows, CPU at 10,000 switches/s, against no program", "./cpi/counter", "BenchmarkClosedGate",
		"closed-%CPU-at-10k/s", 0.1, percent},
	{"counting: what the governor lets windows take in a day, of cpi.budget, injected costs", "./cpi/sampler",
		"BenchmarkGovernor", "of-budget", 1, times},
	{"counting: CPU time added to a switch, against perf's events of 100 cgroups", "./cpi/counter",
		"BenchmarkAgainstPerfCgroups", "added-ratio", 1, times},
	{"counting: event descriptors with 1,000 containers, against events x CPUs", "./cpi/counter",
		"BenchmarkDescriptors1000", "per-event-and-CPU", 1, times},
	{"counting: reading 1,000 groups on 256 CPUs (the layout simulated)", "./cpi/counter",
		"BenchmarkRead256/every-group-on-every-CPU", "read-ms", 20, milliseconds},
	{"evidence: who ran where and beside ten victims, 1,000 containers on 256 CPUs, CPU", "./cpi/sampler",
		"BenchmarkEvidence", "cpu-ms/window", 20, milliseconds},
	{"usage of 1,000 cgroups, real ones, CPU", "./internal/usage", "BenchmarkRead/kernel/v1=false", "cpu-ms/op", 10,
		milliseconds},
	{"a scrape of 1,000 containers, default, packed, CPU", "./internal/metrics", "BenchmarkScrape/default/gzip",
		"least-cpu-ms", 20, milliseconds},
	{"the same with series for each of them (6,000)", "./internal/metrics", "BenchmarkScrape/each/gzip",
		"least-cpu-ms", 20, milliseconds},
	{"the same, not packed, size", "./internal/metrics", "BenchmarkScrape/each/text", "MiB", 1, mebibytes},
	{"lending: a tick with 1,000 pods, CPU", "./reclaim", "BenchmarkStep/second", "cpu-µs/op", 1000, microseconds},
	{"detection: an analysis, 500 suspects x 10 minutes, CPU", "./cpi/detect",
		"BenchmarkAnalysis/contrast/suspects=500/minutes=10", "cpu-µs/op", 1000, microseconds},
	{"detection: a round of 1,000 containers, CPU", "./cpi/detect", "BenchmarkTick/contrast/containers=1000",
		"cpu-µs/op", 5000, microseconds},
	{"detection by experiment: a round of 1,000 containers and 18 tests, CPU", "./cpi/experiment", "BenchmarkRound",
		"cpu-µs/round", 5000, microseconds},
	{"detection: replay, rows a CPU second (more is better)", "./cpi/detect/replay", "BenchmarkReplay/default",
		"rows/cpu-s", 1e6, millions},
	{"the same with an antagonist: an analysis of 400 suspects every 1,300 rows", "./cpi/detect/replay",
		"BenchmarkReplay/default-disturbed", "rows/cpu-s", 1e6, millions},
}

// fixed are benchmarks that repeat until a figure is steady by themselves: their
// budgets are about the best of many batches, and a second would be too few.
var fixed = map[string]string{
	"BenchmarkSwitch": "20000x", "BenchmarkSwitchWithoutEvents": "20000x", "BenchmarkAgainstPerfCgroups": "20000x",
	"BenchmarkClosedGate": "20000x", "BenchmarkDescriptors1000": "20x", "BenchmarkRead256": "50x",
	"BenchmarkEvidence": "50x",
}

// atLeast are units of which more is better: their ratio is budget to measured.
var atLeast = map[string]bool{"rows/cpu-s": true}

func nanos(v float64) string        { return fmt.Sprintf("%.0f ns", v) }
func micros(v float64) string       { return fmt.Sprintf("%.1f µs", v/1e3) }
func millis(v float64) string       { return fmt.Sprintf("%.1f ms", v/1e6) }
func microseconds(v float64) string { return fmt.Sprintf("%.0f µs", v) }
func milliseconds(v float64) string { return fmt.Sprintf("%.1f ms", v) }
func mebibytes(v float64) string    { return fmt.Sprintf("%.2f MiB", v) }
func times(v float64) string        { return fmt.Sprintf("%.2f x", v) }
func percent(v float64) string      { return fmt.Sprintf("%.3f %%", v) }
func millions(v float64) string     { return fmt.Sprintf("%.2f million", v/1e6) }

func main() {
	benchtime := flag.String("benchtime", "1s", "passed to go test")
	only := flag.String("only", "", "packages, by commas, such as ./cpi/counter; empty: all")
	flag.Parse()
	if *only != "" {
		list := strings.Split(*only, ",")
		rows = slices.DeleteFunc(rows, func(r row) bool { return !slices.Contains(list, r.pkg) })
	}
	measured := map[string]map[string]float64{}
	for _, pkg := range packages() {
		for often, names := range benchmarks(pkg, *benchtime) {
			fmt.Fprintf(os.Stderr, "bench: %s, %s\n", pkg, often)
			if err := measure(pkg, names, often, measured); err != nil {
				fmt.Fprintf(os.Stderr, "bench: %s: %v\n", pkg, err)
				os.Exit(1)
			}
		}
	}
	if !table(measured) {
		os.Exit(1)
	}
}

// benchmarks are those of a package that the table needs, by how often they run.
func benchmarks(pkg, benchtime string) map[string][]string {
	by := map[string][]string{}
	for _, r := range rows {
		if r.pkg != pkg {
			continue
		}
		top, _, _ := strings.Cut(r.bench, "/")
		often := cmp.Or(fixed[top], benchtime)
		if !slices.Contains(by[often], top) {
			by[often] = append(by[often], top)
		}
	}
	return by
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

// measure runs some benchmarks of one package.
func measure(pkg string, names []string, benchtime string, into map[string]map[string]float64) error {
	cmd := exec.Command("go", "test", pkg, "-run", "^$", "-bench", "^("+strings.Join(names, "|")+")$", "-benchtime",
		benchtime)
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

// ratio is at most 1 within the budget.
func ratio(r row, v float64) float64 {
	if atLeast[r.unit] {
		return r.budget / v
	}
	return v / r.budget
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
		fmt.Fprintf(w, "%s\t%s\t%s\t%.2f\n", r.what, r.display(v), r.display(r.budget), ratio(r, v))
	}
	w.Flush()
	fmt.Printf("\n%s/%s, %d CPUs, %s\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	return complete
}
