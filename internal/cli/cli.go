// Package cli is what the commands have in common: exit codes, and mistakes of the
// caller in one form.
//
// Exit codes: 0 done; 1 the work failed; 2 the input or the flags are wrong; 3 a part of the
// work failed.
package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// Exit codes of a command that did not succeed.
const (
	Failed = 1
	Wrong  = 2
	Partly = 3
)

// UsageError marks what the caller got wrong.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }
func (e UsageError) Unwrap() error { return e.Err }

// Usage makes a UsageError.
func Usage(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// PartialError is about the part of the work that failed, where the rest was done.
type PartialError struct{ Err error }

func (e PartialError) Error() string { return e.Err.Error() }
func (e PartialError) Unwrap() error { return e.Err }

// ExitCode is that of a command that ended with err.
func ExitCode(err error) int {
	var wrong UsageError
	var part PartialError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &wrong):
		return Wrong
	case errors.As(err, &part):
		return Partly
	}
	return Failed
}

// FlagError explains a flag that a command does not have. Where the command only holds
// others, a word that is none of them is what is wrong.
func FlagError(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); cmd.HasSubCommands() && len(words) > 0 {
		return NoSuchCommand(cmd, words)
	}
	return Usage("%w; see `%s --help`", err, cmd.CommandPath())
}

// NoSuchCommand is for commands that only hold others: an argument is then a
// misspelt one.
func NoSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return Usage("unknown command %q; did you mean `%s %s`?", args[0], cmd.CommandPath(), near[0])
	}
	return Usage("unknown command %q; `%s --help` lists them", args[0], cmd.CommandPath())
}

// NoArgs is cobra's check with our exit code.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage("%s takes no argument, got %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// OneArg is cobra's check with our exit code; what names the argument.
func OneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return Usage("%s takes exactly one argument, %s; got %d", cmd.CommandPath(), what, len(args))
		}
		return nil
	}
}

// WriteJSON writes a document on one line.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
