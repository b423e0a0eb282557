package page

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/page/pagetest"
	"github.com/quietcore/quietcore/internal/page/site"
	"github.com/quietcore/quietcore/policy"
)

// TestBrowserContainersThatOwn: of a pod some of whose containers own CPUs, each CPU says which
// container has it, and the pod what each of its containers has.
func TestBrowserContainersThatOwn(t *testing.T) {
	n := newNode(t, small(), "7")
	n.mixed("shop", "app-0")
	n.pod("batch", "encode-1", "BE", 0)
	n.advance(2*time.Second, time.Second)
	base := n.serve(t)
	b := pagetest.New(t, 1400, 900)
	b.Open(base + "/")
	const tip = "document.getElementById('tip').innerText"
	for _, c := range []struct{ cpu, owner, why string }{
		{"0", "shop/app-0/main", "owns 2 CPUs of its own"},
		{"2", "shop/app-0/worker", "owns 1 CPU of its own"},
	} {
		cell := fmt.Sprintf(`#map [data-cpu="%s"]`, c.cpu)
		b.Hover(cell)
		b.Until(tip + ".startsWith('CPU " + c.cpu + ":')")
		b.Wants(tip, "CPU "+c.cpu+": LSR, exclusive, "+c.owner, c.why)
		b.Click(cell)
		b.Wants(pagetest.Details, "CPU "+c.cpu+": LSR, exclusive", c.owner)
	}
	b.Hover(`#map [data-cpu="4"]`)
	b.Until(tip + ".startsWith('CPU 4:')")
	b.Wants(tip, "CPU 4: shared pool", "shop/app-0/log")
	b.Slash()
	b.Keys("app-0")
	b.Until("document.querySelectorAll('#found [data-pod]').length === 1")
	b.Keys(kb.ArrowDown, kb.Enter)
	b.Wants(pagetest.Details, "shop/app-0", "owns CPUs\nmain 0-1, worker 2", "log")
	b.Screenshot("containers-own")
}

// TestBrowserClaims: a CPU that a claim has says whose it is, before its pod runs and when it does.
func TestBrowserClaims(t *testing.T) {
	n := newNode(t, small(), "7")
	var err error
	if n.claims, err = policy.New(n.plugin.Snapshot().Topology, policy.Config{}); err != nil {
		t.Fatal(err)
	}
	within := cpuset.Of(0, 1, 2, 3, 4, 5)
	for i, pods := range [][]string{{"uid-" + fmt.Sprintf("%x-%x", "shop", "ml-0")}, {"uid-that-does-not-run"}} {
		n.submit(policy.ClaimPrepared{UID: fmt.Sprint("claim-", i), Namespace: "shop", Name: fmt.Sprint("cpus-", i),
			Pods: pods, Requests: []policy.ClaimRequest{{Device: "numa0", Within: within, CPUs: 2}}})
	}
	n.pod("shop", "ml-0", "", 0) // BestEffort for Kubernetes, and LS by its claim
	n.pod("shop", "web-1", "LS", 500)
	n.advance(2*time.Second, time.Second)
	b := pagetest.New(t, 1400, 900)
	b.Open(n.serve(t) + "/")
	const tip = "document.getElementById('tip').innerText"
	for _, c := range []struct{ cpu, owner, why, details string }{
		{"0", "shop/ml-0 by claim cpus-0", "the claim's until kubelet gives", "shop/ml-0/main"},
		{"2", "shop/claim cpus-1", "no container of its pod runs", "No container may run here"},
	} {
		cell := fmt.Sprintf(`#map [data-cpu="%s"]`, c.cpu)
		b.Hover(cell)
		b.Until(tip + ".startsWith('CPU " + c.cpu + ":')")
		b.Wants(tip, "CPU "+c.cpu+": exclusive, "+c.owner, c.why)
		b.Click(cell)
		b.Wants(pagetest.Details, "CPU "+c.cpu+": exclusive", c.owner, c.details)
	}
	b.Slash()
	b.Keys("cpus-0")
	b.Until("document.querySelectorAll('#found [data-pod]').length === 1")
	b.Keys(kb.ArrowDown, kb.Enter)
	b.Wants(pagetest.Details, "shop/ml-0", "owns CPUs\nclaim cpus-0 0-1", "main", "class\nLS, pool ")
	b.Screenshot("claims")
}

