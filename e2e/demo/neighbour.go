package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"

	"github.com/quietcore/quietcore/cpi/detect/replay"
	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/paper"
)

// What the tutorial about a noisy neighbour plays.
const (
	recording = "docs/tutorials/neighbour.csv"
	detector  = "docs/tutorials/neighbour.yaml"
)

// neighbour has the detector find an antagonist in a recording, since on the machine of the demo it would have to learn
// for most of an hour what is normal.
func (d *demo) neighbour() error {
	var found bytes.Buffer
	err := paper.ReplayCPI(cli.Streams{Out: &found, Errs: os.Stderr}, recording, paper.CPI{Config: detector})
	if err != nil {
		return err
	}
	d.say("Who slows the web servers? The detector reads %s, recorded on a Linux kernel.", recording)
	var look replay.Line // the analysis before
	for lines := json.NewDecoder(&found); lines.More(); {
		var l replay.Line
		if err := lines.Decode(&l); err != nil {
			return err
		}
		switch l.Event {
		case "analysis":
			look = l
		case "cap":
			d.note("after %g s %s is slow: %.1f, where up to %.1f is normal", look.Time, look.Container, look.CPI,
				look.Threshold)
			for _, s := range look.Suspects {
				if s.Confidence > 0 {
					d.note("  %-8s score %4.2f, confidence %4.2f", s.Container, s.Score, s.Confidence)
				}
			}
			d.note("%s would be throttled: %s", l.Antagonist, l.Why)
			return nil
		}
	}
	return errors.New(recording + " has no antagonist")
}
