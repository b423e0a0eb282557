// Command quietcore orchestrates the CPUs of one Kubernetes node. `quietcore run`
// is the daemon; the other subcommands ask it, or answer without a node what it
// would do.
//
// Exit codes: 0 done; 1 the work failed; 2 the input or the flags are wrong. A
// refused request is a result, not a failure.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

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
	err := cli.Execute(ctx, newRoot(), args, cli.Streams{In: in, Out: out, Errs: errs})
	if err != nil {
		fmt.Fprintln(errs, "quietcore:", err)
	}
	return cli.ExitCode(err)
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
  quietcore report                       what the last day was like
  quietcore doctor                       what keeps it from working on this node`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(cli.FlagError)
	root.SetHelpCommand(cli.HelpCommand(root))
	cli.Group(root, newTopology(), newAllocate(), newSimulate(), newPlan(),
		newRun(), newMode(), newRestore(), newStatus(), newTop(),
		newExplain(), newReport(), newRecord(), newIncidents(), newCPI(), newReclaim(), newConfig(), newEnableNRI(),
		newVersion(), newDoctor(), newDiff(), newBundle(), newMetrics(), newHub(),
		cli.CompletionCommand(root.Name()), newMan())
	return root
}
