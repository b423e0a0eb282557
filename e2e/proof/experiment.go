package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quietcore/quietcore/internal/control"
)

// byExperiment is shortened for the detector by experiment, with nothing of its own changed
// but how long a window is.
const byExperiment = `{authority: {profile: open},
  cpi: {mode: enforce, detector: experiment, interval: 2s, window: 1s, jobLabel: job, budget: {node: 0, cpu: 0},
  standIns: {cycles: on-cpu-nanoseconds, instructions: page-faults}}}`

// throttleLength is for how long a throttle is good that nobody tells anew.
const throttleLength = 4 * time.Second

// experiment lets a batch pod disturb others, and checks that the daemon tests it, finds it
// guilty, throttles it but for windows at random, and goes on with the verdict after a kill:
// the whole loop on a real kernel. Nobody else may be found guilty.
func experiment(ctx context.Context, n *node) ([]figure, error) {
	return unlessNoisy(ctx, n, wholeExperiment)
}

func wholeExperiment(ctx context.Context, n *node) ([]figure, error) {
	if err := n.configured(ctx, strings.ReplaceAll(byExperiment, "\n", " ")); err != nil {
		return nil, err
	}
	t := &tested{&circle{n: n, began: time.Now(), tests: true}}
	return t.play(ctx, []step{t.learn, t.disturb, t.judge, t.recur, t.survive})
}

// tested is a circle in which the antagonist is tested.
type tested struct{ *circle }

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

// disturb starts the antagonist and waits until it is found guilty, and let go for a
// window.
func (c *tested) disturb(ctx context.Context, batch workload) error {
	if err := c.load(ctx, batch, "spin", antagonist); err != nil {
		return err
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
	if _, err := c.quota(ctx, batch, true, unlimited); err != nil {
		return err
	}
	_, err := c.quota(ctx, batch, false, unlimited)
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
		Value: fmt.Sprintf("%.0f, %.2f x", with, with/c.normal)},
		figure{Name: fmt.Sprintf("while the antagonist is throttled (%d windows)", len(quiet)),
			Value: fmt.Sprintf("%.0f, %.2f x", without, without/c.normal)},
		figure{Name: "windows of innocents that tests took", Value: innocents},
		figure{Name: "windows looked at", Value: len(c.looks)})
	switch {
	case with < 1.3*c.normal:
		return fmt.Errorf("the victims were hardly disturbed (%.0f ns a fault, %.0f before): this proves nothing",
			with, c.normal)
	case without > (with+c.normal)/2:
		return errors.Join(fmt.Errorf("throttling did not help: %.0f ns a fault while it lasted, %.0f without and "+
			"%.0f undisturbed", without, with, c.normal), noisy(c.looks, c.normal))
	}
	return nil
}

// measured are the windows in which the antagonist was at work, and those that it spent
// throttled from their start on.
func (c *tested) measured() (loud, quiet []look) {
	for i, l := range c.looks {
		switch {
		case i == 0 || l.victim == 0 || l.stolen > mostStolen:
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
	for was := int64(-1); ; {
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
