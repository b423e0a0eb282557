package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/quietcore/quietcore/internal/page/pagetest"
	"github.com/quietcore/quietcore/policy"
)

// scrolled is the text of each row's first cell and of its use, in the order in which somebody who scrolls sees them. A
// frame passes between two steps.
const scrolled = `(async () => {
	const window = document.getElementById('container-list').parentElement;
	const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
	const seen = [], known = new Set();
	let most = 0;
	for (let top = 0; ; top += 200) {
		window.scrollTop = top;
		await frame();
		const rows = [...document.querySelectorAll('#container-list tbody tr:not([aria-hidden])')];
		most = Math.max(most, rows.length);
		const [from, to] = [window.getBoundingClientRect().top, window.getBoundingClientRect().bottom];
		for (const row of rows) {
			const place = row.getBoundingClientRect();
			if (place.bottom < from || place.top > to || known.has(row.getAttribute('aria-rowindex'))) continue;
			known.add(row.getAttribute('aria-rowindex'));
			seen.push(row.cells[0].textContent + ' ' + row.cells[4].textContent);
		}
		if (window.scrollTop + window.clientHeight >= window.scrollHeight - 1) break;
	}
	window.scrollTop = 0;
	await frame();
	return [String(most), ...seen].join('\n');
})()`

// Of 494 containers all can be scrolled to, the busiest first, and few rows are there at a time.
func TestBrowserManyContainers(t *testing.T) {
	n := newNode(t, large(), "0-1,256-257")
	n.live()
	base := n.serve(t)
	b := pagetest.New(t, 1600, 1000)
	b.Open(base + "/")
	all := slices.Clone(n.plugin.Snapshot().Containers)
	b.Until(fmt.Sprintf("document.getElementById('container-count').textContent === '%d, the busiest first'", len(all)))
	used := n.look().Performance.Samples
	key := func(c *policy.ContainerView) string { return c.Namespace + "/" + c.Pod + "/" + c.Name }
	slices.SortFunc(all, func(a, c *policy.ContainerView) int {
		return cmp.Or(cmp.Compare(*used[c.ID].Usage, *used[a.ID].Usage), strings.Compare(key(a), key(c)))
	})
	want := make([]string, len(all))
	for i, c := range all {
		want[i] = fmt.Sprintf("%s %.2f", key(c), *used[c.ID].Usage)
	}
	most, text, _ := strings.Cut(b.Text(scrolled), "\n")
	if got := strings.Split(text, "\n"); !slices.Equal(got, want) {
		t.Errorf("somebody who scrolls sees %d rows, want %d:\n%s\nwant\n%s", len(got), len(want), text,
			strings.Join(want, "\n"))
	}
	if len(most) > 2 {
		t.Errorf("%s rows are made at a time of %d", most, len(all))
	}
	b.Wants("document.getElementById('container-list').getAttribute('aria-rowcount')", fmt.Sprint(len(all)+1))
	b.Do(chromedp.ScrollIntoView(chromedp.CSS("#container-list")))
	b.Screenshot("containers-many")

	// By keyboard: Tab goes from row to row beyond what was made at first, and an update takes the focus from nobody.
	const focused = "document.activeElement.closest('#container-list tr')?.getAttribute('aria-rowindex') ?? 'none'"
	b.Do(chromedp.Focus(chromedp.CSS("#container-list tbody button")))
	for range 60 {
		b.Keys(kb.Tab)
	}
	b.Wants(focused, "62")
	held := b.Text("document.activeElement.textContent")
	n.pod("web", "another", "LS", 100)
	n.advance(time.Minute, 10*time.Second)
	b.Until(fmt.Sprintf("document.getElementById('container-count').textContent.startsWith('%d')", len(all)+1))
	b.Wants("document.activeElement.textContent", held)

	b.Slash()
	b.Keys("job-00")
	b.Until(fmt.Sprintf("document.getElementById('container-count').textContent === '10 of %d, the busiest first'",
		len(all)+1))
	b.Until("document.querySelectorAll('#container-list tbody tr:not([aria-hidden])').length === 10")
	b.Dark(true)
	b.Screenshot("containers-found-dark")
	b.Clean(base)
}
