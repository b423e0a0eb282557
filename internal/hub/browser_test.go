package hub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/prometheus/common/model"

	"github.com/quietcore/quietcore/internal/page/pagetest"
)

// openHub shows a hub's page, and says after how many milliseconds every node was drawn.
func openHub(b *pagetest.Browser, address string) (drawn float64) {
	b.Do(chromedp.Navigate(address))
	b.Until("document.body.dataset.drawn")
	return pagetest.Evaluate[float64](b, "Number(document.body.dataset.drawn)")
}

// busy is for how many seconds the thread of the page that is open has worked.
func busy(b *pagetest.Browser) (seconds float64) {
	for _, m := range pagetest.Call(b, performance.GetMetrics, cdp.Empty{}).Metrics {
		if m.Name == "TaskDuration" {
			seconds = m.Value
		}
	}
	return seconds
}

// watched is a hub that has asked twice, so that what owners use is known.
func watched(t *testing.T, n int) (*world, *Hub) {
	t.Helper()
	list := some(n)
	w, h := newHub(t, list...)
	w.next(t, h, 0)
	for range inRounds {
		for _, d := range list {
			d.use(w.now.Add(15*time.Second), w.now.Add(15*time.Second).Sub(noon))
		}
		w.next(t, h, 15*time.Second)
	}
	return w, h
}

const (
	hubDetails = "document.getElementById('details').innerText"
	hubTip     = "document.getElementById('tip').innerText"
	tiles      = "document.querySelectorAll('#map .tile').length"
)

// 500 nodes of 8 to 512 CPUs in one page: all are there, and how long that takes is said.
func TestBrowserManyNodes(t *testing.T) {
	const nodes = 500
	w, h := watched(t, nodes)
	base := serves(t, h)
	b := pagetest.New(t, 1600, 1000)
	var took []string
	for range 5 {
		drawn := openHub(b, base+"/")
		took = append(took, fmt.Sprintf("%.0f (%.0f)", drawn, 1000*busy(b)))
	}
	t.Logf("%d nodes are drawn, from the address typed on, after so many ms (of which the page's thread worked): %s",
		nodes, strings.Join(took, ", "))
	b.Until(fmt.Sprintf("%s === %d", tiles, nodes))
	b.Wants("document.getElementById('size').textContent", "500 nodes, 20 did not answer")
	b.Until("document.querySelectorAll('#incident-list tbody tr').length > 100")
	b.Until("document.querySelectorAll('#owner-list tbody tr').length === 100")
	b.Until("[...document.querySelectorAll('.halves .scroll')].every((s) => s.scrollWidth <= s.clientWidth)")
	b.Screenshot("hub-500-light")
	b.Click(`#measures [data-measure="exclusive"]`)
	b.Until("document.querySelectorAll('#map .cell').length === 500")
	b.Screenshot("hub-500-exclusive")
	b.Click(`#measures [data-measure="all"]`)
	b.Dark(true)
	b.Screenshot("hub-500-dark")
	// A round later only what changed is drawn again.
	w.daemons[0].summary.Problems = []string{"a restart is required for nri.socket"}
	w.daemons[0].wrong = nil
	w.next(t, h, 15*time.Second)
	b.Until("document.querySelector('#map [data-node=\"worker-000\"]').classList.contains('unwell')")
	b.Clean(base)
}

