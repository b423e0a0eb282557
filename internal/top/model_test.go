package top

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/policy"
)

// crowd is a node of n containers, of which every tenth is production.
func crowd(n int) *control.Top {
	t := &control.Top{At: time.Date(2026, 3, 4, 12, 30, 5, 0, time.UTC), Connected: true, CPUs: 16,
		CPI: control.CPI{Mode: "off"}}
	for i := range n {
		class, namespace := policy.BE, "jobs"
		if i%10 == 0 {
			class, namespace = policy.LS, "shop"
		}
		c := container(fmt.Sprint(i), fmt.Sprintf("pod-%03d", i), class, policy.PoolShared, fmt.Sprint(i%16))
		c.Namespace = namespace
		c.Sample = control.Sample{CPI: of(float64(n-i) / 100)}
		t.Containers = append(t.Containers, c)
	}
	return t
}

// screen is a model that is driven by hand.
type screen struct {
	*model
	t *testing.T
}

func newScreen(t *testing.T, first *control.Top, width, height int) *screen {
	t.Helper()
	s := &screen{newModel(&Options{Sort: "name"}, asker{delay: time.Second}, first, false), t}
	s.send(tea.WindowSizeMsg{Width: width, Height: height})
	return s
}

func (s *screen) send(msg tea.Msg) tea.Cmd {
	_, cmd := s.Update(msg)
	return cmd
}

// press presses keys: single characters, or names in angle brackets.
func (s *screen) press(keys string) (last tea.Cmd) {
	codes := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "up": tea.KeyUp, "down": tea.KeyDown,
		"pgdn": tea.KeyPgDown, "pgup": tea.KeyPgUp, "home": tea.KeyHome, "end": tea.KeyEnd, "bs": tea.KeyBackspace}
	for keys != "" {
		if name, rest, ok := strings.Cut(strings.TrimPrefix(keys, "<"), ">"); ok && keys[0] == '<' {
			last, keys = s.send(tea.KeyPressMsg{Code: codes[name]}), rest
			continue
		}
		r, n := utf8.DecodeRuneInString(keys)
		last, keys = s.send(tea.KeyPressMsg{Code: r, Text: keys[:n]}), keys[n:]
	}
	return last
}

func (s *screen) lines() []string { return strings.Split(s.View().Content, "\n") }

// cursor is the line under the cursor.
func (s *screen) cursor() string {
	for _, l := range s.lines() {
		if strings.HasPrefix(l, ">") {
			return l
		}
	}
	return ""
}

func (s *screen) shows(text string) {
	s.t.Helper()
	if !strings.Contains(s.View().Content, text) {
		s.t.Errorf("no %q in\n%s", text, s.View().Content)
	}
}

// 500 containers are scrolled through, and the cursor is always on the screen.
func TestScrollingThroughACrowd(t *testing.T) {
	s := newScreen(t, crowd(500), 100, 24)
	if n := len(s.lines()); n != 24 {
		t.Fatalf("%d lines on 24", n)
	}
	for _, c := range []struct{ keys, cursor, foot string }{
		{"", "jobs/pod-001/main", "1-18 of 500"},
		{"<down>j", "jobs/pod-003/main", "1-18 of 500"},
		{"<up>k", "jobs/pod-001/main", "1-18 of 500"},
		{"<up>", "jobs/pod-001/main", "1-18 of 500"},
		{"<pgdn>", "jobs/pod-021/main", "2-19 of 500"},
		{"<end>", "shop/pod-490/main", "483-500 of 500"},
		{"<down>", "shop/pod-490/main", "483-500 of 500"},
		{"<pgup>", "shop/pod-310/main", "482-499 of 500"},
		{"g", "jobs/pod-001/main", "1-18 of 500"},
		{"G", "shop/pod-490/main", "483-500 of 500"},
		{"<home>", "jobs/pod-001/main", "1-18 of 500"},
	} {
		s.press(c.keys)
		if !strings.Contains(s.cursor(), c.cursor) || !strings.HasPrefix(s.lines()[23], c.foot) {
			t.Errorf("after %q: %q, %q; want %s, %s", c.keys, s.cursor(), s.lines()[23], c.cursor, c.foot)
		}
	}
	// Another answer, in another order, leaves the cursor on its container.
	s.press("<pgdn>")
	now := crowd(500)
	slices.Reverse(now.Containers)
	s.send(answered{top: now})
	if !strings.Contains(s.cursor(), "pod-021") {
		t.Errorf("the cursor went to %q", s.cursor())
	}
	// Where its container has ended, it stays where it was.
	now.Containers = now.Containers[:3]
	s.send(answered{top: now})
	if !strings.Contains(s.cursor(), "jobs/pod-49") {
		t.Errorf("the cursor went to %q", s.cursor())
	}
	s.press("<home>") // the first line stays the first, whoever is on it
	s.send(answered{top: crowd(500)})
	if !strings.Contains(s.cursor(), "jobs/pod-001") {
		t.Errorf("the cursor went to %q", s.cursor())
	}
	now.Containers = nil
	s.send(answered{top: now})
	s.press("<down><enter>")
	s.shows("0 containers")
}