func TestBrowserSmallMachine(t *testing.T) {
	n := newNode(t, small(), "7")
	n.live()
	base := n.serve(t)
	b := pagetest.New(t, 1400, 900)
	b.Open(base + "/")
	b.Wants("document.getElementById('size').textContent", "1 socket · 1 NUMA node · 1 L3 · 4 cores · 8 CPUs")
	b.Wants("document.getElementById('legend').innerText", "shared pool", "LSR, exclusive (2)", "a letter and a bar")
	// Two of four reasons are read without a click.
	b.Until("[...document.querySelectorAll('#container-list tbody td:last-child')].filter((c) => " +
		"c.innerText.startsWith('BE:') && c.scrollWidth <= c.clientWidth).length === 2")
	b.Screenshot("small-light")

	b.Click(`#map [data-cpu="0"]`)
	b.Wants(pagetest.Details, "CPU 0: LSR, exclusive", "shop/db-0", "same core", "best effort")
	b.Click(`#details dd .as-link:not([data-x])`) // the sibling
	b.Wants(pagetest.Details, "CPU 1: LSR, exclusive")
	b.Hover(`#map [data-cpu="0"]`)
	const tip = "document.getElementById('tip').innerText"
	b.Wants(tip, "CPU 0: LSR, exclusive, shop/db-0", "socket 0, NUMA node 0", "LSR: owns 2 CPUs of its own")

	// Owner and reason are also shown for CPUs without an owner.
	n.alone.Store(6)
	n.advance(2*time.Second, time.Second)
	b.Until("document.querySelector('#map [data-cpu=\"6\"]').classList.contains('be')")
	for _, c := range []struct{ cpu, pool, why, who string }{
		{"4", "shared pool", "it is in the shared pool, for every pod without CPUs of its own",
			"shop/web-7d4f9c6b5-x2x9q/main"},
		{"6", "best effort only", "only best effort runs here", "batch/encode-1/main"},
		{"7", "reserved", "it is reserved by the configuration or by kubelet", "shop/web-7d4f9c6b5-x2x9q/main"},
	} {
		cell := fmt.Sprintf(`#map [data-cpu="%s"]`, c.cpu)
		b.Hover(cell)
		b.Until(tip + ".startsWith('CPU " + c.cpu + ":')")
		b.Wants(tip, "CPU "+c.cpu+": "+c.pool, "\n"+c.why, "\nmay run here: ", c.who)
		b.Click(cell)
		b.Wants(pagetest.Details, "CPU "+c.cpu+": "+c.pool, "why\n"+c.why, "May run here (", c.who)
	}
	n.alone.Store(-1)

	// Search, by keyboard alone.
	b.Slash()
	b.Keys("encode")
	b.Until("document.querySelectorAll('#found [data-pod]').length === 2")
	b.Keys(kb.ArrowDown, kb.ArrowDown, kb.Enter)
	b.Wants(pagetest.Details, "batch/encode-2", "capped", "100m", "CPI")
	b.Until("document.querySelector('#details .spark canvas') !== null")
	b.Screenshot("small-pod")
	b.Wants("document.getElementById('container-list').innerText", "encode-1", "100m capped until ")
	b.Keys(kb.Escape, kb.Escape)
	b.Until("document.getElementById('query').value === '' && document.querySelectorAll('.cpu.dim').length === 0")

	// Arrows move, Enter selects, Escape lets go.
	b.Do(chromedp.Focus(chromedp.CSS(`#map [tabindex="0"]`)))
	b.Keys(kb.Home, kb.ArrowRight, kb.ArrowRight)
	b.Wants("document.activeElement.dataset.cpu", "2")
	b.Keys(kb.Enter)
	b.Wants(pagetest.Details, "CPU 2:")
	b.Keys(kb.Escape)
	b.Wants(pagetest.Details, "Who has which CPU, and why")

	// An incident with its plot.
	b.Wants("document.getElementById('incident-list').innerText", "shop/db-0/main", "3.42", "1.74",
		"shop/encode-2/main", "success")
	b.Click("#incident-list [data-incident]")
	b.Until("document.querySelector('#incident img')?.naturalWidth > 0")
	b.Wants("document.getElementById('incident').innerText", "contrast 0.83", "antagonist",
		"cap at 100m of shop/encode-2/main", "CPI 3.21 before, 1.77 after", "by claim\nshop/db-cpus",
		"antagonist, claim shop/video-cpus")
	b.Screenshot("small-incident")
	b.Keys(kb.Escape)
	b.Until("document.getElementById('incident').childElementCount === 0")
	b.Click("#charts .opens[data-incident]") // its triangle above the CPI
	b.Until("document.querySelector('#incident img')?.naturalWidth > 0")
	b.Do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, 1, 1))
	b.Wants("document.querySelector('#charts .opens title').textContent", "shop/db-0/main, CPI 3.42")
	b.Keys(kb.Escape)
	b.Until("document.getElementById('incident').childElementCount === 0")
	b.Until("document.querySelector('#charts [data-line=off]').dataset.points > 100")
	b.Wants("document.querySelector('#charts figcaption').textContent", "shared pool", "best effort kept off")
	b.Wants("document.getElementById('change-list').innerText", "batch/encode-2/main is capped at 100m",
		"best effort begins to give way")

	// The timeline shows values at a moment, by pointer and by keyboard.
	b.Do(chromedp.Focus(chromedp.CSS("#charts [tabindex]")))
	b.Keys(kb.ArrowLeft)
	b.Wants("document.getElementById('moment').textContent", "shared pool 6", "exclusive 2", "CPI of production")
	b.Click("#day")
	b.Until("document.querySelector('#charts [data-line=shared]').dataset.points < 100")

	// What changes is seen without doing anything.
	n.pod("shop", "db-1", "LSE", 2000)
	n.advance(2*time.Second, time.Second)
	b.Until("document.querySelector('#map [data-cpu=\"2\"]').classList.contains('lse')")
	b.Wants("document.querySelector('#map [data-cpu=\"2\"]').getAttribute('aria-label')",
		"CPU 2: LSE, exclusive, shop/db-1")
	b.Dark(true)
	b.Screenshot("small-dark")
	b.Clean(base)
}

