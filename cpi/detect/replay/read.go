// Package replay runs the detector on recorded samples: a CSV file with a header, and
// one row per container and time.
//
//	time,container,job,class,usage,cpi
//	60,web-1,web,LS,1.5,1.83
//	60,batch-7,crunch,BE,3.9,1.1
//
// [Read] parses a [Trace] and [Run] plays it, emitting a [Line] for each finding. An
// invalid row is an error with its line number, and the whole file is rejected. Rows
// may be in any order. A row that repeats container and time of another is dropped and
// counted.
package replay

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quietcore/quietcore/cpi"
)

// Trace is a recorded file.
type Trace struct {
	Containers []cpi.Container
	// Period is the median time between two rows of a container.
	Period time.Duration

	rows []row
	// windows says that rows tell how long their windows are: some may be a test's.
	windows bool
	longest float64 // of them, in seconds; 0: none was told
}

// Rows returns the number of rows.
func (t *Trace) Rows() int { return len(t.rows) }

type row struct {
	at        int64 // nanoseconds
	usage     float64
	cpi       float64
	container int32
	release   int32   // of the job, by order of first mention; 0: not told
	mpki      float64 // LLC misses in a thousand instructions; 0: not known
	window    float64 // seconds from window to window; 0: the period
}

// misses a second, in a unit that is the same for all rows.
func (r *row) misses() float64 {
	if r.cpi == 0 {
		return 0
	}
	return r.mpki * r.usage / r.cpi
}

const (
	maxLine = 64 << 10
	// maxErrors bounds the reported errors: a file of the wrong kind has one in every
	// line.
	maxErrors = 20
	// maxSeconds keeps times within the range of int64 nanoseconds.
	maxSeconds = 9e9
)

type column int

const (
	colTime column = iota
	colContainer
	colJob
	colClass
	colUsage
	colCPI
	colCycles
	colInstructions
	colPlatform
	colWait
	colMPKI
	colRelease
	colWindow
	columns
)

var columnNames = [columns]string{"time", "container", "job", "class", "usage", "cpi", "cycles", "instructions",
	"platform", "wait", "mpki", "release", "window"}

type reader struct {
	in     *bufio.Reader
	line   int
	header int // fields
	order  []column
	has    [columns]bool
	fields [columns][]byte
	known  map[string]int32
	firsts []int // line of a container's first row
	trace  *Trace
	errs   []error
	wrong  int
	lasts  []int64 // time of a container's row before
	gaps   []int64
	sorted bool
	// releases are the names in the column release, by number.
	releases map[string]int32
}

func newReader(in io.Reader) *reader {
	return &reader{in: bufio.NewReaderSize(in, maxLine), known: map[string]int32{}, trace: &Trace{}, sorted: true}
}

// Read reads a whole file. Its error names each wrong line, up to a bound.
func Read(in io.Reader) (*Trace, error) {
	r := newReader(in)
	if err := r.readHeader(); err != nil {
		return nil, err
	}
	last := int64(math.MinInt64)
	for {
		line, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		got, err := r.row(line)
		if err != nil {
			r.refuse(err)
			continue
		}
		r.sorted = r.sorted && got.at >= last
		last = got.at
		r.trace.rows = append(r.trace.rows, got)
		r.gap(got)
	}
	if r.wrong > len(r.errs) {
		r.errs = append(r.errs, fmt.Errorf("and %d more lines", r.wrong-len(r.errs)))
	}
	if err := errors.Join(r.errs...); err != nil {
		return nil, err
	}
	if !r.sorted {
		slices.SortStableFunc(r.trace.rows, func(a, b row) int { return compareTimes(a.at, b.at) })
	}
	if len(r.gaps) > 0 {
		slices.Sort(r.gaps)
		r.trace.Period = time.Duration(r.gaps[len(r.gaps)/2])
	}
	if r.trace.longest > 0 {
		r.trace.Period = time.Duration(nanoseconds(r.trace.longest))
	}
	return r.trace, nil
}

func (r *reader) refuse(err error) {
	if r.wrong++; len(r.errs) < maxErrors {
		r.errs = append(r.errs, err)
	}
}

// maxGaps between rows are enough for their median.
const maxGaps = 1 << 16

