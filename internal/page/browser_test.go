package page

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/quietcore/quietcore/policy"
)

// browser is one tab of a real Chromium that notes what it should not have to.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	wrong    []string // what the console or an exception said
	requests []string
}

// chromium finds it, or says why the test cannot run.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const why = "no Chromium is installed (Debian package chromium): make setup-test installs it"
	if os.Getenv("QUIETCORE_CI") == "1" {
		t.Fatal(why)
	}
	t.Skip(why)
	return ""
}

func newBrowser(t *testing.T, width, height int64, more ...chromedp.ExecAllocatorOption) *browser {
	t.Helper()
	path := chromium(t)
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	t.Cleanup(cancel)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true))
	ctx, cancel = chromedp.NewExecAllocator(ctx, append(options, more...)...)
	t.Cleanup(cancel)
	b := &browser{t: t}
	b.ctx, cancel = chromedp.NewContext(ctx, chromedp.WithListener(b.listen))
	t.Cleanup(cancel)
	b.do(chromedp.EmulateViewport(width, height))
	call(b, network.Enable, network.EnableParams{})
	call(b, log.Enable, cdp.Empty{})
	call(b, performance.Enable, performance.EnableParams{})
	return b
}

func call[P any](b *browser, command cdp.Command[P, cdp.Empty], params P) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		b.t.Fatal(err)
	}
}

func (b *browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if o := e.ExceptionDetails.Exception; o != nil {
			text += " " + o.Description
		}
		b.wrong = append(b.wrong, "exception: "+text)
	case *runtime.EventConsoleAPICalled:
		b.wrong = append(b.wrong, fmt.Sprintf("console %s: %v", e.Type, e.Args))
	case *log.EventEntryAdded:
		b.wrong = append(b.wrong, fmt.Sprintf("log %s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, e.Request.URL)
	}
}

// do runs actions, and fails where they do not come to an end.
func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatalf("%v\nthe page says: %v", err, b.complaints())
	}
}

func (b *browser) click(selector string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector)))
}

func (b *browser) keys(keys ...string) {
	b.t.Helper()
	for _, k := range keys {
		b.do(chromedp.KeyEvent(k))
	}
}

// slash is the key as a keyboard sends it: the character follows only where the
// page lets it.
func (b *browser) slash() {
	b.t.Helper()
	call(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "/", Code: "Slash", Text: "/"})
	call(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyUp, Key: "/", Code: "Slash"})
	b.until("document.activeElement.id === 'query' && document.activeElement.value === ''")
}

func (b *browser) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string{}, b.wrong...)
}

// clean wants no complaint, and no request to anybody but the daemon.
func (b *browser) clean(base string) {
	b.t.Helper()
	if list := b.complaints(); len(list) > 0 {
		b.t.Errorf("the browser complains:\n%s", strings.Join(list, "\n"))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.requests {
		u, err := url.Parse(r)
		if err != nil || "http://"+u.Host != base {
			b.t.Errorf("the page asked for %s", r)
		}
	}
	if len(b.requests) == 0 {
		b.t.Error("nothing was asked for")
	}
}

func evaluate[T any](b *browser, script string) T {
	b.t.Helper()
	out, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v\ncomplaints: %v", script, err, b.complaints())
	}
	return out
}

func (b *browser) text(script string) string { b.t.Helper(); return evaluate[string](b, script) }

// until waits for a condition in the page.
func (b *browser) until(condition string) {
	b.t.Helper()
	const patience = time.Minute
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(patience); !evaluate[bool](b, "!!("+condition+")"); <-again.C {
		if time.Now().After(end) {
			b.t.Fatalf("%s does not come true\ncomplaints: %v\npage:\n%s", condition, b.complaints(), b.text("document.body.innerText.slice(0, 3000)"))
		}
	}
}

func (b *browser) wants(script string, parts ...string) {
	b.t.Helper()
	got := b.text(script)
	for _, part := range parts {
		if !strings.Contains(got, part) {
			b.t.Errorf("%s lacks %q:\n%s", script, part, got)
		}
	}
}

const details = "document.getElementById('details').innerText"

func (b *browser) open(address string) {
	b.t.Helper()
	b.do(chromedp.Navigate(address))
	b.until("document.querySelectorAll('#map .cpu').length > 0 && document.getElementById('link').textContent === 'live'")
	b.until("document.querySelectorAll('#charts path.line').length > 0")
}

