// Command counters measures in virtual machines how exact counting is: on x86 the
// tests of cpi/counter against the kernel's own account, on arm64, whose emulated
// performance monitoring unit counts real instructions and cycles, programs of
// known length. On arm64 it also plays the scenarios of the core. `make e2e` calls it.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/quietcore/quietcore/e2e/counters/report"
	"github.com/quietcore/quietcore/e2e/machine"
)

func main() {
	only := flag.String("only", "", "x86-5.10, x86, x86-6.12, host, isolated, arm64, core-arm64, or several of them; "+
		"empty: all")
	tries := flag.Bool("tries", false, "only try what the kernels can do, for the table: no tests")
	page := flag.String("write", "", "a page that gets the table of kernels, such as docs/evidence/counting.md")
	cache := flag.String("cache", ".cache/e2e", "where kernels are kept")
	verbose := flag.Bool("v", false, "show the guests' consoles")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	failed := false
	var kernels [][]report.Ability
	for _, g := range []guest{
		{"x86-5.10", "amd64", 2, machine.Bullseye, onKernel5x10},
		{"x86", "amd64", 2, machine.Bookworm, onX86},
		{"x86-6.12", "amd64", 2, machine.Trixie, onX86},
		{"host", "", 0, "", onHost},
		{"isolated", "amd64", 2, machine.Bookworm, onIsolated},
		{"arm64", "arm64", 1, machine.Bookworm, onARM64},
		{"core-arm64", "arm64", 2, machine.Bookworm, onCore},
	} {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), g.name) {
			continue
		}
		began := time.Now()
		r := run{guest: g, cache: *cache, console: new(bytes.Buffer), tries: *tries}
		if *verbose {
			r.show = os.Stderr
		}
		if err := g.judge(ctx, &r); err != nil {
			failed = true
			fmt.Printf("FAIL %s: %v\n", g.name, err)
			if !*verbose {
				fmt.Printf("the console's last words:\n%s\n", lastWords(r.console.String()))
			}
			continue
		}
		fmt.Printf("ok   %s, %.0f s\n", g.name, time.Since(began).Seconds())
		if len(r.abilities) > 0 && g.name != "isolated" {
			kernels = append(kernels, r.abilities)
		}
	}
	if failed {
		*page = "" // a table with a column less says nothing about that kernel
	}
	if err := record(kernels, *page); err != nil {
		failed = true
		fmt.Println("FAIL", err)
	}
	if failed {
		os.Exit(1)
	}
}

type guest struct {
	name, arch string
	cpus       int
	suite      machine.Suite // whose kernel it boots
	judge      func(context.Context, *run) error
}

// run is one guest's life.
type run struct {
	guest
	cache   string
	kernel  string // more of its kernel's command line
	console *bytes.Buffer
	show    io.Writer // nil: the console is not shown
	tries   bool      // it runs no tests
	// abilities are what its kernel can do.
	abilities []report.Ability
}

// limit is how long a guest is believed in. It takes a minute on a quiet host; with a load of 50
// on two CPUs eight minutes were too few.
const limit = 20 * time.Minute

func (r *run) boot(ctx context.Context, files map[string]string, args ...string) error {
	init, err := machine.GoBinary{Package: "./e2e/counters/guest", Name: "counters-" + r.arch, Arch: r.arch}.Build(ctx,
		r.cache)
	if err != nil {
		return err
	}
	out := io.Writer(r.console)
	if r.show != nil {
		out = io.MultiWriter(r.console, r.show)
	}
	bare := machine.Bare{Arch: r.arch, Suite: r.suite, CPUs: r.cpus, NoPMU: r.cpus > 1, Cache: r.cache, Init: init,
		Args: args, Files: files, Kernel: r.kernel, Progress: os.Stderr}
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return bare.Run(within, out)
}

func lastWords(console string) string {
	return console[max(0, len(console)-3000):]
}

// tolerance is how much more than its programs' own instructions a cgroup may have:
// the kernel works on its account, too, at ticks, page faults, exec and exit. It
// can never have fewer.
const tolerance = 0.005

func onARM64(ctx context.Context, r *run) error {
	pmucheck, err := machine.GoBinary{Package: "./hack/pmucheck", Name: "pmucheck-" + r.arch, Arch: r.arch}.Build(ctx,
		r.cache)
	if err != nil {
		return err
	}
	if err := r.boot(ctx, map[string]string{"pmucheck": pmucheck}, report.Instructions); err != nil {
		return err
	}
	console := r.console.String()
	groups, err := report.Groups(console)
	if err != nil {
		return err
	}
	if err := tried(os.Stdout, console); err != nil {
		return err
	}
	return judge(os.Stdout, groups)
}

// tried prints what `make pmu-check` says on a real unit, and wants it to have seen
// the victim alone and next to the antagonist, and to have come to an end.
func tried(w io.Writer, console string) error {
	_, report, found := strings.Cut(console, "victim's CPI while the antagonist rested:")
	if !found {
		return errors.New("pmucheck has not reported")
	}
	lines := strings.SplitAfter(report, "\n")
	for i, what := range []string{"rested", "ran freely"} {
		if !strings.Contains(lines[i], " windows)") {
			return fmt.Errorf("pmucheck has no CPI of the victim while the antagonist %s: %s", what,
				strings.TrimSpace(lines[i]))
		}
	}
	fmt.Fprintf(w, "pmucheck: victim's CPI%s", strings.Join(lines[:2], ""))
	return nil
}

