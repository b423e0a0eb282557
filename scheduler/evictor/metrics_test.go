package evictor

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/quietcore/quietcore/internal/lend"
)

// series are the lines of /metrics without comments, sorted.
func (c *counters) series(t *testing.T, now time.Time) []string {
	t.Helper()
	w := httptest.NewRecorder()
	c.handler(func() time.Time { return now }).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("it answers %d", w.Code)
	}
	var list []string
	for line := range strings.Lines(w.Body.String()) {
		if !strings.HasPrefix(line, "#") {
			list = append(list, strings.TrimPrefix(strings.TrimSpace(line), "quietcore_evictor_"))
		}
	}
	slices.Sort(list)
	return list
}

func wantSeries(t *testing.T, when string, got []string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant\n%s", when, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestCounters: each request counts by its result, a mark that waits for its node's rate once, and marks by whether
// their pods may be evicted.
func TestCounters(t *testing.T) {
	play(t, func(t *testing.T, e *evictor, a *asked, _ *[]string) {
		wantSeries(t, "before it leads", e.counts.series(t, time.Now()), `evictions_total{result="evicted"} 0`,
			`evictions_total{result="gone"} 0`, `evictions_total{result="blocked"} 0`,
			`evictions_total{result="failed"} 0`, `rate_limited_total 0`,
			`marks{state="pending"} 0`, `marks{state="refused"} 0`, `leader 0`)
		e.counts.leads(e.marks)
		a.answer = func(pod lend.Pod) error {
			switch pod.Name {
			case "guarded":
				return budget("b", 0)
			case "ended":
				return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, pod.Name)
			case "broken":
				return io.ErrUnexpectedEOF
			}
			return nil
		}
		for i, name := range []string{"first", "second", "third"} { // of which two are evicted at once
			_ = e.marks.Add(marked("n1", name, time.Duration(30-i)*time.Second))
		}
		for node, name := range map[string]string{"n2": "guarded", "n3": "ended", "n4": "broken"} {
			_ = e.marks.Add(marked(node, name, 0))
		}
		shop, old := marked("n5", "shop", 0), marked("n5", "old", lend.MarkMaxAge+time.Second)
		shop.Status.QOSClass = v1.PodQOSGuaranteed
		_ = e.marks.Add(shop)
		_ = e.marks.Add(old)
		after(time.Second)
		wantSeries(t, "after a second", e.counts.series(t, time.Now()), `evictions_total{result="evicted"} 2`,
			`evictions_total{result="gone"} 1`, `evictions_total{result="blocked"} 1`,
			`evictions_total{result="failed"} 1`, `rate_limited_total 1`,
			`marks{state="pending"} 4`, `marks{state="refused"} 1`, `leader 1`)
		_ = e.marks.Add(marked("n1", "fourth", 0)) // n1 is looked at again, and the third waits still
		after(8*time.Second + 500*time.Millisecond)
		wantSeries(t, "while it waits", e.counts.series(t, time.Now()), `evictions_total{result="evicted"} 2`,
			`evictions_total{result="gone"} 1`, `evictions_total{result="blocked"} 1`,
			`evictions_total{result="failed"} 1`, `rate_limited_total 1`,
			`marks{state="pending"} 5`, `marks{state="refused"} 1`, `leader 1`)
		after(time.Second)
		e.counts.leads(nil)
		wantSeries(t, "when it leads no more", e.counts.series(t, time.Now()), `evictions_total{result="evicted"} 3`,
			`evictions_total{result="gone"} 1`, `evictions_total{result="blocked"} 2`,
			`evictions_total{result="failed"} 1`, `rate_limited_total 2`,
			`marks{state="pending"} 0`, `marks{state="refused"} 0`, `leader 0`)
	})
}

// TestMetricsAreServed: at an address of their own, until the evictor ends, and nothing else there.
func TestMetricsAreServed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	c := newCounters()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if err := c.serve(ctx, address, slog.New(slog.DiscardHandler)); err == nil {
		t.Fatal("an address that is taken is no error")
	}
	l.Close()
	if err := c.serve(ctx, address, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/metrics": http.StatusOK, "/": http.StatusNotFound,
		"/livez": http.StatusNotFound} {
		r, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if r.StatusCode != want ||
			want == http.StatusOK && !strings.Contains(string(text), "quietcore_evictor_leader 0") {
			t.Errorf("%s: %d, %s", path, r.StatusCode, text)
		}
	}
	if err := c.serve(ctx, "", slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("no address: %v", err)
	}
}
