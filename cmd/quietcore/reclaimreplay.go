package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/reclaim"
	"github.com/quietcore/quietcore/reclaim/replay"
)

func newReclaim() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reclaim",
		Short: "ask about lending idle CPUs",
	}
	return cli.Group(cmd, newReclaimReplay())
}

func newReclaimReplay() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay FILE.csv",
		Short: "run the estimator of idle CPUs on recorded data",
		Long: `Reads a CSV file with the columns time (seconds), pod, class (prod or batch), request
and usage (CPUs); an empty usage is a sample that is missing, other columns are left out. Prints
one JSON line an interval, which is one distinct time, from past and present rows only: what may
be promised to batch pods, which of them are idle, who would be evicted. The last line sums up.
FILE may be - for standard input.`,
		Example: "  quietcore reclaim replay --capacity 64 node.csv\n  quietcore reclaim replay --capacity 64 " +
			"--from usage node.csv | tail -n 1 | jq .violationRatio",
		Args: cli.OneArg("the recorded data"),
	}
	cli.Output(cmd, "json")
	capacity := cmd.Flags().Float64("capacity", 0, "CPUs of the node")
	from := cmd.Flags().String("from", "",
		"what supply is measured against: slack (production's requests) or usage (the peak it is expected to use)")
	file := cmd.Flags().String("config", "", "configuration file, of which the part reclaim is used")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o := replay.Options{Capacity: *capacity}
		if !cmd.Flags().Changed("capacity") || !(*capacity > 0 && *capacity <= math.MaxInt32) {
			return cli.Usage(
				"--capacity is %v; give the CPUs of the node that the data are of, more than 0 and at most %d",
				*capacity, math.MaxInt32)
		}
		var err error
		if o.Config, err = reclaimConfig(*file); err != nil {
			return cli.UsageError{Err: err}
		}
		if *from != "" {
			o.Config.From = reclaim.From(*from)
		}
		if err := o.Config.Validate(); err != nil {
			return cli.UsageError{Err: err}
		}
		in, name, err := openRecord(args[0], cmd)
		if err != nil {
			return err
		}
		defer in.Close()
		record, err := replay.Read(in)
		if err != nil {
			return cli.Usage("%s: %w", name, err)
		}
		return replayTo(cmd.OutOrStdout(), record, o)
	}
	return cmd
}

func replayTo(w io.Writer, record *replay.Record, o replay.Options) error {
	out := bufio.NewWriter(w)
	encode := json.NewEncoder(out)
	encode.SetEscapeHTML(false)
	summary, err := replay.Run(record, o, func(l replay.Line) error { return encode.Encode(l) })
	if err != nil {
		return err
	}
	if err := encode.Encode(summary); err != nil {
		return err
	}
	return out.Flush()
}

func reclaimConfig(name string) (reclaim.Config, error) {
	cfg := config.Default()
	if name == "" {
		return cfg.Reclaim.Estimation(), nil
	}
	text, err := readBounded(name)
	if err != nil {
		return reclaim.Config{}, err
	}
	read, err := config.Parse(text)
	if err != nil {
		return reclaim.Config{}, fmt.Errorf("%s: %w", name, err)
	}
	return read.Reclaim.Estimation(), nil
}

// openRecord opens a file, or standard input for "-".
func openRecord(path string, cmd *cobra.Command) (io.ReadCloser, string, error) {
	if path == "-" {
		return io.NopCloser(cmd.InOrStdin()), "standard input", nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, path, cli.UsageError{Err: err}
	}
	return f, path, nil
}