func TestSortingByAnyColumn(t *testing.T) {
	s := newScreen(t, crowd(30), 100, 12)
	s.press("s<home>") // after the name comes usage, which nobody has
	for _, c := range []struct{ keys, first string }{
		{"s<home>", "shop/pod-000"}, // CPI, the largest first
		{"r<home>", "jobs/pod-029"},
		{"rS<home>", "jobs/pod-001"}, // usage
		{"S<home>", "jobs/pod-001"},  // name
		{"S<home>", "shop/pod-000"},  // class
	} {
		s.press(c.keys)
		if !strings.Contains(s.cursor(), c.first) {
			t.Errorf("after %q the first is %q, want %s", c.keys, s.cursor(), c.first)
		}
	}
	s.shows("s: sort (class)")
}

func TestFiltering(t *testing.T) {
	s := newScreen(t, crowd(500), 100, 24)
	s.press("/SHOP q")
	s.shows("filter: SHOP q_  (0 of 500; enter: keep, esc: clear)") // q is a letter of it
	s.press("<bs><bs>")
	s.shows("(50 of 500;")
	s.send(tea.PasteMsg{Content: " 49\n\x1b"})
	s.press("<enter>")
	if !strings.Contains(s.cursor(), "shop/pod-490/main") {
		t.Errorf("the cursor is on %q", s.cursor())
	}
	s.shows("filter: SHOP 49 (esc: clear)")
	s.press("<esc>")
	s.shows("of 500")
	s.press("/be<enter><home>")
	s.shows("1-18 of 450")
	s.press("/<esc>")
	s.shows("1-18 of 500")
}

