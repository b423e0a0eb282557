package page

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/quietcore/quietcore/internal/dayreport"
	"github.com/quietcore/quietcore/internal/page/site"
)

const (
	// ReportLines is the most lines that a list of the report should have.
	ReportLines = 10
	// reportEvery is how often one is made, however often it is asked for.
	reportEvery = time.Minute
)

// lastReport is the report that was made last.
type lastReport struct {
	mu   sync.Mutex // guards the rest; held while one is made, so that it is made once
	at   time.Time  // zero: there is none
	text json.RawMessage
}

func (l *lastReport) get(ctx context.Context, now time.Time,
	of func(context.Context) (*dayreport.Report, error)) (json.RawMessage, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if age := now.Sub(l.at); !l.at.IsZero() && age >= 0 && age < reportEvery {
		return l.text, nil
	}
	r, err := of(ctx)
	if err != nil {
		return nil, err
	}
	tidy(r)
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	l.at, l.text = now, text
	return text, nil
}

// tidy cleans the sentences of a report, and its names, which are of several parts each.
func tidy(r *dayreport.Report) {
	r.Node, r.Mode = name(r.Node), name(r.Mode)
	for i := range r.Missing {
		r.Missing[i] = clip(r.Missing[i])
	}
	for i := range r.Shared {
		one := &r.Shared[i]
		one.Pod, one.With = clip(one.Pod), clip(one.With)
	}
	for i := range r.Disturbed {
		one := &r.Disturbed[i]
		one.Job = clip(one.Job)
		for k := range one.By {
			one.By[k].Job = clip(one.By[k].Job)
		}
	}
	for i := range r.Idle {
		one := &r.Idle[i]
		one.Pod, one.Class = clip(one.Pod), name(one.Class)
	}
	for i := range r.Costs {
		one := &r.Costs[i]
		one.Who, one.Why = clip(one.Who), clip(one.Why)
	}
}

// report answers with that of the last day.
func (p *Page) report(w http.ResponseWriter, r *http.Request) {
	if p.o.Report == nil {
		http.Error(w, "this daemon keeps no facts for a report", http.StatusNotFound)
		return
	}
	text, err := p.day.get(r.Context(), p.o.Now(), p.o.Report)
	if err != nil {
		http.Error(w, clip(err.Error()), http.StatusServiceUnavailable)
		return
	}
	site.Reply(w, text)
}
