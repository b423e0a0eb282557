package main

import (
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/detect"
)

type googleRow struct{ usage, cpi float64 }

// readGoogle reads a sample of ClusterData2019's InstanceUsage: gzip CSV with the
// columns job, avg_cpus and cpi.
func readGoogle(name string) (map[string][]googleRow, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	r := csv.NewReader(z)
	r.ReuseRecord = true
	header, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	header = slices.Clone(header)
	var at [3]int
	for i, column := range []string{"job", "avg_cpus", "cpi"} {
		if at[i] = slices.Index(header, column); at[i] < 0 {
			return nil, fmt.Errorf("%s: no column %s among %v", name, column, header)
		}
	}
	jobs := map[string][]googleRow{}
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return jobs, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		usage, err1 := strconv.ParseFloat(record[at[1]], 64)
		cpi, err2 := strconv.ParseFloat(record[at[2]], 64)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if cpi > 0 {
			jobs[record[at[0]]] = append(jobs[record[at[0]]], googleRow{usage, cpi})
		}
	}
}

// googleResult is what the ways to say "normal" make of real CPIs.
type googleResult struct {
	jobs, samples int
	// largest relative difference of what was learned from the two-pass figures
	meanOff, sdOff float64
	// share of the samples above each threshold
	classic, robust, banded rate
}

type rate struct{ above, of int }

func (r rate) percent() float64 { return 100 * float64(r.above) / float64(max(r.of, 1)) }

// judgeGoogle lets a detector learn every job and counts what would be flagged.
// The rows are sparse and their CPUs normalised, so windows mean nothing here and
// a job's rows count as one task's. For the usage bands a job's minimum usage is
// the tenth percentile of its own.
func judgeGoogle(jobs map[string][]googleRow) (*googleResult, error) {
	res := &googleResult{jobs: len(jobs)}
	for _, name := range slices.Sorted(maps.Keys(jobs)) {
		rows := jobs[name]
		res.samples += len(rows)
		all, err := learned(name, rows, 0)
		if err != nil {
			return nil, err
		}
		mean, sd := twoPass(rows)
		got := math.Sqrt(all.M2 / (all.N - 1))
		res.meanOff = max(res.meanOff, math.Abs(all.Mean/mean-1))
		if sd > 1e-9*mean { // a job of one value has none
			res.sdOff = max(res.sdOff, math.Abs(got/sd-1))
		}
		usages := make([]float64, len(rows))
		for i, r := range rows {
			usages[i] = r.usage
		}
		slices.Sort(usages)
		floor := usages[len(usages)/10]
		byBand, err := learned(name, rows, floor)
		if err != nil {
			return nil, err
		}
		whole := new(detect.Histogram)
		for _, h := range all.Bands {
			whole.Merge(h)
		}
		classic, robust := all.Mean+2*got, threshold(whole)
		for _, r := range rows {
			res.classic.count(r.cpi > classic)
			res.robust.count(r.cpi > robust)
			if h := byBand.Bands[detect.BandOf(r.usage, floor)]; r.usage >= floor && h != nil && h.Total() >= 100 {
				res.banded.count(r.cpi > threshold(h))
			}
		}
	}
	return res, nil
}

func (r *rate) count(above bool) {
	r.of++
	if above {
		r.above++
	}
}

func threshold(h *detect.Histogram) float64 {
	median, sd := h.Robust()
	return math.Exp(median + detect.DefaultConfig().RobustSigmas*sd)
}

// learned is what a detector keeps of a job. In Classic mode it leaves nothing out.
func learned(name string, rows []googleRow, minUsage float64) (detect.JobState, error) {
	cfg := detect.DefaultConfig()
	cfg.Mode, cfg.MinUsage = detect.Classic, minUsage
	d, err := detect.New(cfg)
	if err != nil {
		return detect.JobState{}, err
	}
	ref, err := d.Put(epoch, &cpi.Container{ID: "task", Job: name, Class: cpi.LS})
	if err != nil {
		return detect.JobState{}, err
	}
	for i, r := range rows {
		now := epoch.Add(time.Duration(i) * time.Second)
		d.Observe(now, []detect.Sample{{Ref: ref, At: now, Usage: r.usage, CPI: r.cpi}})
	}
	state := d.Save()
	if len(state.Jobs) != 1 {
		return detect.JobState{}, fmt.Errorf("job %s: nothing was learned of %d rows", name, len(rows))
	}
	return state.Jobs[0], nil
}

func twoPass(rows []googleRow) (mean, sd float64) {
	for _, r := range rows {
		mean += r.cpi
	}
	mean /= float64(len(rows))
	for _, r := range rows {
		sd += (r.cpi - mean) * (r.cpi - mean)
	}
	return mean, math.Sqrt(sd / float64(len(rows)-1))
}
