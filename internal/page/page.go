package page

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/internal/dayreport"
	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/page/site"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

const (
	// lookEvery is how often the state is read. Readers see it at most this late, and
	// are sent updates no more often.
	lookEvery = time.Second
	// incidentsEvery is how often the database is read while there are readers.
	incidentsEvery = 10 * time.Second
	// beatEvery is the interval of heartbeats while nothing changes.
	beatEvery = 15 * time.Second
	// patience is how long a reader may accept nothing.
	patience = 10 * time.Second
)

// Options of a Page.
type Options struct {
	// Look returns the present state. It is called about once a second, by one
	// goroutine at a time, with or without readers.
	Look func() Look
	// Load returns what each CPU has done, by its number. It is called while there are readers. Nil: not known.
	Load func() []CPUTime
	// Report is that of the last day, with at most ReportLines lines a list. Nil: none is kept.
	Report    func(context.Context) (*dayreport.Report, error)
	Incidents incidents.Source                // nil: none are kept
	History   func(id string) []sample.Sample // of a container, oldest first; nil: not known
	Node      string
	Version   string
	Now       func() time.Time // nil: the clock
	Tick      <-chan time.Time // nil: once a second
	Log       *slog.Logger     // nil: silent
}

// Page serves one daemon's page. Its handler is safe for concurrent use; it changes
// only while Run runs.
type Page struct {
	o        Options
	instance string
	started  time.Time
	assets   *site.Files
	streams  chan struct{} // a token per reader
	answers  *site.Turns   // of answers that are no streams
	board    board
	day      lastReport
	// slow bounds the time to write one answer, or one batch of a stream.
	slow time.Duration

	mu       sync.Mutex // guards the fields below; held during a look
	history  *history
	comparer comparer
	made     made
}

// made is what the parts on the board were made of.
type made struct {
	at       time.Time
	listed   time.Time // when the incidents were read
	topology *topology.Topology
	snapshot *policy.Snapshot
	load     loadMeter
}

// New makes a page.
func New(o Options) (*Page, error) {
	if o.Look == nil {
		return nil, errors.New("page: Options.Look is required")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &Page{
		o: o, instance: rand.Text(), started: o.Now(), history: newHistory(),
		streams: make(chan struct{}, maxStreams), answers: site.NewTurns(maxAnswers), slow: patience,
	}
	p.board.init()
	var err error
	p.assets, err = files()
	return p, err
}

// Run looks until ctx ends.
func (p *Page) Run(ctx context.Context) {
	tick := p.o.Tick
	if tick == nil {
		t := time.NewTicker(lookEvery)
		defer t.Stop()
		tick = t.C
	}
	for {
		p.look(ctx, len(p.streams) > 0)
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
	}
}

// look adds the present state to the timeline; parts are encoded only if there are
// readers.
func (p *Page) look(ctx context.Context, read bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.o.Look()
	now := p.o.Now()
	for _, c := range p.comparer.compare(now, &l) {
		p.board.change(c)
	}
	if p.history.wants(now) {
		p.history.put(pointOf(now, &l))
		p.board.point()
	}
	if read {
		p.encode(ctx, &l, now)
	}
	p.board.wakeAll()
}

// current updates the parts for a request between two looks.
func (p *Page) current(ctx context.Context) {
	p.mu.Lock()
	now := p.o.Now()
	fresh := !p.made.at.IsZero() && now.Sub(p.made.at) < lookEvery && !now.Before(p.made.at)
	p.mu.Unlock()
	if !fresh {
		p.look(ctx, true)
	}
}

// encode encodes the parts of the document. A part that cannot be encoded, which is a
// bug, is logged and stays as it was.
func (p *Page) encode(ctx context.Context, l *Look, now time.Time) {
	p.made.at = now
	s := l.Snapshot
	p.put(partNode, nodePart{
		Name: name(p.o.Node), Version: name(p.o.Version), Instance: p.instance, Assets: p.assets.Tag(),
		Started:   p.started.UnixMilli(),
		Connected: l.Connected, Synchronised: l.Synchronised, Observe: l.Observe, Unpinned: l.Unpinned,
		CPI: cpiOf(l.Performance.CPI), KeepsIncidents: p.o.Incidents != nil,
	})
	if p.made.topology != s.Topology {
		p.made.topology = s.Topology
		p.put(partMachine, machineOf(s.Topology))
	}
	if p.made.snapshot != s {
		p.made.snapshot = s
		p.put(partCPUs, cpusOf(s))
		p.put(partContainers, containersOf(s))
	}
	p.put(partSamples, samplesOf(l.Performance))
	if p.o.Load != nil && p.made.load.wants(now) {
		p.put(partLoad, p.made.load.read(now, p.o.Load()))
	}
	if age := now.Sub(p.made.listed); age >= incidentsEvery || age < 0 {
		p.made.listed = now
		p.put(partIncidents, p.list(ctx))
	}
}

func (p *Page) put(part string, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		p.o.Log.Error("a part of the page is not shown", "part", part, "err", err)
		return
	}
	p.board.put(part, text)
}

