package top

import (
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/term"

	"github.com/quietcore/quietcore/internal/cli"
)

// Keys that a terminal in raw mode hands over instead of a signal.
const (
	ctrlC = 3
	ctrlD = 4
)

// What every terminal of the last forty years understands.
const (
	alternateScreen = "\x1b[?1049h\x1b[?25l"
	normalScreen    = "\x1b[?25h\x1b[?1049l"
	home            = "\x1b[H"
	clearToEnd      = "\x1b[J"
	clearLine       = "\x1b[K"
)

// screen is a terminal that is drawn on and put back as it was.
type screen struct {
	in      *os.File // nil: no keys
	out     *os.File
	color   bool
	before  *term.State
	keys    chan byte
	resized chan os.Signal
	done    chan struct{}
}

func newScreen(in io.Reader, out *os.File) *screen {
	s := &screen{out: out, color: cli.Colored(out), keys: make(chan byte), resized: make(chan os.Signal, 1),
		done: make(chan struct{})}
	if f, ok := in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.in = f
	}
	return s
}

func (s *screen) open() error {
	if s.in != nil {
		var err error
		if s.before, err = term.MakeRaw(int(s.in.Fd())); err != nil {
			return err
		}
		go s.read()
	}
	signal.Notify(s.resized, syscall.SIGWINCH)
	_, err := s.out.WriteString(alternateScreen)
	return err
}

// read hands on keys. It ends with the process: nothing else ends a read of a
// terminal.
func (s *screen) read() {
	var buf [1]byte
	for {
		if n, err := s.in.Read(buf[:]); n == 0 || err != nil {
			return
		}
		select {
		case s.keys <- buf[0]:
		case <-s.done:
			return
		}
	}
}

func (s *screen) close() {
	close(s.done)
	signal.Stop(s.resized)
	_, _ = s.out.WriteString(normalScreen) // a terminal that is gone needs no putting back
	if s.before != nil {
		_ = term.Restore(int(s.in.Fd()), s.before)
	}
}

// draw writes over what was there, so that nothing flickers.
func (s *screen) draw(f *Frame, l Look) {
	width, height, err := term.GetSize(int(s.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		width, height = 80, 24
	}
	l.Width, l.Height, l.Color = width, height, s.color
	var b strings.Builder
	b.WriteString(home)
	for i, line := range f.Lines(l) {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(clearLine + line) // after a full line it would take the last column
	}
	b.WriteString(clearToEnd)
	_, _ = s.out.WriteString(b.String()) // a terminal that is gone ends us by a signal
}