func TestBrowserLargeMachine(t *testing.T) {
	n := newNode(t, large(), "0-1,256-257")
	n.live()
	base := n.serve(t)
	b := pagetest.New(t, 1600, 1000)
	b.Open(base + "/")
	b.Wants("document.getElementById('size').textContent", "2 sockets · 8 NUMA nodes · 32 L3 · 256 cores · 512 CPUs")
	b.Until("document.querySelectorAll('#map .cpu').length === 512")
	b.Screenshot("large-light")
	b.Slash()
	b.Keys("leaf-07")
	b.Until("document.querySelectorAll('#found [data-pod]').length === 1")
	b.Keys(kb.Enter)
	b.Wants(pagetest.Details, "search/leaf-07", "owns CPUs")
	b.Until("document.querySelectorAll('.cpu.hit').length === 8")
	b.Screenshot("large-search")
	b.Keys(kb.Escape)
	b.Until("document.querySelectorAll('.cpu.hit').length === 0")
	b.Dark(true)
	b.Screenshot("large-dark")
	// Nothing is wider than a narrow window.
	b.Do(chromedp.EmulateViewport(420, 900))
	b.Until("document.documentElement.scrollWidth <= 420")
	b.Screenshot("large-narrow")
	b.Clean(base)
	// For people to look at. Chromium's own filters count as requests, so this is last.
	b.Dark(false)
	b.Do(chromedp.EmulateViewport(1600, 1000))
	for _, kind := range []emulation.SetEmulatedVisionDeficiencyType{
		emulation.SetEmulatedVisionDeficiencyTypeDeuteranopia, emulation.SetEmulatedVisionDeficiencyTypeAchromatopsia} {
		pagetest.Call(b, emulation.SetEmulatedVisionDeficiency, emulation.SetEmulatedVisionDeficiencyParams{Type: kind})
		b.Screenshot("large-" + string(kind))
	}
}

