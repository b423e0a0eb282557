package metrics

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// Who asks within a second has the answer of before, in its own format.
func TestAnswersAreShared(t *testing.T) {
	now, made := time.Unix(0, 0), 0
	status := http.StatusOK
	s := &shared{now: func() time.Time { return now }, render: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			made++
			w.Header().Set("Content-Type", "made")
			w.WriteHeader(status)
			fmt.Fprint(w, made, r.Header.Get("Accept-Encoding"), r.Header.Get("Authorization"))
		})}
	ask := func(accept, encoding string) string {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept", accept)
		r.Header.Set("Accept-Encoding", encoding)
		r.Header.Set("Authorization", "secret")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Header().Get("Content-Type") != "made" || w.Code != status {
			t.Errorf("answer %d with %v", w.Code, w.Header())
		}
		text, err := io.ReadAll(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const text, open = "text/plain", "application/openmetrics-text; version=1.0.0"
	for i, c := range []struct{ accept, encoding, want string }{
		{text, "", "1"}, {text, "", "1"}, {text, "gzip, zstd", "2gzip"}, {open, "", "3"}, {text, "br", "1"},
		{"nonsense", "", "1"},
	} {
		if got := ask(c.accept, c.encoding); got != c.want {
			t.Errorf("%d: %s %s: %q, want %q", i, c.accept, c.encoding, got, c.want)
		}
	}
	now = now.Add(sharedFor)
	if got := ask(text, ""); got != "4" {
		t.Errorf("a second later: %q", got)
	}
	now, status = now.Add(sharedFor), http.StatusInternalServerError
	if first, second := ask(text, ""), ask(text, ""); first != "5" || second != "6" {
		t.Errorf("an error is shared: %q, %q", first, second)
	}
	for i := range 100 {
		ask(fmt.Sprintf("text/plain; escaping=values; version=0.0.%d", i), "gzip")
	}
	if len(s.answers) > maxShared {
		t.Errorf("%d answers are kept", len(s.answers))
	}
}