// judge prints what was counted, and returns what is wrong with it.
func judge(w io.Writer, groups []report.Group) error {
	var wrong []string
	fmt.Fprintf(w, "%-15s %-36s %-14s %13s %9s %8s %10s\n", "trigger", "case", "cgroup", "instructions", "more",
		"cycles/i", "cpu.stat")
	waited := false
	for _, g := range groups {
		if g.Case == report.Idle {
			fmt.Fprintf(w, "%-15s %-36s %d cycles, %d instructions\n", g.Trigger, g.Case, g.Cycles, g.Instructions)
			if waited = true; g.Cycles < 10*g.Instructions {
				wrong = append(wrong, fmt.Sprintf("idle: %d cycles, %d instructions: which is which?", g.Cycles,
					g.Instructions))
			}
			continue
		}
		more := float64(g.Instructions)/float64(g.Known) - 1
		off := float64(g.OnCPU)/float64(g.Kernel) - 1
		fmt.Fprintf(w, "%-15s %-36s %-14s %13d %+8.3f%% %8.4f %+9.4f%%\n", g.Trigger, g.Case, g.Group, g.Known,
			100*more, float64(g.Cycles)/float64(g.Instructions), 100*off)
		switch {
		case g.Known == 0 || g.Instructions < g.Known || more > tolerance:
			wrong = append(wrong, fmt.Sprintf("%s, %s: %d instructions, the programs have %d", g.Case, g.Group,
				g.Instructions, g.Known))
		case g.Kernel == 0 || off < -0.001 || off > 0.001:
			wrong = append(wrong, fmt.Sprintf("%s, %s: %d ns, cpu.stat says %d", g.Case, g.Group, g.OnCPU, g.Kernel))
		case g.Counted != g.OnCPU:
			wrong = append(wrong, fmt.Sprintf("%s, %s: only %d of %d ns were counted", g.Case, g.Group, g.Counted,
				g.OnCPU))
		}
	}
	switch {
	case len(groups) < 2 || !waited:
		return fmt.Errorf("the guest reported only %d figures", len(groups))
	case len(wrong) > 0:
		return errors.New(strings.Join(wrong, "\n     "))
	}
	return nil
}

// required are the tests that must not be skipped in the guest.
var required = []string{
	"TestExact/v2/a_task_that_never_yields", "TestExact/v2/short-lived_processes",
	"TestExact/v2/threads_that_move_between_CPUs",
	"TestExact/v2/a_nested_cgroup", "TestExact/v2/thousands_of_switches",
	"TestExactByCgroupSwitches/a_task_that_never_yields", "TestExactByCgroupSwitches/short-lived_processes",
	"TestExactByCgroupSwitches/threads_that_move_between_CPUs", "TestExactByCgroupSwitches/a_nested_cgroup",
	"TestExactByCgroupSwitches/thousands_of_switches",
	"TestMachineIsAllCPUs", "TestStandIns", "TestWaits", "TestHotplug", "TestATaskThatIsAloneIsCharged",
}

// isolated is the same of a guest whose last CPU is isolated.
var isolated = []string{"TestIsolatedCPUsAreNotInterrupted"}

func onX86(ctx context.Context, r *run) error { return r.tests(ctx, required) }

// onIsolated counts the interrupts of a CPU that the kernel isolates, while windows open and
// close.
func onIsolated(ctx context.Context, r *run) error {
	r.kernel = "isolcpus=1 nohz_full=1 rcu_nocbs=1"
	return r.tests(ctx, isolated)
}

// tests runs tests of cpi/counter, none of which may be skipped, in a guest.
func (r *run) tests(ctx context.Context, required []string) error {
	if r.tries {
		return r.tried(r.boot(ctx, nil, report.Tries))
	}
	test, err := machine.GoBinary{Package: "./cpi/counter", Name: "counter.test", Test: true}.Build(ctx, r.cache)
	if err != nil {
		return err
	}
	busybox, err := machine.Busybox(ctx, r.cache, os.Stderr)
	if err != nil {
		return err
	}
	tops := map[string]bool{}
	for _, name := range required {
		top, _, _ := strings.Cut(name, "/")
		tops[top] = true
	}
	names := make([]string, 0, len(tops))
	for name := range tops {
		names = append(names, name)
	}
	runErr := r.boot(ctx, map[string]string{"counter.test": test, filepath.Join("bin", "true"): busybox}, report.Tests,
		"^("+strings.Join(names, "|")+")$")
	console := r.console.String()
	for line := range strings.Lines(console) {
		if strings.Contains(line, "the kernel says") || strings.Contains(line, "interrupts of CPU") {
			fmt.Println(strings.TrimRight(line, "\r\n"))
		}
	}
	if err := r.tried(runErr); err != nil {
		return err
	}
	for _, name := range required {
		if !strings.Contains(console, "--- PASS: "+name+" (") {
			return fmt.Errorf("%s has not passed", name)
		}
	}
	return nil
}

// tried reads what its kernel can do, after the guest has ended with err.
func (r *run) tried(err error) error {
	if err != nil {
		return err
	}
	console := r.console.String()
	if _, err := report.Groups(console); err != nil {
		return err
	}
	if r.abilities, err = report.Abilities(console); err != nil {
		return err
	}
	return typed(r.abilities)
}
