package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/quietcore/quietcore/e2e/bench/figures"
)

// jobs is how many jobs the containers belong to.
const jobs = 50

// What is kept of a container grows until its histories are full: an hour of windows and a day
// of use by default, as many values here within ten minutes.
const (
	interval    = 10 * time.Second
	pace        = 5 * time.Second // of sleepers, and of a window: all are in every one
	fullWindows = 60
	fullSamples = 288
)

// config is what the daemon's configuration has beyond the defaults. With memory everything is
// on that needs no API server. Counting has no budget: within one, fewer containers would be counted, and less be held
// of them.
func (o *options) config() map[string]any {
	if !o.memory {
		return nil
	}
	return map[string]any{
		"authority": map[string]any{"profile": "open"},
		"cpi": map[string]any{
			"mode": "enforce", "interval": interval.String(), "window": pace.String(), "minUsage": 0,
			"outlierWindow": "50s", "scoreWindow": "100s", "history": "10m", "capFor": "50s", "moveFor": "300s",
			"specEvery": "2m", "jobLabel": "job", "minTaskSamples": 20,
			"budget":          map[string]any{"node": 0, "cpu": 0, "test": 0},
			"containerSeries": 6 * o.most, "jobSeries": 110 * jobs,
			"standIns": map[string]any{"cycles": "on-cpu-nanoseconds", "instructions": "page-faults"},
		},
		"suppression": map[string]any{"mode": "enforce"},
		"reclaim": map[string]any{"mode": "observe", "from": "usage",
			"idle": map[string]any{"sample": "2s", "window": fmt.Sprintf("%ds", 2*fullSamples)}},
	}
}

// memory measures what the daemon holds of the containers when all its histories are full.
func (n *node) memory(ctx context.Context) (*figures.Report, error) {
	r, err := n.report()
	if err != nil {
		return nil, err
	}
	if err := n.growAsleep(ctx); err != nil {
		return nil, err
	}
	first, err := n.windows(ctx)
	if err != nil {
		return nil, err
	}
	for last, seen := first, time.Now(); last < first+fullWindows; {
		time.Sleep(interval) // one look at the metrics is work for an emulated machine
		now, err := n.windows(ctx)
		switch {
		case err != nil:
			return nil, err
		case now > last:
			say("%d of %d windows", now-first, fullWindows)
			last, seen = now, time.Now()
		case time.Since(seen) > 2*limit:
			return nil, fmt.Errorf("no window was counted within %s", 2*limit)
		}
	}
	r.Memory, err = n.daemon.memory()
	r.Memory.Containers, r.Memory.Windows = n.containers, fullWindows
	if err != nil {
		return nil, err
	}
	r.Memory.Judged, err = n.metric(ctx, `quietcore_cpi_containers{state="followed"}`)
	return r, err
}

// growAsleep starts all containers before any works: on an emulated machine they would be in each other's way.
func (n *node) growAsleep(ctx context.Context) error {
	wait, begin, err := os.Pipe()
	if err != nil {
		return err
	}
	defer wait.Close()
	defer begin.Close()
	n.works = wait
	if err := n.grow(ctx, n.o.most); err != nil {
		return err
	}
	return n.daemon.settled(ctx)
}

// windows is how many were counted.
func (n *node) windows(ctx context.Context) (int, error) {
	return n.metric(ctx, `quietcore_cpi_windows_total{result="ok"}`)
}

func (n *node) metric(ctx context.Context, series string) (int, error) {
	text, err := fetch(ctx, http.DefaultClient, http.MethodGet, "http://"+listen+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		if value, ok := strings.CutPrefix(string(line), series+" "); ok {
			var v float64
			_, err := fmt.Sscan(value, &v)
			return int(v), err
		}
	}
	return 0, fmt.Errorf("the metrics have no %s", series)
}

// memory is the daemon's by /proc.
func (d *daemon) memory() (m figures.Memory, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	for line := range bytes.Lines(text) {
		for prefix, to := range map[string]*float64{"VmRSS": &m.Resident, "VmHWM": &m.Peak, "RssAnon": &m.Own} {
			var kib float64
			if _, err := fmt.Sscanf(string(line), prefix+": %f kB", &kib); err == nil {
				*to = kib / 1024
			}
		}
	}
	return m, err
}
