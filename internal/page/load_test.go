package page

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/page/pagetest"
)

// The load is that between two readings, and is not known after the first, after a pause, of a CPU that came, and where
// the clock was set back.
func TestLoadMeter(t *testing.T) {
	var m loadMeter
	for i, c := range []struct {
		after time.Duration
		times []CPUTime
		want  []int
	}{
		{0, []CPUTime{{5, 10}, {1, 10}, {}}, []int{}},
		{2 * time.Second, []CPUTime{{7, 12}, {1.5, 12}, {}}, []int{100, 25, -1}},
		{2 * time.Second, []CPUTime{{7, 14}, {1.4, 14}, {1, 1}, {1, 1}}, []int{0, 0, -1, -1}},
		{2 * time.Second, []CPUTime{{8, 16}, {9, 16}, {2, 3}, {1, 1}}, []int{50, 100, 50, -1}},
		{2 * time.Second, nil, []int{}},
		{2 * time.Second, []CPUTime{{8, 18}}, []int{-1}},
		{time.Minute, []CPUTime{{9, 78}}, []int{}},
		{-time.Hour, []CPUTime{{9, 80}}, []int{}},
		{2 * time.Second, []CPUTime{{10, 84}}, []int{25}},
	} {
		now := noon
		if i > 0 {
			now = m.at.Add(c.after)
			if !m.wants(now) {
				t.Errorf("reading %d is not wanted", i)
			}
			if c.after > 0 && m.wants(m.at.Add(lookEvery)) {
				t.Errorf("reading %d is wanted at every look", i)
			}
		}
		if got := m.read(now, c.times).Busy; !slices.Equal(got, c.want) {
			t.Errorf("reading %d: %v, want %v", i, got, c.want)
		}
	}
}

// Nobody reads the load where nobody is shown it.
func TestLoadIsReadForReaders(t *testing.T) {
	n := newNode(t, small(), "")
	load := func() string {
		var parts map[string]json.RawMessage
		if err := json.Unmarshal(answer(n.page.Handler(), ask("/api/state")).Body.Bytes(), &parts); err != nil {
			t.Fatal(err)
		}
		return string(parts[partLoad])
	}
	n.advance(10*time.Second, time.Second)
	if !n.page.made.load.at.IsZero() {
		t.Error("it is read without readers")
	}
	for _, want := range []string{`{"busy":[]}`, `{"busy":[0,37,74,10,47,84,20,57]}`} {
		if got := load(); got != want {
			t.Errorf("the load is %s, want %s", got, want)
		}
		n.advance(2*time.Second, time.Second)
	}
	n.page.o.Load = nil
	n.page.board.init()
	n.advance(2*time.Second, time.Second)
	if got := load(); got != "" {
		t.Errorf("where nothing is known the load is %s", got)
	}
}

// The switch has each CPU show its load, which changes as it does.
func TestBrowserLoad(t *testing.T) {
	n := newNode(t, small(), "7")
	n.live()
	base := n.serve(t)
	b := pagetest.New(t, 1400, 900)
	b.Open(base + "/")
	const tags = "[...document.querySelectorAll('#map .cpu .tag')].map((e) => e.textContent).join(' ')"
	owners := b.Text(tags)
	b.Click("#by-load")
	b.Wants(tags, "? ? ? ? ? ? ? ?")
	b.Wants("document.getElementById('legend').innerText", "known in some seconds")
	n.advance(4*time.Second, time.Second)
	b.Until(tags + " === '0 37 74 10 47 84 20 57'")
	b.Wants("document.getElementById('legend').innerText", "41 % on average")
	b.Wants("document.querySelector('#map [data-cpu=\"2\"]').getAttribute('aria-label')", "CPU 2: shared pool",
		", 74 % busy")
	b.Wants("getComputedStyle(document.querySelector('#map [data-cpu=\"2\"]')).backgroundImage", "74%")
	b.Wants("String(document.querySelectorAll('#map .cpu.owned').length)", "2") // whose is still told
	b.Hover(`#map [data-cpu="5"]`)
	b.Until("document.getElementById('tip').innerText.startsWith('CPU 5: shared pool, 84 % busy')")
	b.Screenshot("load-light")
	for _, dark := range []bool{false, true} {
		b.Dark(dark)
		// The number is read on what is full and on what is not, and what is full is told from what is not.
		ratios := pagetest.Evaluate[[]float64](b, fmt.Sprintf(`(() => { %s
			const e = document.querySelector('#map .cpu.load');
			const [full, empty] = getComputedStyle(e).backgroundImage.match(/rgb\([^)]*\)/g);
			const ratio = (a, c) => ((x) => (x[0] + 0.05) / (x[1] + 0.05))([light(a), light(c)].sort((p, q) => q - p));
			const ink = getComputedStyle(e).color;
			return [ratio(ink, full), ratio(ink, empty), ratio(full, empty)];
		})()`, contrast))
		if ratios[0] < 4.5 || ratios[1] < 4.5 || ratios[2] < 3 {
			t.Errorf("dark %t: contrasts are %.2f, want 4.5, 4.5 and 3", dark, ratios)
		}
	}
	b.Screenshot("load-dark")
	b.Click("#by-owner")
	b.Wants(tags, owners)
	b.Clean(base)
}