func TestBrowserHostileNames(t *testing.T) {
	n := newNode(t, small(), "")
	for i, bad := range hostile() {
		class := "LS"
		if i%3 == 1 {
			class = "BE"
		}
		n.pod(bad, bad, class, 100)
	}
	owner := hostile()[0]
	n.pod("owner", owner, "LSE", 2000)
	i := story(noon, hostile()[0], hostile()[2])
	i.Why = hostile()[1]
	incident := n.incident(i)
	n.advance(30*time.Second, time.Second)
	base := n.serve(t)
	b := pagetest.New(t, 1400, 900)
	b.Open(base + "/")
	b.Wants("document.getElementById('container-list').innerText", owner, hostile()[1], strings.Repeat("n", 253),
		"line?break??Set-Cookie")
	b.Click(`#map [data-cpu="0"]`)
	b.Wants(pagetest.Details, "owner/"+owner)
	b.Click(`#incident-list [data-incident]`)
	b.Until("document.querySelector('#incident img')?.naturalWidth > 0")
	b.Wants("document.getElementById('incident').innerText", hostile()[1])
	b.Slash()
	b.Keys("proto")
	b.Until("document.querySelectorAll('#found [data-pod]').length === 1")
	b.Keys(kb.Enter)
	b.Wants(pagetest.Details, "__proto__/__proto__")
	b.Screenshot("hostile")
	b.Wants("document.title", "quietcore node-a")
	b.Wants("String(document.querySelectorAll('#map img, main script, main svg[onload], [onerror]').length)", "0")
	// The page that stands alone, too.
	b.Do(chromedp.Navigate(base + "/incidents/" + incident + ".html"))
	b.Clean(base)
}

// Other web sites that the operator's browser shows, one of which points its own
// name at the page, read nothing of it.
func TestBrowserOtherSites(t *testing.T) {
	n := newNode(t, small(), "")
	n.pod("shop", "secret-name", "LSR", 2000)
	n.advance(time.Minute, 10*time.Second)
	id := n.incident(story(noon, "secret-name", "encode"))
	base := n.serve(t)
	here, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<!doctype html><title>another site</title>")
	}))
	t.Cleanup(site.Close)
	b := pagetest.New(t, 800, 600, chromedp.Flag("host-resolver-rules", "MAP *.example 127.0.0.1"))

	// Rebinding: the name is the attacker's, the address the page's.
	b.Do(chromedp.Navigate("http://evil.example:" + here.Port() + "/"))
	b.Wants("document.body.innerText", "answers to localhost and loopback addresses only")
	b.Wants("fetch('/api/state').then(r => r.text().then(t => r.status + ' ' + t))", "421")

	other, err := url.Parse(site.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, origin := range []string{"http://evil.example:" + other.Port(), site.URL} {
		b.Do(chromedp.Navigate(origin + "/"))
		b.Wants("document.title", "another site")
		for what, script := range map[string]string{
			"fetch": "fetch(%q).then(r => r.text()).then(() => 'read', () => 'refused')",
			"no-cors": "fetch(%q, {mode: 'no-cors'}).then(r => r.text()).then(t => t.length ? 'read' : 'refused', " +
				"() => 'refused')",
			"event": "new Promise(done => { const e = new EventSource(%q); e.onmessage = e.onopen = () => " +
				"done('read'); e.onerror = () => { e.close(); done('refused'); }; })",
			"script": "new Promise(done => { const e = document.createElement('script'); e.src = %q; e.onload = () " +
				"=> done('read'); e.onerror = () => done('refused'); document.head.append(e); })",
			"image": "new Promise(done => { const e = new Image(); e.src = %q; e.onload = () => done('read'); " +
				"e.onerror = () => done('refused'); })",
			"frame": "new Promise(done => { const e = document.createElement('iframe'); e.src = %q; e.onload = () " +
				"=> { let t; try { t = e.contentDocument?.body?.innerText; } catch { t = undefined; } done(t ? " +
				"'read' : 'refused'); }; document.body.append(e); })",
			"form": "fetch(%q, {method: 'POST', mode: 'no-cors', body: 'x'}).then(r => r.text()).then(t => t.length " +
				"? 'read' : 'refused', () => 'refused')",
		} {
			path := map[string]string{"event": "/api/stream", "script": "/assets/app.js", "image": "/incidents/" + id +
				".svg", "frame": "/"}[what]
			if path == "" {
				path = "/api/state"
			}
			if got := b.Text(fmt.Sprintf(script, base+path)); got != "refused" {
				t.Errorf("%s, %s of %s: %s", origin, what, path, got)
			}
		}
	}
}

