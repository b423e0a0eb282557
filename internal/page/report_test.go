package page

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/quietcore/quietcore/internal/dayreport"
	"github.com/quietcore/quietcore/internal/page/pagetest"
)

// A report is made once a minute at most; one that failed is asked for again.
func TestTheReport(t *testing.T) {
	n := newNode(t, small(), "")
	n.pod("shop", "db", "LSR", 2000)
	made, broken := 0, error(nil)
	n.page.o.Report = func(ctx context.Context) (*dayreport.Report, error) {
		made++
		if broken != nil {
			return nil, broken
		}
		return n.report(ctx)
	}
	h := n.page.Handler()
	get := func(code int, part string, want int) {
		t.Helper()
		w := answer(h, ask("/api/report"))
		if w.Code != code || !strings.Contains(w.Body.String(), part) || made != want {
			t.Errorf("%d %s, made %d times; want %d, %q, %d", w.Code, w.Body, made, code, part, want)
		}
	}
	broken = errors.New("the database\x1b is away")
	get(http.StatusServiceUnavailable, "the database? is away", 1)
	broken = nil
	get(http.StatusOK, `"pod":"shop/db"`, 2)
	n.clock.Add(59_000)
	get(http.StatusOK, `"lookedMinutes":1394`, 2)
	n.clock.Add(1_000)
	get(http.StatusOK, `"pod":"shop/db"`, 3)
	n.clock.Add(-time.Hour.Milliseconds())
	get(http.StatusOK, `"pod":"shop/db"`, 4)
	n.page.o.Report = nil
	get(http.StatusNotFound, "keeps no facts", 4)
}

func TestBrowserReport(t *testing.T) {
	n := newNode(t, small(), "7")
	n.live()
	base := n.serve(t)
	b := pagetest.New(t, 1400, 900)
	b.Open(base + "/")
	b.Until("!document.getElementById('report').hidden")
	b.Wants("document.getElementById('report').innerText.replace(/\\s+/g, ' ')", "The last day", "mode observe, "+
		"seen 23h14m, enforced for 1h1m", "not known: no windows of counting for 3h",
		"owned by pods, if enforced 2.5", "used by production –", "idle of those allocated 1.3", "could be lent 0.8",
		"batch/encode-1 batch/encode-2 62 0.5 –", "batch/encode-2 shop/db-0 61 0.5 31",
		"batch/encode-1 3 12 batch/encode-2 (9 min, suspected)", "batch/encode-2 3 12 shop/db-0 (9 min)",
		"shop/db-0 LSR 2.0 2.0 0.4 37.2", "Enforcing would cost", "blamed for encode-2", "4 more lines")
	b.Do(chromedp.ScrollIntoView(chromedp.CSS("#report")))
	b.Screenshot("report-light")
	b.Dark(true)
	b.Screenshot("report-dark")
	b.Do(chromedp.EmulateViewport(420, 900))
	b.Until("document.documentElement.scrollWidth <= 420")
	b.Clean(base)
}
