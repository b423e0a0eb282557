package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/top"
)

// answering is a daemon that has nothing but answers: a container that uses half
// a CPU, and one of a hostile name.
type answering struct {
	mu     sync.Mutex
	asked  int
	broken bool
}

func (a *answering) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.broken {
		http.Error(w, "out of order", http.StatusInternalServerError)
		return
	}
	a.asked++
	cpi, used := 1.5, float64(a.asked)
	t := control.Top{
		At: time.Date(2026, 3, 4, 12, 30, a.asked, 0, time.UTC), Connected: true, CPUs: 4,
		CPI: control.CPI{Mode: "observe", Why: "this machine has no counters"},
		Containers: []control.TopContainer{
			{ID: "b", Namespace: "default", Pod: "\x1b[31mevil", Container: "main", Class: "BE", Pool: "be",
				CPUs: "0-3"},
			{ID: "a", Namespace: "default", Pod: "web", Container: "main", Class: "LS", Pool: "shared", CPUs: "0-3",
				UsageSeconds: &used, UsageAt: 2 * used, Sample: control.Sample{CPI: &cpi}},
		},
	}
	_ = json.NewEncoder(w).Encode(t) // the client went away
}

func (a *answering) breaks(yes bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.broken = yes
}

func (a *answering) listen(t *testing.T) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "q.sock")
	l, err := control.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- control.Serve(ctx, l, a) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return socket
}

func TestTopPrintsTables(t *testing.T) {
	socket := (&answering{}).listen(t)
	code, out, errs := call("top", "--socket", socket, "-b", "-n", "2", "-d", "100ms")
	if code != 0 || errs != "" {
		t.Fatalf("exit %d, %s", code, errs)
	}
	table := func(second int) string {
		return fmt.Sprintf(`quietcore top - 12:30:%02d, 4 CPUs, 2 containers, 0.50 CPUs in use
pools: 
CPI: not counted: this machine has no counters

CLASS  POOL      CPUS  USAGE    CPI   MPKI  %%WAIT CONTAINER
LS     shared    0-3    0.50   1.50      -      - default/web/main
BE     be        0-3       -      -      -      - default/?[31mevil/main
`, second)
	}
	if want := table(2) + "\n" + table(3); out != want {
		t.Errorf("printed\n%s\nwant\n%s", out, want)
	}
	// Without a terminal it is one table.
	if code, out, _ = call("top", "--socket", socket, "-d", "100ms", "-s", "name"); code != 0 ||
		strings.Count(out, "CONTAINER") != 1 {
		t.Errorf("exit %d\n%s", code, out)
	}
	for flag, want := range map[string]int{"--namespace=default": 2, "--namespace=shop": 0, "--class=LS": 1,
		"--pod=w*": 1} {
		if code, out, _ = call("top", "--socket", socket, "-d", "100ms", flag); code != 0 ||
			strings.Count(out, "default/") != want {
			t.Errorf("%s: exit %d\n%s", flag, code, out)
		}
	}
	code, out, _ = call("top", "--socket", socket, "-d", "100ms", "-o", "json", "-n", "2")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var f top.Frame
	if code != 0 || len(lines) != 2 || json.Unmarshal([]byte(lines[1]), &f) != nil {
		t.Fatalf("exit %d, %s", code, out)
	}
	if len(f.Containers) != 2 || f.Containers[0].Pod != "web" || *f.Containers[0].Usage != 0.5 ||
		*f.Containers[0].CPI != 1.5 || f.Containers[1].MPKI != nil || f.CPI.Why == "" {
		t.Errorf("%s", lines[1])
	}
}

func TestTopRefusesInWords(t *testing.T) {
	socket := (&answering{broken: true}).listen(t)
	for want, args := range map[string][]string{
		"-s is \"memory\"; it must be one of [usage cpi mpki wait class name]": {"-s", "memory"},
		"-d is 50ms; it must be 100ms to 1h0m0s":                               {"-d", "50ms"},
		"-n is -1":                                                             {"-n", "-1"},
		"-o is \"yaml\"":                                                       {"-o", "yaml"},
		"top takes no argument":                                                {"web"},
	} {
		if code, _, errs := call(append([]string{"top", "--socket", socket}, args...)...); code != cli.Wrong ||
			!strings.Contains(errs, want) {
			t.Errorf("%v: exit %d, %s", args, code, errs)
		}
	}
	if code, _, errs := call("top", "--socket", socket); code != cli.Failed || !strings.Contains(errs, "out of order") {
		t.Errorf("a daemon that fails: exit %d, %s", code, errs)
	}
	if code, _, errs := call("top", "--socket", socket+"x"); code != cli.Failed ||
		!strings.Contains(errs, "start the daemon") {
		t.Errorf("no daemon: exit %d, %s", code, errs)
	}
}

// What top begins and ends with on a terminal.
const (
	alternateScreen = "\x1b[?1049h"
	normalScreen    = "\x1b[?1049l"
)

// terminal is a pseudoterminal: what a command that runs on slave draws can be
// read, and keys pressed.
type terminal struct {
	master, slave *os.File
	mu            sync.Mutex
	drawn         bytes.Buffer
}

func newTerminal(t *testing.T, columns, rows uint16) *terminal {
	t.Helper()
	// Not blocking, and its descriptor never taken out: closing it then ends a read.
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		unavailable(t, err)
	}
	n := 0
	ioctl(t, master, func(fd int) (err error) {
		if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err == nil {
			n, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		}
		return err
	})
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		unavailable(t, err)
	}
	term := &terminal{master: master, slave: slave}
	term.resize(t, columns, rows)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(term, master) // until the slave is closed
	}()
	t.Cleanup(func() {
		master.Close() // which ends the reader of keys
		<-done
		slave.Close()
	})
	return term
}

