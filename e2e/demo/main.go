// Command demo shows the main job on a real runtime: it boots a virtual machine
// with 32 CPUs, systemd, containerd and the daemon, creates a pod of every kind, kills the
// daemon, and removes a pod. Every CPU number that it prints was read from the
// kernel (cpuset.cpus.effective), not asked of the daemon. Then it has the detector find a
// noisy neighbour in a recording.
//
//	make demo          shows it and ends
//	make demo KEEP=1   leaves a shell in the machine
//	make demo DRIVER=cgroupfs
//	                   in a machine without systemd
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/machine"
	"github.com/quietcore/quietcore/e2e/scenario"
	"github.com/quietcore/quietcore/internal/render"
	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/topology"
)

//go:embed demo.yaml
var play []byte

func main() {
	keep := flag.Bool("keep", false, "leave a shell in the machine at the end")
	svg := flag.String("svg", "demo-machine.svg", "where to draw the machine")
	cache := flag.String("cache", ".cache/e2e", "where kernels, runtimes and binaries are kept")
	driver := flag.String("driver", string(kubelet.Systemd), "cgroup driver of the machine: systemd or cgroupfs")
	flag.Parse()
	if !slices.Contains(kubelet.Drivers(), kubelet.Driver(*driver)) {
		fmt.Fprintf(os.Stderr, "demo: -driver %s: must be systemd or cgroupfs\n", *driver)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	color := os.Getenv("NO_COLOR") == "" && (os.Getenv("FORCE_COLOR") != "" || term.IsTerminal(int(os.Stdout.Fd())))
	d := &demo{out: os.Stdout, color: color, began: time.Now()}
	options := machine.Options{Cache: *cache, Driver: kubelet.Driver(*driver), Progress: os.Stderr}
	if err := d.run(ctx, options, *svg, *keep); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// demo keeps the last line, so that the next picture can show what changed.
type demo struct {
	out   io.Writer
	color bool
	began time.Time
	topo  *topology.Topology
	guest *scenario.Guest
	last  script.Line
	crowd script.Line // when every pod was there
}

func (d *demo) run(ctx context.Context, options machine.Options, svg string, keep bool) error {
	s, err := scenario.Parse("demo.yaml", play)
	if err != nil {
		return err
	}
	if d.topo, _, err = s.File.Topology.Build(nil); err != nil {
		return err
	}
	grid, err := s.Grid()
	if err != nil {
		return err
	}
	d.say("A node with %d CPUs: %s.", grid.CPUs(), grid)
	options.Grid = grid
	d.guest, err = scenario.Boot(ctx, scenario.BootOptions{Machine: options, Daemon: true})
	if err != nil {
		return err
	}
	defer d.guest.Close()
	d.say("It booted in %.0f s with containerd %s, cgroup driver %s. Starting the daemon.",
		d.guest.Booted.Seconds(), machine.ContainerdVersion, options.Driver)
	player, err := scenario.NewPlayer(ctx, d.guest, s)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, d.guest.Diagnosis(ctx))
	}
	if err := d.show(ctx, player, s); err != nil {
		return fmt.Errorf("%w\n%s", err, d.guest.Diagnosis(ctx))
	}
	if err := errors.Join(d.neighbour(), d.draw(svg)); err != nil {
		return err
	}
	d.say("The machine is drawn in %s. Done after %.0f s.", svg, time.Since(d.began).Seconds())
	if keep {
		return d.guest.Shell(ctx, os.Stdin, os.Stdout)
	}
	return nil
}

// show plays the steps and says of each what it did.
func (d *demo) show(ctx context.Context, player *scenario.Player, s *scenario.Script) error {
	empty := script.Line{Pools: script.Pools{Shared: d.everything(), BE: d.everything()}}
	d.last = empty
	for i := range s.File.Steps {
		step := &s.File.Steps[i]
		switch step.Op() {
		case "restartDaemon":
			d.compare("Before and after the pods came:", empty, d.crowd)
			d.reasons(d.crowd)
			d.say("kill -9 of the daemon, and a new one.")
		case "remove":
			d.say("Removing %s/%s.", step.Remove.Namespace, step.Remove.Pod)
		case "create":
			d.say("Creating %s/%s, %s.", step.Create.Namespace, step.Create.Pod, kind(step.Create))
		}
		line, err := player.Step(ctx, step)
		if err != nil {
			return err
		}
		before := d.last
		d.last = *line
		switch {
		case line.Error != nil:
			d.note("refused: %s: %s", line.Error.Code, line.Error.Message)
		case step.Op() == "restartDaemon":
			if err := d.unmoved(before, *line); err != nil {
				return err
			}
		case step.Op() == "remove":
			d.compare("Its CPUs return to the pools:", before, *line)
		default:
			d.placed(*line, step.Create)
			d.crowd = *line
		}
	}
	return nil
}

func (d *demo) everything() string { return d.topo.Online().String() }

func kind(c *script.Create) string {
	class := c.Labels["koordinator.sh/qosClass"]
	if class == "" {
		return "a " + string(c.KubernetesQoS) + " pod without a class"
	}
	return fmt.Sprintf("class %s, %dm", class, c.Containers[0].RequestMilli)
}

// placed says where the pod's first container was found.
func (d *demo) placed(line script.Line, c *script.Create) {
	for _, s := range line.Containers {
		if s.Namespace == c.Namespace && s.Pod == c.Pod {
			d.note("runs on CPUs %s (%s)", s.CPUs, s.Pool)
		}
	}
}

// reasons is one sentence a container.
func (d *demo) reasons(line script.Line) {
	fmt.Fprintln(d.out, "\nWhy each container sits where it sits:")
	for _, s := range line.Containers {
		fmt.Fprintf(d.out, "  %-20s CPUs %s\n    %s\n", s.Namespace+"/"+s.Pod+"/"+s.Container, s.CPUs, s.Why)
	}
}

// unmoved fails if the restart moved a pod.
func (d *demo) unmoved(before, after script.Line) error {
	if moved := script.Changed(before.Containers, after.Containers); len(moved) > 0 {
		return fmt.Errorf("the restart of the daemon moved %v", moved)
	}
	if len(before.Containers) != len(after.Containers) || before.Pools != after.Pools {
		return fmt.Errorf("the restart of the daemon changed %v to %v", before.Pools, after.Pools)
	}
	names := make([]string, 0, len(after.Containers))
	for _, s := range after.Containers {
		names = append(names, s.Pod)
	}
	slices.Sort(names)
	d.note("nothing moved: %d containers (%v) run on the CPUs they ran on before", len(names), names)
	return nil
}

func (d *demo) view(title string, line script.Line) render.View {
	return script.View(title, d.topo, line.Containers, line.Pools)
}

func (d *demo) compare(title string, before, after script.Line) {
	fmt.Fprintf(d.out, "\n%s\n\n", title)
	if err := render.Diff(d.out, d.view("before", before), d.view("after", after), d.color); err != nil {
		fmt.Fprintln(d.out, err)
	}
}

func (d *demo) draw(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := render.SVG(f, d.view("demo", d.crowd)); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func (d *demo) say(format string, args ...any) {
	bold, plain := "", ""
	if d.color {
		bold, plain = "\x1b[1m", "\x1b[0m"
	}
	fmt.Fprintf(d.out, "%s[%3.0f s] %s%s\n", bold, time.Since(d.began).Seconds(), fmt.Sprintf(format, args...), plain)
}

func (d *demo) note(format string, args ...any) {
	fmt.Fprintf(d.out, "        %s\n", fmt.Sprintf(format, args...))
}
