package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// reviewer is an API server that knows two tokens.
type reviewer struct {
	asked int
	down  bool
	gone  bool // the token of Prometheus was revoked
}

func (r *reviewer) Review(_ context.Context, q Question) (Verdict, error) {
	if q.Audience != "" {
		own := q.Audience == Audience && strings.HasPrefix(q.Token, "short-")
		r.asked++
		return Verdict{Authenticated: own, Allowed: own && q.Path == "/metrics"}, nil
	}
	token, path := q.Token, q.Path
	r.asked++
	if r.down {
		return Verdict{}, errors.New("no route to host")
	}
	return Verdict{
		Authenticated: token == "stranger" || token == "prometheus" && !r.gone,
		Allowed:       token == "prometheus" && path == "/metrics" && !r.gone,
	}, nil
}

type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

// asks is a guard, and how it answers a token from an address.
func asks(t *testing.T, r Reviewer) (c *clock, ask func(authorization, from string) int, g *Guard) {
	t.Helper()
	c = &clock{time.Unix(1e9, 0)}
	g = New(r, c.now, slog.New(slog.DiscardHandler))
	h := g.Protect("/metrics", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "secret")
	}))
	return c, func(authorization, from string) int {
		t.Helper()
		q := httptest.NewRequest(http.MethodGet, "/metrics/../whatever", nil)
		q.RemoteAddr = from + ":1"
		if authorization != "" {
			q.Header.Set("Authorization", authorization)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, q)
		if (w.Code == http.StatusOK) != (w.Body.String() == "secret") {
			t.Errorf("%d with %q", w.Code, w.Body)
		}
		return w.Code
	}, g
}

const prometheus = "Bearer prometheus"

func TestWhoMayRead(t *testing.T) {
	_, ask, _ := asks(t, &reviewer{})
	for authorization, want := range map[string]int{
		"": 401, "Basic cHJvbWV0aGV1czo=": 401, "Bearer ": 401, "Bearer x": 401, "prometheus": 401,
		"Bearer " + strings.Repeat("x", maxToken+1): 401,
		"Bearer stranger": 403, prometheus: 200,
	} {
		if got := ask(authorization, "10.0.0."+fmt.Sprint(len(authorization)%200)); got != want {
			t.Errorf("%.20q: %d, want %d", authorization, got, want)
		}
	}
}

// A token that came through the API server's proxy has a header of its own, and has to be for Quietcore; a login is
// none there, nor is such a token a login.
func TestTokensThroughTheProxy(t *testing.T) {
	for _, c := range []struct {
		login, own string
		want       int
	}{
		{"", "Bearer short-1", 200}, {"", prometheus, 401}, {prometheus, "Bearer short-1", 200},
		{"Bearer short-1", "", 401}, {prometheus, "Bearer nonsense", 401}, {prometheus, "short-1", 401},
	} {
		g := New(&reviewer{}, time.Now, slog.New(slog.DiscardHandler))
		q := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		q.Header.Set("Authorization", c.login)
		q.Header.Set(Header, c.own)
		w := httptest.NewRecorder()
		g.Protect("/metrics", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, q)
		if w.Code != c.want {
			t.Errorf("login %q, own %q: %d, want %d", c.login, c.own, w.Code, c.want)
		}
	}
}

// All who come through the proxy have one address. Those who may read do not keep each other out, and those who
// may not do not keep them out for long.
func TestManyReadersHaveOneAddress(t *testing.T) {
	r := &reviewer{}
	c := &clock{time.Unix(1e9, 0)}
	g := New(r, c.now, slog.New(slog.DiscardHandler))
	ask := func(token string) int {
		q := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		q.Header.Set(Header, "Bearer "+token)
		w := httptest.NewRecorder()
		g.Protect("/metrics", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, q)
		return w.Code
	}
	for n := range 100 {
		if got := ask(fmt.Sprint("short-", n)); got != 200 {
			t.Fatalf("the %d. reader: %d", n+1, got)
		}
		c.at = c.at.Add(100 * time.Millisecond)
	}
	for n := range 100 {
		ask(fmt.Sprint("none-", n))
	}
	if got := ask("short-1000"); got != 503 {
		t.Errorf("within a flood: %d", got)
	}
	if most := 100 + 2*sourceBurst + 3; r.asked > most {
		t.Errorf("%d reviews, at most %d", r.asked, most)
	}
	c.at = c.at.Add(5 * time.Second)
	if got := ask("short-1000"); got != 200 {
		t.Errorf("after it: %d", got)
	}
}

// An answer is asked for again after a minute, and holds for a day while none comes.
func TestAnOutageOfTheAPIServer(t *testing.T) {
	r := &reviewer{}
	c, ask, _ := asks(t, r)
	for range 100 {
		if got := ask(prometheus, "10.0.0.1"); got != 200 {
			t.Fatalf("%d", got)
		}
	}
	if r.asked != 1 {
		t.Errorf("the API server was asked %d times in a minute", r.asked)
	}
	c.at = c.at.Add(freshFor)
	ask(prometheus, "10.0.0.1")
	if r.asked != 2 {
		t.Errorf("after a minute it was asked %d times", r.asked)
	}
	r.down = true
	c.at = c.at.Add(staleFor - time.Second)
	if got := ask(prometheus, "10.0.0.1"); got != 200 {
		t.Errorf("in an outage of a day: %d", got)
	}
	if got := ask("Bearer another", "10.0.0.2"); got != 503 {
		t.Errorf("a token that was never seen, in an outage: %d", got)
	}
	c.at = c.at.Add(time.Second)
	if got := ask(prometheus, "10.0.0.1"); got != 503 {
		t.Errorf("in an outage of more than a day: %d", got)
	}
	r.down = false
	if got := ask(prometheus, "10.0.0.1"); got != 200 {
		t.Errorf("after it: %d", got)
	}
	r.gone = true
	c.at = c.at.Add(freshFor)
	if got := ask(prometheus, "10.0.0.1"); got != 401 {
		t.Errorf("a token that was revoked: %d", got)
	}
}

