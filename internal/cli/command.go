package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Streams are what a command reads and writes.
type Streams struct {
	In        io.Reader
	Out, Errs io.Writer
}

// StreamsOf are those of a command.
func StreamsOf(cmd *cobra.Command) Streams {
	return Streams{In: cmd.InOrStdin(), Out: cmd.OutOrStdout(), Errs: cmd.ErrOrStderr()}
}

// Execute runs a command line and returns its error. Help that cannot be written is
// one too.
func Execute(ctx context.Context, root *cobra.Command, args []string, s Streams) error {
	root.SetArgs(args)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Errs)
	unwritten := watchHelp(root, s.Out)
	return errors.Join(root.ExecuteContext(ctx), *unwritten)
}

// watchHelp keeps the error of writing help, which cobra drops.
func watchHelp(root *cobra.Command, out io.Writer) *error {
	usual, failed := root.HelpFunc(), new(error)
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		var text bytes.Buffer
		cmd.SetOut(&text)
		usual(cmd, args)
		cmd.SetOut(out)
		_, *failed = out.Write(text.Bytes())
	})
	return failed
}

// HelpCommand is cobra's command help, except that a misspelt topic is an error.
func HelpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "explain a command",
		Args: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil {
				return UsageError{err}
			}
			return NoSuchCommand(cmd, rest)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, _, err := root.Find(args)
			if err != nil {
				return UsageError{err}
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

// Group makes a command that only holds others.
func Group(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	cmd.Args = NoSuchCommand
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(commands...)
	return cmd
}

// AtMostOneArg is cobra's check with our exit code; what names the argument.
func AtMostOneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return Usage("%s takes at most one argument, %s; got %d", cmd.CommandPath(), what, len(args))
		}
		return nil
	}
}

// AtMostOneOf allows one of these words, or no argument.
func AtMostOneOf(words ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 || len(args) == 1 && !slices.Contains(words, args[0]) {
			return Usage("%s takes one of %s, or nothing; got %q", cmd.CommandPath(), strings.Join(words, ", "),
				strings.Join(args, " "))
		}
		return nil
	}
}

// Output adds the flag -o, checks it and completes it. The first format is the default.
func Output(cmd *cobra.Command, formats ...string) *string {
	value := cmd.Flags().StringP("output", "o", formats[0], fmt.Sprintf("form of the output: %v", formats))
	Completes(cmd, "output", formats...)
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(formats, *value) {
			return Usage("-o is %q; it must be one of %v", *value, formats)
		}
		if check != nil {
			return check(cmd, args)
		}
		return nil
	}
	return value
}

// Completes offers values of a flag that the command has.
func Completes(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// OneOf checks a flag whose values are words.
func OneOf(flag, value string, words ...string) error {
	if !slices.Contains(words, value) {
		return Usage("--%s is %q; it must be one of %v", flag, value, words)
	}
	return nil
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Colored reports whether w is a terminal whose user did not ask for no colour.
func Colored(w io.Writer) bool {
	return IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// Warn writes one line for each text.
func Warn(w io.Writer, texts []string) {
	for _, text := range texts {
		fmt.Fprintln(w, "warning:", text)
	}
}
