// Package export writes incidents for other programs: CSV with a row per suspect, for
// spreadsheets, and Parquet with a row per incident and everything in it, for DuckDB,
// pandas and the like. [To] makes a [Writer] of either format.
//
//	w, err := export.To(file, export.Parquet)
//	err = source.Export(ctx, incidents.Filter{}, w.Write)
//	err = w.Close()
package export

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"github.com/quietcore/quietcore/internal/incidents"
)

// Formats.
const (
	CSV     = "csv"
	Parquet = "parquet"
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
	case Parquet:
		return &table{w: parquet.NewGenericWriter[row](w, parquet.Compression(&zstd.Codec{}),
			parquet.MaxRowsPerRowGroup(rowGroup))}, nil
	}
	return nil, fmt.Errorf("format %q is not known; there are %s and %s", format, CSV, Parquet)
}

// rowGroup bounds the memory.
const rowGroup = 2000

type sheet struct{ w *csv.Writer }

func columns() []string {
	return []string{
		"id", "time", "node", "verdict", "result", "victim_namespace", "victim_pod", "victim_container", "victim_job",
		"victim_class",
		"cpi", "threshold", "spec_mean", "spec_stddev", "platform", "cpi_before", "cpi_after",
		"rank", "suspect_namespace", "suspect_pod", "suspect_container", "suspect_job", "suspect_class", "score",
		"contrast", "confidence",
		"usage", "shares", "antagonist", "capped_seconds", "why", "resource",
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
		return s.row(slices.Concat(head, make([]string, len(columns())-len(head)-2), []string{i.Why,
			i.Evidence.Lacked()}))
	}
	for n, p := range i.Suspects {
		err := s.row(slices.Concat(head, []string{
			strconv.Itoa(n + 1), p.Namespace, p.Pod, p.Container, p.Job, p.Class, number(p.Score), number(p.Contrast),
			number(p.Confidence),
			number(p.Usage), p.Shares, strconv.FormatBool(slices.ContainsFunc(i.Antagonists, p.Same)),
			number(capped(i, p.Subject).Seconds()), i.Why, i.Evidence.Lacked(),
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

// row is an incident in Parquet. Times are in microseconds of UTC.
type row struct {
	ID        string       `parquet:"id"`
	At        time.Time    `parquet:"time,timestamp(microsecond)"`
	Node      string       `parquet:"node,dict"`
	Verdict   string       `parquet:"verdict,dict"`
	Why       string       `parquet:"why"`
	Resource  string       `parquet:"resource,dict"`
	Victim    subjectRow   `parquet:"victim"`
	CPI       float64      `parquet:"cpi"`
	Threshold float64      `parquet:"threshold"`
	Spec      specRow      `parquet:"spec"`
	Result    string       `parquet:"result,dict"`
	Before    float64      `parquet:"cpi_before"`
	After     float64      `parquet:"cpi_after"`
	Samples   int64        `parquet:"samples_after"`
	Suspects  []suspectRow `parquet:"suspects,list"`
	Actions   []actionRow  `parquet:"actions,list"`
	Series    []pointRow   `parquet:"cpi_series,list"`
}

type subjectRow struct {
	Namespace string `parquet:"namespace,dict"`
	Pod       string `parquet:"pod,dict"`
	Container string `parquet:"container,dict"`
	Job       string `parquet:"job,dict"`
	Class     string `parquet:"class,dict"`
	CPUs      string `parquet:"cpus,dict"`
}

type specRow struct {
	Mean     float64 `parquet:"mean"`
	StdDev   float64 `parquet:"stddev"`
	Platform string  `parquet:"platform,dict"`
	Band     int64   `parquet:"band"`
	Samples  float64 `parquet:"samples"`
	Tasks    int64   `parquet:"tasks"`
}

type suspectRow struct {
	Who        subjectRow `parquet:"who"`
	Antagonist bool       `parquet:"antagonist"`
	Score      float64    `parquet:"score"`
	Contrast   float64    `parquet:"contrast"`
	Confidence float64    `parquet:"confidence"`
	Usage      float64    `parquet:"usage"`
	Shares     string     `parquet:"shares,dict"`
	Series     []pointRow `parquet:"usage_series,list"`
}

type actionRow struct {
	Kind     string     `parquet:"kind,dict"`
	Who      subjectRow `parquet:"who"`
	Milli    int64      `parquet:"milli"`
	From     *time.Time `parquet:"from,optional,timestamp(microsecond)"`
	Until    *time.Time `parquet:"until,optional,timestamp(microsecond)"`
	Ended    *time.Time `parquet:"ended,optional,timestamp(microsecond)"`
	EndedWhy string     `parquet:"ended_why"`
}

// pointRow is a sample, in seconds after the incident.
type pointRow struct {
	Seconds float64 `parquet:"seconds"`
	Value   float64 `parquet:"value"`
}

type table struct{ w *parquet.GenericWriter[row] }

func (t *table) Write(i *incidents.Incident) error {
	r := row{
		ID: i.ID, At: i.At, Node: i.Node, Verdict: i.Verdict, Why: i.Why, Victim: subjectOf(i.Victim), CPI: i.CPI,
		Resource: i.Evidence.Lacked(), Threshold: i.Threshold,
		Spec: specRow{i.Spec.Mean, i.Spec.StdDev, i.Spec.Platform, int64(i.Spec.Band), i.Spec.Samples,
			int64(i.Spec.Tasks)},
		Result: i.Outcome.Result, Before: i.Outcome.Before, After: i.Outcome.After, Samples: int64(i.Outcome.Samples),
		Series: series(i.Series),
	}
	for _, s := range i.Suspects {
		r.Suspects = append(r.Suspects, suspectRow{
			subjectOf(s.Subject), slices.ContainsFunc(i.Antagonists, s.Same), s.Score, s.Contrast, s.Confidence,
			s.Usage, s.Shares, series(s.Series),
		})
	}
	for _, a := range i.Actions {
		r.Actions = append(r.Actions, actionRow{a.Kind, subjectOf(a.Subject), a.Milli, known(a.From), known(a.Until),
			known(a.Ended), a.EndedWhy})
	}
	_, err := t.w.Write([]row{r})
	return err
}

func (t *table) Close() error { return t.w.Close() }

func subjectOf(s incidents.Subject) subjectRow {
	return subjectRow{s.Namespace, s.Pod, s.Container, s.Job, s.Class, s.CPUs}
}

func series(list []incidents.Point) (rows []pointRow) {
	for _, p := range list {
		rows = append(rows, pointRow{p.Offset.Seconds(), p.Value})
	}
	return rows
}

func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
