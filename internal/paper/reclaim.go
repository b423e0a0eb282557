package paper

import (
	"bufio"
	"encoding/json"
	"io"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/reclaim"
	"github.com/quietcore/quietcore/reclaim/replay"
)

// Reclaim are the options of a replay of the estimator.
type Reclaim struct {
	Config   string // file, of which the part reclaim is used; empty: the defaults
	Capacity float64
	From     string // over the configuration's; empty: that
}

// ReplayReclaim runs the estimator of idle CPUs on recorded data and writes a line an
// interval.
func ReplayReclaim(s cli.Streams, path string, with Reclaim) error {
	cfg, err := configOf(with.Config)
	if err != nil {
		return cli.UsageError{Err: err}
	}
	o := replay.Options{Capacity: with.Capacity, Config: cfg.Reclaim.Estimation()}
	if with.From != "" {
		o.Config.From = reclaim.From(with.From)
	}
	if err := o.Config.Validate(); err != nil {
		return cli.UsageError{Err: err}
	}
	in, name, err := openRecord(s, path)
	if err != nil {
		return err
	}
	defer in.Close()
	record, err := replay.Read(in)
	if err != nil {
		return cli.Usage("%s: %w", name, err)
	}
	return writeReclaim(s.Out, record, o)
}

func writeReclaim(w io.Writer, record *replay.Record, o replay.Options) error {
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
