package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/control"
)

// windows are those of all intervals; six follow one another in an interval while a test runs.
const (
	windows = "interval: 2s, window: 1s"
	further = "interval: 6s, window: 1s, probe: {window: 1s}"
)

// byExperiment is shortened for the detector by experiment, with nothing of its own changed
// but how long a window is.
const byExperiment = `{authority: {profile: open},
  cpi: {mode: enforce, ` + windows + `, jobLabel: job, budget: {node: 0, cpu: 0, test: 0},
  standIns: {cycles: on-cpu-nanoseconds, instructions: page-faults}}}`

// throttleLength is for how long a throttle is good that nobody tells anew.
const throttleLength = 4 * time.Second

// pattern is how an antagonist works.
type pattern struct {
	loads []string // of each of the job's pods
	twin  string   // of an innocent that begins with them
	whole bool     // what else happens to its cgroup, and a kill, are played as well
	short bool     // tests have windows of their own
	move  bool     // the victims own CPUs, and a part of best effort's pool off them has room for the antagonist
}

// patterns by the names of their proofs. 7 threads leave the victims a CPU; the twin has none
// of its own in what they suffer.
var patterns = map[string]pattern{
	"experiment":            {loads: []string{"7 14s 10s"}, whole: true},
	"experiment-steady":     {loads: []string{"7 1h"}},
	"experiment-rotating":   {loads: []string{"7 12s 12s", "7 12s 12s 12s"}},
	"experiment-same-hours": {loads: []string{"7 14s 10s"}, twin: "1 14s 10s"},
	"experiment-windows":    {loads: []string{"7 42s 30s"}, short: true},
	"experiment-move":       {loads: []string{"3 14s 10s"}, move: true},
}

// byTest lets a batch job disturb others, and checks that the daemon tests it, finds it guilty,
// throttles it but for windows at random, and goes on with the verdict after a kill: the whole
// loop on a real kernel. Nobody else may be found guilty.
func byTest(name string) proof {
	run := func(ctx context.Context, n *node) ([]figure, error) {
		length := windows
		if patterns[name].short {
			length = further
		}
		if err := n.configured(ctx, oneLine(strings.Replace(byExperiment, windows, length, 1))); err != nil {
			return nil, err
		}
		t := &tested{&circle{n: n, began: time.Now(), tests: true, owners: patterns[name].move}, patterns[name]}
		steps := []step{t.learn, t.disturb, t.judge}
		if t.short {
			steps = steps[:2] // the further windows, in which it is let go after the verdict, are not looked at
		}
		if t.move {
			steps = []step{t.learn, t.disturb, t.moved, t.hardened, t.judge}
		}
		if t.whole {
			steps = []step{t.learn, t.disturb, t.idled, t.hardened, t.written, t.judge, t.recur, t.survive}
		}
		return t.play(ctx, steps)
	}
	return proof{Name: name, Run: func(ctx context.Context, n *node) ([]figure, error) {
		return unlessNoisy(ctx, n, run)
	}}
}

// tested is a circle in which the antagonist is tested.
type tested struct {
	*circle
	pattern
}

// learn also looks whether what was learned can be told from a disturbance: load of others on
// the host is not stolen by its hypervisor, and shows nowhere else.
func (t *tested) learn(ctx context.Context, w workload) error {
	if err := t.circle.learn(ctx, w); err != nil {
		return err
	}
	const slow = 2 // times the median
	slowed, of := 0, 0
	for _, l := range t.looks {
		if l.victim > 0 {
			of++
			if l.victim > slow*t.normal {
				slowed++
			}
		}
	}
	if 20*slowed > of {
		return fmt.Errorf("%w: the victims were slowed in %d of %d windows before the antagonist began", errNoisy,
			slowed, of)
	}
	return nil
}

