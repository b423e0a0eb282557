package page

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/incidents/plot"
	"github.com/quietcore/quietcore/internal/page/site"
)

// Limits of all readers together.
const (
	maxStreams = 16
	maxAnswers = 8
)

//go:embed assets
var embedded embed.FS

// vendored is software of others, each in a folder NAME@VERSION with its licence. hack/image/licences takes it up.
//
//go:embed vendored
var vendored embed.FS

// folders are those whose files the page is made of.
func folders() ([]fs.FS, error) {
	own, err := fs.Sub(embedded, "assets")
	if err != nil {
		return nil, fmt.Errorf("page: %w", err)
	}
	list := []fs.FS{own, site.Shared()}
	others, err := vendored.ReadDir("vendored")
	if err != nil {
		return nil, fmt.Errorf("page: %w", err)
	}
	for _, one := range others {
		folder, err := fs.Sub(vendored, "vendored/"+one.Name())
		if err != nil {
			return nil, fmt.Errorf("page: %w", err)
		}
		list = append(list, folder)
	}
	return list, nil
}

// files are those of the page.
func files() (*site.Files, error) {
	list, err := folders()
	if err != nil {
		return nil, err
	}
	return site.Load(list...)
}

// Handler serves the page and rejects all other requests.
func (p *Page) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", p.limited(func(w http.ResponseWriter, r *http.Request) {
		p.assets.Serve(w, r, "index.html")
	}))
	mux.Handle("GET /assets/{file}", p.limited(func(w http.ResponseWriter, r *http.Request) {
		p.assets.Serve(w, r, r.PathValue("file"))
	}))
	mux.Handle("GET /api/state", p.limited(p.state))
	mux.Handle("GET /api/history", p.limited(func(w http.ResponseWriter, _ *http.Request) {
		site.Reply(w, p.timeline())
	}))
	mux.Handle("GET /api/report", p.limited(p.report))
	mux.Handle("GET /api/containers/{id}/samples", p.limited(p.samples))
	mux.Handle("GET /api/incidents/{id}", p.limited(p.incident))
	mux.Handle("GET /incidents/{file}", p.limited(p.drawing))
	mux.HandleFunc("GET /api/stream", p.stream)
	return site.Guard(mux)
}

// drawingPolicy lets a drawing contain its own style and nothing else.
const drawingPolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; " +
	"frame-ancestors 'none'"

// limited bounds concurrent answers.
func (p *Page) limited(next http.HandlerFunc) http.Handler {
	return p.answers.Limited(p.slow, next)
}

// state serves the whole document.
func (p *Page) state(w http.ResponseWriter, r *http.Request) {
	p.current(r.Context())
	parts, _, _ := p.board.next(&cursor{})
	doc := make(map[string]json.RawMessage, len(parts))
	for _, m := range parts {
		doc[m.event] = m.text
	}
	site.Reply(w, doc)
}

// sampleRow is a container in one window.
type sampleRow struct {
	At    int64    `json:"t"` // Unix seconds
	Usage float64  `json:"usage"`
	CPI   *float64 `json:"cpi"`
	MPKI  *float64 `json:"mpki,omitempty"`
	Wait  *float64 `json:"wait,omitempty"`
}

// maxSamples bounds the samples shown of a container.
const maxSamples = 1440

func (p *Page) samples(w http.ResponseWriter, r *http.Request) {
	rows := []sampleRow{}
	if p.o.History != nil {
		list := p.o.History(r.PathValue("id"))
		for _, s := range list[max(0, len(list)-maxSamples):] {
			rows = append(rows, rowOf(s))
		}
	}
	site.Reply(w, map[string]any{"samples": rows})
}

func rowOf(s sample.Sample) sampleRow {
	row := sampleRow{At: s.End.Unix(), Usage: finite(s.Usage)}
	if cpi := finite(s.CPI); s.NoCPI == sample.None && cpi > 0 {
		row.CPI = &cpi
	}
	if mpki := finite(s.MPKI); s.HasMPKI {
		row.MPKI = &mpki
	}
	if wait := finite(s.Wait); s.HasWait {
		row.Wait = &wait
	}
	return row
}