// screenshot keeps a picture where QUIETCORE_SCREENSHOTS names a folder, for
// people to look at.
func (b *browser) screenshot(name string) {
	b.t.Helper()
	dir := os.Getenv("QUIETCORE_SCREENSHOTS")
	if dir == "" {
		return
	}
	for suffix, take := range map[string]chromedp.Action[[]byte]{"": chromedp.CaptureScreenshot(), "-whole": chromedp.FullScreenshot(100)} {
		png, err := chromedp.Run(b.ctx, take)
		if err != nil {
			b.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+suffix+".png"), png, 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *browser) dark(yes bool) {
	scheme := "light"
	if yes {
		scheme = "dark"
	}
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// hover puts the mouse over the middle of an element.
func (b *browser) hover(selector string) {
	b.t.Helper()
	at := evaluate[[]float64](b, fmt.Sprintf("(r => [r.left + r.width / 2, r.top + r.height / 2])(document.querySelector(%q).getBoundingClientRect())", selector))
	b.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, 1, 1), chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at[0], at[1]))
}

func TestBrowserSmallMachine(t *testing.T) {
	n := newNode(t, small(), "")
	n.live()
	base := n.serve(t)
	b := newBrowser(t, 1400, 900)
	b.open(base + "/")
	b.wants("document.getElementById('size').textContent", "1 socket · 1 NUMA node · 1 L3 · 4 cores · 8 CPUs")
	b.wants("document.getElementById('legend').innerText", "shared pool", "LSR, exclusive (2)", "a letter and a bar")
	b.screenshot("small-light")

	b.click(`#map [data-cpu="0"]`)
	b.wants(details, "CPU 0: LSR, exclusive", "shop/db-0", "same core", "best effort")
	b.click(`#details dd .as-link:not([data-x])`) // the sibling
	b.wants(details, "CPU 1: LSR, exclusive")
	b.hover(`#map [data-cpu="0"]`)
	b.wants("document.getElementById('tip').innerText", "CPU 0: LSR, exclusive, shop/db-0", "socket 0, NUMA node 0")

	// Search, by keyboard alone.
	b.slash()
	b.keys("encode")
	b.until("document.querySelectorAll('#found [data-pod]').length === 2")
	b.keys(kb.ArrowDown, kb.ArrowDown, kb.Enter)
	b.wants(details, "batch/encode-2", "capped", "100m", "CPI")
	b.until("document.querySelector('#details .spark') !== null")
	b.screenshot("small-pod")
	b.wants("document.getElementById('container-list').innerText", "encode-1", "100m capped until ")
	b.keys(kb.Escape, kb.Escape)
	b.until("document.getElementById('query').value === '' && document.querySelectorAll('.cpu.dim').length === 0")

	// Arrows move, Enter selects, Escape lets go.
	b.do(chromedp.Focus(chromedp.CSS(`#map [tabindex="0"]`)))
	b.keys(kb.Home, kb.ArrowRight, kb.ArrowRight)
	b.wants("document.activeElement.dataset.cpu", "2")
	b.keys(kb.Enter)
	b.wants(details, "CPU 2:")
	b.keys(kb.Escape)
	b.wants(details, "Who has which CPU, and why")

	// An incident with its plot.
	b.wants("document.getElementById('incident-list').innerText", "shop/db-0/main", "3.42", "1.74", "shop/encode-2/main", "success")
	b.click("#incident-list [data-incident]")
	b.until("document.querySelector('#incident img')?.naturalWidth > 0")
	b.wants("document.getElementById('incident').innerText", "contrast 0.83", "antagonist", "cap at 100m of shop/encode-2/main", "CPI 3.21 before, 1.77 after")
	b.screenshot("small-incident")
	b.keys(kb.Escape)
	b.until("document.getElementById('incident').childElementCount === 0")
	b.click("#charts .opens[data-incident]") // its triangle above the CPI
	b.until("document.querySelector('#incident img')?.naturalWidth > 0")
	b.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, 1, 1))
	b.wants("document.querySelector('#charts .opens title').textContent", "shop/db-0/main, CPI 3.42")
	b.keys(kb.Escape)
	b.until("document.getElementById('incident').childElementCount === 0")
	b.until("document.querySelector('#charts path.area').getAttribute('d').length > 100")
	b.wants("document.querySelector('#charts figcaption').textContent", "shared pool", "best effort kept off")
	b.wants("document.getElementById('change-list').innerText", "batch/encode-2/main is capped at 100m", "best effort begins to give way")

	// The timeline tells values at a moment, by pointer and by keyboard.
	b.do(chromedp.Focus(chromedp.CSS("#charts svg[tabindex]")))
	b.keys(kb.ArrowLeft)
	b.wants("document.getElementById('moment').textContent", "shared pool 6", "exclusive 2", "CPI of production")
	b.click("#day")
	b.until("document.querySelectorAll('#charts path.line').length > 0")

	// What changes is seen without doing anything.
	n.pod("shop", "db-1", "LSE", 2000)
	n.advance(2*time.Second, time.Second)
	b.until("document.querySelector('#map [data-cpu=\"2\"]').classList.contains('lse')")
	b.wants("document.querySelector('#map [data-cpu=\"2\"]').getAttribute('aria-label')", "CPU 2: LSE, exclusive, shop/db-1")
	b.dark(true)
	b.screenshot("small-dark")
	b.clean(base)
}

