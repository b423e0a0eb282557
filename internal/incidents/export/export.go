// Package export writes incidents for other programs: CSV with a row per suspect, for
// spreadsheets, and lines of JSON with everything, which [Read] reads back: of them `kubectl quietcore` makes what
// needs libraries that the daemon does not carry. [To] makes a [Writer] of either format.
//
//	w, err := export.To(file, export.CSV)
//	err = source.Export(ctx, incidents.Filter{}, w.Write)
//	err = w.Close()
package export

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quietcore/quietcore/internal/incidents"
)

// Formats.
const (
	CSV   = "csv"
	Lines = "jsonl"
)

// Writer takes incidents one by one; the output is complete after Close.
type Writer interface {
	Write(*incidents.Incident) error
	Close() error
}

// To makes a writer of a format.
func To(w io.Writer, format string) (Writer, error) {
	switch format {
	case CSV:
		return newCSV(w)
	case Lines:
		return &lines{w, json.NewEncoder(w)}, nil
	}
	return nil, fmt.Errorf("format %q is not known; there are %s and %s", format, CSV, Lines)
}

type sheet struct{ w *csv.Writer }

func columns() []string {
	return []string{
		"id", "time", "node", "verdict", "result", "victim_namespace", "victim_pod", "victim_container", "victim_job",
		"victim_class",
		"cpi", "threshold", "spec_mean", "spec_stddev", "platform", "cpi_before", "cpi_after",
		"rank", "suspect_namespace", "suspect_pod", "suspect_container", "suspect_job", "suspect_class", "score",
		"contrast", "confidence",
		"usage", "shares", "antagonist", "capped_seconds", "why", "resource", "victim_claims", "suspect_claims",
	}
}

func newCSV(w io.Writer) (Writer, error) {
	s := &sheet{csv.NewWriter(w)}
	return s, s.w.Write(columns())
}

// Write writes a row for each suspect; for an incident without suspects, one with those
// columns empty.
func (s *sheet) Write(i *incidents.Incident) error {
	head := []string{
		i.ID, i.At.UTC().Format(time.RFC3339Nano), i.Node, i.Verdict, i.Outcome.Result,
		i.Victim.Namespace, i.Victim.Pod, i.Victim.Container, i.Victim.Job, i.Victim.Class,
		number(i.CPI), number(i.Threshold), number(i.Spec.Mean), number(i.Spec.StdDev), i.Spec.Platform,
		number(i.Outcome.Before), number(i.Outcome.After),
	}
	if len(i.Suspects) == 0 {
		tail := []string{i.Why, i.Evidence.Lacked(), i.Victim.Claims, ""}
		return s.row(slices.Concat(head, make([]string, len(columns())-len(head)-len(tail)), tail))
	}
	for n, p := range i.Suspects {
		err := s.row(slices.Concat(head, []string{
			strconv.Itoa(n + 1), p.Namespace, p.Pod, p.Container, p.Job, p.Class, number(p.Score), number(p.Contrast),
			number(p.Confidence),
			number(p.Usage), p.Shares, strconv.FormatBool(slices.ContainsFunc(i.Antagonists, p.Same)),
			number(capped(i, p.Subject).Seconds()), i.Why, i.Evidence.Lacked(),
			i.Victim.Claims, p.Claims,
		}))
		if err != nil {
			return err
		}
	}
	return nil
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

func capped(i *incidents.Incident, who incidents.Subject) (sum time.Duration) {
	for _, a := range i.Actions {
		if a.Kind == incidents.Cap && a.Subject.Same(who) {
			sum += max(0, a.End().Sub(a.From))
		}
	}
	return sum
}

func (s *sheet) row(cells []string) error {
	for n := range cells {
		cells[n] = cell(cells[n])
	}
	return s.w.Write(cells)
}

// cell keeps a spreadsheet from interpreting a tenant's text as a formula, and a
// terminal from interpreting it as a command. Numbers stay as they are.
func cell(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, text)
	if text != "" && strings.ContainsRune("=+-@", rune(text[0])) {
		if _, err := strconv.ParseFloat(text, 64); err != nil {
			return "'" + text
		}
	}
	return text
}

func (s *sheet) Close() error {
	s.w.Flush()
	return s.w.Error()
}

// lines is what the daemon's API answers: a line of JSON an incident, and an empty object at the end.
type lines struct {
	w      io.Writer
	encode *json.Encoder
}

func (l *lines) Write(i *incidents.Incident) error { return l.encode.Encode(i) }

func (l *lines) Close() error {
	_, err := io.WriteString(l.w, "{}\n")
	return err
}

// Read hands on the incidents of lines, of one daemon or of several, one after the other. Each ends with an empty
// object: without it something is missing.
func Read(from io.Reader, give func(*incidents.Incident) error) error {
	ended, n := false, 0
	for lines := json.NewDecoder(from); ; {
		one := incidents.Incident{}
		switch err := lines.Decode(&one); {
		case errors.Is(err, io.EOF) && ended:
			return nil
		case errors.Is(err, io.EOF):
			return errors.New("the end is missing, a line {}: what was exported is cut off")
		case err != nil:
			return fmt.Errorf("incident %d: %w", n+1, err)
		}
		if ended = one.ID == ""; ended {
			continue
		}
		n++
		if err := give(&one); err != nil {
			return err
		}
	}
}