// disturb starts the antagonist and waits until it is found guilty.
func (c *tested) disturb(ctx context.Context, batch workload) error {
	for i, load := range c.loads {
		w := batch
		if i > 0 {
			w = bestEffort(fmt.Sprintf("%s-%d", batch.Name, i))
			w.job = batch.job
			if _, err := c.n.create(ctx, w); err != nil {
				return err
			}
		}
		if err := c.load(ctx, w, "spin", load); err != nil {
			return err
		}
	}
	if c.twin != "" {
		if err := c.start(ctx, bestEffort("twin"), "spin", c.twin); err != nil {
			return err
		}
	}
	began := time.Now()
	from := len(c.looks)
	if err := c.watch(ctx, "the antagonist is tested", 4*time.Minute, capped); err != nil {
		return err
	}
	c.figures = append(c.figures, figure{Name: "from its start to the first probe", Value: round(time.Since(began))})
	if err := c.watch(ctx, "the antagonist is found guilty", 6*time.Minute, guilty); err != nil {
		return err
	}
	probes := 0
	for _, l := range c.looks[from:] {
		if l.capped > 0 && !l.guilty {
			probes++
		}
	}
	c.figures = append(c.figures, figure{Name: "from its start to the verdict", Value: round(time.Since(began))},
		figure{Name: "windows of it that tests took, as they were seen", Value: probes})
	return nil
}

// written checks that the kernel's own file says so, too.
func (c *tested) written(ctx context.Context, batch workload) error {
	if _, err := c.quota(ctx, batch, true, unlimited); err != nil {
		return err
	}
	_, err := c.quota(ctx, batch, false, unlimited)
	return err
}

// moved checks that the verdict moves the antagonist off the CPUs around the victim before a quota throttles it, that
// the kernel's own file says so, and that a daemon that is killed meanwhile leaves nothing behind.
func (c *tested) moved(ctx context.Context, batch workload) error {
	off := c.looks[len(c.looks)-1].off
	if off == "" {
		return errors.New("the verdict did not move the antagonist")
	}
	around, err := cpuset.Parse(off)
	if err != nil {
		return err
	}
	left, err := c.mask(ctx, batch, "is moved", func(is *cpuset.Set) bool { return !is.Intersects(&around) })
	if err != nil {
		return err
	}
	c.figures = append(c.figures, figure{Name: "moved off CPUs " + off + ", onto", Value: left})
	if err := c.n.KillDaemon(ctx); err != nil {
		return err
	}
	killed := time.Now()
	if err := c.n.StartDaemon(ctx); err != nil {
		return err
	}
	whole, err := c.mask(ctx, batch, "is back", around.SubsetOf)
	if err != nil {
		return err
	}
	c.figures = append(c.figures, figure{Name: "the move undone after kill -9, its CPUs again " + whole,
		Value: round(time.Since(killed))})
	return nil
}

// idled checks that the kernel's own file says that the antagonist runs on otherwise idle CPUs alone.
func (c *tested) idled(ctx context.Context, batch workload) error {
	began := time.Now()
	if err := c.watch(ctx, "it runs on idle CPUs alone", 4*time.Minute, idle); err != nil {
		return err
	}
	_, err := c.file(ctx, batch, "../cpu.idle", "runs on idle CPUs alone", func(is string) bool { return is == "1" })
	c.figures = append(c.figures, figure{Name: "cpu.idle of the antagonist's pod is 1 after",
		Value: round(time.Since(began))})
	return err
}

func idle(looks []look) bool { return looks[len(looks)-1].idle }

// pause between two looks: what asks without one is what disturbs the victims most.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Second):
	}
}

// mask waits until the kernel's own file says what is wanted of the antagonist's CPUs.
func (c *tested) mask(ctx context.Context, batch workload, what string, want func(*cpuset.Set) bool) (string, error) {
	return c.file(ctx, batch, "cpuset.cpus.effective", what, func(is string) bool {
		cpus, err := cpuset.Parse(is)
		return err == nil && want(&cpus)
	})
}

// file waits until a file of the antagonist's cgroup says what is wanted.
func (c *tested) file(ctx context.Context, batch workload, name, what string, want func(string) bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	dir, err := c.n.cgroupOf(ctx, batch)
	if err != nil {
		return "", err
	}
	for is := ""; ; pause(ctx) {
		out, err := c.n.Exec(ctx, "cat", cgroupRoot+"/"+dir+"/"+name)
		if err != nil {
			return "", fmt.Errorf("the antagonist %s: %w: %s is %s: %w", what, errUnseen, name, is, err)
		}
		if is = strings.TrimSpace(out.Stdout); want(is) {
			return is, nil
		}
	}
}