func TestBrowserLargeMachine(t *testing.T) {
	n := newNode(t, large(), "0-1,256-257")
	n.live()
	base := n.serve(t)
	b := newBrowser(t, 1600, 1000)
	b.open(base + "/")
	b.wants("document.getElementById('size').textContent", "2 sockets · 8 NUMA nodes · 32 L3 · 256 cores · 512 CPUs")
	b.until("document.querySelectorAll('#map .cpu').length === 512")
	b.screenshot("large-light")
	b.slash()
	b.keys("leaf-07")
	b.until("document.querySelectorAll('#found [data-pod]').length === 1")
	b.keys(kb.Enter)
	b.wants(details, "search/leaf-07", "owns CPUs")
	b.until("document.querySelectorAll('.cpu.hit').length === 8")
	b.screenshot("large-search")
	b.keys(kb.Escape)
	b.until("document.querySelectorAll('.cpu.hit').length === 0")
	b.dark(true)
	b.screenshot("large-dark")
	// Nothing is wider than a narrow window.
	b.do(chromedp.EmulateViewport(420, 900))
	b.until("document.documentElement.scrollWidth <= 420")
	b.screenshot("large-narrow")
	b.clean(base)
	// For people to look at. Chromium's own filters count as requests, so this is last.
	b.dark(false)
	b.do(chromedp.EmulateViewport(1600, 1000))
	for _, kind := range []emulation.SetEmulatedVisionDeficiencyType{emulation.SetEmulatedVisionDeficiencyTypeDeuteranopia, emulation.SetEmulatedVisionDeficiencyTypeAchromatopsia} {
		call(b, emulation.SetEmulatedVisionDeficiency, emulation.SetEmulatedVisionDeficiencyParams{Type: kind})
		b.screenshot("large-" + string(kind))
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
	b := newBrowser(t, 1400, 900)
	b.open(base + "/")
	b.wants("document.getElementById('container-list').innerText", owner, hostile()[1], strings.Repeat("n", 253), "line?break??Set-Cookie")
	b.click(`#map [data-cpu="0"]`)
	b.wants(details, "owner/"+owner)
	b.click(`#incident-list [data-incident]`)
	b.until("document.querySelector('#incident img')?.naturalWidth > 0")
	b.wants("document.getElementById('incident').innerText", hostile()[1])
	b.slash()
	b.keys("proto")
	b.until("document.querySelectorAll('#found [data-pod]').length === 1")
	b.keys(kb.Enter)
	b.wants(details, "__proto__/__proto__")
	b.screenshot("hostile")
	b.wants("document.title", "quietcore node-a")
	b.wants("String(document.querySelectorAll('#map img, main script, main svg[onload], [onerror]').length)", "0")
	// The page that stands alone, too.
	b.do(chromedp.Navigate(base + "/incidents/" + incident + ".html"))
	b.clean(base)
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
	b := newBrowser(t, 800, 600, chromedp.Flag("host-resolver-rules", "MAP *.example 127.0.0.1"))

	// Rebinding: the name is the attacker's, the address the page's.
	b.do(chromedp.Navigate("http://evil.example:" + here.Port() + "/"))
	b.wants("document.body.innerText", "answers to localhost and loopback addresses only")
	b.wants("fetch('/api/state').then(r => r.text().then(t => r.status + ' ' + t))", "421")

	other, err := url.Parse(site.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, origin := range []string{"http://evil.example:" + other.Port(), site.URL} {
		b.do(chromedp.Navigate(origin + "/"))
		b.wants("document.title", "another site")
		for what, script := range map[string]string{
			"fetch":   "fetch(%q).then(r => r.text()).then(() => 'read', () => 'refused')",
			"no-cors": "fetch(%q, {mode: 'no-cors'}).then(r => r.text()).then(t => t.length ? 'read' : 'refused', () => 'refused')",
			"event":   "new Promise(done => { const e = new EventSource(%q); e.onmessage = e.onopen = () => done('read'); e.onerror = () => { e.close(); done('refused'); }; })",
			"script":  "new Promise(done => { const e = document.createElement('script'); e.src = %q; e.onload = () => done('read'); e.onerror = () => done('refused'); document.head.append(e); })",
			"image":   "new Promise(done => { const e = new Image(); e.src = %q; e.onload = () => done('read'); e.onerror = () => done('refused'); })",
			"frame":   "new Promise(done => { const e = document.createElement('iframe'); e.src = %q; e.onload = () => { let t; try { t = e.contentDocument?.body?.innerText; } catch { t = undefined; } done(t ? 'read' : 'refused'); }; document.body.append(e); })",
			"form":    "fetch(%q, {method: 'POST', mode: 'no-cors', body: 'x'}).then(r => r.text()).then(t => t.length ? 'read' : 'refused', () => 'refused')",
		} {
			path := map[string]string{"event": "/api/stream", "script": "/assets/app.js", "image": "/incidents/" + id + ".svg", "frame": "/"}[what]
			if path == "" {
				path = "/api/state"
			}
			if got := b.text(fmt.Sprintf(script, base+path)); got != "refused" {
				t.Errorf("%s, %s of %s: %s", origin, what, path, got)
			}
		}
	}
}

// Text on every kind of cell can be read in both settings, by the WCAG's measure.
func TestBrowserContrast(t *testing.T) {
	n := newNode(t, small(), "")
	n.advance(20*time.Second, 10*time.Second)
	b := newBrowser(t, 800, 600)
	base := n.serve(t)
	b.open(base + "/")
	for _, dark := range []bool{false, true} {
		b.dark(dark)
		for _, pool := range []string{"lse", "lsr", "exclusive", "kubelet", "system", "shared", "be", "reserved", "withheld", "isolated", "offline", "unknown"} {
			ratio := evaluate[float64](b, fmt.Sprintf(`(() => {
				const cell = document.querySelector('#map .cpu');
				const was = cell.className;
				cell.className = 'cpu %s';
				const light = (text) => { const [r, g, b] = text.match(/[\d.]+/g).slice(0, 3).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
				const style = getComputedStyle(cell);
				const background = style.backgroundColor === 'rgba(0, 0, 0, 0)' ? getComputedStyle(document.body).backgroundColor : style.backgroundColor;
				const [a, c] = [light(style.color), light(background)].sort((x, y) => y - x);
				cell.className = was;
				return (a + 0.05) / (c + 0.05);
			})()`, pool))
			if ratio < 4.5 {
				t.Errorf("dark %t: text on %s has a contrast of %.2f, want 4.5", dark, pool, ratio)
			}
		}
	}
	b.clean(base)
}

// The page outlives the daemon, says that what it shows is old, and goes on with
// the next one.
func TestBrowserDaemonRestarts(t *testing.T) {
	first := newNode(t, small(), "")
	first.pod("shop", "db-0", "LSR", 2000)
	first.advance(time.Minute, 10*time.Second)
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	stop := first.serveOn(t, l, first.page.Handler())
	b := newBrowser(t, 1200, 800)
	b.open("http://" + address + "/#pod=shop%2Fdb-0")
	b.wants(details, "shop/db-0", "owns CPUs")
	before := evaluate[int](b, "document.querySelectorAll('#charts path.line')[0].getAttribute('d').length")
	stop()
	b.until("document.getElementById('link').classList.contains('lost')")
	b.wants("document.getElementById('link').textContent", "no connection since")
	b.wants(details, "shop/db-0")

	second := newNode(t, small(), "")
	second.clock.Store(first.clock.Load() + 60_000)
	second.pod("shop", "db-1", "LSR", 4000)
	second.advance(time.Minute, 10*time.Second)
	if l, err = Listen(address); err != nil {
		t.Fatal(err)
	}
	second.serveOn(t, l, second.page.Handler())
	b.until("document.getElementById('link').textContent === 'live'")
	b.until(details + ".includes('is not on this node any more')")
	b.until("document.querySelectorAll('#map .cpu.lsr').length === 4")
	// What the daemon of before told is still drawn, before what this one tells.
	b.until(fmt.Sprintf("document.querySelectorAll('#charts path.line')[0].getAttribute('d').length > %d", before))
	for _, c := range b.complaints() {
		if !strings.Contains(c, "ERR_CONNECTION") && !strings.Contains(c, "ERR_INCOMPLETE_CHUNKED_ENCODING") && !strings.Contains(c, "ERR_EMPTY_RESPONSE") {
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
	b := newBrowser(t, 1200, 800)
	b.open(base + "/")
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
		b.until(fmt.Sprintf("document.getElementById('container-list').innerText.includes('last-%d')", to))
	}
	measure := func() (nodes, listeners, heap float64) {
		call(b, heapprofiler.CollectGarbage, cdp.Empty{})
		m, err := chromedp.Call(b.ctx, performance.GetMetrics, cdp.Empty{})
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range m.Metrics {
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
	t.Logf("nodes %.0f, then %.0f; listeners %.0f, then %.0f; heap %.0f, then %.0f bytes", nodes, laterNodes, listeners, laterListeners, heap, laterHeap)
	if laterNodes > nodes*1.5+500 || laterListeners > listeners*1.5+100 || laterHeap > heap+4<<20 {
		t.Errorf("the page grew: nodes %.0f to %.0f, listeners %.0f to %.0f, heap %.0f to %.0f bytes", nodes, laterNodes, listeners, laterListeners, heap, laterHeap)
	}
	b.clean(base)
}
