package page

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/quietcore/quietcore/internal/page/pagetest"
)

// inked counts the pixels of each line's colour in its chart, by line.
const inked = `JSON.stringify(Object.fromEntries([...document.querySelectorAll('#charts [data-line]')].map((span) => {
	const canvas = span.closest('figure').querySelector('canvas');
	const [r, g, b] = getComputedStyle(span.querySelector('.line, .area'))[span.querySelector('.line') ? 'stroke' :
		'fill'].match(/\d+/g).map(Number);
	const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
	copy.drawImage(canvas, 0, 0);
	const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
	let n = 0;
	for (let i = 0; i < data.length; i += 4) if (Math.abs(data[i] - r) + Math.abs(data[i + 1] - g) +
		Math.abs(data[i + 2] - b) < 9 && data[i + 3] > 100) n++;
	return [span.dataset.line, n];
})))`

// Every line of the caption is drawn in its colour, in both settings and at every width; nothing is drawn where nothing
// was known.
func TestBrowserCharts(t *testing.T) {
	n := newNode(t, small(), "7")
	n.live()
	base := n.serve(t)
	b := pagetest.New(t, 1400, 900)
	b.Open(base + "/")
	lines := []string{"batch", "be", "capped", "cpi", "cpiBatch", "exclusive", "off", "offer", "production", "shared"}
	drawn := func(what string) {
		t.Helper()
		ink := map[string]int{}
		for range 100 { // the next frame draws
			if err := json.Unmarshal([]byte(b.Text("new Promise((done) => requestAnimationFrame(done)).then(() => "+
				inked+")")), &ink); err != nil {
				t.Fatal(err)
			}
			if least(ink) >= 50 && len(ink) == len(lines) {
				break
			}
		}
		for _, line := range lines {
			if ink[line] < 50 {
				t.Errorf("%s: %d pixels of %s are drawn", what, ink[line], line)
			}
		}
		if len(ink) != len(lines) {
			t.Errorf("%s: the lines are %v, want %v", what, ink, lines)
		}
	}
	drawn("light")
	b.Dark(true)
	drawn("dark")
	b.Do(chromedp.EmulateViewport(420, 900))
	b.Until("document.documentElement.scrollWidth <= 420")
	b.Until("[...document.querySelectorAll('#charts .plot')].every((p) => Math.abs(p.clientWidth - " +
		"p.querySelector('.u-wrap').clientWidth) < 2)")
	drawn("narrow")
	b.Screenshot("charts-narrow-dark")
	b.Do(chromedp.EmulateViewport(1400, 900))
	b.Dark(false)

	// The pointer asks all charts about one moment, and asks no more when it leaves.
	const crosses = "[...document.querySelectorAll('#charts .u-cursor-x')].map((e) => " +
		"Math.round(e.getBoundingClientRect().left - e.parentElement.getBoundingClientRect().left)).join(' ')"
	b.Do(chromedp.ScrollIntoView(chromedp.CSS("#charts .u-over")))
	b.Hover("#charts .u-over")
	b.Until("document.getElementById('moment').textContent.includes('shared pool')")
	middle := b.Text("(w => " +
		" [w, w, w, w].join(' '))(Math.round(document.querySelector('#charts .u-over').clientWidth / 2))")
	if got := b.Text(crosses); !near(got, middle) {
		t.Errorf("the charts have lines at %s, want %s", got, middle)
	}
	b.Screenshot("charts-light")
	b.Hover("#changes-title")
	b.Until("document.getElementById('moment').textContent === ''")

	// Where nothing was known for long, the last value is held for a step and no longer.
	b.Wants("import('/assets/charts.js').then((m) => JSON.stringify(m.columns([[0, 1, null], [10, 2, 5], "+
		"[100, 3, 6]], [1, 2], 35, 10)))", "[[0,10,20,20.001,100],[1,2,2,null,3],[null,5,5,null,6]]")

	// A chart of a day, and one of a container.
	b.Click("#day")
	b.Until("document.querySelector('#charts [data-line=shared]').dataset.points < 100")
	n.advance(time.Minute, 10*time.Second)
	b.Do(chromedp.Navigate(base + "/#pod=batch%2Fencode-2"))
	b.Until("document.querySelector('#details .spark canvas') !== null")
	b.Screenshot("charts-spark-light")
	b.Clean(base)
}

func least(of map[string]int) int {
	out := 1 << 30
	for _, n := range of {
		out = min(out, n)
	}
	return out
}

// near says that two lists of pixels are, but for the distance between two points of the timeline.
func near(a, b string) bool {
	var p, q [4]int
	for i, text := range []string{a, b} {
		into := []*[4]int{&p, &q}[i]
		if n, _ := fmt.Sscan(text, &into[0], &into[1], &into[2], &into[3]); n != 4 {
			return false
		}
	}
	return slices.Equal(p[:], []int{p[0], p[0], p[0], p[0]}) && p[0] > q[0]-3 && p[0] < q[0]+3
}