func (r *reader) gap(this row) {
	if before := r.lasts[this.container]; before != math.MinInt64 && before < this.at && len(r.gaps) < maxGaps {
		r.gaps = append(r.gaps, this.at-before)
	}
	r.lasts[this.container] = this.at
}

// next returns the next non-empty line without its line ending.
func (r *reader) next() ([]byte, error) {
	for {
		line, err := r.nextOrEmpty()
		if err != nil || len(line) > 0 {
			return line, err
		}
	}
}

// nextOrEmpty returns the next line without its line ending.
func (r *reader) nextOrEmpty() ([]byte, error) {
	line, err := r.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, fmt.Errorf("line %d: longer than %d bytes", r.line+1, maxLine)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("line %d: %w", r.line+1, err)
	}
	if len(line) == 0 {
		return nil, io.EOF
	}
	r.line++
	return bytes.TrimRight(line, "\r\n"), nil
}

func (r *reader) readHeader() error {
	line, err := r.next()
	if errors.Is(err, io.EOF) {
		return errors.New("the file is empty; its first line must name the columns")
	}
	if err != nil {
		return err
	}
	names, err := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(line, []byte("\ufeff")))).Read()
	if err != nil {
		return fmt.Errorf("line %d: %w", r.line, err)
	}
	r.header = len(names)
	for _, name := range names {
		c := column(slices.Index(columnNames[:], strings.TrimSpace(name)))
		if c < 0 {
			return fmt.Errorf("line %d: column %q is not known; there are %s", r.line, shortened([]byte(name)),
				strings.Join(columnNames[:], ", "))
		}
		if r.has[c] {
			return fmt.Errorf("line %d: column %s is there twice", r.line, columnNames[c])
		}
		r.has[c] = true
		r.order = append(r.order, c)
	}
	r.trace.windows = r.has[colWindow]
	var lacks []string
	for _, c := range []column{colTime, colContainer, colJob, colClass, colUsage} {
		if !r.has[c] {
			lacks = append(lacks, columnNames[c])
		}
	}
	if !r.has[colCPI] && (!r.has[colCycles] || !r.has[colInstructions]) {
		lacks = append(lacks, "cpi (or cycles and instructions)")
	}
	if len(lacks) > 0 {
		return fmt.Errorf("line %d: the columns %s are missing; there are %.300q", r.line, strings.Join(lacks, ", "),
			strings.Join(names, ", "))
	}
	return nil
}

// split cuts a line into the used fields. Lines with quotes are rare and take the slow
// path.
func (r *reader) split(line []byte) error {
	n := 0
	put := func(field []byte) {
		if n < len(r.order) {
			if c := r.order[n]; c >= 0 {
				r.fields[c] = field
			}
		}
		n++
	}
	if bytes.IndexByte(line, '"') >= 0 {
		record, err := csv.NewReader(bytes.NewReader(line)).Read()
		if err != nil {
			var at *csv.ParseError
			if errors.As(err, &at) {
				err = at.Err
			}
			return err
		}
		for _, field := range record {
			put([]byte(field))
		}
	} else {
		for {
			i := bytes.IndexByte(line, ',')
			if i < 0 {
				break
			}
			put(line[:i])
			line = line[i+1:]
		}
		put(line)
	}
	if n != r.header {
		return fmt.Errorf("%d fields; the first line names %d", n, r.header)
	}
	return nil
}

func (r *reader) row(line []byte) (row, error) {
	if err := r.split(line); err != nil {
		return row{}, r.wrap(err)
	}
	seconds, err := r.number(colTime, -maxSeconds, maxSeconds)
	if err != nil {
		return row{}, err
	}
	this := row{at: nanoseconds(seconds)}
	if this.usage, err = r.number(colUsage, 0, 1e6); err != nil {
		return row{}, err
	}
	if this.cpi, err = r.cpi(); err != nil {
		return row{}, err
	}
	if err := r.optional(&this); err != nil {
		return row{}, err
	}
	this.container, err = r.container()
	return this, err
}

