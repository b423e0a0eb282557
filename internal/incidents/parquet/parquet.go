// Package parquet makes Parquet of incidents, with a row per incident and everything in it, for DuckDB, pandas and the
// like. It is for `kubectl quietcore`: the daemon writes lines of JSON (internal/incidents/export), and carries no
// library for it.
package parquet

import (
	"io"
	"slices"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"github.com/quietcore/quietcore/internal/incidents"
)

// rowGroup bounds the memory.
const rowGroup = 2000

// Writer writes Parquet, which is complete after Close.
type Writer struct{ to *parquet.GenericWriter[row] }

// NewWriter writes to w.
func NewWriter(w io.Writer) *Writer {
	return &Writer{parquet.NewGenericWriter[row](w, parquet.Compression(&zstd.Codec{}),
		parquet.MaxRowsPerRowGroup(rowGroup))}
}

// Write adds an incident.
func (w *Writer) Write(i *incidents.Incident) error {
	_, err := w.to.Write([]row{rowOf(i)})
	return err
}

// Close ends the file.
func (w *Writer) Close() error { return w.to.Close() }

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
	Claims    string `parquet:"claims,dict"`
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
	Off      string     `parquet:"off,dict"`
}

// pointRow is a sample, in seconds after the incident.
type pointRow struct {
	Seconds float64 `parquet:"seconds"`
	Value   float64 `parquet:"value"`
}

func rowOf(i *incidents.Incident) row {
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
			known(a.Ended), a.EndedWhy, a.Off})
	}
	return r
}

func subjectOf(s incidents.Subject) subjectRow {
	return subjectRow{s.Namespace, s.Pod, s.Container, s.Job, s.Class, s.CPUs, s.Claims}
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
