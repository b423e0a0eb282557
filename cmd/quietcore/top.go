package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/top"
)

func newTop() *cobra.Command {
	var o top.Options
	var sort string
	var batch bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "what every container uses, and its cycles per instruction",
		Long: `Shows the containers of the node like top: CPUs in use since the last table, and
of the last window of counting cycles per instruction (CPI), misses of the last-level
cache per thousand instructions (MPKI), and the share of the time in which the
container could have run that it spent waiting for a CPU (%WAIT). What was disturbed
in the last ten minutes has the resource that it lacked (LACKS).

Keys: up, down, page up and down, home and end move; s and S sort by the next and the previous
column, r reverses; / filters by words of namespace, pod, container, class and pool; enter shows
a container with its neighbours, the nearest first; esc goes back; q quits. Without a terminal
it prints one table.`,
		Example: "  quietcore top\n  quietcore top -s cpi -d 10s\n  quietcore top -b -n 3\n  quietcore top -o json " +
			"-n 1 | jq '.containers[] | select(.cpi > 3)'",
		Args: cli.NoArgs,
	}
	socketFlag(cmd, &o.Client.Socket)
	containerFlags(cmd, &o.Filter)
	cmd.Flags().StringVarP(&sort, "sort", "s", "usage", fmt.Sprintf("column to sort by: %v", top.Keys()))
	cmd.Flags().DurationVarP(&o.Delay, "delay", "d", 2*time.Second, "time between two tables, 100ms to 1h")
	cmd.Flags().IntVarP(&o.Tables, "iterations", "n", 0,
		"end after this many tables; 0: never on a terminal and with -b, after one elsewhere")
	cmd.Flags().BoolVarP(&batch, "batch", "b", false,
		"print tables one after the other, whole and without colour, instead of a screen")
	format := cli.Output(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.Sort, o.JSON = top.Key(sort), *format == "json"
		if err := o.Check(); err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP)
		defer stop()
		out, isFile := cmd.OutOrStdout().(*os.File)
		if !batch && !o.JSON && isFile && cli.IsTerminal(out) && os.Getenv("TERM") != "dumb" {
			return o.Live(ctx, cmd.InOrStdin(), out)
		}
		if o.Tables == 0 && !batch {
			o.Tables = 1
		}
		return o.Print(ctx, cmd.OutOrStdout())
	}
	return cmd
}
