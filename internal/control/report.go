package control

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/quietcore/quietcore/internal/dayreport"
	"github.com/quietcore/quietcore/internal/incidents"
)

// Reports make reports of what was seen. Nil ones are not known.
type Reports struct {
	// Of is the report of a time, with at most limit lines a list; 0: all.
	Of func(ctx context.Context, since, until time.Time, limit int) (*dayreport.Report, error)
	// Line is the last day in one line; empty: not yet.
	Line func() string
}

// ReportQuery is what a report is asked for with: a time, and how many lines a list has; 0: all.
type ReportQuery struct {
	Since, Until time.Time
	Limit        int
}

// Values is a query as the address has it.
func (q ReportQuery) Values() url.Values {
	return Values(incidents.Filter{Since: q.Since, Until: q.Until, Limit: q.Limit})
}

// lastDay is what is reported where no time is asked for.
const lastDay = 24 * time.Hour

func (s *Server) report(w http.ResponseWriter, r *http.Request) {
	if s.Reports.Of == nil {
		fail(w, http.StatusServiceUnavailable, errors.New("this daemon keeps no facts for a report"))
		return
	}
	f, err := filterOf(r.URL.Query())
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	if f.Until.IsZero() {
		f.Until = time.Now()
	}
	if f.Since.IsZero() {
		f.Since = f.Until.Add(-lastDay)
	}
	if !f.Since.Before(f.Until) {
		fail(w, http.StatusBadRequest, errors.New("since is to be before until"))
		return
	}
	out, err := s.Reports.Of(r.Context(), f.Since, f.Until, f.Limit)
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	reply(w, http.StatusOK, out)
}

// Report asks for one.
func (c Client) Report(ctx context.Context, q ReportQuery) (*dayreport.Report, error) {
	out := &dayreport.Report{}
	return out, c.get(ctx, "/v1/report?"+q.Values().Encode(), into(out))
}
