package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/e2e/counters/ability"
	"github.com/quietcore/quietcore/e2e/counters/report"
)

// byCgroupSwitches is how the tests begin that need the trigger of that name.
const byCgroupSwitches = "TestExactByCgroupSwitches"

// onKernel5x10 is the guest whose kernel lacks the event cgroup-switches: what needs it has to be
// refused by the counter itself, and all else works.
func onKernel5x10(ctx context.Context, r *run) error {
	err := r.tests(ctx, slices.DeleteFunc(slices.Clone(required), func(name string) bool {
		return strings.HasPrefix(name, byCgroupSwitches)
	}))
	if err != nil {
		return err
	}
	for _, a := range r.abilities {
		if a.What == ability.Switches && a.Why == "" {
			return fmt.Errorf("%s counts cgroup-switches: its tests can be required", a.Kernel)
		}
	}
	return nil
}

// onHost tries the kernel that runs here.
func onHost(_ context.Context, r *run) error {
	if os.Geteuid() != 0 {
		fmt.Println("the kernel of the host is left out: it needs root")
		return nil
	}
	v1 := ""
	if _, err := os.Stat("/sys/fs/cgroup/cpu/tasks"); err == nil {
		v1 = "/sys/fs/cgroup/cpu"
	}
	root, err := os.MkdirTemp("", "counters-")
	if err != nil {
		return err
	}
	defer os.Remove(root)
	if err := unix.Mount("none", root, "cgroup2", 0, ""); err != nil {
		return fmt.Errorf("mount cgroup v2: %w", err)
	}
	defer unix.Unmount(root, unix.MNT_DETACH)
	r.abilities = ability.Try(root, v1)
	return typed(r.abilities)
}

// typed returns an error for what a kernel cannot do without the counter saying so itself.
func typed(all []report.Ability) error {
	var wrong []error
	for _, a := range all {
		if a.Why != "" && !a.Typed {
			wrong = append(wrong, fmt.Errorf("kernel %s, %s: %s", a.Kernel, a.What, a.Why))
		}
	}
	if len(all) == 0 {
		wrong = append(wrong, errors.New("nothing was tried"))
	}
	return errors.Join(wrong...)
}

// table prints what each kernel can do, a column each, and below it why it cannot do the rest.
func table(w io.Writer, kernels [][]report.Ability) {
	fmt.Fprint(w, "| |")
	for _, k := range kernels {
		fmt.Fprintf(w, " %s |", k[0].Kernel)
	}
	fmt.Fprintf(w, "\n|---|%s\n", strings.Repeat("---|", len(kernels)))
	var reasons []string
	for i, a := range kernels[0] {
		fmt.Fprintf(w, "| %s |", a.What)
		for _, k := range kernels {
			cell := "yes"
			if why := k[i].Why; why != "" {
				if !slices.Contains(reasons, why) {
					reasons = append(reasons, why)
				}
				cell = fmt.Sprintf("no (%d)", slices.Index(reasons, why)+1)
			}
			fmt.Fprintf(w, " %s |", cell)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
	for i, why := range reasons {
		fmt.Fprintf(w, "%d. %s\n", i+1, strings.Join(strings.Fields(why), " "))
	}
}

// What stands between these lines of a page is written by a run.
const (
	tableBegins = "<!-- kernels: written by make test-counters -->\n"
	tableEnds   = "<!-- end of kernels -->\n"
)

// put returns a page with another table.
func put(page, table string) (string, error) {
	before, rest, begins := strings.Cut(page, tableBegins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		return "", fmt.Errorf("the page lacks the lines %q and %q", tableBegins, tableEnds)
	}
	return before + tableBegins + table + tableEnds + after, nil
}

// record prints the table of the kernels that were met, and writes it into a page.
func record(kernels [][]report.Ability, page string) error {
	if len(kernels) == 0 {
		return nil
	}
	var text strings.Builder
	table(&text, kernels)
	fmt.Print(text.String())
	if page == "" {
		return nil
	}
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	written, err := put(string(old), text.String())
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, []byte(written), 0o644)
}