// hardened waits until the gentler step, which cannot help where all CPUs are emulated on the same two, has given way
// to a quota.
func (c *tested) hardened(ctx context.Context, batch workload) error {
	began := time.Now()
	quota := func(looks []look) bool {
		l := looks[len(looks)-1]
		return l.guilty && l.capped > 0 && l.off == "" && !l.idle
	}
	if err := c.watch(ctx, "a quota follows the gentler step", 6*time.Minute, quota); err != nil {
		return err
	}
	if _, err := c.quota(ctx, batch, true, unlimited); err != nil {
		return err
	}
	whole, err := c.mask(ctx, batch, "is back", func(is *cpuset.Set) bool { return is.Count() == grid.CPUs() })
	if err != nil {
		return err
	}
	_, err = c.file(ctx, batch, "../cpu.idle", "competes again", func(is string) bool { return is == "0" })
	c.figures = append(c.figures, figure{Name: "a quota in place of the gentler step, its CPUs again " + whole,
		Value: round(time.Since(began))})
	return err
}

func guilty(looks []look) bool { return looks[len(looks)-1].guilty }

// judge says whether throttling helped, by the windows in which the host had its CPUs.
func (c *tested) judge(ctx context.Context, _ workload) error {
	var loud, quiet []look
	const mostJudged = 6 * time.Minute
	enough := func([]look) bool {
		loud, quiet = c.measured()
		return len(loud) >= enoughWindows && len(quiet) >= enoughWindows
	}
	if !enough(nil) {
		if err := c.watch(ctx, "windows of the antagonist at work, and throttled", mostJudged, enough); err != nil {
			return fmt.Errorf("%d windows of the antagonist at work and %d of it throttled were measured, and %d of "+
				"each are needed: %w", len(loud), len(quiet), enoughWindows, errors.Join(err, errNoisy))
		}
	}
	with, without := medianRatio(loud), medianRatio(quiet)
	innocents := 0
	for _, l := range c.looks {
		innocents += l.probed
	}
	c.figures = append(c.figures, figure{Name: fmt.Sprintf("disturbed (%d windows)", len(loud)),
		Value: fmt.Sprintf("%s, %.2f x", c.said(with), with/c.normal)},
		figure{Name: fmt.Sprintf("while the antagonist is throttled (%d windows)", len(quiet)),
			Value: fmt.Sprintf("%s, %.2f x", c.said(without), without/c.normal)},
		figure{Name: "windows of innocents that tests took", Value: innocents},
		figure{Name: "windows looked at", Value: len(c.looks)})
	switch {
	case with < 1.3*c.normal:
		return fmt.Errorf("the victims were hardly disturbed (%s %s, %s before): this proves nothing", c.said(with),
			c.unit(), c.said(c.normal))
	case without > (with+c.normal)/2:
		return errors.Join(fmt.Errorf("throttling did not help: %s %s while it lasted, %s without and %s undisturbed",
			c.said(without), c.unit(), c.said(with), c.said(c.normal)), noisy(c.looks, c.normal))
	}
	return nil
}

// measured are the windows in which the antagonist was at work, and those that it spent
// throttled from their start on.
func (c *tested) measured() (loud, quiet []look) {
	for i, l := range c.looks {
		switch {
		case i == 0 || l.victim == 0 || l.much():
		case c.looks[i-1].capped == 0 && l.batch > 1:
			loud = append(loud, l)
		case c.looks[i-1].capped > 0 && l.batch < 1:
			quiet = append(quiet, l)
		}
	}
	return loud, quiet
}

