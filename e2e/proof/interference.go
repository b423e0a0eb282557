package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/quietcore/quietcore/cpi/counter"
	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/sampler/sweep"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/incidents/plot"
)

const (
	jobLabel = "job"
	batchJob = "batch" // the antagonist's
)

// shortened makes the detector work in seconds instead of minutes, and declares
// stand-ins for the counters that an emulated machine lacks: nanoseconds on CPU per
// page fault. Busy neighbours take the host's CPUs away, so this ratio really suffers.
// In proportion to caps, specs are updated as rarely as by default: interference must
// not become normal. An emulated CPU counts at many times the cost of a real one, in windows
// that are half of the time: what counting may take is not bounded.
const shortened = `{authority: {profile: open},
  cpi: {mode: enforce, detector: contrast, interval: 2s, window: 1s, jobLabel: job, minUsage: 0.03, outlierWindow: 20s,
  scoreWindow: 48s, history: 2m, minTasks: 2, minTaskSamples: 20, specEvery: 4m, capFor: 20s, moveFor: 40s,
  budget: {node: 0, cpu: 0},
  standIns: {cycles: on-cpu-nanoseconds, instructions: page-faults}}}`

const capLength = 20 * time.Second

// interference lets a batch pod disturb others, and checks that the daemon finds it,
// caps it, verifies that the cap helped and releases it: the whole loop on a real
// kernel.
func interference(ctx context.Context, n *node) ([]figure, error) {
	return unlessNoisy(ctx, n, wholeCircle)
}

func wholeCircle(ctx context.Context, n *node) ([]figure, error) {
	if err := n.configured(ctx, oneLine(shortened)); err != nil {
		return nil, err
	}
	c := &circle{n: n, began: time.Now()}
	return c.play(ctx, []step{c.learn, c.disturb, c.recur, c.judge, c.survive})
}

func oneLine(config string) string { return strings.ReplaceAll(config, "\n", " ") }

// step of a proof, about the antagonist.
type step = func(context.Context, workload) error

// play the steps beside two victims and two innocents.
func (c *circle) play(ctx context.Context, steps []step) ([]figure, error) {
	n := c.n
	if _, err := c.host.since(n.Machine); err != nil {
		return nil, err
	}
	victims := []workload{shared("web-0", 400), shared("web-1", 400)}
	if c.owners {
		victims = []workload{owner(sweep.LSR, 2, "web-0"), owner(sweep.LSR, 2, "web-1")}
	}
	for i := range victims {
		victims[i].job = "web"
	}
	steady, periodic, batch := bestEffort("steady"), bestEffort("periodic"), bestEffort(batchJob)
	// What the innocents use does not follow how fast the host is, as what the victims suffer does.
	work, rest := [2]string{"fault", "0.15"}, [2]string{"spin", "1 20ms 380ms"}
	if c.queue {
		work = [2]string{"spin", "1 200ms 300ms"}
		batch.milli = 4000 // weighs as much as ten victims
	}
	for _, l := range []struct {
		w    workload
		kind string
		load string
	}{
		{victims[0], work[0], work[1]}, {victims[1], work[0], work[1]}, {steady, rest[0], rest[1]},
		{periodic, "spin", "1 500ms 9500ms"},
	} {
		if err := c.start(ctx, l.w, l.kind, l.load); err != nil {
			return c.figures, err
		}
	}
	batch.job = batchJob
	if _, err := n.create(ctx, batch); err != nil {
		return c.figures, err
	}
	for _, step := range steps {
		if err := step(ctx, batch); err != nil {
			return c.figures, errors.Join(fmt.Errorf("%w\ntimeline:\n%s\n%s", err, c.timeline(), c.found(ctx)),
				c.keep())
		}
	}
	if err := c.keep(); err != nil {
		return c.figures, err
	}
	return c.figures, c.draw(ctx)
}

