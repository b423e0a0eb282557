// Package access decides who may read what the daemon serves to other machines, as other
// components of Kubernetes do: a TokenReview says whose a bearer token is, and a
// SubjectAccessReview whether that user may get the path.
//
// A token comes in the header Authorization, or in [Header]: the API server keeps the first
// to itself where it passes a request on to a pod. One in [Header] has to be for [Audience],
// so that nobody shows a node what is good for anything else.
//
// The API server's answers are kept. While it does not answer, a token that was allowed
// stays so for a day; one that was never seen is refused. Tokens that are none cost the
// API server little: each source, and all together, can have few of them reviewed.
package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/quietcore/quietcore/internal/serve"
)

const (
	// Header is that of tokens which come through the API server's proxy, as "Bearer TOKEN".
	Header = "Quietcore-Authorization"
	// Audience is whom those tokens are for.
	Audience = "quietcore.dev"
)

// Verdict is what the API server says of a token and a path.
type Verdict struct{ Authenticated, Allowed bool }

// Question is what the API server is asked.
type Question struct {
	Token    string
	Audience string // that it has to be for; empty: the API server's own
	Path     string
}

// Reviewer asks the API server.
type Reviewer interface {
	Review(context.Context, Question) (Verdict, error)
}

const (
	// freshFor is how long an answer holds; then it is asked for again.
	freshFor, refusedFor = time.Minute, 30 * time.Second
	// staleFor is how long a token stays allowed while the API server does not answer.
	staleFor = 24 * time.Hour
	// patience is how long an answer of the API server is waited for.
	patience = 5 * time.Second
	// maxToken is longer than tokens of service accounts, which have 1 to 2 kB.
	maxToken = 8 << 10
	// maxAllowed and maxRefused bound the answers that are kept, apart from each other: no
	// number of tokens that are none pushes out one that is.
	maxAllowed, maxRefused = 256, 1024
	// Reviews a second for a source, of tokens that are not allowed, and for all.
	sourceRate, sourceBurst = 0.2, 4
	allRate, allBurst       = 10, 20
)

// Guard lets through whom the API server allows. It is safe for concurrent use.
type Guard struct {
	reviewer Reviewer
	now      func() time.Time
	log      *slog.Logger
	sources  *serve.Rates
	all      *rate.Limiter

	mu      sync.Mutex // guards what follows; not held during a review
	allowed map[key]time.Time
	refused map[key]answer
	warned  time.Time
}

// key is a question; tokens themselves are not kept.
type key [sha256.Size]byte

func (q *Question) key() key {
	return key(sha256.Sum256([]byte(q.Path + "\x00" + q.Audience + "\x00" + q.Token)))
}

type answer struct {
	at      time.Time
	verdict Verdict
}

// New makes a guard that asks reviewer.
func New(reviewer Reviewer, now func() time.Time, log *slog.Logger) *Guard {
	return &Guard{reviewer: reviewer, now: now, log: log, sources: serve.NewRates(sourceRate, sourceBurst),
		all: rate.NewLimiter(allRate, allBurst), allowed: map[key]time.Time{}, refused: map[key]answer{}}
}

// Protect serves h to who may get path. It is the path that is asked about, whatever a request has.
func (g *Guard) Protect(path string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, ok := questionOf(r.Header, path)
		if !ok {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "this takes a bearer token of the cluster", http.StatusUnauthorized)
			return
		}
		v, err := g.verdict(r.Context(), q, serve.Source(r.RemoteAddr))
		switch {
		case err != nil:
			w.Header().Set("Retry-After", "1")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case !v.Authenticated:
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "the API server does not know this token"+q.wanted(), http.StatusUnauthorized)
		case !v.Allowed:
			http.Error(w, "the user of this token may not get "+path, http.StatusForbidden)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

// questionOf is about the token of a request; false: it has none.
func questionOf(h http.Header, path string) (q Question, ok bool) {
	q.Path = path
	text := h.Get("Authorization")
	if own := h.Get(Header); own != "" {
		text, q.Audience = own, Audience
	}
	q.Token, ok = strings.CutPrefix(text, "Bearer ")
	q.Token = strings.TrimSpace(q.Token)
	return q, ok && q.Token != "" && len(q.Token) <= maxToken
}

// wanted says whom a token has to be for, where that is not the usual.
func (q *Question) wanted() string {
	if q.Audience == "" {
		return ""
	}
	return " as one for the audience " + q.Audience
}

// Reasons of a 503. What the API server said is for the log.
var (
	errTooMany  = errors.New("too many tokens are being reviewed; try again")
	errNoAnswer = errors.New("the API server does not answer, and this token was not allowed before")
)

func (g *Guard) verdict(ctx context.Context, q Question, source netip.Prefix) (Verdict, error) {
	k := q.key()
	known, fresh := g.kept(k)
	if fresh {
		return known, nil
	}
	now := g.now()
	if !known.Allowed && !g.sources.Allow(source, now) || !g.all.AllowN(now, 1) {
		if known.Allowed {
			return known, nil
		}
		return Verdict{}, errTooMany
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	v, err := g.reviewer.Review(ctx, q)
	if err != nil {
		g.warn(err)
		if known.Allowed {
			return known, nil
		}
		return Verdict{}, errNoAnswer
	}
	if v.Allowed && !known.Allowed {
		// What comes through the API server's proxy has one source. Those who may read are not
		// kept out by their number.
		g.sources.Return(source)
	}
	g.keep(k, v)
	return v, nil
}

// kept is what is known of a token, and whether that is new enough not to ask.
func (g *Guard) kept(k key) (v Verdict, fresh bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	if at, is := g.allowed[k]; is && now.Sub(at) < staleFor {
		return Verdict{Authenticated: true, Allowed: true}, now.Sub(at) < freshFor
	}
	if a, is := g.refused[k]; is && now.Sub(a.at) < refusedFor {
		return a.verdict, true
	}
	return Verdict{}, false
}

func (g *Guard) keep(k key, v Verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.allowed, k)
	delete(g.refused, k)
	if !v.Authenticated || !v.Allowed {
		if len(g.refused) >= maxRefused {
			clear(g.refused)
		}
		g.refused[k] = answer{g.now(), v}
		return
	}
	if len(g.allowed) >= maxAllowed {
		var oldest key
		first := g.now()
		for k, at := range g.allowed {
			if !at.After(first) {
				oldest, first = k, at
			}
		}
		delete(g.allowed, oldest)
	}
	g.allowed[k] = g.now()
}

// warn logs once in ten minutes why the API server did not review a token.
func (g *Guard) warn(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := g.now(); g.warned.IsZero() || now.Sub(g.warned) >= 10*time.Minute {
		g.warned = now
		g.log.Warn("the API server does not review the tokens of readers; those that it allowed stay so for a day",
			"why", err)
	}
}