// quota waits until the antagonist is throttled or not, as the daemon says before and after
// the kernel's own file was read, and returns what that has to say then. Without a throttle it
// has to say own.
func (c *tested) quota(ctx context.Context, batch workload, throttled bool, own string) (is string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for i, was := 0, int64(-1); ; i++ {
		if i > 0 && i%2 == 0 { // what is compared lies within a window
			pause(ctx)
		}
		var top control.Top
		if err := c.ask(ctx, "/v1/top", &top); err != nil {
			return "", err
		}
		l, _, err := c.lookOf(&top)
		if err != nil {
			return "", err
		}
		want := own
		if l.capped > 0 {
			const least = 1000 // the kernel's smallest quota
			want = quotaOf(max(l.capped*period/1000, least))
		}
		if l.capped == was && l.capped > 0 == throttled && is == want {
			return is, nil
		}
		was = l.capped
		if is, err = c.cpuMax(ctx, batch); err != nil {
			return "", fmt.Errorf("cpu.max of the antagonist, throttled %t, was to be %q: %w", throttled, want, err)
		}
	}
}

// recur checks that the throttle comes again, and survives other changes of the cgroup.
func (c *tested) recur(ctx context.Context, batch workload) error {
	id, err := c.n.containerID(ctx, batch)
	if err != nil {
		return err
	}
	for _, step := range c.changes(ctx, id) {
		if err := c.kept(ctx, batch, step.name, step.do); err != nil {
			return err
		}
	}
	if _, err := c.quota(ctx, batch, false, quotaOf(resized)); err != nil {
		return fmt.Errorf("let go, with a limit that came meanwhile: %w", err)
	}
	c.figures = append(c.figures,
		figure{Name: "throttled again, kept through a resize and a reload, then the resize's limit",
			Value: quotaOf(resized)})
	return nil
}

// kept does something while the antagonist is throttled, and looks at once whether it still
// is: what is repaired later was not kept. A coin that lets it go and throttles it again
// meanwhile looks the same once, but not each time.
func (c *tested) kept(ctx context.Context, batch workload, name string, do func() error) error {
	const often, lost = 20, 3
	failed := 0
	for range often {
		limit, err := c.quota(ctx, batch, true, "")
		if err != nil {
			return err
		}
		if err := do(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		is, err := c.cpuMax(ctx, batch)
		if err != nil {
			return err
		}
		var top control.Top
		if err := c.ask(ctx, "/v1/top", &top); err != nil {
			return err
		}
		l, _, err := c.lookOf(&top)
		if err != nil {
			return err
		}
		if is == limit {
			return nil
		}
		if l.capped == 0 {
			continue // let go
		}
		if failed++; failed == lost {
			return fmt.Errorf("after %s in the middle of a throttle cpu.max is %q, want %q", name, is, limit)
		}
	}
	return fmt.Errorf("%s: in %d attempts the antagonist was let go meanwhile each time", name, often)
}

// survive kills the daemon while the antagonist is throttled: the next one undoes that at its
// deadline, and goes on with the verdict.
func (c *tested) survive(ctx context.Context, batch workload) error {
	limit, err := c.quota(ctx, batch, true, "")
	if err != nil {
		return err
	}
	if err := c.n.KillDaemon(ctx); err != nil {
		return err
	}
	if is, err := c.cpuMax(ctx, batch); err != nil || is != limit && is != quotaOf(resized) {
		return errors.Join(fmt.Errorf("the throttle ended with the daemon: cpu.max is %q, want %q", is, limit), err)
	}
	killed := time.Now()
	if err := c.n.StartDaemon(ctx); err != nil {
		return err
	}
	undone, cancel := context.WithTimeout(ctx, throttleLength+2*time.Minute)
	defer cancel()
	for is := ""; is != quotaOf(resized); {
		if is, err = c.cpuMax(undone, batch); err != nil {
			return fmt.Errorf("the throttle of a daemon that was killed is not undone: cpu.max is %q: %w", is, err)
		}
	}
	c.figures = append(c.figures, figure{Name: "undone after kill -9", Value: round(time.Since(killed))})
	if err := c.watch(ctx, "the next daemon goes on with the verdict", 4*time.Minute, guilty); err != nil {
		return err
	}
	if found := c.found(ctx); !strings.Contains(found, "\nquietcore_cpi_tests_total 0\n") {
		return fmt.Errorf("the next daemon began a test of its own:\n%s", found)
	}
	c.figures = append(c.figures, figure{Name: "capped by the next daemon, without a new test",
		Value: round(time.Since(killed))})
	return nil
}
