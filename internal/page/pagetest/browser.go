// Package pagetest drives a real Chromium for tests of the page. A tab keeps what its
// console said and which servers it asked, so a test can want neither a complaint nor a request
// to anybody but the daemon.
package pagetest

import (
	"context"
	"fmt"
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
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Browser is one tab of a real Chromium that notes what it should not have to.
type Browser struct {
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

// New opens a tab of this size, and closes it when the test ends.
func New(t *testing.T, width, height int64, more ...chromedp.ExecAllocatorOption) *Browser {
	t.Helper()
	path := chromium(t)
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	t.Cleanup(cancel)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.Flag("disable-dev-shm-usage", true))
	ctx, cancel = chromedp.NewExecAllocator(ctx, append(options, more...)...)
	t.Cleanup(cancel)
	b := &Browser{t: t}
	b.ctx, cancel = chromedp.NewContext(ctx, chromedp.WithListener(b.listen))
	t.Cleanup(cancel)
	b.Do(chromedp.EmulateViewport(width, height))
	Call(b, network.Enable, network.EnableParams{})
	Call(b, log.Enable, cdp.Empty{})
	Call(b, performance.Enable, performance.EnableParams{})
	return b
}

// Call gives a command of the DevTools protocol.
func Call[P, R any](b *Browser, command cdp.Command[P, R], params P) R {
	b.t.Helper()
	out, err := chromedp.Call(b.ctx, command, params)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func (b *Browser) listen(event any) {
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

// Do runs actions, and fails where they do not come to an end.
func (b *Browser) Do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatalf("%v\nthe page says: %v", err, b.Complaints())
	}
}

// Click clicks the first element that the selector finds.
func (b *Browser) Click(selector string) {
	b.t.Helper()
	b.Do(chromedp.Click(chromedp.CSS(selector)))
}

// Keys types, one after another.
func (b *Browser) Keys(keys ...string) {
	b.t.Helper()
	for _, k := range keys {
		b.Do(chromedp.KeyEvent(k))
	}
}

// Slash is the key as a keyboard sends it: the character follows only where the
// page lets it.
func (b *Browser) Slash() {
	b.t.Helper()
	Call(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "/",
		Code: "Slash", Text: "/"})
	Call(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyUp, Key: "/",
		Code: "Slash"})
	b.Until("document.activeElement.id === 'query' && document.activeElement.value === ''")
}

// Complaints are what the console and exceptions said.
func (b *Browser) Complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string{}, b.wrong...)
}

// Clean wants no complaint, and no request to anybody but the daemon.
func (b *Browser) Clean(base string) {
	b.t.Helper()
	if list := b.Complaints(); len(list) > 0 {
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

// Evaluate is the value of a script, which may be a promise of it.
func Evaluate[T any](b *Browser, script string) T {
	b.t.Helper()
	out, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v\ncomplaints: %v", script, err, b.Complaints())
	}
	return out
}

// Text is the value of a script that is a text.
func (b *Browser) Text(script string) string { b.t.Helper(); return Evaluate[string](b, script) }

// Until waits for a condition in the page.
func (b *Browser) Until(condition string) {
	b.t.Helper()
	const patience = time.Minute
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(patience); !Evaluate[bool](b, "!!("+condition+")"); <-again.C {
		if time.Now().After(end) {
			b.t.Fatalf("%s does not come true\ncomplaints: %v\npage:\n%s", condition, b.Complaints(),
				b.Text("document.body.innerText.slice(0, 3000)"))
		}
	}
}

// Wants wants each part in the text that is a script's value.
func (b *Browser) Wants(script string, parts ...string) {
	b.t.Helper()
	got := b.Text(script)
	for _, part := range parts {
		if !strings.Contains(got, part) {
			b.t.Errorf("%s lacks %q:\n%s", script, part, got)
		}
	}
}

// Details is what the panel next to the machine says.
const Details = "document.getElementById('details').innerText"

// Open goes to the page, and waits until it is drawn.
func (b *Browser) Open(address string) {
	b.t.Helper()
	b.Do(chromedp.Navigate(address))
	b.Until("document.querySelectorAll('#map .cpu').length > 0 && document.getElementById('link').textContent === " +
		"'live'")
	b.Until("document.querySelectorAll('#charts [data-line]').length > 0")
}

// Screenshot keeps a picture where QUIETCORE_SCREENSHOTS names a folder, for
// people to look at.
func (b *Browser) Screenshot(name string) {
	b.t.Helper()
	dir := os.Getenv("QUIETCORE_SCREENSHOTS")
	if dir == "" {
		return
	}
	for suffix, take := range map[string]chromedp.Action[[]byte]{"": chromedp.CaptureScreenshot(),
		"-whole": chromedp.FullScreenshot(100)} {
		png, err := chromedp.Run(b.ctx, take)
		if err != nil {
			b.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+suffix+".png"), png, 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
}

// Dark chooses the setting of the system that the page follows.
func (b *Browser) Dark(yes bool) {
	scheme := "light"
	if yes {
		scheme = "dark"
	}
	Call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// Hover puts the mouse over the middle of an element.
func (b *Browser) Hover(selector string) {
	b.t.Helper()
	at := Evaluate[[]float64](b,
		fmt.Sprintf(
			"(r => [r.left + r.width / 2, r.top + r.height / 2])(document.querySelector(%q).getBoundingClientRect())",
			selector))
	b.Do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, 1, 1),
		chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, at[0], at[1]))
}
