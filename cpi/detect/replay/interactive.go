package replay

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// talk is a conversation in progress.
type talk struct {
	r     *reader
	o     Options
	emit  func(*Line) error
	p     player
	near  time.Duration
	guess bool  // the period is the configuration's, until the second interval tells it
	first []row // the rows of the first interval, while it is a guess
	last  int64
}

// Interactive plays rows as they come, so that a caller can let caps and probes take
// effect before it writes the next interval. An empty line, or the end, ends an interval:
// everything that follows from it is emitted, then tick is called with the time of its
// last row. Without Options.Period the period is the time between the first two
// intervals.
func Interactive(in io.Reader, o Options, emit func(*Line) error, tick func(at float64) error) (Summary, error) {
	t := &talk{r: newReader(in), o: o, emit: emit, last: math.MinInt64}
	if err := t.r.readHeader(); err != nil {
		return Summary{}, err
	}
	if t.guess = o.Period == 0; t.guess {
		t.o.Period = o.Config.Period
	}
	var err error
	if t.p, t.near, err = newPlayer(t.r.trace, t.o, emit); err != nil {
		return Summary{}, err
	}
	var rows []row
	for {
		line, err := t.r.nextOrEmpty()
		ended := errors.Is(err, io.EOF)
		if err != nil && !ended {
			return Summary{}, err
		}
		if len(line) > 0 {
			got, err := t.r.row(line)
			if err != nil {
				return Summary{}, err
			}
			if got.at < t.last {
				return Summary{}, t.r.wrap(fmt.Errorf("time is %v, in the interval before it was %v already",
					seconds(time.Unix(0, got.at)), seconds(time.Unix(0, t.last))))
			}
			rows = append(rows, got)
			continue
		}
		if len(rows) > 0 {
			if err := t.interval(rows); err != nil {
				return Summary{}, err
			}
			if err := tick(seconds(time.Unix(0, t.last))); err != nil {
				return Summary{}, err
			}
			rows = rows[:0]
		}
		if ended {
			return t.p.summary(), nil
		}
	}
}

// interval answers one.
func (t *talk) interval(rows []row) error {
	slices.SortStableFunc(rows, func(a, b row) int { return compareTimes(a.at, b.at) })
	if err := t.learnPeriod(rows); err != nil {
		return err
	}
	t.last = rows[len(rows)-1].at
	if err := feed(t.p, rows, t.near); err != nil {
		return err
	}
	// What is due at once, as the analysis of a second victim. Before the next interval
	// begins nobody knows it.
	return t.p.until(time.Unix(0, t.last).Add(t.o.Period / 2))
}

// learnPeriod plays the first interval again where the second shows that the period was
// guessed wrong. What follows from it was told already.
func (t *talk) learnPeriod(rows []row) error {
	switch {
	case !t.guess:
		return nil
	case t.first == nil:
		t.first = slices.Clone(rows)
		return nil
	}
	t.guess = false
	gap := time.Duration(rows[0].at - t.first[0].at)
	if period := periodOf(&Trace{Period: gap}, &t.o.Config); period != t.o.Period {
		t.o.Period = period
		told := false
		var err error
		if t.p, t.near, err = newPlayer(t.r.trace, t.o, func(l *Line) error {
			if told {
				return t.emit(l)
			}
			return nil
		}); err != nil {
			return err
		}
		err = feed(t.p, t.first, t.near)
		told = true
		return err
	}
	return nil
}

func compareTimes(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