// Tokens that are none are reviewed seldom, whoever sends them, fill no memory, and
// keep nobody else's from being reviewed.
func TestAFloodOfTokens(t *testing.T) {
	r := &reviewer{}
	c, ask, g := asks(t, r)
	if got := ask(prometheus, "10.1.0.1"); got != 200 {
		t.Fatal(got)
	}
	begin := r.asked
	const seconds, hostile = 60, 32
	for second := range seconds {
		for i := range hostile {
			for n := range 5 {
				ask(fmt.Sprintf("Bearer %d-%d-%d", second, i, n), fmt.Sprintf("10.0.0.%d", i))
			}
		}
		c.at = c.at.Add(time.Second)
		if got := ask(prometheus, "10.1.0.1"); got != 200 {
			t.Fatalf("second %d: Prometheus has %d", second, got)
		}
	}
	if most := hostile*(sourceBurst+seconds*sourceRate) + 2; float64(r.asked-begin) > most {
		t.Errorf("%d reviews, at most %v", r.asked-begin, most)
	}
	c.at = c.at.Add(5 * time.Second)
	if got := ask("Bearer stranger", "10.1.0.2"); got != 403 {
		t.Errorf("another's first token: %d", got)
	}
	for i := range 2 * maxRefused {
		g.keep(key{byte(i), byte(i >> 8)}, Verdict{})
		g.keep(key{byte(i), byte(i >> 8), 1}, Verdict{Authenticated: true, Allowed: true})
	}
	if len(g.refused) > maxRefused || len(g.allowed) > maxAllowed {
		t.Errorf("%d and %d answers are kept", len(g.refused), len(g.allowed))
	}
}

// The API server is asked as it wants to be.
func TestReviews(t *testing.T) {
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var body struct {
			Spec struct {
				Token, User string
				Audiences   []string
				Groups      []string
				Extra       map[string][]string
				Attributes  struct{ Path, Verb string } `json:"nonResourceAttributes"`
			}
		}
		if err := json.NewDecoder(q.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		bodies = append(bodies, fmt.Sprintf("%s %s %+v", q.Method, q.URL.Path, body.Spec))
		w.Header().Set("Content-Type", "application/json")
		switch {
		case q.URL.Path == "/apis/authorization.k8s.io/v1/subjectaccessreviews":
			fmt.Fprintf(w, `{"status":{"allowed":%t}}`, body.Spec.Attributes.Path == "/metrics")
		case body.Spec.Token == "good" && body.Spec.Audiences != nil:
			fmt.Fprint(w, `{"status":{"authenticated":true,"audiences":["quietcore.dev"],"user":{"username":"p"}}}`)
		case body.Spec.Token == "unaware":
			fmt.Fprint(w, `{"status":{"authenticated":true,"user":{"username":"p"}}}`)
		case body.Spec.Token == "good":
			fmt.Fprint(w, `{"status":{"authenticated":true,`+
				`"user":{"username":"p","groups":["g"],"extra":{"k":["v"]}}}}`)
		case body.Spec.Token == "broken":
			w.WriteHeader(http.StatusForbidden)
		default:
			fmt.Fprint(w, `{"status":{"error":"not known"}}`)
		}
	}))
	defer server.Close()
	reviews := NewReviews(func() (*rest.Config, error) { return &rest.Config{Host: server.URL}, nil })
	for _, c := range []struct {
		ask   Question
		want  Verdict
		fails bool
	}{
		{Question{"good", "", "/metrics"}, Verdict{true, true}, false},
		{Question{"good", "", "/other"}, Verdict{true, false}, false},
		{Question{"bad", "", "/metrics"}, Verdict{}, false}, {Question{"broken", "", "/metrics"}, Verdict{}, true},
		{Question{"good", Audience, "/metrics"}, Verdict{true, true}, false},
		// An authenticator that knows no audiences.
		{Question{"unaware", Audience, "/metrics"}, Verdict{}, false},
		{Question{"unaware", "", "/metrics"}, Verdict{true, true}, false},
	} {
		got, err := reviews.Review(context.Background(), c.ask)
		if got != c.want || (err != nil) != c.fails {
			t.Errorf("%+v: %+v, %v", c.ask, got, err)
		}
	}
	const want = "POST /apis/authorization.k8s.io/v1/subjectaccessreviews {Token: User:p Audiences:[] Groups:[g] " +
		"Extra:map[k:[v]] Attributes:{Path:/metrics Verb:get}}"
	if len(bodies) < 2 || bodies[1] != want {
		t.Errorf("asked:\n%s\nwant\n%s", strings.Join(bodies, "\n"), want)
	}
}