func TestBrowserFewNodes(t *testing.T) {
	w, h := watched(t, 24)
	base := serves(t, h)
	b := pagetest.New(t, 1400, 900)
	openHub(b, base+"/")
	b.Until(tiles + " === 24")
	b.Until("[...document.querySelectorAll('.halves .scroll')].every((s) => s.scrollWidth <= s.clientWidth)")
	b.Screenshot("hub-24-light")

	// What does not answer, or has problems, is said in words.
	b.Wants(hubDetails, "worker-007", "connection refused", "worker-003", "not registered with the runtime")
	b.Hover(`#map [data-node="worker-007"]`)
	b.Until(hubTip + ".startsWith('worker-007')")
	b.Wants(hubTip, "never answered", "connection refused")
	b.Wants(`document.querySelector('#map [data-node="worker-007"]').getAttribute('aria-label')`, "no answer")

	// A node that falls silent keeps what it said.
	w.daemons[1].wrong = errors.New("no answer in time")
	w.next(t, h, 2*time.Minute)
	b.Until(`document.querySelector('#map [data-node="worker-001"]').classList.contains('silent')`)
	b.Click(`#map [data-node="worker-001"]`)
	b.Wants(hubDetails, "worker-001", "did not answer the last time", "no answer in time", "of 16 CPUs", "2 min ago",
		"kubectl quietcore map --draw --node worker-001")
	b.Wants("location.hash", "#node=worker-001")

	// By keyboard: arrows, Enter, Escape, search.
	b.Do(chromedp.Focus(chromedp.CSS(`#map [tabindex="0"]`)))
	b.Keys(kb.Home, kb.ArrowRight, kb.ArrowRight, kb.Enter)
	b.Wants(hubDetails, "worker-002", "mode", "enforce")
	b.Keys(kb.Escape)
	b.Wants(hubDetails, "All nodes")
	b.Slash()
	b.Keys("runtime")
	b.Until(tiles + " === 2") // 003 and 020
	b.Keys(kb.Escape)
	b.Until(tiles + " === 24")

	// One measure, the most of it first.
	b.Click(`#measures [data-measure="lent"]`)
	b.Do(chromedp.Focus(chromedp.CSS("#order")))
	b.Text(`(o => { o.value = 'hot'; o.dispatchEvent(new Event('change')); return o.value; })(
		document.getElementById('order'))`)
	b.Until(`(n => n.length === 24 && n.filter(Number).every((v, i, all) => i === 0 || all[i - 1] >= v))(
		[...document.querySelectorAll('#map .cell')].map((c) => Number(c.textContent)))`)
	b.Screenshot("hub-24-lent")

	// Who hurt web most: a click on it among those most disturbed.
	b.Until("document.querySelectorAll('#disturbed .as-link').length > 0")
	b.Text(`([...document.querySelectorAll('#disturbed .as-link')].find((e) => e.textContent.endsWith('/web')).click(),
		'')`)
	b.Until("document.getElementById('hurt-title').textContent === 'Who hurt shop/Deployment/web most'")
	b.Wants("document.getElementById('hurt').innerText", "lab/Job/")
	b.Until("![...document.querySelectorAll('#incident-list tbody')].some((e) => /shop.search/.test(e.innerText))")
	b.Wants("document.getElementById('namespace-list').innerText", "shop")
	b.Dark(true)
	b.Screenshot("hub-24-dark")
	b.Clean(base)
}

// What is Prometheus' is said to be; and where it says nothing, why, and what is shown instead.
func TestBrowserPrometheus(t *testing.T) {
	w, h := watched(t, 24)
	values := map[string]float64{}
	for i, d := range w.daemons[:22] {
		for what, v := range map[string]float64{"cpus": float64(d.summary.CPUs), "age": 5, "exclusive": float64(i % 8),
			"production": 1, "batch": 1, "outside": 0, "offered": 2, "withheld": 0} {
			values[d.name+" "+what] = v
		}
	}
	var wrong error
	h.o.Prometheus = &Prometheus{Name: "http://prometheus.monitoring:9090", Query: func(context.Context, string) (
		model.Vector, error) {
		return series(values), wrong
	}}
	for range 2 { // in the second one most nodes are not asked
		w.next(t, h, 15*time.Second)
	}
	base := serves(t, h)
	b := pagetest.New(t, 1400, 900)
	openHub(b, base+"/")
	b.Until(tiles + " === 24")
	const notes, version = "document.getElementById('notes').innerText", "document.getElementById('version').innerText"
	b.Wants(version, "Prometheus is asked every 15 s, for 22 nodes")
	b.Wants(notes, "Prometheus knows nothing new of 2 nodes, which are asked instead.")
	b.Click(`#map [data-node="worker-007"]`) // its daemon never answered
	b.Wants(hubDetails, "connection refused", "2.0 of 8 CPUs, 25 %", "by Prometheus", "5 s ago")
	b.Until("!" + hubDetails + ".includes('containers')") // which nobody knows
	b.Until(`document.querySelector('#map [data-node="worker-007"]').classList.contains('silent')`)
	b.Screenshot("hub-24-prometheus")
	wrong = errors.New("dial tcp 10.0.0.9:9090: connect: connection refused")
	w.next(t, h, 15*time.Second)
	b.Until(notes + ".startsWith('Prometheus does not say what CPUs are used for; each node is asked itself. " +
		"http://prometheus.monitoring:9090: dial tcp')")
	b.Clean(base)
}

