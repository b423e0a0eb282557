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
	"time"

	"github.com/spf13/cobra"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/detect/replay"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/strict"
)

// detection is the part of the key cpi that the detector takes.
type detection struct {
	Detector      string          `json:"detector"`
	MinUsage      float64         `json:"minUsage"`
	OutlierWindow config.Duration `json:"outlierWindow"`
	ScoreWindow   config.Duration `json:"scoreWindow"`
	History       config.Duration `json:"history"`
	MinScore      float64         `json:"minScore"`
	MinConfidence float64         `json:"minConfidence"`
	CapFor        config.Duration `json:"capFor"`
	EvictAfter    int             `json:"evictAfter"`
}

func defaultDetection() detection {
	d := detect.DefaultConfig()
	return detection{
		Detector: d.Mode.String(), MinUsage: d.MinUsage, OutlierWindow: config.Duration(d.OutlierWindow), ScoreWindow: config.Duration(d.Window),
		History: config.Duration(d.History), MinScore: d.MinScore, MinConfidence: d.MinConfidence, CapFor: config.Duration(d.CapFor), EvictAfter: d.EvictAfter,
	}
}

// config of the detector that the file's words mean.
func (d detection) config() (detect.Config, error) {
	c := detect.DefaultConfig()
	var err error
	if c.Mode, err = detect.ParseMode(d.Detector); err != nil {
		return c, fmt.Errorf("cpi.detector: %w", err)
	}
	c.MinUsage, c.MinScore, c.MinConfidence, c.EvictAfter = d.MinUsage, d.MinScore, d.MinConfidence, d.EvictAfter
	c.OutlierWindow, c.Window, c.History, c.CapFor = time.Duration(d.OutlierWindow), time.Duration(d.ScoreWindow), time.Duration(d.History), time.Duration(d.CapFor)
	c.MoveFor = max(c.MoveFor, c.CapFor)
	return c, nil
}

func newCPI() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cpi",
		Short: "ask the detector of CPI antagonists",
		Args:  noSuchCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCPIReplay())
	return cmd
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
		Example: "  quietcore cpi replay node.csv\n  quietcore cpi replay --detector classic --specs specs.jsonl node.csv | jq 'select(.event == \"cap\")'",
		Args:    oneArg("the recorded data"),
	}
	output(cmd, "json")
	file := cmd.Flags().String("config", "", "configuration file, of which the part cpi is used")
	specs := cmd.Flags().String("specs", "", "file of specs; they alone say what is normal then")
	detector := cmd.Flags().String("detector", "", "classic (the paper to the letter) or default; over the configuration's")
	period := cmd.Flags().Duration("period", 0, "time between two samples of a container (the median of the data where left out)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o := replay.Options{Period: *period, Warn: func(text string) { warn(cmd, []string{text}) }}
		var err error
		if o.Config, err = detectionOf(*file, *detector); err != nil {
			return usageError{err}
		}
		if *specs != "" {
			if o.Specs, err = readSpecs(*specs); err != nil {
				return usageError{err}
			}
		}
		in, name, err := openRecord(args[0], cmd)
		if err != nil {
			return err
		}
		defer in.Close()
		trace, err := replay.Read(in)
		if err != nil {
			return usage("%s: %w", name, err)
		}
		return cpiReplayTo(cmd, trace, o)
	}
	return cmd
}

func cpiReplayTo(cmd *cobra.Command, trace *replay.Trace, o replay.Options) error {
	out := bufio.NewWriterSize(cmd.OutOrStdout(), 1<<16)
	encode := json.NewEncoder(out)
	encode.SetEscapeHTML(false)
	summary, err := replay.Run(trace, o, func(l *replay.Line) error { return encode.Encode(l) })
	if err != nil {
		return errors.Join(usageError{err}, out.Flush())
	}
	for _, why := range slices.Sorted(maps.Keys(summary.Dropped)) {
		o.Warn(fmt.Sprintf("%d rows were left out: %s", summary.Dropped[why], why))
	}
	return errors.Join(encode.Encode(summary), out.Flush())
}

// detectionOf reads the detector's part of a configuration file.
func detectionOf(name, detector string) (detect.Config, error) {
	whole := struct {
		config.Config
		CPI struct {
			config.CPI
			detection
		} `json:"cpi"`
	}{Config: config.Default()}
	whole.CPI.CPI, whole.CPI.detection = whole.Config.CPI, defaultDetection()
	if name != "" {
		text, err := readBounded(name)
		if err != nil {
			return detect.Config{}, err
		}
		if err := strict.Unmarshal(text, &whole); err != nil {
			return detect.Config{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	if detector != "" {
		whole.CPI.Detector = detector
	}
	c, err := whole.CPI.detection.config()
	if err != nil {
		return c, err
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
