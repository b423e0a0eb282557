// Command quietcore orchestrates the CPUs of one Kubernetes node. `quietcore run`
// is the daemon; the other subcommands ask it, or answer without a node what it
// would do.
//
// Exit codes: 0 done; 1 the work failed; 2 the input or the flags are wrong. A
// refused request is a result, not a failure.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/quietcore/quietcore/internal/cli"
)

var version = "dev" // set by the linker

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errs)
	unwritten := watchHelp(root, out)
	err := errors.Join(root.ExecuteContext(ctx), *unwritten)
	if err == nil {
		return 0
	}
	fmt.Fprintln(errs, "quietcore:", err)
	return cli.ExitCode(err)
}

// watchHelp keeps why help could not be written, which cobra says and forgets.
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

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "quietcore",
		Short: "CPU orchestration for one Kubernetes node",
		Long: `Quietcore runs once on every Kubernetes node as an NRI plugin of containerd or
CRI-O. It gives containers SMT-, L3- and NUMA-aware CPUs out of three pools:

  exclusive  CPUs of one LSE pod (shared with nobody) or LSR pod (with BE only)
  shared     every CPU that nobody owns: LS pods
  be         every CPU that no LSE pod owns: best-effort pods

A pod says what it wants with Koordinator's label koordinator.sh/qosClass (LSE, LSR,
LS, BE) and annotation scheduling.koordinator.sh/resource-spec.`,
		Example: `  quietcore topology                     what this machine is made of
  quietcore simulate e2e/scenarios/classes.yaml
                                         what would happen, without a node
  quietcore run --config /etc/quietcore/config.yaml
  quietcore status                       who sits where now
  quietcore top                          what they use, live
  quietcore explain default/web          why
  quietcore doctor                       what keeps it from working on this node`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version,
		Args:          cli.NoSuchCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(cli.FlagError)
	root.SetHelpCommand(newHelp(root))
	root.AddCommand(newTopology(), newAllocate(), newSimulate(), newRun(), newRestore(), newStatus(), newTop(),
		newExplain(), newRecord(), newIncidents(), newCPI(), newReclaim(), newConfig(), newEnableNRI(), newVersion())
	root.AddCommand(newDoctor(), newDiff(), newBundle(), newMetrics(), newCompletion(), newMan())
	return root
}

// newHelp is cobra's help command, but for a misspelt topic being an error.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "explain a command",
		Args: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil {
				return cli.UsageError{Err: err}
			}
			return cli.NoSuchCommand(cmd, rest)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, _, err := root.Find(args)
			if err != nil {
				return cli.UsageError{Err: err}
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

// output adds the flag -o and checks it.
func output(cmd *cobra.Command, formats ...string) *string {
	value := cmd.Flags().StringP("output", "o", formats[0], fmt.Sprintf("form of the output: %v", formats))
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		for _, f := range formats {
			if *value == f {
				if check != nil {
					return check(cmd, args)
				}
				return nil
			}
		}
		return cli.Usage("-o is %q; it must be one of %v", *value, formats)
	}
	return value
}

// colored says whether w is a terminal whose user did not ask for no colour.
func colored(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}