// contrast is the WCAG's measure, of the colour that property gives an element against
// the nearest background behind it.
const contrast = `
	const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
	const light = (text) => {
		const [r, g, b] = text.match(/[\d.]+/g).slice(0, 3).map((v) => linear(v / 255));
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const behind = (e) => {
		const c = getComputedStyle(e).backgroundColor;
		return c !== 'rgba(0, 0, 0, 0)' ? c : behind(e.parentElement);
	};
	const contrast = (e, property) => {
		const [a, c] = [light(getComputedStyle(e)[property]), light(behind(e))].sort((x, y) => y - x);
		return (a + 0.05) / (c + 0.05);
	};
`

// Text on every kind of cell, the soft text next to it and the lines of charts can be
// read in both settings.
func TestBrowserContrast(t *testing.T) {
	n := newNode(t, small(), "")
	n.live()
	b := pagetest.New(t, 1400, 900)
	base := n.serve(t)
	b.Open(base + "/#pod=batch%2Fencode-2")
	b.Until("document.querySelector('#details .spark canvas') !== null")
	least := func(what, script string, want float64) {
		t.Helper()
		if ratio := pagetest.Evaluate[float64](b, "(() => {"+contrast+script+"})()"); ratio < want {
			t.Errorf("%s has a contrast of %.2f, want %v", what, ratio, want)
		}
	}
	for _, dark := range []bool{false, true} {
		b.Dark(dark)
		for _, pool := range []string{"lse", "lsr", "exclusive", "kubelet", "system", "shared", "be", "reserved",
			"withheld", "isolated", "offline", "unknown"} {
			least(fmt.Sprintf("dark %t: text on %s", dark, pool), fmt.Sprintf(`
				const cell = document.querySelector('#map .cpu');
				const was = cell.className;
				cell.className = 'cpu %s';
				const ratio = contrast(cell, 'color');
				cell.className = was;
				return ratio;`, pool), 4.5)
		}
		for selector, property := range map[string]string{
			"dt": "color", "time": "color", "footer": "color", ".place": "color", "h2 span": "color",
			"#moment": "color",
		} {
			// What none is there of has a contrast of 0.
			least(fmt.Sprintf("dark %t: soft text of %s", dark, selector), fmt.Sprintf(`
				const all = [...document.querySelectorAll(%q)].map((e) => contrast(e, %q));
				return all.length ? Math.min(...all) : 0;`, selector, property), 4.5)
		}
		for line := 1; line <= 5; line++ {
			// Of the key; what is drawn has the same colours, and a background of its own.
			for _, behind := range []string{"--page", "--inner"} {
				least(fmt.Sprintf("dark %t: line %d on %s", dark, line, behind), fmt.Sprintf(`
					const e = document.querySelector('#charts .key .line'), place = e.closest('span');
					const was = e.getAttribute('class');
					e.setAttribute('class', 'line c%d');
					place.style.backgroundColor = 'var(%s)';
					const ratio = contrast(e, 'stroke');
					e.setAttribute('class', was);
					place.style.backgroundColor = '';
					return ratio;`, line, behind), 3)
			}
		}
	}
	b.Clean(base)
}

