package control

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// RemotePrefix is what the paths for other machines begin with. They do not begin with /api: RBAC lets every user get
// what does, for discovery.
const RemotePrefix = "/quietcore"

// So many answers are made at a time for other machines, and of those that take long, so many.
const maxAnswers, maxSlow = 4, 1

// slowFor is how long a slow one may take, the client's part included.
const slowFor = 3 * time.Minute

// route is a question that only reads.
type route struct {
	path   string // as the mux takes it
	slow   bool   // it takes seconds, or much memory
	answer http.HandlerFunc
}

// routes are what is asked over the socket and by other machines alike.
func (s *Server) routes() []route {
	return append([]route{
		{path: "/v1/status", answer: s.status},
		{path: "/v1/summary", answer: s.summary},
		{path: "/v1/explain", answer: s.explain},
		{path: "/v1/top", answer: s.top},
		{path: "/v1/report", answer: s.report},
		{path: "/v1/doctor", slow: true, answer: s.doctor},
		{path: "/v1/bundle", slow: true, answer: s.bundle},
	}, s.incidentRoutes()...)
}

// RemotePaths are those that a right is about.
func RemotePaths() []string {
	var list []string
	for _, r := range (&Server{}).routes() {
		list = append(list, r.right())
	}
	return list
}

// right is the path that has to be allowed to whoever asks.
func (r *route) right() string { return RemotePrefix + strings.TrimSuffix(r.path, "/{id}") }

// Remote answers other machines. protect serves to those who may get a path.
func (s *Server) Remote(protect func(path string, h http.Handler) http.Handler) http.Handler {
	mux := http.NewServeMux()
	usual, slow := make(chan struct{}, maxAnswers), make(chan struct{}, maxSlow)
	for _, r := range s.routes() {
		turns := usual
		if r.slow {
			turns = slow
		}
		mux.Handle("GET "+RemotePrefix+r.path, protect(r.right(), inTurn(turns, r)))
	}
	return mux
}

// inTurn answers while there is room, and packed to clients that take it.
func inTurn(turns chan struct{}, of route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		default:
			w.Header().Set("Retry-After", "1")
			fail(w, http.StatusServiceUnavailable, errors.New("others are being answered; try again"))
			return
		}
		if of.slow {
			// A ResponseWriter without deadlines is a test's.
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(slowFor))
		}
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") || of.path == "/v1/bundle" {
			of.answer(w, r)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		zip, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			fail(w, http.StatusInternalServerError, err)
			return
		}
		of.answer(packed{w, zip}, r)
		_ = zip.Close() // the client disconnected
	})
}

// packed is a ResponseWriter whose body is packed.
type packed struct {
	http.ResponseWriter
	to io.Writer
}

func (p packed) Write(text []byte) (int, error) { return p.to.Write(text) }