// finite replaces infinities, which JSON lacks.
func finite(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}

// find returns an incident, or answers with the error itself.
func (p *Page) find(w http.ResponseWriter, r *http.Request, id string) *incidents.Incident {
	if p.o.Incidents == nil {
		http.Error(w, "this daemon keeps no incidents", http.StatusNotFound)
		return nil
	}
	i, err := p.o.Incidents.Get(r.Context(), id)
	var missing *incidents.NotFoundError
	switch {
	case errors.As(err, &missing):
		http.Error(w, "no such incident", http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		return i
	}
	return nil
}

func (p *Page) incident(w http.ResponseWriter, r *http.Request) {
	if i := p.find(w, r, r.PathValue("id")); i != nil {
		site.Reply(w, detailOf(i))
	}
}

// drawing serves an incident's plot, alone or as a page.
func (p *Page) drawing(w http.ResponseWriter, r *http.Request) {
	file := r.PathValue("file")
	id, html := strings.CutSuffix(file, ".html")
	if !html {
		var svg bool
		if id, svg = strings.CutSuffix(file, ".svg"); !svg {
			http.NotFound(w, r)
			return
		}
	}
	i := p.find(w, r, id)
	if i == nil {
		return
	}
	var text bytes.Buffer
	draw, kind := plot.SVG, "image/svg+xml"
	if html {
		draw, kind = plot.HTML, "text/html; charset=utf-8"
	}
	if err := draw(&text, i); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Security-Policy", drawingPolicy)
	_, _ = w.Write(text.Bytes()) // the reader went away
}

// detail is one incident in words; the numbers over time are in its plot.
type detail struct {
	ID       string          `json:"id"`
	At       time.Time       `json:"at"`
	Victim   string          `json:"victim"`
	Job      string          `json:"job"`
	CPUs     string          `json:"cpus"`
	Claims   string          `json:"claims,omitempty"` // of CPUs, that the victim has
	CPI      float64         `json:"cpi"`
	Mean     float64         `json:"mean"`
	Limit    float64         `json:"threshold"`
	Verdict  string          `json:"verdict"`
	Why      string          `json:"why"`
	Resource string          `json:"resource,omitempty"`
	Beside   []detailBeside  `json:"beside,omitempty"`
	Suspects []detailSuspect `json:"suspects"`
	Actions  []detailAction  `json:"actions"`
	Result   string          `json:"result"`
	Before   float64         `json:"before,omitempty"`
	After    float64         `json:"after,omitempty"`
	Arms     [2]string       `json:"arms"` // what Before and After are called
}

func arms(i *incidents.Incident) [2]string {
	first, second := i.Arms()
	return [2]string{first, second}
}

// detailBeside is who ran beside the victim, and where.
type detailBeside struct {
	Name         string  `json:"name"`
	Where        string  `json:"where"`
	CPUs         float64 `json:"cpus"`
	Instructions float64 `json:"instructions,omitempty"`
	Misses       float64 `json:"misses,omitempty"`
}

type detailSuspect struct {
	Name       string  `json:"name"`
	Class      string  `json:"class"`
	Score      float64 `json:"score"`
	Contrast   float64 `json:"contrast"`
	Confidence float64 `json:"confidence"`
	Usage      float64 `json:"usage"`
	Shares     string  `json:"shares"`
	Blamed     bool    `json:"blamed"`
	Claims     string  `json:"claims,omitempty"`
}

type detailAction struct {
	Kind    string    `json:"kind"`
	Subject string    `json:"subject"`
	Milli   int64     `json:"milli,omitempty"`
	Off     string    `json:"off,omitempty"` // CPUs that Subject alone was moved off
	From    time.Time `json:"from"`
	End     time.Time `json:"end"`
	Why     string    `json:"why,omitempty"`
}

func detailOf(i *incidents.Incident) detail {
	d := detail{
		ID: i.ID, At: i.At, Victim: subject(i.Victim), Job: name(i.Victim.JobName()), CPUs: name(i.Victim.CPUs),
		Claims: clip(i.Victim.Claims), CPI: finite(i.CPI), Mean: finite(i.Spec.Mean),
		Limit: finite(i.Threshold), Verdict: name(i.Verdict), Why: clip(i.Why), Result: name(i.Outcome.Result),
		Before: finite(i.Outcome.Before), After: finite(i.Outcome.After), Arms: arms(i),
		Suspects: []detailSuspect{}, Actions: []detailAction{}, Resource: name(i.Evidence.Lacked()),
		Beside: besideOf(i.Evidence),
	}
	for _, s := range i.Suspects {
		d.Suspects = append(d.Suspects, detailSuspect{
			subject(s.Subject), name(s.Class), finite(s.Score), finite(s.Contrast), finite(s.Confidence),
			finite(s.Usage), name(s.Shares), slices.ContainsFunc(i.Antagonists, s.Same), clip(s.Claims),
		})
	}
	for _, a := range i.Actions {
		d.Actions = append(d.Actions, detailAction{name(a.Kind), subject(a.Subject), a.Milli, name(a.Off), a.From,
			a.End(), clip(a.EndedWhy)})
	}
	return d
}

func besideOf(e *incidents.Evidence) (list []detailBeside) {
	if e == nil {
		return nil
	}
	add := func(where string, all []incidents.Neighbour) {
		for _, n := range all {
			list = append(list, detailBeside{clip(n.Name), where, finite(n.CPUs), finite(n.Instructions),
				finite(n.Misses)})
		}
	}
	add("SMT siblings", e.Siblings)
	add("L3 domain", e.L3)
	add("NUMA node", e.Node)
	return list
}

// stream sends changes until the reader or the daemon ends.
func (p *Page) stream(w http.ResponseWriter, r *http.Request) {
	select {
	case p.streams <- struct{}{}:
		defer func() { <-p.streams }()
	default:
		site.Busy(w, fmt.Sprintf("%d pages are open already, no more are served at a time", maxStreams))
		return
	}
	p.current(r.Context())
	w.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead {
		return
	}
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	to := &sender{w: w, control: http.NewResponseController(w), slow: p.slow}
	to.retry()
	var c cursor
	for {
		more := p.send(to, &c)
		if to.flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-beat.C:
		case <-more:
		}
	}
}

