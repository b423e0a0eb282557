package cli

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// tool is a command line with a command of one argument and two formats.
func tool() *cobra.Command {
	root := &cobra.Command{Use: "tool", SilenceErrors: true, SilenceUsage: true}
	show := &cobra.Command{Use: "show [FILE]", Args: AtMostOneArg("the file")}
	format := Output(show, "text", "json")
	show.RunE = func(cmd *cobra.Command, _ []string) error {
		_, err := io.WriteString(cmd.OutOrStdout(), *format)
		return err
	}
	root.SetHelpCommand(HelpCommand(root))
	return Group(root, show)
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestExecute(t *testing.T) {
	for _, c := range []struct {
		line, out, err string
		code           int
	}{
		{line: "show", out: "text"},
		{line: "show x -o json", out: "json"},
		{line: "show -o yaml", err: `-o is "yaml"; it must be one of [text json]`, code: Wrong},
		{line: "show x y", err: "tool show takes at most one argument, the file; got 2", code: Wrong},
		{line: "shw", err: "unknown command \"shw\"; did you mean `tool show`?", code: Wrong},
		{line: "help shw", err: "unknown command \"shw\"; did you mean `tool show`?", code: Wrong},
		{line: "__complete show -o ", out: "text\njson\n:4\n"},
	} {
		var out strings.Builder
		args := strings.Split(c.line, " ")
		err := Execute(t.Context(), tool(), args, Streams{In: strings.NewReader(""), Out: &out, Errs: io.Discard})
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != c.err || out.String() != c.out || ExitCode(err) != c.code {
			t.Errorf("%s: exit code %d, %q, output %q; want %d, %q, %q", c.line, ExitCode(err), text, out.String(),
				c.code, c.err, c.out)
		}
	}
}

func TestHelpThatCannotBeWrittenIsAnError(t *testing.T) {
	full := errors.New("no space left")
	for _, line := range []string{"help", "help show", "show --help", ""} {
		err := Execute(context.Background(), tool(), strings.Fields(line),
			Streams{In: strings.NewReader(""), Out: failing{full}, Errs: io.Discard})
		if !errors.Is(err, full) || ExitCode(err) != Failed {
			t.Errorf("%q: %v", line, err)
		}
	}
}
