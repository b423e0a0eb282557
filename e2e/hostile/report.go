package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// binariesEnv names a folder with kube-apiserver and etcd.
const binariesEnv = "QUIETCORE_KUBERNETES_BIN"

// heldBy begins the line of a test's log that says what refused the attack, and beyondBudget is what the API server
// says where a disruption budget does.
const (
	heldBy       = "held by: "
	beyondBudget = "disruption budget"
)

// outcome is what became of an attack. The zero value: it was not played.
type outcome int

const (
	notPlayed outcome = iota
	held
	broken
)

func (o outcome) String() string { return [...]string{"**not played**", "held", "**broken**"}[o] }

// result is what a test says.
type result struct {
	held outcome
	by   string
}

// row is one attack in the table.
type row struct {
	who, what string
	held      outcome
	by, cost  string
}

func count(rows []row, o outcome) (n int) {
	for _, r := range rows {
		if r.held == o {
			n++
		}
	}
	return n
}

func allHeld(rows []row) bool { return len(rows) > 0 && count(rows, held) == len(rows) }

func sum(rows []row) string {
	return fmt.Sprintf("%d attacks: %d held, %d broken, %d not played", len(rows), count(rows, held),
		count(rows, broken), count(rows, notPlayed))
}

// report prints the table for people.
func report(out io.Writer, rows []row) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", strings.Trim(r.held.String(), "*"), r.who, r.what, r.by, r.cost)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, sum(rows))
	return err
}

// pageOf is the page with the table.
func pageOf(rows []row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Attacks\n\n`make test-hostile` plays them and writes this page. %s.\n\n", sum(rows))
	b.WriteString("| who | what is tried | result | by | what it costs |\n|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.who, r.what, r.held, r.by, r.cost)
	}
	return b.String()
}