// optional columns. An empty field says nothing; the time waited is checked and not used
// yet.
func (r *reader) optional(this *row) (err error) {
	if r.has[colWait] && len(bytes.TrimSpace(r.fields[colWait])) > 0 {
		if _, err = r.number(colWait, 0, 1); err != nil {
			return err
		}
	}
	if r.has[colMPKI] && len(bytes.TrimSpace(r.fields[colMPKI])) > 0 {
		if this.mpki, err = r.number(colMPKI, 0, 1e6); err != nil {
			return err
		}
	}
	if r.has[colWindow] && len(bytes.TrimSpace(r.fields[colWindow])) > 0 {
		if this.window, err = r.number(colWindow, 0, 86400); err != nil {
			return err
		}
		r.trace.longest = max(r.trace.longest, this.window)
	}
	if name := r.fields[colRelease]; r.has[colRelease] && len(name) > 0 {
		if r.releases == nil {
			r.releases = map[string]int32{}
		}
		id, ok := r.releases[string(name)]
		if !ok {
			id = int32(len(r.releases) + 1)
			r.releases[string(name)] = id
		}
		this.release = id
	}
	return nil
}

func (r *reader) wrap(err error) error { return fmt.Errorf("line %d: %w", r.line, err) }

// nanoseconds rounds to microseconds, which a float64 holds exactly at any date.
func nanoseconds(seconds float64) int64 { return int64(math.Round(seconds*1e6)) * 1000 }

func (r *reader) number(c column, low, high float64) (float64, error) {
	text := r.fields[c]
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		v, err = strconv.ParseFloat(string(bytes.TrimSpace(text)), 64)
	}
	if err != nil || !(v >= low && v <= high) {
		return 0, r.wrap(fmt.Errorf("%s is %q; it must be a number between %v and %v", columnNames[c], shortened(text),
			low, high))
	}
	return v, nil
}

// cpi returns the row's CPI; 0 if the field is empty or there are no instructions.
func (r *reader) cpi() (float64, error) {
	if r.has[colCPI] {
		if len(bytes.TrimSpace(r.fields[colCPI])) == 0 {
			return 0, nil
		}
		return r.number(colCPI, 0, 1e12)
	}
	if len(bytes.TrimSpace(r.fields[colCycles])) == 0 && len(bytes.TrimSpace(r.fields[colInstructions])) == 0 {
		return 0, nil
	}
	cycles, err := r.number(colCycles, 0, math.MaxUint64)
	if err != nil {
		return 0, err
	}
	instructions, err := r.number(colInstructions, 0, math.MaxUint64)
	if err != nil || instructions == 0 {
		return 0, err
	}
	return cycles / instructions, nil
}

// container returns the number of the row's container. All rows of a container must
// agree on it.
func (r *reader) container() (int32, error) {
	id := r.fields[colContainer]
	if i, ok := r.known[string(id)]; ok {
		c := &r.trace.Containers[i]
		if c.Job != string(r.fields[colJob]) || c.Class.String() != string(r.fields[colClass]) ||
			c.Platform != string(r.fields[colPlatform]) {
			return 0,
				r.wrap(
					fmt.Errorf(
						"container %q is of job %q, class %s and platform %q here, but of job %q, class %s and "+
							"platform %q in line %d",
						shortened(id), shortened(r.fields[colJob]), shortened(r.fields[colClass]),
						shortened(r.fields[colPlatform]), c.Job, c.Class, c.Platform, r.firsts[i]))
		}
		return i, nil
	}
	class, ok := cpi.ParseClass(string(r.fields[colClass]))
	if !ok || class == cpi.Other {
		return 0, r.wrap(fmt.Errorf("class is %q; it must be LSE, LSR, LS, BATCH or BE", shortened(r.fields[colClass])))
	}
	if len(id) == 0 {
		return 0, r.wrap(errors.New("container is empty"))
	}
	i := int32(len(r.trace.Containers))
	c := cpi.Container{ID: string(id), Job: string(r.fields[colJob]), Class: class,
		Platform: string(r.fields[colPlatform])}
	r.trace.Containers = append(r.trace.Containers, c)
	r.known[c.ID] = i
	r.firsts = append(r.firsts, r.line)
	r.lasts = append(r.lasts, math.MinInt64)
	return i, nil
}

func shortened(text []byte) []byte {
	if len(text) > 60 {
		return append(slices.Clone(text[:57]), "..."...)
	}
	return text
}