// Names come from whoever holds a node, or a namespace: none is markup, and none leaves its place.
func TestBrowserHostileNames(t *testing.T) {
	const evil = `<img src=x onerror="document.title='had'">`
	list := some(3)
	list[0].name, list[1].name = evil, strings.Repeat("w", 5000)
	list[0].summary.Version, list[0].summary.Problems = evil, []string{evil, "\u202e" + evil}
	list[2].wrong = errors.New(evil)
	list[1].list = append(list[1].list, happened(evil, noon.Add(-time.Hour), evil, 3, evil))
	_, h := newHub(t, list...)
	h.ask(t.Context())
	base := serves(t, h)
	b := pagetest.New(t, 1200, 800)
	openHub(b, base+"/")
	b.Until("document.getElementById('disturbed').innerText.includes('onerror')")
	b.Click("#map .tile")
	b.Wants(hubDetails, "onerror")
	if got := b.Text("document.title"); got != "quietcore: all nodes" {
		t.Errorf("the title is %q", got)
	}
	if n := pagetest.Evaluate[int](b, "document.querySelectorAll('img').length"); n != 0 {
		t.Errorf("%d pictures", n)
	}
	if wide := pagetest.Evaluate[float64](b, "document.documentElement.scrollWidth - innerWidth"); wide > 0 {
		t.Errorf("the page is %v wider than the window", wide)
	}
	b.Clean(base)
}

// Numbers on every shade can be read in both settings.
func TestBrowserHubContrast(t *testing.T) {
	_, h := watched(t, 24)
	b := pagetest.New(t, 1400, 900)
	base := serves(t, h)
	openHub(b, base+"/")
	const ratio = `(() => {
		const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
		const light = (text) => {
			const all = text.match(/[\d.]+/g).slice(0, 3).map(Number);
			const [r, g, b] = all.map((v) => linear(text.startsWith('color(') ? v : v / 255));
			return 0.2126 * r + 0.7152 * g + 0.0722 * b;
		};
		const cell = document.querySelector('#map .tile:not(.silent) .cell');
		const was = cell.className;
		cell.className = %q;
		const style = getComputedStyle(cell);
		const [a, c] = [light(style.color), light(style.backgroundColor)].sort((x, y) => y - x);
		cell.className = was;
		return (a + 0.05) / (c + 0.05);
	})()`
	for _, dark := range []bool{false, true} {
		b.Dark(dark)
		for _, key := range []string{"used", "exclusive", "lent", "withheld"} {
			for _, level := range []string{"h0", "h1", "h2", "h3", "h4", "h5", "unknown"} {
				class := "cell " + key + " " + level
				if got := pagetest.Evaluate[float64](b, fmt.Sprintf(ratio, class)); got < 4.5 {
					t.Errorf("dark %t: numbers on %s have a contrast of %.2f, want 4.5", dark, class, got)
				}
			}
		}
	}
	b.Clean(base)
}
