package machine

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/term"
)

// ShellEscape ends a shell session from the keyboard: Ctrl-], as in telnet.
// Everything else, Ctrl-C and Ctrl-D too, is for the guest.
const ShellEscape = 0x1d

// Shell connects in and out to the shell on the guest's serial console. It returns
// at ShellEscape, when in or the context ends, or when the guest does.
func (m *Machine) Shell(ctx context.Context, in io.Reader, out io.Writer) error {
	conn, err := net.Dial("unix", m.ConsoleSocket())
	if err != nil {
		return fmt.Errorf("console: %w", err)
	}
	defer conn.Close()
	// The guest echoes what is typed, so the terminal here must not.
	if f, ok := in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		before, err := term.MakeRaw(int(f.Fd()))
		if err != nil {
			return fmt.Errorf("console: terminal: %w", err)
		}
		defer term.Restore(int(f.Fd()), before)
	}
	if _, err := io.WriteString(conn, "\n"); err != nil { // init's askfirst wants Enter
		return fmt.Errorf("console: %w", err)
	}
	done := make(chan struct{}, 2)
	go func() {
		copyUntilEscape(conn, in)
		done <- struct{}{}
	}()
	go func() {
		_, _ = io.Copy(out, conn)
		done <- struct{}{}
	}()
	select {
	case <-done:
	case <-ctx.Done():
	case <-m.exited:
	}
	return nil
}

func copyUntilEscape(to io.Writer, from io.Reader) {
	buf := make([]byte, 1024)
	for {
		n, err := from.Read(buf)
		typed, _, escaped := bytes.Cut(buf[:n], []byte{ShellEscape})
		if _, werr := to.Write(typed); err != nil || werr != nil || escaped {
			return
		}
	}
}