// A container's detail names who is nearest, by what the two share.
func TestDetailWithNeighbours(t *testing.T) {
	top := &control.Top{Connected: true, CPUs: 16, CPI: control.CPI{Mode: "off"}}
	for _, c := range []struct{ pod, cpus string }{{"db", "0-1"}, {"same", "1-3"}, {"sibling", "2"}, {"l3", "6"},
		{"far", "8"}, {"unknown", "?"}} {
		one := container(c.pod, c.pod, policy.LS, policy.PoolShared, c.cpus)
		top.Containers = append(top.Containers, one)
	}
	top.Containers[2].CPUs = "3"
	top.Containers[0].CPUs = "0,2"
	top.Containers[0].Throttled = &control.Throttled{Why: "it disturbs\x1b[2J web"}
	top.Containers[0].Lacks = "L3"
	s := newScreen(t, top, 100, 24)
	ask := s.press("<enter>")
	if ask == nil {
		t.Fatal("the daemon is not asked")
	}
	s.shows("default/db/main\nclass LS, pool shared, CPUs 0,2")
	s.shows("1 neighbour, the nearest first") // before the machine is known
	s.send(explained{status: &control.Status{Topology: []byte(cpusOf(t)), Containers: []script.State{
		{Namespace: "default", Pod: "db", Container: "main", Why: "it owns a core"}}}})
	want := []string{
		"default/db/main",
		"class LS, pool shared, CPUs 0,2",
		"nothing is known of its use yet",
		"disturbed in the last ten minutes: it lacked L3",
		"throttled: it disturbs?[2J web",
		"why there: it owns a core",
		"",
		"4 neighbours, the nearest first",
		"SHARES           CLASS   USAGE    CPI CONTAINER",
		"1 CPU            LS          -      - default/same/main",
		"a core           LS          -      - default/sibling/main",
		"an L3            LS          -      - default/l3/main",
		"a NUMA node      LS          -      - default/far/main",
		"esc: back  q: quit",
	}
	if got := s.lines(); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	top.Containers[0].Sample.CPI = of(1.5)
	s.send(answered{top: top})
	s.shows("CPUs 0,2\nCPI 1.50\ndisturbed")
	top.Containers = top.Containers[1:]
	s.send(answered{top: top})
	s.shows("it has ended")
	s.send(explained{err: errors.New("no daemon answers")})
	s.shows("no daemon answers")
	s.press("<esc>")
	s.shows("CONTAINER")
}

func cpusOf(t *testing.T) string {
	t.Helper()
	var cpus []string
	for i := range 16 {
		cpus = append(cpus, fmt.Sprintf(`{"id":%d,"core":%d,"l3":%d,"node":0,"socket":0,"online":true}`, i, i/2, i/8))
	}
	return `{"cpus":[` + strings.Join(cpus, ",") + `]}`
}

func TestADaemonThatIsGoneIsWaitedFor(t *testing.T) {
	s := newScreen(t, crowd(3), 100, 24)
	if s.send(answered{err: errors.New("no daemon answers on s")}) == nil {
		t.Error("it is not asked again")
	}
	s.shows("no daemon answers on s")
	s.shows("pod-002")
	s.send(answered{top: crowd(3)})
	s.shows("q: quit")
}

// Whatever is pressed, and whatever the daemon says, what is drawn fits the screen and holds no
// control character.
func TestNoKeyBreaksTheScreen(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		width, height := rapid.IntRange(1, 150).Draw(r, "width"), rapid.IntRange(1, 40).Draw(r, "height")
		s := newScreen(t, crowd(rapid.IntRange(0, 60).Draw(r, "containers")), width, height)
		keys := []string{"s", "S", "r", "/", "<enter>", "<esc>", "<up>", "<down>", "<pgdn>", "<pgup>", "<home>",
			"<end>", "<bs>",
			"x", "1", "é", "G"}
		for range rapid.IntRange(0, 30).Draw(r, "steps") {
			switch rapid.IntRange(0, 5).Draw(r, "step") {
			case 0:
				top := crowd(rapid.IntRange(0, 60).Draw(r, "containers"))
				if len(top.Containers) > 0 {
					top.Containers[0].Pod = rapid.String().Draw(r, "pod")
				}
				s.send(answered{top: top})
			case 1:
				s.send(explained{status: &control.Status{Topology: []byte(cpusOf(t))}})
			case 2:
				s.send(tea.PasteMsg{Content: rapid.String().Draw(r, "paste")})
			default:
				s.press(rapid.SampledFrom(keys).Draw(r, "key"))
			}
			lines := s.lines()
			if len(lines) > height {
				r.Fatalf("%d lines on %d", len(lines), height)
			}
			for _, one := range lines {
				if n := utf8.RuneCountInString(one); n > width && width >= 9 {
					r.Fatalf("%d columns on %d: %q", n, width, one)
				}
				if strings.ContainsFunc(one, func(c rune) bool { return c < ' ' || c == 0x7f || c == '\u202e' }) {
					r.Fatalf("a control character in %q", one)
				}
			}
		}
	})
}
