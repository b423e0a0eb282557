// Command bench measures what enforcement costs with hundreds of containers, in guests
// with real kernels. It prints one table per driver: the measurement, its budget, and
// the ratio of the two. A ratio of at most 1 is within budget.
//
//	go run ./e2e/bench                              both drivers, one after the other
//	go run ./e2e/bench -driver systemd -o json      the measurements, one line per driver
//
// Package load is the program that measures in the guest. Exit code 1: a measurement
// failed or is over its budget.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/quietcore/quietcore/e2e/bench/figures"
	"github.com/quietcore/quietcore/e2e/command"
	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/machine"
)

type options struct {
	command.Flags
	binary                             string
	samples, runc, containers, threads int
	memory                             int
}

func main() { command.Main("bench", run, command.Failed) }

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{Flags: command.Flags{Driver: command.Both}}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	o.Flags.Add(f, command.Both)
	f.StringVar(&o.binary, "quietcore", "", "`file` of the daemon to measure (default: it is built)")
	f.IntVar(&o.samples, "samples", 100, "owners whose entry is timed, with either plugin")
	f.IntVar(&o.runc, "runc", 20, "containers that runc makes and updates")
	f.IntVar(&o.containers, "containers", 500, "burstable containers")
	f.IntVar(&o.threads, "threads", 20, "threads of each")
	f.IntVar(&o.memory, "memory", 0, "measure only the daemon's memory with so many containers and everything on")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if o.memory > 0 {
		o.containers, o.threads = o.memory, 1
	}
	return o, o.Check()
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	files, err := o.build(ctx)
	if err != nil {
		return err
	}
	var over []error
	for _, d := range o.Drivers() {
		r, err := o.measure(ctx, d, files, stderr)
		if err != nil {
			return fmt.Errorf("%s: %w", d, err)
		}
		rows := rowsOf(r)
		if o.Output == "json" {
			err = json.NewEncoder(stdout).Encode(struct {
				*figures.Report
				Rows []row `json:"rows"`
			}{r, rows})
		} else {
			err = table(stdout, r, rows)
		}
		if err != nil {
			return err
		}
		for _, row := range rows {
			if row.over() {
				over = append(over, fmt.Errorf("%s: %s: over its budget", d, row.What))
			}
		}
	}
	return errors.Join(over...)
}

// The programs' places in the guest.
const (
	quietcorePath = "/usr/bin/quietcore"
	loadPath      = "/usr/bin/load"
	sleeperPath   = "/usr/bin/sleeper"
	reportPath    = "/run/bench/report.json"
)

func (o *options) build(ctx context.Context) (map[string]string, error) {
	files := map[string]string{}
	for path, pkg := range map[string]string{quietcorePath: "./cmd/quietcore", loadPath: "./e2e/bench/load",
		sleeperPath: "./e2e/bench/sleeper"} {
		if path == quietcorePath && o.binary != "" {
			files[path[1:]] = o.binary
			continue
		}
		// A name of its own: a scenario run may be replacing the daemon's binary.
		build := machine.GoBinary{Package: pkg, Name: "bench-" + path[strings.LastIndex(path, "/")+1:]}
		if path == quietcorePath {
			build.Tags = "quietcore_faults" // the load sends it events for tests
		}
		bin, err := build.Build(ctx, o.Cache)
		if err != nil {
			return nil, err
		}
		files[path[1:]] = bin
	}
	return files, nil
}

// grid is small: every virtual CPU more makes the emulated machine slower, and an
// owner of four leaves four.
var grid = machine.Grid{Sockets: 1, NodesPerSocket: 1, L3PerNode: 1, CoresPerL3: 4, ThreadsPerCore: 2}

// memoryMiB holds ten thousand kernel stacks and five hundred Go programs.
const memoryMiB = 4096

// guestLimit bounds one run: it takes about five minutes on an idle host.
const guestLimit = 40 * time.Minute

func (o *options) measure(ctx context.Context, d kubelet.Driver, files map[string]string,
	stderr io.Writer) (*figures.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, guestLimit)
	defer cancel()
	m, err := machine.Boot(ctx, machine.Options{Grid: grid, Driver: d, Cache: o.Cache, Files: files,
		MemoryMiB: memoryMiB, Progress: stderr})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	const name = "load"
	err = m.Start(ctx, name, loadPath, "-driver", string(d), "-out", reportPath,
		"-samples", strconv.Itoa(o.samples), "-runc", strconv.Itoa(o.runc), "-containers", strconv.Itoa(o.containers),
		"-threads", strconv.Itoa(o.threads), "-memory="+strconv.FormatBool(o.memory > 0))
	if err != nil {
		return nil, err
	}
	if err := follow(ctx, m, name, stderr); err != nil {
		return nil, fmt.Errorf("%w\nthe console's last words:\n%s", err, m.ConsoleTail(1500))
	}
	text, err := m.ReadFile(ctx, reportPath)
	if err != nil {
		return nil, err
	}
	r := &figures.Report{}
	return r, json.Unmarshal([]byte(text), r)
}

// follow passes on what the program in the guest says until it ends.
func follow(ctx context.Context, m *machine.Machine, name string, stderr io.Writer) error {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	printed := 0
	for {
		running, code, log, err := look(ctx, m, name)
		if err != nil {
			return fmt.Errorf("ask the guest how far it is: %w", err)
		}
		if len(log) > printed {
			for line := range strings.Lines(log[printed:]) {
				fmt.Fprintf(stderr, "bench: %s\n", strings.TrimSuffix(line, "\n"))
			}
			printed = len(log)
		}
		switch {
		case !running && code == 0:
			return nil
		case !running:
			return fmt.Errorf("the program in the guest ended with code %d", code)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// look asks within a limit: an emulated guest has been seen to hang.
func look(ctx context.Context, m *machine.Machine, name string) (running bool, code int, log string, err error) {
	const limit = 2 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if running, code, err = m.Running(ctx, name); err == nil {
		log, err = m.ReadFile(ctx, machine.LogFile(name))
	}
	return running, code, log, err
}
