package metrics

import (
	"bytes"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
)

// sharedFor is how long an answer is given to others too. Collecting the series takes a
// millisecond of CPU time and more, which clients without number could have it spend
// again and again.
const sharedFor = time.Second

// maxShared bounds the answers that are kept: formats times encodings.
const maxShared = 8

// shared gives the clients of a second the same answer. All of them wait for it while
// it is made.
type shared struct {
	render http.Handler
	now    func() time.Time

	mu      sync.Mutex // guards answers, and is held while one is made
	answers map[string]*answer
}

// answer is a whole one. It is an http.ResponseWriter while it is made.
type answer struct {
	at     time.Time
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }

func (s *shared) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a := s.of(r)
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes()) // the client went away
}

func (s *shared) of(r *http.Request) *answer {
	encoding := ""
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		encoding = "gzip"
	}
	key := string(expfmt.NegotiateAccept(r.Header, expfmt.DefaultOpenMetricsAcceptedFormats()...)) + " " + encoding
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if a := s.answers[key]; a != nil && now.Sub(a.at) < sharedFor {
		return a
	}
	if s.answers == nil || len(s.answers) == maxShared {
		s.answers = map[string]*answer{}
	}
	a := &answer{at: now, header: http.Header{}, status: http.StatusOK}
	asked := r.Clone(r.Context())
	asked.Header = http.Header{"Accept": r.Header["Accept"], "Accept-Encoding": {encoding}}
	s.render.ServeHTTP(a, asked)
	if a.status == http.StatusOK {
		s.answers[key] = a
	}
	return a
}