// circle follows the containers, one look per window.
type circle struct {
	n       *node
	began   time.Time
	looks   []look
	last    time.Duration // the window of the last look
	host    host
	rows    strings.Builder // the samples, as `quietcore cpi replay` reads them
	figures []figure
	normal  float64 // the victims' undisturbed ratio
	tests   bool    // innocents may be throttled for a test
	owners  bool    // the victims have CPUs of their own, on which best effort may run
	queue   bool    // nothing stands in for CPI: the victims' ratio is how long their work took
}

// look is what `quietcore top` shows.
type look struct {
	at     time.Duration
	victim float64 // mean ratio of the victims; 0: none
	batch  float64 // usage of the antagonist
	capped int64   // its cap in thousandths; 0: none
	guilty bool    // it is capped by a verdict, not for a test
	off    string  // the CPUs around a victim that it is moved off in place of a cap
	idle   bool    // it runs on otherwise idle CPUs alone, in place of a cap
	probed int     // innocents that are throttled for a test
	taken
}

func (c *circle) start(ctx context.Context, w workload, kind, load string) error {
	if _, err := c.n.create(ctx, w); err != nil {
		return err
	}
	return c.load(ctx, w, kind, load)
}

func (c *circle) load(ctx context.Context, w workload, kind, load string) error {
	dir, err := c.n.cgroupOf(ctx, w)
	if err != nil {
		return err
	}
	name := kind + "-" + w.Name
	c.n.spins = append(c.n.spins, name)
	return c.n.Start(ctx, name, samplerPath, kind, dir, load)
}

// watch looks once a window until enough returns true, and fails if an innocent is
// capped.
func (c *circle) watch(ctx context.Context, what string, limit time.Duration, enough func([]look) bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	from := len(c.looks)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		var top control.Top
		err := c.ask(ctx, "/v1/top", &top)
		if err == nil {
			l, window, err := c.lookOf(&top)
			if err != nil {
				return errors.Join(err, noisy(c.looks[from:], c.normal))
			}
			if window != c.last {
				c.last = window
				c.row(&top, window)
				if l.taken, err = c.host.since(c.n.Machine); err != nil {
					return err
				}
				c.looks = append(c.looks, l)
				fmt.Fprintln(c.n.stderr, "  "+c.line(l))
				if enough(c.looks[from:]) {
					return nil
				}
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w within %v: %w", what, errUnseen, limit,
				errors.Join(ctx.Err(), err, noisy(c.looks[from:], c.normal)))
		case <-tick.C:
		}
	}
}

// noisy returns an error if the host had its CPUs taken away in a third of the windows, or the
// victims suffered in a fifth of those in which the antagonist did nothing: a hypervisor does
// not count all that it takes, nor what it took while normal was learned: then they are faster since. normal is 0 until
// it was learned.
func noisy(looks []look, normal float64) error {
	bad := len(looks) - len(undisturbedHost(looks))
	if 3*bad > len(looks) {
		return fmt.Errorf("%w in %d of %d windows", errNoisy, bad, len(looks))
	}
	const slow, fast, idle = 2, 0.67, 0.1 // times normal, and CPUs
	alone, slowed, faster := 0, 0, 0
	for _, l := range looks {
		if normal > 0 && l.victim > 0 && l.batch < idle {
			alone++
			switch {
			case l.victim > slow*normal:
				slowed++
			case l.victim < fast*normal:
				faster++
			}
		}
	}
	if 5*slowed > alone {
		return fmt.Errorf("%w: the victims were slowed in %d of %d windows in which the antagonist did nothing",
			errNoisy, slowed, alone)
	}
	if 2*faster > alone {
		return fmt.Errorf("%w while the victims' normal was learned: alone they were faster since in %d of %d windows",
			errNoisy, faster, alone)
	}
	return nil
}

// mostSpread bounds by how much the victims' ratio may vary while nobody disturbs them: in a job's spec with a wider
// spread, what the antagonist does to them is no outlier.
const mostSpread = 2.5

