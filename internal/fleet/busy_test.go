package fleet

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/access"
	"github.com/quietcore/quietcore/internal/kube/planetest"
)

// busyServer answers after so many refusals.
func busyServer(t *testing.T, refusals int, after func(time.Duration) <-chan time.Time) *server {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if refusals--; refusals >= 0 {
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"message":"others are being answered; try again"}`)
			return
		}
		fmt.Fprint(w, `{"fine":true}`)
	}))
	t.Cleanup(api.Close)
	base, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	return &server{client: api.Client(), base: base, after: after}
}

// answersOnlyReaders asks a daemon itself, as one who has found its port: only a token of the readers' account, for
// Quietcore, is good; neither an administrator's nor that account's own login is.
func answersOnlyReaders(t *testing.T, p *planetest.Plane, d *simulated) {
	t.Helper()
	client := &http.Client{Transport: insecureTransport()}
	ask := func(header, token, path string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			fmt.Sprintf("https://127.0.0.1:%d%s", d.port, path), nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			r.Header.Set(header, "Bearer "+token)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body) // its code is what counts
		return resp.StatusCode
	}
	token := func(account, audience string) string { t.Helper(); return tokenOf(t, p, account, audience) }
	p.Create("/api/v1/namespaces/quietcore-system/serviceaccounts", "{metadata: {name: other}}")
	const path = "/quietcore/v1/summary"
	// Few of these are wrong at a time: a source may be wrong four times at once.
	for _, c := range []struct {
		what, header, token string
		path                string
		want                int
	}{
		{"a reader's token", access.Header, token("quietcore-reader", access.Audience), path, http.StatusOK},
		{"a reader's login, where no proxy is between", "Authorization", token("quietcore-reader", ""), path,
			http.StatusOK},
		{"no token", access.Header, "", path, http.StatusUnauthorized},
		{"a reader's login, through the proxy", access.Header, token("quietcore-reader", ""), path,
			http.StatusUnauthorized},
		{"a reader's token as a login", "Authorization", token("quietcore-reader", access.Audience), path,
			http.StatusUnauthorized},
		{"an account without the right", access.Header, token("other", access.Audience), path, http.StatusForbidden},
		{"a path that there is not", access.Header, token("quietcore-reader", access.Audience), "/quietcore/v1/mode",
			http.StatusNotFound},
		{"what root may do", access.Header, token("quietcore-reader", access.Audience), "/v1/status",
			http.StatusNotFound},
	} {
		if got := ask(c.header, c.token, c.path); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}

// tokenOf is one of an account, for an audience; empty: the API server's own.
func tokenOf(t *testing.T, p *planetest.Plane, account, audience string) string {
	t.Helper()
	body := `{spec: {expirationSeconds: 600}}`
	if audience != "" {
		body = `{spec: {expirationSeconds: 600, audiences: ["` + audience + `"]}}`
	}
	text := string(p.Create("/api/v1/namespaces/quietcore-system/serviceaccounts/"+account+"/token", body))
	_, rest, _ := strings.Cut(text, `"token":"`)
	got, _, ok := strings.Cut(rest, `"`)
	if !ok {
		t.Fatalf("no token in %s", text)
	}
	return got
}
