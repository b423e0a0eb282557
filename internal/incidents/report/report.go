// Package report is `quietcore incidents`: it asks a daemon, or the file of one that
// does not run, and writes the answer for people and for programs.
package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/incidents/export"
	"github.com/quietcore/quietcore/internal/incidents/plot"
	"github.com/quietcore/quietcore/internal/printable"
)

// Source is where the answers come from.
type Source struct {
	Socket   string // of a daemon
	Database string // the file of a daemon that does not run; empty: ask the daemon
}

// with opens the source, lets do use it, and closes it.
func (s *Source) with(do func(incidents.Source) error) error {
	if s.Database == "" {
		return do(control.Client{Socket: s.Socket}.Incidents())
	}
	r, err := incidents.OpenReader(s.Database, time.Now())
	if err != nil {
		return err
	}
	return errors.Join(do(r), r.Close())
}

// IDs are those of the newest, each with what it is about, for completion; none where
// the source does not answer at once.
func (s *Source) IDs(ctx context.Context) (list []string) {
	const most, patience = 50, time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_ = s.with(func(from incidents.Source) error {
		l, err := from.List(ctx, incidents.Filter{Limit: most})
		if err != nil {
			return err
		}
		for _, i := range l.Incidents {
			list = append(list, fmt.Sprintf("%s\t%s %s", i.ID, printable.Text(i.Victim.Name()),
				printable.Text(i.Verdict)))
		}
		return nil
	})
	return list
}

// Filter is one as flags have it.
type Filter struct {
	incidents.Filter
	SinceText, UntilText string
}

// Parse checks the filter and sets its times, which may be relative to now.
func (f *Filter) Parse(now time.Time) (err error) {
	if f.Since, err = parseWhen("since", f.SinceText, now); err != nil {
		return err
	}
	if f.Until, err = parseWhen("until", f.UntilText, now); err != nil {
		return err
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return cli.Usage("--since %s is not before --until %s", f.Since.Format(time.RFC3339),
			f.Until.Format(time.RFC3339))
	}
	if f.Limit < 0 {
		return cli.Usage("--limit is %d, must be 0 (no limit) or more", f.Limit)
	}
	return nil
}

// parseWhen reads a duration back from now, a day or a time.
func parseWhen(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		const most = 100_000
		if n, err := strconv.ParseFloat(days, 64); err == nil && n >= 0 && n < most {
			return now.Add(-time.Duration(n * float64(24*time.Hour))), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, form := range []string{time.RFC3339Nano, "2006-01-02T15:04", "2006-01-02 15:04", time.DateTime,
		time.DateOnly} {
		if t, err := time.ParseInLocation(form, text, time.UTC); err == nil {
			return t, nil
		}
	}
	return time.Time{},
		cli.Usage("--%s is %q; give a duration back from now (90m, 24h, 7d), a day (2026-11-21) or a time "+
			"(2026-11-21T12:00:00Z)", flag, text)
}

// Output is where an answer goes, and in which form: text, json, html or svg.
type Output struct {
	To     io.Writer
	Format string
}

// List writes the incidents that a filter lets through.
func List(ctx context.Context, s *Source, f incidents.Filter, out Output) error {
	return s.with(func(from incidents.Source) error {
		l, err := from.List(ctx, f)
		if err != nil {
			return err
		}
		if out.Format == "json" {
			return cli.WriteJSON(out.To, l)
		}
		return printed(out.To, func(w io.Writer, columns int) { writeListing(w, columns, l) })
	})
}

// Show writes everything about one incident. With a file for a plot nothing else is
// written, unless out has a format.
func Show(ctx context.Context, s *Source, id, svg string, out Output) error {
	return s.with(func(from incidents.Source) error {
		i, err := from.Get(ctx, id)
		if err != nil {
			return err
		}
		if svg != "" {
			if err := ToFile(svg, func(w io.Writer) error { return plot.SVG(w, i) }); err != nil {
				return err
			}
		}
		switch out.Format {
		case "":
			return nil
		case "json":
			return cli.WriteJSON(out.To, i)
		case "html":
			return plot.HTML(out.To, i)
		case "svg":
			return plot.SVG(out.To, i)
		}
		return printed(out.To, func(w io.Writer, columns int) { writeIncident(w, columns, i) })
	})
}

// Top ranks what hurt a job most, or what a job hurt.
func Top(ctx context.Context, s *Source, q incidents.TopQuery, out Output) error {
	return s.with(func(from incidents.Source) error {
		t, err := from.Top(ctx, q)
		if err != nil {
			return err
		}
		if out.Format == "json" {
			return cli.WriteJSON(out.To, t)
		}
		return printed(out.To, func(w io.Writer, columns int) { writeTop(w, columns, q, t) })
	})
}

// WriteIncident writes an incident for people.
func WriteIncident(w io.Writer, i *incidents.Incident) error {
	return printed(w, func(w io.Writer, columns int) { writeIncident(w, columns, i) })
}

// WriteTop writes the answer to a query for people.
func WriteTop(w io.Writer, q incidents.TopQuery, t *incidents.Top) error {
	return printed(w, func(w io.Writer, columns int) { writeTop(w, columns, q, t) })
}

// Export writes incidents for other programs and returns how many. The format is one
// of export's.
func Export(ctx context.Context, s *Source, f incidents.Filter, out Output) (n int, err error) {
	err = s.with(func(from incidents.Source) error {
		to, err := export.To(out.To, out.Format)
		if err != nil {
			return err
		}
		if err := from.Export(ctx, f, func(i *incidents.Incident) error {
			n++
			return to.Write(i)
		}); err != nil {
			return err
		}
		return to.Close()
	})
	return n, err
}

// ExportFile is Export into a file, which is written as a whole or not at all.
func ExportFile(ctx context.Context, s *Source, f incidents.Filter, name, format string) (n int, err error) {
	err = ToFile(name, func(w io.Writer) error {
		n, err = Export(ctx, s, f, Output{To: w, Format: format})
		return err
	})
	return n, err
}