// send sends what a reader does not have yet, and then the time, which marks the end.
func (p *Page) send(to *sender, c *cursor) (more <-chan struct{}) {
	fine, coarse := p.points(c)
	parts, changes, more := p.board.next(c)
	for _, m := range parts {
		to.event(m.event, m.text)
	}
	to.json("points", map[string]any{"fine": fine, "coarse": coarse}, len(fine)+len(coarse) > 0)
	to.json("changes", changes, len(changes) > 0)
	to.json("now", p.o.Now().UnixMilli(), true)
	return more
}

// sender writes server-sent events. It stops at the first error.
type sender struct {
	w       http.ResponseWriter
	control *http.ResponseController
	slow    time.Duration
	buffer  bytes.Buffer
	err     error
}

func (s *sender) retry() { s.buffer.WriteString("retry: 2000\n\n") }

// event writes one event; JSON text has no line breaks.
func (s *sender) event(name string, text []byte) {
	s.buffer.WriteString("event: " + name + "\ndata: ")
	s.buffer.Write(text)
	s.buffer.WriteString("\n\n")
}

func (s *sender) json(name string, v any, wanted bool) {
	if !wanted || s.err != nil {
		return
	}
	text, err := json.Marshal(v)
	if err != nil {
		s.err = err
		return
	}
	s.event(name, text)
}

func (s *sender) flush() error {
	if s.err != nil {
		return s.err
	}
	// A reader that accepts nothing for this long is treated as gone.
	_ = s.control.SetWriteDeadline(time.Now().Add(s.slow)) // a ResponseWriter without deadlines is a test's
	_, s.err = s.w.Write(s.buffer.Bytes())
	s.buffer.Reset()
	if s.err == nil {
		s.err = s.control.Flush()
	}
	return s.err
}
