package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/quietcore/quietcore/e2e/bench/figures"
)

// row is one line of the table. A Ratio is measured to budget, such that at most 1
// is within it; 0 where there is no budget.
type row struct {
	What     string  `json:"what"`
	Measured string  `json:"measured"`
	Budget   string  `json:"budget,omitempty"`
	Ratio    float64 `json:"ratio,omitempty"`
}

func (r row) over() bool { return r.Ratio > 1 }

// leastFewer is how many times fewer operations an owner's entry must take than
// updating every container through the runtime.
const leastFewer = 50

func rowsOf(r *figures.Report) []row {
	if m := r.Memory; m.Containers > 0 {
		return memoryRows(m)
	}
	last, most := r.Last(), r.MostToEnter()
	crowd := fmt.Sprintf("with %d containers, %d threads", last.Containers, last.Threads)
	list := []row{
		{What: "an LSE pod of 4 CPUs enters " + crowd + ": median wait", Measured: millis(r.Ours.P50)},
		{What: "the same, p99", Measured: millis(r.Ours.P99)},
		{What: "the same with a plugin that does nothing: median", Measured: millis(r.Nothing.P50)},
		{What: "the same, p99", Measured: millis(r.Nothing.P99)},
		{What: "our wait against that one: median", Measured: times(r.Ours.P50 / r.Nothing.P50)},
		{What: "the same, p99", Measured: times(r.Ours.P99 / r.Nothing.P99)},
		{What: "answers later than half of a runtime's usual 2 s, of all",
			Measured: fmt.Sprintf("%d of %d", r.LateForUs, r.Answers)},
		{What: "answers later than 2 s, of all", Measured: fmt.Sprintf("%d of %d", r.LateForRT, r.Answers)},
		{What: "owners refused because systemd did not answer within 2 s",
			Measured: fmt.Sprintf("%d, after %d such calls", r.Refused, r.SystemdLate)},
	}
	for _, s := range r.Stages {
		list = append(list, row{What: fmt.Sprintf("our wait with %d containers, median of %d", s.Containers,
			s.Wait.N), Measured: millis(s.Wait.P50)})
	}
	for _, s := range r.Stages {
		what := fmt.Sprintf("operations to enter and to leave with %d containers", s.Containers)
		list = append(list, row{What: what, Measured: operations(s)})
	}
	constant := row{What: "the same with any number", Measured: "yes", Budget: "yes", Ratio: 1}
	if !r.Constant() {
		constant.Measured, constant.Ratio = "no", 2
	}
	list = append(list, constant)
	for _, s := range r.Stages {
		list = append(list, row{What: fmt.Sprintf("the kernel's part: one mask over %d threads, median", s.Threads),
			Measured: millis(s.Mask.P50)})
	}
	list = append(list, updateRows(r, last, most)...)
	return append(list,
		row{What: fmt.Sprintf("an audit of %d containers, CPU under emulation", r.Audit.Containers),
			Measured: millis(r.Audit.CPUMillis)},
		row{What: "the same against plainly reading the containers' cpusets",
			Measured: times(r.Audit.CPUMillis / r.Audit.PlainMillis)},
		nothingWritten(r.Audit))
}

// memoryBudget is of a daemon with everything on and a thousand containers, in MiB.
const memoryBudget = 64

func memoryRows(m figures.Memory) []row {
	mib := func(v float64) string { return fmt.Sprintf("%.1f MiB", v) }
	return []row{
		{What: fmt.Sprintf("containers, and those that the detector follows after %d windows", m.Windows),
			Measured: fmt.Sprintf("%d, %d", m.Containers, m.Judged)},
		{What: "resident memory of the daemon, everything on", Measured: mib(m.Resident), Budget: mib(memoryBudget),
			Ratio: m.Resident / memoryBudget},
		{What: "of it its own, not pages of its program", Measured: mib(m.Own)},
		{What: "the most since its start", Measured: mib(m.Peak)},
	}
}

// updateRows compare with a plugin that updates every container through the
// runtime. Only the runtime's last step is counted and timed, one process a
// container, though containerd and its shim work for each as well.
func updateRows(r *figures.Report, last figures.Stage, most figures.Operations) []row {
	all := r.Update.Mean * float64(last.Containers)
	fewer := 0.0
	if ops := max(most.Writes, most.Calls); ops > 0 {
		fewer = float64(last.Containers) / float64(ops)
	}
	ratio := 2.0 // nothing was counted
	if fewer > 0 {
		ratio = leastFewer / fewer
	}
	return []row{
		{What: fmt.Sprintf("one runc update, mean of %d in %d containers", r.Update.Updates, r.Update.Sample),
			Measured: millis(r.Update.Mean)},
		{What: fmt.Sprintf("%d of them one by one (computed)", last.Containers),
			Measured: fmt.Sprintf("%.1f s", all/1000)},
		{What: "that against our median wait", Measured: times(all / r.Ours.P50)},
		{What: fmt.Sprintf("%d runtime updates against our operations to enter", last.Containers),
			Measured: times(fewer), Budget: fmt.Sprintf("%d x", leastFewer), Ratio: ratio},
	}
}

func nothingWritten(a figures.Audit) row {
	r := row{What: fmt.Sprintf("writes and D-Bus calls of %d audits where nothing differs", a.Audits),
		Measured: fmt.Sprint(a.Writes + a.Calls), Budget: "0", Ratio: 1}
	if a.Writes+a.Calls > 0 || a.Audits == 0 {
		r.Ratio = 2
	}
	return r
}

func operations(s figures.Stage) string {
	if len(s.Enter) == 0 || len(s.Leave) == 0 {
		return "not counted"
	}
	e, l := s.Enter[0], s.Leave[0]
	return fmt.Sprintf("%d+%d writes, %d+%d D-Bus calls", e.Writes, l.Writes, e.Calls, l.Calls)
}

func millis(v float64) string { return fmt.Sprintf("%.1f ms", v) }

func times(v float64) string {
	if v >= 20 {
		return fmt.Sprintf("%.0f x", v)
	}
	return fmt.Sprintf("%.1f x", v)
}

func table(out io.Writer, r *figures.Report, rows []row) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s driver\tmeasured\tbudget\tmeasured/budget\n", r.Driver)
	for _, row := range rows {
		ratio := ""
		if row.Ratio > 0 {
			ratio = fmt.Sprintf("%.2f", row.Ratio)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", row.What, row.Measured, row.Budget, ratio)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\nlinux %s emulated by QEMU, %d virtual CPUs\n\n", r.Kernel, r.CPUs)
	return err
}
