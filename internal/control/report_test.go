package control

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/dayreport"
)

// A report is of the time that is asked for, or of the last day; its line is in the status.
func TestReport(t *testing.T) {
	var since, until time.Time
	var limit int
	_, client, _ := daemon(t, func(s *Server) {
		s.Reports = Reports{Line: func() string { return "in 2h0m: all is well" },
			Of: func(_ context.Context, from, to time.Time, most int) (*dayreport.Report, error) {
				since, until, limit = from, to, most
				return dayreport.Of(nil, dayreport.Asked{Node: "node-a", Since: from, Until: to}), nil
			}}
	})
	q := ReportQuery{Since: time.Date(2026, 11, 20, 1, 2, 3, 4, time.UTC), Limit: 7}
	q.Until = q.Since.Add(time.Hour)
	r, err := client.Report(limited(t), q)
	if err != nil || r.Node != "node-a" || !r.Since.Equal(q.Since) || !since.Equal(q.Since) || !until.Equal(q.Until) ||
		limit != 7 {
		t.Errorf("%+v, %v; asked from %s to %s for %d lines", r, err, since, until, limit)
	}
	if _, err := client.Report(limited(t), ReportQuery{}); err != nil || until.Sub(since) != 24*time.Hour ||
		time.Since(until) > time.Minute || limit != 0 {
		t.Errorf("without a time: from %s to %s, %v", since, until, err)
	}
	if s, err := client.Status(limited(t)); err != nil || s.Report != "in 2h0m: all is well" {
		t.Errorf("%v, %q", err, s.Report)
	}
	_, old, _ := daemon(t)
	if _, err := old.Report(limited(t), q); err == nil || !strings.Contains(err.Error(), "no facts for a report") {
		t.Errorf("of a daemon that keeps none: %v", err)
	}
}