// unsteady returns an error if it varied by more, between its first and its last decile. Only the host can do that.
func unsteady(looks []look) error {
	var all []float64
	for _, l := range undisturbedHost(looks) {
		if l.victim > 0 {
			all = append(all, l.victim)
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	low, high := all[len(all)/10], all[len(all)-1-len(all)/10]
	if high > mostSpread*low {
		return fmt.Errorf("%w: the victims' ratio went from %.0f to %.0f while nobody disturbed them",
			errNoisy, low, high)
	}
	return nil
}

func undisturbedHost(looks []look) []look {
	return slices.DeleteFunc(slices.Clone(looks), func(l look) bool { return l.much() })
}

// lookOf also says which window it shows, by when that ended.
func (c *circle) lookOf(top *control.Top) (l look, window time.Duration, err error) {
	l.at = time.Since(c.began)
	if top.CPI.Age != nil {
		window = top.At.Add(-time.Duration(*top.CPI.Age * float64(time.Second))).Sub(c.began).Round(
			500 * time.Millisecond)
	}
	sum, count := 0.0, 0
	fault := float64(counter.PageFaults.Worth())
	for _, r := range top.Containers {
		switch {
		case strings.HasPrefix(r.Pod, "web-") && c.queue && r.Queue != nil:
			sum += *r.Queue
			count++
		case strings.HasPrefix(r.Pod, "web-") && r.CPI != nil:
			sum += *r.CPI * fault
			count++
		case ofBatch(r.Pod):
			l.capped, l.guilty = max(l.capped, r.CapMilli), l.guilty || r.Throttled != nil && r.Throttled.Verdict
			if r.Throttled != nil {
				l.off, l.idle = r.Throttled.MovedOff, l.idle || r.Throttled.IdleOnly
			}
			if r.Sample.Usage != nil {
				l.batch += *r.Sample.Usage
			}
		}
		switch why := r.Throttled; {
		case ofBatch(r.Pod) || r.CapMilli == 0:
		case c.tests && (why == nil || !why.Verdict): // nil: it has just been let go
			l.probed++
		default:
			return l, window, fmt.Errorf("pod %s is %w at %dm", r.Pod, errInnocent, r.CapMilli)
		}
	}
	if count > 0 {
		l.victim = sum / float64(count)
	}
	return l, window, nil
}

func ofBatch(pod string) bool { return strings.HasPrefix(pod, batchJob) }

// row adds a window's samples to the record.
func (c *circle) row(top *control.Top, window time.Duration) {
	for _, r := range top.Containers {
		if r.Sample.Usage == nil {
			continue
		}
		cpi := ""
		if r.CPI != nil {
			cpi = fmt.Sprintf("%.5f", *r.CPI)
		}
		job, class := r.Pod, "BE"
		switch {
		case strings.HasPrefix(r.Pod, "web-"):
			job, class = "web", "LS"
		case ofBatch(r.Pod):
			job = batchJob
		}
		fmt.Fprintf(&c.rows, "%.1f,%s,%s,%s,%.4f,%s\n", window.Seconds(), r.Pod, job, class, *r.Sample.Usage, cpi)
	}
}

// keep leaves the record next to the plot.
func (c *circle) keep() error {
	return os.WriteFile(filepath.Join(c.n.options.Cache, "interference.csv"),
		[]byte("time,container,job,class,usage,cpi\n"+c.rows.String()), 0o644)
}

func medianRatio(looks []look) float64 {
	var all []float64
	for _, l := range looks {
		if l.victim > 0 {
			all = append(all, l.victim)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// learn waits until the job has a spec.
func (c *circle) learn(ctx context.Context, _ workload) error {
	enough := 30 // windows: two tasks have twenty samples each, and a spec was made
	if c.tests {
		enough = 45 // forty undisturbed ones of the job say what is normal
	}
	err := c.watch(ctx, "windows in which the victims are counted", 6*time.Minute, func(looks []look) bool {
		n := 0
		for _, l := range looks {
			if l.victim > 0 {
				n++
			}
		}
		return n >= enough
	})
	if err != nil {
		return err
	}
	if err := errors.Join(noisy(c.looks, c.normal), unsteady(c.looks)); err != nil {
		return fmt.Errorf("what was learned is not the victims' normal: %w", err)
	}
	c.normal = medianRatio(undisturbedHost(c.looks))
	c.figures = append(c.figures, figure{Name: "the victims' " + c.unit() + ", undisturbed", Value: c.said(c.normal)})
	return nil
}

// antagonist is what the batch pod does. To have others wait it needs more threads than there are CPUs.
func (c *circle) antagonist() string {
	threads := grid.CPUs() - 1
	if c.queue {
		threads = 2 * grid.CPUs()
	}
	return fmt.Sprintf("%d 14s 10s", threads)
}

// disturb starts the antagonist and waits until it is capped and the cap has ended.
func (c *circle) disturb(ctx context.Context, batch workload) error {
	if err := c.load(ctx, batch, "spin", c.antagonist()); err != nil {
		return err
	}
	began := time.Now()
	if err := c.watch(ctx, "the antagonist is capped", 4*time.Minute, capped); err != nil {
		return err
	}
	c.figures = append(c.figures, figure{Name: "from its start to the cap", Value: round(time.Since(began))})
	if err := c.quota(ctx, batch, c.capNow()); err != nil {
		return err
	}
	if err := c.watch(ctx, "the cap ends", 3*time.Minute, uncapped); err != nil {
		return err
	}
	return c.quota(ctx, batch, unlimited)
}

func capped(looks []look) bool { return looks[len(looks)-1].capped > 0 }

func uncapped(looks []look) bool { return !capped(looks) }

// enoughWindows of each kind are what a median is taken of, and moreCaps the most
// that are waited for where the host lost CPU time meanwhile.
const (
	enoughWindows = 5
	moreCaps      = 4
)

// judge says whether the caps helped, by the windows in which the host had its CPUs.
func (c *circle) judge(ctx context.Context, _ workload) error {
	var loud, quiet []look
	for more := 0; ; more++ {
		loud, quiet = c.measured()
		if len(loud) >= enoughWindows && len(quiet) >= enoughWindows {
			break
		}
		if more == moreCaps {
			return fmt.Errorf(
				"%d windows of the antagonist at work and %d of it capped were measured, and %d of each are needed: "+
					"%w", len(loud), len(quiet), enoughWindows, errNoisy)
		}
		if err := c.watch(ctx, "another cap", 6*time.Minute, capped); err != nil {
			return err
		}
		if err := c.watch(ctx, "its end", 3*time.Minute, uncapped); err != nil {
			return err
		}
	}
	with, without := medianRatio(loud), medianRatio(quiet)
	c.figures = append(c.figures, figure{Name: fmt.Sprintf("disturbed (%d windows)", len(loud)),
		Value: fmt.Sprintf("%s, %.2f x", c.said(with), with/c.normal)},
		figure{Name: fmt.Sprintf("while the antagonist is capped (%d windows)", len(quiet)),
			Value: fmt.Sprintf("%s, %.2f x", c.said(without), without/c.normal)},
		figure{Name: "windows looked at", Value: len(c.looks)})
	switch {
	case with < 1.3*c.normal:
		return fmt.Errorf("the victims were hardly disturbed (%s %s, %s before): this proves nothing",
			c.said(with), c.unit(), c.said(c.normal))
	case without > (with+c.normal)/2:
		return errors.Join(fmt.Errorf("the caps did not help: %s %s while they held, %s without and %s undisturbed",
			c.said(without), c.unit(), c.said(with), c.said(c.normal)), noisy(c.looks, c.normal))
	}
	return nil
}

// measured are the windows in which the antagonist was at work, and those that it
// spent in a cap from their start on.
func (c *circle) measured() (loud, quiet []look) {
	for i, l := range c.looks {
		switch {
		case l.victim == 0 || l.much():
		case l.capped == 0 && l.batch > 1:
			loud = append(loud, l)
		case i > 0 && l.capped > 0 && c.looks[i-1].capped > 0:
			quiet = append(quiet, l)
		}
	}
	return loud, quiet
}

// quota waits until the kernel's own file has this value.
func (c *circle) quota(ctx context.Context, batch workload, want string) error {
	ctx, cancel := context.WithTimeout(ctx, capLength+2*time.Minute)
	defer cancel()
	for {
		is, err := c.cpuMax(ctx, batch)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("cpu.max of the antagonist is %q, want %q: %w", is, want, ctx.Err())
		case err != nil || is == want:
			return err
		}
	}
}

func (c *circle) cpuMax(ctx context.Context, w workload) (string, error) {
	dir, err := c.n.cgroupOf(ctx, w)
	if err != nil {
		return "", err
	}
	out, err := c.n.Exec(ctx, "cat", cgroupRoot+"/"+dir+"/cpu.max")
	return strings.TrimSpace(out.Stdout), err
}

const (
	period    = 100_000 // microseconds
	unlimited = "max 100000"
)

// capNow is what cpu.max has to say of the cap that the last look saw.
func (c *circle) capNow() string {
	const least = 1000 // the kernel's smallest quota
	return quotaOf(max(c.looks[len(c.looks)-1].capped*period/1000, least))
}

func quotaOf(microseconds int64) string { return fmt.Sprintf("%d %d", microseconds, period) }

// foreign is a change of a cgroup that is not the daemon's.
type foreign struct {
	name string
	do   func() error
}

// changes are those of a container's cgroup that a limit of ours has to survive.
func (c *circle) changes(ctx context.Context, id string) []foreign {
	return []foreign{
		{"a resize", func() error {
			_, err := c.n.CRI().UpdateContainerResources(ctx,
				&cri.UpdateContainerResourcesRequest{ContainerId: id,
					Linux: &cri.LinuxContainerResources{CpuPeriod: period, CpuQuota: resized}})
			return err
		}},
		{"a daemon-reload", func() error {
			if c.n.Driver != kubelet.Systemd {
				return nil
			}
			_, err := c.n.Exec(ctx, "systemctl", "daemon-reload")
			return err
		}},
	}
}

// recur checks that the antagonist returns and is capped again, and that the cap
// survives other changes of the cgroup.
func (c *circle) recur(ctx context.Context, batch workload) error {
	if err := c.watch(ctx, "it is capped again", 6*time.Minute, capped); err != nil {
		return err
	}
	id, err := c.n.containerID(ctx, batch)
	if err != nil {
		return err
	}
	limit := c.capNow()
	if err := c.quota(ctx, batch, limit); err != nil {
		return err
	}
	for _, step := range c.changes(ctx, id) {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		// At once: what is repaired later was not kept.
		if is, err := c.cpuMax(ctx, batch); err != nil || is != limit {
			return errors.Join(fmt.Errorf("after %s in the middle of a cap cpu.max is %q, want %q", step.name, is,
				limit), err)
		}
	}
	if err := c.watch(ctx, "the second cap ends", 3*time.Minute, uncapped); err != nil {
		return err
	}
	if err := c.quota(ctx, batch, quotaOf(resized)); err != nil {
		return fmt.Errorf("after the cap, with a limit that came meanwhile: %w", err)
	}
	c.figures = append(c.figures,
		figure{Name: "capped again, kept through a resize and a reload, then the resize's limit", Value: limit +
			", then " + quotaOf(resized)})
	return nil
}

// resized is a limit that leaves the antagonist enough to disturb others.
const resized = 7 * period

// survive kills the daemon during a cap: the next one undoes it at its deadline, though
// the detector's state is lost.
func (c *circle) survive(ctx context.Context, batch workload) error {
	if err := c.watch(ctx, "it is capped a third time", 6*time.Minute, capped); err != nil {
		return err
	}
	if err := c.quota(ctx, batch, c.capNow()); err != nil { // decided first, then written
		return err
	}
	if err := c.n.KillDaemon(ctx); err != nil {
		return err
	}
	if err := c.quota(ctx, batch, c.capNow()); err != nil {
		return fmt.Errorf("the cap ended with the daemon: %w", err)
	}
	killed := time.Now()
	if err := c.n.StartDaemon(ctx); err != nil {
		return err
	}
	if err := c.quota(ctx, batch, quotaOf(resized)); err != nil {
		return err
	}
	c.figures = append(c.figures, figure{Name: "undone after kill -9", Value: round(time.Since(killed))})
	return nil
}

// found returns the daemon's metrics of its detector.
func (c *circle) found(ctx context.Context) string {
	text, err := c.n.metrics(ctx)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "quietcore_cpi_") || strings.HasPrefix(line, "quietcore_capped") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// draw writes a plot of the first incident with a cap whose effect was measured.
func (c *circle) draw(ctx context.Context) error {
	listing := &incidents.Listing{}
	if err := c.ask(ctx, "/v1/incidents", listing); err != nil {
		return err
	}
	slices.SortFunc(listing.Incidents, func(a, b incidents.Summary) int { return a.At.Compare(b.At) })
	for _, i := range listing.Incidents {
		whole := &incidents.Incident{}
		if err := c.ask(ctx, "/v1/incidents/one/"+i.ID, whole); err != nil {
			return err
		}
		if len(whole.Actions) == 0 || whole.Outcome.Result == "" {
			continue
		}
		file := filepath.Join(c.n.options.Cache, "interference.svg")
		var svg bytes.Buffer
		if err := plot.SVG(&svg, whole); err != nil {
			return err
		}
		c.figures = append(c.figures, figure{Name: "incidents on record", Value: len(listing.Incidents)},
			figure{Name: "the first that was acted upon", Value: whole.ID + ": " + whole.Outcome.Result},
			figure{Name: "its plot", Value: file})
		return os.WriteFile(file, svg.Bytes(), 0o644)
	}
	if c.owners { // the daemon was killed before the first one's outcome
		c.figures = append(c.figures, figure{Name: "incidents on record", Value: len(listing.Incidents)})
		return nil
	}
	return fmt.Errorf("none of %d incidents has an action and an outcome", len(listing.Incidents))
}

func (c *circle) ask(ctx context.Context, path string, into any) error {
	code, body, err := c.n.HTTP(ctx, controlSocket, "GET", path, nil)
	if err != nil {
		return err
	}
	if code != 200 {
		return fmt.Errorf("%s: code %d: %s", path, code, body)
	}
	return json.Unmarshal(body, into)
}

const controlSocket = "/run/quietcore/quietcore.sock"

// timeline is a line a window.
func (c *circle) timeline() string {
	var b strings.Builder
	b.WriteString(header)
	for _, l := range c.looks {
		b.WriteString(c.line(l) + "\n")
	}
	return b.String()
}

const header = "    time   the ratio    batch    cap   lost  the victims against their normal\n"

// unit of the victims' ratio.
func (c *circle) unit() string {
	if c.queue {
		return "time for their work, against alone"
	}
	return "ns a fault"
}

func (c *circle) said(ratio float64) string {
	if c.queue {
		return fmt.Sprintf("%.2f", ratio)
	}
	return fmt.Sprintf("%.0f", ratio)
}

func (c *circle) line(l look) string {
	limit := "-"
	if l.capped > 0 {
		limit = fmt.Sprintf("%dm", l.capped)
	}
	if l.off != "" {
		limit = "off " + l.off
	}
	if l.idle {
		limit = "idle"
	}
	if l.guilty {
		limit += "!"
	}
	bar := ""
	if c.normal > 0 {
		bar = strings.Repeat("#", min(int(20*l.victim/c.normal), 100))
	}
	lost := ""
	if l.much() {
		lost = fmt.Sprintf("%.0f %%", 100*(l.stolen+l.others))
	}
	return fmt.Sprintf("%7.0fs %12s %8.2f %6s %6s  %s", l.at.Seconds(), c.said(l.victim), l.batch, limit, lost, bar)
}
