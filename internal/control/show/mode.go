package show

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/printable"
)

// switchFor is how long a change of the mode is waited for. The undoing itself takes milliseconds.
const switchFor = 5 * time.Second

// Mode prints the mode in force.
func Mode(ctx context.Context, o Options) error {
	m, err := o.Client.Mode(ctx)
	if err != nil {
		return err
	}
	return writeMode(o, m)
}

// SetMode sets the mode and prints the one that is in force then. It is an error if that is another one, or one that
// a restart would undo.
func SetMode(ctx context.Context, o Options, word string) error {
	ctx, cancel := context.WithTimeout(ctx, switchFor)
	defer cancel()
	m, err := o.Client.SetMode(ctx, word)
	if err != nil {
		return err
	}
	if err := writeMode(o, m); err != nil {
		return err
	}
	switch {
	case word != "config" && m.Mode != word:
		return fmt.Errorf("the mode stays %s: the %s of the Node, quietcore.dev/mode, says so; remove it", m.Mode,
			m.Source)
	case m.Undoing:
		return fmt.Errorf("after %s something is still being undone; the daemon goes on, and its log says what fails",
			switchFor)
	case m.Resuming:
		return fmt.Errorf("after %s the runtime has not yet listed what runs; it is enforced once it has", switchFor)
	case m.Problem != "":
		return errors.New("the mode is in force; " + m.Problem)
	}
	return nil
}

func writeMode(o Options, m *control.Mode) error {
	if o.Format == "json" {
		return cli.WriteJSON(o.To, m)
	}
	_, err := io.WriteString(o.To, modeText(m)+"\n")
	return err
}

// modeText is a mode in a line.
func modeText(m *control.Mode) string {
	by := map[string]string{
		"file": "by the configuration", "policy": "by the QuietcorePolicy in force", "command": "by `quietcore mode`",
		"annotation": "by the Node's annotation quietcore.dev/mode",
	}[m.Source]
	text := "mode " + m.Mode + ", " + by
	if m.Since != nil {
		text += " since " + m.Since.UTC().Format(time.RFC3339)
	}
	switch {
	case m.Undoing:
		text += ": what was enforced is being undone"
	case m.Resuming:
		text += ": decisions are carried out once the runtime has listed what runs"
	case m.Mode == "observe":
		text += ": nothing is enforced"
	}
	if m.Problem != "" {
		text += "; " + printable.Text(m.Problem)
	}
	return text
}
