package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/detect/replay"
	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/strict"
)

func newCPI() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cpi",
		Short: "ask the detector of CPI antagonists",
	}
	return cli.Group(cmd, newCPIReplay())
}

func newCPIReplay() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "replay FILE.csv",
		Short: "run the detector on recorded samples",
		Long: `Reads a CSV file with the columns time (seconds), container, job, class (LSE, LSR, LS, BATCH or
BE), usage (CPU-seconds per second), cpi or both cycles and instructions, and optionally platform;
other columns are left out. Prints JSON lines in the order of time: specs as they are learned,
outliers, anomalies, an analysis with the score of every suspect, and the caps and uncaps that
enforcing would bring. In each, container is the victim and antagonist the one that is blamed or
capped. The last line sums up.

What is normal is learned from the rows before, never from later ones, unless --specs gives it:
JSON lines of job, platform, mean, stddev, samples and tasks. FILE may be - for standard input.`,
		Example: "  quietcore cpi replay node.csv\n  quietcore cpi replay --detector classic --specs specs.jsonl " +
			"node.csv | jq 'select(.event == \"cap\")'",
		Args: cli.OneArg("the recorded data"),
	}
	cli.Output(cmd, "json")
	file := cmd.Flags().String("config", "", "configuration file, of which the part cpi is used")
	specs := cmd.Flags().String("specs", "", "file of specs; they alone say what is normal then")
	detector := cmd.Flags().String("detector", "",
		"classic (the paper to the letter) or default; over the configuration's")
	period := cmd.Flags().Duration("period", 0,
		"time between two samples of a container (the median of the data where left out)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o := replay.Options{Period: *period, Warn: func(text string) { cli.Warn(cmd.ErrOrStderr(), []string{text}) }}
		var err error
		if o.Config, err = detectionOf(*file, *detector); err != nil {
			return cli.UsageError{Err: err}
		}
		if *specs != "" {
			if o.Specs, err = readSpecs(*specs); err != nil {
				return cli.UsageError{Err: err}
			}
		}
		in, name, err := openRecord(args[0], cmd)
		if err != nil {
			return err
		}
		defer in.Close()
		trace, err := replay.Read(in)
		if err != nil {
			return cli.Usage("%s: %w", name, err)
		}
		return cpiReplayTo(cmd, trace, o)
	}
	return cmd
}

func cpiReplayTo(cmd *cobra.Command, trace *replay.Trace, o replay.Options) error {
	out := bufio.NewWriterSize(cmd.OutOrStdout(), 1<<16)
	encode := json.NewEncoder(out)
	encode.SetEscapeHTML(false)
	var unwritten error
	summary, err := replay.Run(trace, o, func(l *replay.Line) error { unwritten = encode.Encode(l); return unwritten })
	switch {
	case unwritten != nil:
		return unwritten
	case err != nil:
		return errors.Join(cli.UsageError{Err: err}, out.Flush())
	}
	for _, why := range slices.Sorted(maps.Keys(summary.Dropped)) {
		o.Warn(fmt.Sprintf("%d rows were left out: %s", summary.Dropped[why], why))
	}
	if err := encode.Encode(summary); err != nil {
		return err
	}
	return out.Flush()
}

// detectionOf reads the detector's part of a configuration file. What enforcing
// would bring is told whatever its mode.
func detectionOf(name, detector string) (detect.Config, error) {
	cfg := config.Default()
	if name != "" {
		text, err := readBounded(name)
		if err != nil {
			return detect.Config{}, err
		}
		read, err := config.Parse(text)
		if err != nil {
			return detect.Config{}, fmt.Errorf("%s: %w", name, err)
		}
		cfg = *read
	}
	c := cfg.CPI.Detection()
	c.Enforce = false
	if detector != "" {
		var err error
		if c.Mode, err = detect.ParseMode(detector); err != nil {
			return c, err
		}
	}
	return c, c.Validate()
}

func readBounded(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, strict.MaxBytes+1))
}

// readSpecs reads specs, one JSON or YAML document each.
func readSpecs(name string) ([]replay.GivenSpec, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	docs, decoder := strict.NewReader(f), strict.NewDecoder()
	specs := []replay.GivenSpec{}
	for {
		doc, line, err := docs.Next()
		if errors.Is(err, io.EOF) {
			return specs, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		var s replay.GivenSpec
		if err := decoder.Unmarshal(doc, line, &s); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if s.Job == "" {
			return nil, fmt.Errorf("%s: line %d: a spec without a job", name, line)
		}
		specs = append(specs, s)
	}
}
