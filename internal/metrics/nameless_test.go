package metrics

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Without names the series are those that name no tenant's pod, container or job; all
// others are there.
func TestSeriesWithoutNames(t *testing.T) {
	m := New("v1", whole(machine(t)))
	everything(m)
	ask := func(h interface {
		ServeHTTP(http.ResponseWriter, *http.Request)
	}) string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w.Body.String()
	}
	all, some := ask(handler(m.registry)), ask(m.Nameless())
	left := 0
	for line := range strings.Lines(all) {
		named := false
		for _, label := range nameLabels() {
			named = named || strings.Contains(line, "{"+label+"=") || strings.Contains(line, ","+label+"=")
		}
		if named {
			left++
		}
		if series, _, _ := strings.Cut(line, " "); line[0] != '#' && strings.Contains(some, series+" ") == named {
			t.Errorf("%s: named %t", series, named)
		}
	}
	if left < 21 {
		t.Errorf("%d series have names, there are 21 pairs of jobs", left)
	}
}
