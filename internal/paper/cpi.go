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
	"github.com/quietcore/quietcore/cpi/experiment"
	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/strict"
)

// CPI are the options of a replay of the detector.
type CPI struct {
	Config   string        // file, of which the part cpi is used; empty: the defaults
	Specs    string        // file; empty: they are learned from the rows before
	Detector string        // over the configuration's; empty: that
	Period   time.Duration // between two samples of a container; 0: the data's median
	Probe    *float64      // minutes an hour that probes of innocents may take; nil: the configuration's
	Seed     uint64        // of the coins
	// Interactive says that rows are answered interval by interval.
	Interactive bool
}

// ReplayCPI runs the detector on recorded samples and writes what it finds.
func ReplayCPI(s cli.Streams, path string, with CPI) error {
	o := replay.Options{Period: with.Period, Seed: with.Seed,
		Warn: func(text string) { cli.Warn(s.Errs, []string{text}) }}
	if err := with.choose(&o); err != nil {
		return cli.UsageError{Err: err}
	}
	if with.Specs != "" {
		var err error
		if o.Specs, err = readSpecs(with.Specs); err != nil {
			return cli.UsageError{Err: err}
		}
	}
	in, name, err := openRecord(s, path)
	if err != nil {
		return err
	}
	defer in.Close()
	if with.Interactive {
		return converse(s.Out, in, o)
	}
	trace, err := replay.Read(in)
	if err != nil {
		return cli.Usage("%s: %w", name, err)
	}
	return writeCPI(s.Out, trace, o)
}

// choose the detector and its configuration. What enforcing would bring is reported
// whatever the mode of the configuration.
func (with *CPI) choose(o *replay.Options) error {
	cfg, err := configOf(with.Config)
	if err != nil {
		return err
	}
	o.Config = cfg.CPI.Detection()
	o.Config.Enforce = false
	name := with.Detector
	if name == "" {
		name = string(cfg.CPI.Detector)
	}
	switch name {
	case "classic":
		o.Config.Mode = detect.Classic
	case "contrast":
		o.Config.Mode = detect.Contrast
	case "default":
		c := experiment.DefaultConfig()
		c.CapBatchMilli, c.CapBEMilli = o.Config.CapBatchMilli, o.Config.CapBEMilli
		if c.Budget = cfg.CPI.Probe.Budget; with.Probe != nil {
			c.Budget = *with.Probe
		}
		if err := c.Validate(); err != nil {
			return err
		}
		o.Experiment = &c
	default:
		return fmt.Errorf("detector %q is not known; there are classic, contrast and default", name)
	}
	return o.Config.Validate()
}

// encoderTo writes lines, and keeps the first error of writing apart from those of the
// input.
func encoderTo(out *bufio.Writer) (encode *json.Encoder, write func(*replay.Line) error, unwritten *error) {
	encode = json.NewEncoder(out)
	encode.SetEscapeHTML(false)
	unwritten = new(error)
	return encode, func(l *replay.Line) error { *unwritten = encode.Encode(l); return *unwritten }, unwritten
}

// tick ends the answer to an interval.
type tick struct {
	Event string  `json:"event"`
	Time  float64 `json:"time"`
}

// converse answers each interval before it reads the next.
func converse(w io.Writer, in io.Reader, o replay.Options) error {
	out := bufio.NewWriterSize(w, 1<<16)
	encode, write, unwritten := encoderTo(out)
	summary, err := replay.Interactive(in, o, write, func(at float64) error {
		if *unwritten = encode.Encode(tick{"tick", at}); *unwritten == nil {
			*unwritten = out.Flush()
		}
		return *unwritten
	})
	return finish(o, out, summary, err, *unwritten)
}

func writeCPI(w io.Writer, trace *replay.Trace, o replay.Options) error {
	out := bufio.NewWriterSize(w, 1<<16)
	_, write, unwritten := encoderTo(out)
	summary, err := replay.Run(trace, o, write)
	return finish(o, out, summary, err, *unwritten)
}

// finish with the summary, or say what went wrong.
func finish(o replay.Options, out *bufio.Writer, summary replay.Summary, err, unwritten error) error {
	switch {
	case unwritten != nil:
		return unwritten
	case err != nil:
		return errors.Join(cli.UsageError{Err: err}, out.Flush())
	}
	for _, why := range slices.Sorted(maps.Keys(summary.Dropped)) {
		o.Warn(fmt.Sprintf("%d rows were left out: %s", summary.Dropped[why], why))
	}
	encode := json.NewEncoder(out)
	encode.SetEscapeHTML(false)
	if err := encode.Encode(summary); err != nil {
		return err
	}
	return out.Flush()
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
