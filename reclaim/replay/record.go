// Package replay runs the estimator of package reclaim on recorded data, one interval
// per distinct time. [Read] parses a [Record], and [Run] plays it and emits a [Line]
// per interval.
//
//	record, err := replay.Read(file)
//	options := replay.Options{Capacity: 64, Config: reclaim.Default()}
//	summary, err := replay.Run(record, options, func(l replay.Line) error { … })
//
// It is pure: the caller opens the file and writes the lines. A line never depends on
// later rows.
package replay

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Row is one pod in one interval.
type Row struct {
	Time     float64 // seconds
	Pod      int     // index into Record.Pods
	Batch    bool
	Request  float64 // CPUs
	Usage    float64
	Measured bool // false: the cell was empty
	Line     int
}

// Record is a recorded file, in order of time.
type Record struct {
	Pods []string
	Rows []Row
}

// columns lists the columns, in the order of error messages.
func columns() []string { return []string{"time", "pod", "class", "request", "usage"} }

const (
	maxRecord = 64 << 10
	maxName   = 253
	maxTime   = 1e11 // seconds; the year 5138
)

// Read reads a CSV file with a header: time (seconds), pod, class (prod or batch),
// request and usage (CPUs). It ignores other columns. An empty usage is a missing
// sample. Rows may be in any order. Any other fault is an error with its line.
func Read(in io.Reader) (*Record, error) {
	b := &bounded{in: in}
	c := csv.NewReader(b)
	c.ReuseRecord = true
	header, err := c.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("the file is empty; it begins with a header of %v", columns())
	}
	if err != nil {
		return nil, err
	}
	header[0] = strings.TrimPrefix(header[0], "\ufeff") // as spreadsheets write it
	p := parser{rec: &Record{}, names: map[string]int{}}
	if p.at, err = place(header); err != nil {
		return nil, err
	}
	for {
		b.begun = c.InputOffset()
		fields, err := c.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		line, _ := c.FieldPos(0)
		if err := p.row(fields, line); err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
	}
	return p.rec, p.rec.order()
}

// bounded fails at a record longer than any valid one, so that the rest of an invalid
// file is not read into memory.
type bounded struct {
	in          io.Reader
	read, begun int64 // bytes so far, and before the current record
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.read-b.begun > maxRecord {
		return 0, fmt.Errorf("the record that begins at byte %d is longer than %d bytes", b.begun, maxRecord)
	}
	n, err := b.in.Read(p)
	b.read += int64(n)
	return n, err
}

// place finds the columns in the header.
func place(header []string) (at [5]int, err error) {
	for i, name := range columns() {
		at[i] = slices.Index(header, name)
		if at[i] < 0 {
			return at, fmt.Errorf("line 1: column %q is missing; the header has %.300q", name, header)
		}
	}
	return at, nil
}

type parser struct {
	rec   *Record
	at    [5]int
	names map[string]int
}

func (p *parser) row(fields []string, line int) error {
	r := Row{Line: line, Measured: fields[p.at[4]] != ""}
	var err error
	if r.Time, err = strconv.ParseFloat(fields[p.at[0]], 64); err != nil || !(math.Abs(r.Time) <= maxTime) {
		return fmt.Errorf("time is %.40q, must be a number of seconds", fields[p.at[0]])
	}
	name := fields[p.at[1]]
	if name == "" || len(name) > maxName {
		return fmt.Errorf("pod is %.40q, must be 1 to %d bytes", name, maxName)
	}
	switch class := fields[p.at[2]]; class {
	case "prod":
	case "batch":
		r.Batch = true
	default:
		return fmt.Errorf("class is %.40q, must be prod (LSE, LSR, LS) or batch (BE)", class)
	}
	if r.Request, err = cpus("request", fields[p.at[3]]); err != nil {
		return err
	}
	if r.Measured {
		if r.Usage, err = cpus("usage", fields[p.at[4]]); err != nil {
			return err
		}
	}
	i, known := p.names[name]
	if !known {
		i = len(p.rec.Pods)
		name = string([]byte(name)) // the reader's line would stay in memory with it
		p.rec.Pods = append(p.rec.Pods, name)
		p.names[name] = i
	}
	r.Pod = i
	p.rec.Rows = append(p.rec.Rows, r)
	return nil
}

func cpus(what, text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v >= 0 && v <= math.MaxInt32) {
		return 0, fmt.Errorf("%s is %.40q, must be a number of CPUs, 0 or more", what, text)
	}
	return v, nil
}

// order sorts the rows by time and rejects a pod that occurs twice in an interval.
func (r *Record) order() error {
	byTime := func(a, b Row) int { return cmp.Compare(a.Time, b.Time) }
	if !slices.IsSortedFunc(r.Rows, byTime) {
		slices.SortStableFunc(r.Rows, byTime)
	}
	last := make([]int, len(r.Pods)) // row of a pod's last interval, counted from 1
	for i, row := range r.Rows {
		if n := last[row.Pod]; n > 0 && r.Rows[n-1].Time == row.Time {
			return fmt.Errorf("line %d: pod %q is there twice at time %v, first on line %d", row.Line, r.Pods[row.Pod],
				row.Time, r.Rows[n-1].Line)
		}
		last[row.Pod] = i + 1
	}
	return nil
}
