package paper

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

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/detect/replay"
	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/strict"
)

// CPI are the options of a replay of the detector.
type CPI struct {
	Config   string        // file, of which the part cpi is used; empty: the defaults
	Specs    string        // file; empty: they are learned from the rows before
	Detector string        // over the configuration's; empty: that
	Period   time.Duration // between two samples of a container; 0: the data's median
}

// ReplayCPI runs the detector on recorded samples and writes what it finds.
func ReplayCPI(s cli.Streams, path string, with CPI) error {
	o := replay.Options{Period: with.Period, Warn: func(text string) { cli.Warn(s.Errs, []string{text}) }}
	var err error
	if o.Config, err = detectionOf(with.Config, with.Detector); err != nil {
		return cli.UsageError{Err: err}
	}
	if with.Specs != "" {
		if o.Specs, err = readSpecs(with.Specs); err != nil {
			return cli.UsageError{Err: err}
		}
	}
	in, name, err := openRecord(s, path)
	if err != nil {
		return err
	}
	defer in.Close()
	trace, err := replay.Read(in)
	if err != nil {
		return cli.Usage("%s: %w", name, err)
	}
	return writeCPI(s.Out, trace, o)
}

func writeCPI(w io.Writer, trace *replay.Trace, o replay.Options) error {
	out := bufio.NewWriterSize(w, 1<<16)
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
// would bring is reported whatever its mode.
func detectionOf(name, detector string) (detect.Config, error) {
	cfg, err := configOf(name)
	if err != nil {
		return detect.Config{}, err
	}
	c := cfg.CPI.Detection()
	c.Enforce = false
	if detector != "" {
		if c.Mode, err = detect.ParseMode(detector); err != nil {
			return c, err
		}
	}
	return c, c.Validate()
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
