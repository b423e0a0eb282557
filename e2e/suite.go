package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/quietcore/quietcore/e2e/command"
	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/machine"
	"github.com/quietcore/quietcore/e2e/scenario"
	"github.com/quietcore/quietcore/internal/script"
)

type outcome struct {
	name   string
	driver kubelet.Driver
	diffs  []string
	err    error
	took   time.Duration
}

// suite is one run over a folder of scenarios.
type suite struct {
	options       *options
	binary, agent string
	stderr        io.Writer

	// mu guards what follows: the drivers' players report side by side.
	mu     sync.Mutex
	stdout io.Writer
	passed int
	failed []string // driver and name
}

// runSuite boots one machine a topology and driver and plays all its scenarios on
// it. The drivers are played side by side, each machine on one of the host's CPUs:
// with a thread for every CPU of a guest, those of one would wait for those of the
// other, and both together would take longer than one after the other.
func runSuite(ctx context.Context, o *options, stdout, stderr io.Writer) error {
	scripts, err := load(o.suite)
	if err != nil {
		return err
	}
	s := &suite{options: o, stdout: stdout, stderr: stderr}
	if s.agent, err = machine.BuildAgent(ctx, o.Cache); err != nil {
		return err
	}
	if !o.noDaemon {
		if s.binary, err = machine.BuildDaemon(ctx, o.Cache, "quietcore-faults"); err != nil {
			return err
		}
	}
	var all sync.WaitGroup
	drivers := o.Drivers()
	for i, d := range drivers {
		mine := scripts
		switch {
		case o.turn >= 0:
			mine = inTurn(scripts, o.turn, i)
		case o.Driver == command.Alternate:
			mine = everyNth(scripts, i, len(drivers))
		}
		all.Go(func() {
			for _, g := range group(mine) {
				s.play(ctx, g, d)
			}
		})
	}
	all.Wait()
	fmt.Fprintf(stdout, "%d passed, %d failed\n", s.passed, len(s.failed))
	if len(s.failed) > 0 {
		return fmt.Errorf("the suite failed: %s", strings.Join(s.failed, ", "))
	}
	if s.passed == 0 {
		return errors.New("the suite failed: no scenario was played")
	}
	return nil
}

func (s *suite) report(r outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	verdict := "PASS"
	if r.err != nil || len(r.diffs) > 0 {
		verdict = "FAIL"
		s.failed = append(s.failed, fmt.Sprintf("%s %s", r.driver, r.name))
	} else {
		s.passed++
	}
	fmt.Fprintf(s.stdout, "%s %-8s %s (%.1f s)\n", verdict, r.driver, r.name, r.took.Seconds())
	if r.err != nil {
		fmt.Fprintf(s.stdout, "    %v\n", r.err)
	}
	for _, d := range r.diffs {
		fmt.Fprintf(s.stdout, "    %s\n", d)
	}
}

// load reads the scenarios of a folder in the order of their names.
func load(dir string) ([]*scenario.Script, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, usage{fmt.Errorf("%s holds no *.yaml", dir)}
	}
	var scripts []*scenario.Script
	for _, p := range paths {
		s, err := scenario.Load(p)
		if err != nil {
			return nil, usage{err}
		}
		if _, err := s.Grid(); err != nil {
			return nil, usage{fmt.Errorf("%s: %w", p, err)}
		}
		scripts = append(scripts, s)
	}
	return scripts, nil
}

// everyNth is every nth script from the first on.
func everyNth(scripts []*scenario.Script, first, n int) []*scenario.Script {
	var out []*scenario.Script
	for i := first; i < len(scripts); i += n {
		out = append(out, scripts[i])
	}
	return out
}

// inTurn is what one of two drivers plays in a turn: every other script, the first half of
// them with one driver and the other half with the other. After two turns all were played,
// after four with both drivers.
func inTurn(scripts []*scenario.Script, turn, driver int) []*scenario.Script {
	var out []*scenario.Script
	for i := turn % 2; i < len(scripts); i += 2 {
		if (i/2+turn/2)%2 == driver {
			out = append(out, scripts[i])
		}
	}
	return out
}

type topologyGroup struct {
	grid    machine.Grid
	scripts []*scenario.Script
}

// group puts scripts together that can share a machine.
func group(scripts []*scenario.Script) []*topologyGroup {
	byKey := map[string]*topologyGroup{}
	for _, s := range scripts {
		grid, _ := s.Grid() // load has asked already
		if byKey[grid.Key()] == nil {
			byKey[grid.Key()] = &topologyGroup{grid: grid}
		}
		byKey[grid.Key()].scripts = append(byKey[grid.Key()].scripts, s)
	}
	groups := slices.Collect(maps.Values(byKey))
	sort.Slice(groups, func(i, j int) bool { return groups[i].grid.Key() < groups[j].grid.Key() })
	return groups
}

// play plays the scenarios of one topology on one machine.
func (s *suite) play(ctx context.Context, g *topologyGroup, d kubelet.Driver) {
	p := &playground{suite: s, grid: g.grid, driver: d}
	defer p.close()
	for _, sc := range g.scripts {
		started := time.Now()
		r := p.try(ctx, sc)
		if r.err != nil && ctx.Err() == nil {
			// A machine that broke says nothing about the scenario; a difference does,
			// and is never tried again.
			fmt.Fprintf(s.stderr, "e2e: %s, %s: the machine failed, once more on a new one: %v\n", r.name, d, r.err)
			r = p.try(ctx, sc)
		}
		r.took = time.Since(started)
		s.report(r)
	}
}

// playground is the machine of a topology and driver. It is replaced when it was
// lost, so that one scenario cannot take the others with it.
type playground struct {
	*suite
	grid   machine.Grid
	driver kubelet.Driver
	guest  *scenario.Guest
}

func (p *playground) try(ctx context.Context, sc *scenario.Script) outcome {
	r := outcome{name: filepath.Base(sc.Path), driver: p.driver}
	if p.guest == nil {
		boot := p.options.bootOptions(p.grid, p.driver, p.stderr)
		boot.Binary, boot.Machine.Agent, boot.Machine.OneThread = p.binary, p.agent, true
		guest, err := scenario.Boot(ctx, boot)
		if err != nil {
			r.err = err
			return r
		}
		p.guest = guest
	}
	r.diffs, r.err = playBoth(ctx, p.guest, sc)
	switch {
	case r.err != nil:
		r.err = fmt.Errorf("%w\n%s", r.err, p.guest.Diagnosis(ctx))
		p.close()
	case len(r.diffs) > 0:
		fmt.Fprintf(p.stderr, "e2e: %s, %s: the daemon said\n%s\n", r.name, p.driver,
			p.guest.LogTail(ctx, machine.Daemon, 8000))
	}
	return r
}

func (p *playground) close() {
	if p.guest != nil {
		p.guest.Close()
		p.guest = nil
	}
}

func playBoth(ctx context.Context, g *scenario.Guest, s *scenario.Script) ([]string, error) {
	var simulated, real []script.Line
	var err error
	if g.Daemon {
		if simulated, err = s.Simulate(); err != nil {
			return nil, err
		}
	}
	err = play(ctx, g, s, func(l script.Line) error {
		real = append(real, l)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if !g.Daemon {
		return nil, nil // nothing to compare with: only the harness was tried
	}
	return scenario.Compare(simulated, real), nil
}
