package top

import (
	"context"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/quietcore/quietcore/internal/control"
)

// model is the screen as Bubble Tea knows it: Update takes keys and answers, View draws. It
// neither waits nor asks; what it returns does.
type model struct {
	ask    asker
	limit  int // tables until it ends; 0: none
	shown  int
	before *control.Top
	frame  *Frame
	look   Look
	chosen string // the container under the cursor, by name
	moved  bool   // the cursor follows its container; else it stays on the first line
	typing bool   // the filter is being typed
	detail *detail
}

// asker is how the daemon is asked.
type asker struct {
	top    func() (*control.Top, error)
	status func() (*control.Status, error)
	delay  time.Duration
}

// Messages of the program to itself.
type (
	due      struct{} // it is time for another answer
	answered struct {
		top *control.Top
		err error
	}
	explained struct {
		status *control.Status
		err    error
	}
)

func newModel(o *Options, ask asker, first *control.Top, color bool) *model {
	m := &model{ask: ask, limit: o.Tables, before: first, frame: Compare(first, first),
		look: Look{Width: 80, Height: 24, Sort: o.Sort, Color: color, Live: true}}
	m.arrange()
	return m
}

// Init asks soon, since usage is what came between two answers.
func (m *model) Init() tea.Cmd { return after(min(m.ask.delay, firstDelay)) }

func after(d time.Duration) tea.Cmd { return tea.Tick(d, func(time.Time) tea.Msg { return due{} }) }

func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.look.Width, m.look.Height = msg.Width, msg.Height
	case due:
		return m, func() tea.Msg { t, err := m.ask.top(); return answered{t, err} }
	case answered:
		return m, m.take(msg)
	case explained:
		if m.detail != nil {
			m.detail.take(msg.status, msg.err)
		}
	case tea.PasteMsg:
		if m.typing {
			m.look.Filter += oneLine(msg.Content)
		}
	case tea.KeyPressMsg:
		return m, m.press(msg)
	}
	m.arrange()
	return m, nil
}

// take shows an answer. A daemon that is restarted is waited for.
func (m *model) take(a answered) tea.Cmd {
	if m.look.Note = ""; a.err != nil {
		m.look.Note = a.err.Error()
		return after(m.ask.delay)
	}
	m.frame, m.before = Compare(m.before, a.top), a.top
	m.shown++
	m.arrange()
	if m.limit > 0 && m.shown >= m.limit {
		return tea.Quit
	}
	return after(m.ask.delay)
}

// press does what a key says.
func (m *model) press(key tea.KeyPressMsg) tea.Cmd {
	name := key.String()
	switch {
	case name == "ctrl+c" || name == "ctrl+d":
		return tea.Quit
	case m.typing:
		m.edit(name, key.Text)
	case name == "q" || name == "Q":
		return tea.Quit
	case m.detail != nil:
		if name == "esc" || name == "enter" || name == "backspace" || name == "left" {
			m.detail = nil
		}
	case name == "enter" && m.chosen != "":
		m.detail = &detail{name: m.chosen}
		return func() tea.Msg { s, err := m.ask.status(); return explained{s, err} }
	default:
		m.command(name)
	}
	m.arrange()
	return nil
}

// edit changes the filter while it is typed.
func (m *model) edit(name, text string) {
	l := &m.look
	switch name {
	case "enter":
		m.typing = false
	case "esc":
		l.Filter, m.typing = "", false
	case "ctrl+u":
		l.Filter = ""
	case "backspace":
		all := []rune(l.Filter)
		l.Filter = string(all[:max(len(all)-1, 0)])
	default:
		l.Filter += oneLine(text)
	}
}

// command is a key of the table.
func (m *model) command(name string) {
	rows, page := m.frame.chosen(m.look.Filter), m.frame.room(m.look)
	at := slices.IndexFunc(rows, func(r *Row) bool { return r.name() == m.chosen })
	switch name {
	case "s", "right":
		m.look.Sort = m.look.Sort.Next()
		return
	case "S", "left":
		m.look.Sort = m.look.Sort.previous()
		return
	case "r":
		m.look.Reverse = !m.look.Reverse
		return
	case "/":
		m.typing = true
		return
	case "esc":
		m.look.Filter = ""
		return
	case "up", "k":
		at--
	case "down", "j":
		at++
	case "pgup", "ctrl+b":
		at -= page
	case "pgdown", "ctrl+f", "space":
		at += page
	case "home", "g":
		at = 0
	case "end", "G":
		at = len(rows) - 1
	default:
		return
	}
	if len(rows) > 0 {
		at = min(max(at, 0), len(rows)-1)
		m.chosen, m.moved = rows[at].name(), at > 0
	}
}

// arrange sorts, and keeps the cursor on its container and on the screen.
func (m *model) arrange() {
	m.frame.Sort(m.look.Sort)
	if m.look.Reverse {
		slices.Reverse(m.frame.Containers)
	}
	m.look.Typing = m.typing
	rows, page := m.frame.chosen(m.look.Filter), m.frame.room(m.look)
	at := slices.IndexFunc(rows, func(r *Row) bool { return r.name() == m.chosen })
	if at < 0 || !m.moved {
		if at = 0; m.moved {
			at = min(m.look.Offset, max(len(rows)-1, 0))
		}
		if m.chosen = ""; len(rows) > 0 {
			m.chosen = rows[at].name()
		}
	}
	m.look.Offset = min(m.look.Offset, at, max(len(rows)-page, 0))
	m.look.Offset = max(m.look.Offset, at-page+1, 0)
	m.look.Chosen = m.chosen
}

func (m *model) View() tea.View {
	lines := m.frame.Lines(m.look)
	if m.detail != nil {
		lines = m.detail.lines(m.frame, m.look)
	}
	v := tea.NewView(strings.Join(lines, "\n"))
	v.AltScreen, v.WindowTitle = true, "quietcore top"
	return v
}

// oneLine is typed text without what is no text.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, text)
}

// asker asks the daemon of the options.
func (o *Options) asker(ctx context.Context) asker {
	return asker{
		top: func() (*control.Top, error) { return o.ask(ctx) },
		status: func() (*control.Status, error) {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			return o.Client.Status(ctx)
		},
		delay: o.Delay,
	}
}
