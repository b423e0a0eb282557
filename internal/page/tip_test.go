package page

import (
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/quietcore/quietcore/internal/page/pagetest"
)

// covered counts the CPUs that are seen and that the tooltip covers; 1000: there is no tooltip in the window.
const covered = `(() => {
	const rect = (e) => e.getBoundingClientRect();
	const tip = document.getElementById('tip');
	const t = rect(tip), map = rect(document.getElementById('map'));
	if (t.height < 20 || t.top < 0 || t.bottom > innerHeight + 0.5 ||
		t.left < 0 || t.right > innerWidth) return 1000;
	return [...document.querySelectorAll('#map .cpu')].map(rect).filter((c) => {
		const top = Math.max(c.top, map.top), bottom = Math.min(c.bottom, map.bottom);
		return top < bottom && top < t.bottom && bottom > t.top && c.left < t.right && c.right > t.left;
	}).length;
})()`

// On a narrow screen the tooltip covers no CPU, on which it would lie otherwise, and what it says is not cut.
func TestBrowserTooltipOnANarrowScreen(t *testing.T) {
	n := newNode(t, large(), "0-1,256-257")
	n.live()
	base := n.serve(t)
	b := pagetest.New(t, 420, 900)
	b.Open(base + "/")
	height := b.Text("String(document.documentElement.scrollHeight)")
	at := func(cpu int) {
		t.Helper()
		b.Until(fmt.Sprintf("document.getElementById('tip').innerText.startsWith('CPU %d:')", cpu))
		b.Until(covered + " < 1000") // where the focus scrolls, it follows
		if got := pagetest.Evaluate[int](b, covered); got != 0 {
			t.Errorf("the tooltip of CPU %d covers %d CPUs", cpu, got)
		}
		if pagetest.Evaluate[bool](b, "(e => e.scrollHeight > e.clientHeight)(document.getElementById('tip'))") {
			t.Errorf("the tooltip of CPU %d is cut: %s", cpu, b.Text("document.getElementById('tip').innerText"))
		}
	}
	for _, cpu := range []int{0, 3, 20, 255, 511} {
		cell := fmt.Sprintf(`#map [data-cpu="%d"]`, cpu)
		b.Do(chromedp.ScrollIntoView(chromedp.CSS(cell)))
		b.Hover(cell)
		at(cpu)
	}
	b.Screenshot("narrow-tip-light")
	b.Do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, 1, 1)) // else it points at what is scrolled to it
	b.Do(chromedp.Focus(chromedp.CSS(`#map [tabindex="0"]`)))
	b.Keys(kb.Home)
	at(0)
	if got := b.Text("String(document.documentElement.scrollHeight)"); got != height {
		t.Errorf("with a tooltip the page is %s high, without %s", got, height)
	}
	b.Dark(true)
	b.Screenshot("narrow-tip-dark")
	// On a wide one it is beside its CPU.
	b.Do(chromedp.EmulateViewport(1600, 1000))
	b.Do(chromedp.ScrollIntoView(chromedp.CSS(`#map [data-cpu="20"]`)))
	b.Hover(`#map [data-cpu="20"]`)
	b.Until("document.getElementById('tip').innerText.startsWith('CPU 20:')")
	const far = `document.getElementById('tip').getBoundingClientRect().top - ` +
		`document.querySelector('#map [data-cpu="20"]').getBoundingClientRect().bottom`
	b.Until("0 <= " + far + " && " + far + " <= 10")
	b.Clean(base)
}
