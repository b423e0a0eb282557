package cli

import (
	"errors"
	"fmt"
	"testing"

	"github.com/spf13/cobra"
)

func TestExitCode(t *testing.T) {
	for want, err := range map[int]error{0: nil, Failed: errors.New("no daemon"),
		Wrong: fmt.Errorf("x: %w", Usage("y")), Partly: PartialError{errors.New("one of two nodes")}} {
		if got := ExitCode(err); got != want {
			t.Errorf("%v: exit code %d, want %d", err, got, want)
		}
	}
}

func TestWhatTheCallerGotWrong(t *testing.T) {
	root := &cobra.Command{Use: "tool"}
	root.AddCommand(&cobra.Command{Use: "status", Run: func(*cobra.Command, []string) {}})
	for _, c := range []struct {
		err  error
		want string
	}{
		{NoSuchCommand(root, nil), ""},
		{NoSuchCommand(root, []string{"stats"}), "unknown command \"stats\"; did you mean `tool status`?"},
		{NoSuchCommand(root, []string{"dance"}), "unknown command \"dance\"; `tool --help` lists them"},
		{NoArgs(root, nil), ""},
		{NoArgs(root, []string{"x"}), `tool takes no argument, got "x"`},
		{OneArg("a file")(root, []string{"x"}), ""},
		{OneArg("a file")(root, nil), "tool takes exactly one argument, a file; got 0"},
		{FlagError(root, errors.New("unknown flag: --x")), "unknown flag: --x; see `tool --help`"},
	} {
		text := ""
		if c.err != nil {
			text = c.err.Error()
		}
		if text != c.want || c.want != "" && ExitCode(c.err) != Wrong {
			t.Errorf("%q, exit code %d; want %q", text, ExitCode(c.err), c.want)
		}
	}
}