func unavailable(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("QUIETCORE_CI") == "1" {
		t.Fatalf("no pseudoterminal: %v", err)
	}
	t.Skipf("needs a pseudoterminal: %v", err)
}

func (p *terminal) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drawn.Write(text)
}

// take waits for text on the screen and forgets what was drawn until then.
func (p *terminal) take(t *testing.T, text string) {
	t.Helper()
	waitUntil(t, fmt.Sprintf("the screen shows %q", text), func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !strings.Contains(p.drawn.String(), text) {
			return false
		}
		p.drawn.Reset()
		return true
	})
}

// redraw changes the size until text is on the screen.
func (p *terminal) redraw(t *testing.T, text string) {
	t.Helper()
	rows := uint16(24)
	waitUntil(t, fmt.Sprintf("the screen shows %q", text), func() bool {
		p.mu.Lock()
		found := strings.Contains(p.drawn.String(), text)
		p.drawn.Reset()
		p.mu.Unlock()
		if !found {
			rows = 24 + (rows+1)%6
			p.resize(t, 120, rows)
			time.Sleep(50 * time.Millisecond)
		}
		return found
	})
}

func (p *terminal) press(t *testing.T, keys string) {
	t.Helper()
	if _, err := p.master.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

func (p *terminal) resize(t *testing.T, columns, rows uint16) {
	t.Helper()
	ioctl(t, p.master, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows})
	})
	// The terminal is not this process' own, so the kernel does not tell it.
	if err := unix.Kill(os.Getpid(), unix.SIGWINCH); err != nil {
		t.Fatal(err)
	}
}

func ioctl(t *testing.T, f *os.File, do func(fd int) error) {
	t.Helper()
	raw, err := f.SyscallConn()
	if err == nil {
		controlErr := raw.Control(func(fd uintptr) { err = do(int(fd)) })
		err = errors.Join(err, controlErr)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (p *terminal) state(t *testing.T) unix.Termios {
	t.Helper()
	s, err := unix.IoctlGetTermios(int(p.slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *s
}

// A terminal that can do nothing gets a table as a file does.
func TestTopOnADumbTerminal(t *testing.T) {
	t.Setenv("TERM", "dumb")
	socket := (&answering{}).listen(t)
	term := newTerminal(t, 80, 24)
	if code := term.start(t.Context(), "top", "--socket", socket, "-d", "100ms")(); code != 0 {
		t.Errorf("exit %d", code)
	}
	waitUntil(t, "a table is there", func() bool { return strings.Contains(term.shown(), "default/web/main") })
	if strings.Contains(term.shown(), "\x1b") {
		t.Errorf("escapes on a dumb terminal: %q", term.shown())
	}
}

func (p *terminal) shown() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drawn.String()
}

// start runs a command on the terminal; ended waits for its exit code.
func (p *terminal) start(ctx context.Context, args ...string) (ended func() int) {
	code := make(chan int, 1)
	go func() { code <- run(ctx, args, p.slave, p.slave, io.Discard) }()
	return func() int { return <-code }
}

func TestTopOnATerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	daemon := &answering{}
	socket := daemon.listen(t)
	term := newTerminal(t, 80, 24)
	before := term.state(t)
	ended := term.start(t.Context(), "top", "--socket", socket, "-d", "100ms")
	term.take(t, alternateScreen)
	if term.state(t) == before {
		t.Error("keys are not read one by one")
	}
	term.take(t, "default/web/main")
	// Only what changes is drawn, unless the size does.
	for _, step := range []struct {
		keys  string
		shows []string
	}{
		{"s", []string{"(cpi)"}},
		{"/", []string{"filter:"}},
		{"web\r", []string{"filter:", "default/web/main"}},
		{"\r", []string{"default/web/main", "esc:"}},
		{"\x7f", []string{"CONTAINER", "default/web/main"}},
	} {
		term.press(t, step.keys)
		for _, text := range step.shows {
			term.redraw(t, text)
		}
	}
	daemon.breaks(true)
	term.redraw(t, "answered")
	daemon.breaks(false)
	term.redraw(t, "quit")
	term.press(t, "q")
	if code := ended(); code != 0 {
		t.Errorf("exit %d", code)
	}
	term.take(t, normalScreen)
	if term.state(t) != before {
		t.Error("the terminal is left as top had it")
	}
}

func TestTopPutsTheTerminalBackHoweverItEnds(t *testing.T) {
	t.Setenv("TERM", "xterm")
	socket := (&answering{}).listen(t)
	for name, end := range map[string]struct {
		do   func(*terminal, context.CancelFunc)
		args []string
	}{
		"a signal":            {do: func(_ *terminal, cancel context.CancelFunc) { cancel() }},
		"control and C":       {do: func(p *terminal, _ context.CancelFunc) { p.press(t, "\x03") }},
		"the number of times": {do: func(*terminal, context.CancelFunc) {}, args: []string{"-n", "2"}},
	} {
		t.Run(name, func(t *testing.T) {
			term := newTerminal(t, 80, 24)
			before := term.state(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := term.start(ctx, append([]string{"top", "--socket", socket, "-d", "100ms"}, end.args...)...)
			term.take(t, "default/web/main")
			end.do(term, cancel)
			if code := ended(); code != 0 {
				t.Errorf("exit %d", code)
			}
			term.take(t, normalScreen)
			if term.state(t) != before {
				t.Error("the terminal is left as top had it")
			}
		})
	}
}