// list reads the database with a short timeout, since no other goroutine can look
// meanwhile.
func (p *Page) list(ctx context.Context) incidentsPart {
	if p.o.Incidents == nil {
		return incidentsPart{Incidents: []incidentRow{},
			Why: "this daemon keeps no incidents; with cpi.mode observe or enforce it does"}
	}
	const limit = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	l, err := p.o.Incidents.List(ctx, incidents.Filter{Limit: maxListed})
	if err != nil {
		return incidentsPart{Incidents: []incidentRow{}, Why: fmt.Sprintf("the incidents cannot be read: %v", err)}
	}
	return incidentsOf(l)
}

// timeline is the body of /api/history.
func (p *Page) timeline() historyPart {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.history.part(p.board.changes(0))
}

// board has what readers should receive. Everything on it is encoded once and shared.
type board struct {
	mu    sync.Mutex // guards the rest
	parts map[string]*encodedPart
	seq   uint64 // counts puts of parts
	past  ring[change]
	moved chan struct{} // closed when there is news, and then replaced
	news  bool
}

type encodedPart struct {
	seq  uint64
	text []byte
}

func (b *board) init() {
	b.parts = map[string]*encodedPart{}
	b.past = ring[change]{size: maxChanges}
	b.moved = make(chan struct{})
}

func (b *board) put(part string, text []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if old := b.parts[part]; old != nil && bytes.Equal(old.text, text) {
		return
	}
	b.seq++
	b.news = true
	b.parts[part] = &encodedPart{b.seq, text}
}

func (b *board) change(c change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.past.put(c)
	b.news = true
}

func (b *board) point() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.news = true
}

// wakeAll notifies readers once about all changes since the last time.
func (b *board) wakeAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.news {
		return
	}
	b.news = false
	close(b.moved)
	b.moved = make(chan struct{})
}

func (b *board) changes(since uint64) []change {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.past.since(since)
}

// message is one event to send.
type message struct {
	event string
	text  []byte
}

// cursor is a reader's position.
type cursor struct {
	seq           uint64
	changes       uint64
	fine, coarse  uint64
	changesKnown  bool
	timelineKnown bool
}

// next returns what a reader does not have yet, and a channel that is closed when there
// is more. However long the reader was away, it is at most the whole document.
func (b *board) next(c *cursor) (out []message, changes []change, more <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, part := range partNames() {
		if p := b.parts[part]; p != nil && p.seq > c.seq {
			out = append(out, message{part, p.text})
		}
	}
	c.seq = b.seq
	if c.changesKnown {
		changes = b.past.since(c.changes)
	}
	c.changes, c.changesKnown = b.past.total, true
	return out, changes, b.moved
}

// points returns those of the timeline that a reader does not have yet; none the first
// time, since it requests the whole.
func (p *Page) points(c *cursor) (fine, coarse []point) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.history
	if c.timelineKnown {
		fine, coarse = h.fine.since(c.fine), h.coarse.since(c.coarse)
	}
	c.fine, c.coarse, c.timelineKnown = h.fine.total, h.coarse.total, true
	return fine, coarse
}