// The page outlives the daemon, says that what it shows is old, and goes on with
// the next one.
func TestBrowserDaemonRestarts(t *testing.T) {
	first := newNode(t, small(), "")
	first.pod("shop", "db-0", "LSR", 2000)
	first.advance(time.Minute, 10*time.Second)
	l, err := site.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	stop := first.serveOn(t, l, first.page.Handler())
	b := pagetest.New(t, 1200, 800)
	b.Open("http://" + address + "/#pod=shop%2Fdb-0")
	b.Wants(pagetest.Details, "shop/db-0", "owns CPUs")
	before := pagetest.Evaluate[int](b, "Number(document.querySelector('#charts [data-line]').dataset.points)")
	stop()
	b.Until("document.getElementById('link').classList.contains('lost')")
	b.Wants("document.getElementById('link').textContent", "no connection since")
	b.Wants(pagetest.Details, "shop/db-0")

	second := newNode(t, small(), "")
	second.clock.Store(first.clock.Load() + 60_000)
	second.pod("shop", "db-1", "LSR", 4000)
	second.advance(time.Minute, 10*time.Second)
	if l, err = site.Listen(address); err != nil {
		t.Fatal(err)
	}
	second.serveOn(t, l, second.page.Handler())
	b.Until("document.getElementById('link').textContent === 'live'")
	b.Until(pagetest.Details + ".includes('is not on this node any more')")
	b.Until("document.querySelectorAll('#map .cpu.lsr').length === 4")
	// What the daemon of before reported is still drawn, before what this one reports.
	b.Until(fmt.Sprintf("document.querySelector('#charts [data-line]').dataset.points > %d", before))
	for _, c := range b.Complaints() {
		if !strings.Contains(c, "ERR_CONNECTION") && !strings.Contains(c, "ERR_INCOMPLETE_CHUNKED_ENCODING") &&
			!strings.Contains(c, "ERR_EMPTY_RESPONSE") {
			t.Errorf("the browser complains: %s", c)
		}
	}
}

// A day of a busy node, as fast as the page can draw it: it does not grow.
func TestBrowserOpenForADay(t *testing.T) {
	n := newNode(t, small(), "")
	id := n.pod("batch", "encode-1", "BE", 0)
	n.advance(time.Minute, 10*time.Second)
	base := n.serve(t)
	b := pagetest.New(t, 1200, 800)
	b.Open(base + "/")
	hours := func(from, to int) {
		for hour := from; hour < to; hour++ {
			for step := range 30 {
				name := fmt.Sprintf("web-%d-%d", hour, step)
				n.pod("shop", name, "LSR", 2000)
				n.submit(policy.CapVerdict{ID: id, Milli: int64(100 + step), For: time.Minute})
				n.advance(time.Minute, 10*time.Second)
				n.submit(policy.PodRemoved{Sandbox: "sb-" + fmt.Sprintf("uid-%x-%x", "shop", name)})
				n.advance(time.Minute, 10*time.Second)
			}
		}
		n.pod("shop", fmt.Sprintf("last-%d", to), "LS", 100)
		n.advance(time.Second, time.Second)
		b.Until(fmt.Sprintf("document.getElementById('container-list').innerText.includes('last-%d')", to))
	}
	measure := func() (nodes, listeners, heap float64) {
		pagetest.Call(b, heapprofiler.CollectGarbage, cdp.Empty{})
		for _, one := range pagetest.Call(b, performance.GetMetrics, cdp.Empty{}).Metrics {
			switch one.Name {
			case "Nodes":
				nodes = one.Value
			case "JSEventListeners":
				listeners = one.Value
			case "JSHeapUsedSize":
				heap = one.Value
			}
		}
		return nodes, listeners, heap
	}
	hours(0, 6) // the hour and the list of changes are full
	nodes, listeners, heap := measure()
	daemon := heapInUse()
	hours(6, 24)
	if later := heapInUse(); later > daemon+8<<20 {
		t.Errorf("the daemon grew from %d to %d bytes", daemon, later)
	} else {
		t.Logf("the daemon's heap: %d, then %d bytes", daemon, later)
	}
	laterNodes, laterListeners, laterHeap := measure()
	t.Logf("nodes %.0f, then %.0f; listeners %.0f, then %.0f; heap %.0f, then %.0f bytes", nodes, laterNodes,
		listeners, laterListeners, heap, laterHeap)
	if laterNodes > nodes*1.5+500 || laterListeners > listeners*1.5+100 || laterHeap > heap+4<<20 {
		t.Errorf("the page grew: nodes %.0f to %.0f, listeners %.0f to %.0f, heap %.0f to %.0f bytes", nodes,
			laterNodes, listeners, laterListeners, heap, laterHeap)
	}
	b.Clean(base)
}
