package page

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/page/pagetest"
	"github.com/quietcore/quietcore/policy"
)

// A large machine marks only CPUs that differ from the rest of their pool; the legend says what the rest is.
func TestBrowserMarksOfALargeMachine(t *testing.T) {
	n := newNode(t, large(), "0-1,256-257")
	for i := range 6 {
		n.pod("search", fmt.Sprint("leaf-", i), "LSR", 8000)
	}
	n.pod("shop", "db", "LSE", 2000)
	n.pod("web", "frontend", "LS", 100)
	n.pod("batch", "job", "BE", 0)
	n.advance(time.Minute, 10*time.Second)
	base := n.serve(t)
	b := pagetest.New(t, 1600, 1000)
	b.Open(base + "/")
	const legend = "document.getElementById('legend').innerText.replace(/\\n/g, ' ')"
	marked := func(sign string) cpuset.Set {
		t.Helper()
		set, err := cpuset.Parse(b.Text(fmt.Sprintf("[...document.querySelectorAll('#map .cpu.marked')].filter((c) => "+
			"c.querySelector('.mark').textContent === %q).map((c) => c.dataset.cpu).join()", sign)))
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	wants := func(sign string, want cpuset.Set) {
		t.Helper()
		b.Until(fmt.Sprintf("(list => list.length === %d && list.every((e) => e.textContent === %q))"+
			"([...document.querySelectorAll('#map .cpu .mark')])", want.Count(), sign))
		if got := marked(sign); got != want {
			t.Errorf("%q are the CPUs %s, want %s", sign, got, want)
		}
	}
	s := n.plugin.Snapshot()
	wants("", cpuset.Set{})
	b.Wants(legend, "LSR, exclusive (48), best effort may run there too", "LSE, exclusive (2) ")
	b.Wants("[...document.querySelectorAll('#map .cpu.shared')].map((c) => c.firstChild.textContent).join('')+'.'", ".")
	if text := b.Text(legend); strings.Contains(text, "·") || strings.Contains(text, "in a corner") {
		t.Errorf("the legend explains signs that are not there: %s", text)
	}
	// Best effort is kept off two CPUs: one of an owner's, one that is shared.
	off := cpuset.Of(s.Shared.First(), s.Exclusive.And(s.BEWhole).First())
	n.submit(policy.BESuppressed{CPUs: s.BEWhole.Minus(off)})
	n.advance(2*time.Second, time.Second)
	wants("×", off)
	b.Wants(legend, "in a corner: best effort is kept off for now, unlike on the rest")
	b.Screenshot("large-marks-light")
	// It is kept off all but two.
	n.submit(policy.BESuppressed{CPUs: off})
	n.advance(2*time.Second, time.Second)
	wants("~", off)
	b.Wants(legend, "shared pool (458), best effort is kept off for now", "may run there too, unlike on the rest")

	// By load the ones far from the middle have numbers, which is 50 % here.
	b.Click("#by-load")
	n.advance(4*time.Second, time.Second)
	b.Until("document.querySelector('#map [data-cpu=\"0\"] .tag').textContent === '0'")
	b.Wants("['0', '1', '2', '3', '4', '5'].map((c) => document.querySelector(`#map [data-cpu=\"${c}\"] .tag`)"+
		".textContent || 'none').join(' ')", "0 none none 10 none 84") // of 0, 37, 74, 10, 47, 84 %
	b.Wants(legend, "no number: less than 25 from 50 %, the load in the middle")
	b.Screenshot("large-load-light")
	b.Dark(true)
	b.Screenshot("large-load-dark")
	b.Click("#by-owner")
	b.Screenshot("large-marks-dark")
	b.Clean(base)
}
