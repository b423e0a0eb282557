// Command load plays a container runtime in the guest and measures its waits. It uses
// the real adaptation of NRI with the real daemon behind it, real cgroups with real
// threads, and runc.
//
//	load -driver systemd -out /run/bench/report.json
//	load nothing SOCKET      the plugin that does nothing
//
// Invariant: an owner that is admitted while its neighbours may still run on its CPUs
// is an error, never a fast answer.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	nrilog "github.com/containerd/nri/pkg/log"

	"github.com/quietcore/quietcore/e2e/bench/figures"
	"github.com/quietcore/quietcore/e2e/kubelet"
)

type options struct {
	driver  string
	out     string
	samples int
	runc    int
	most    int
	threads int
	memory  bool
}

func main() {
	nrilog.Set(quiet{})
	var err error
	if len(os.Args) == 3 && os.Args[1] == "nothing" {
		err = nothing(os.Args[2])
	} else {
		err = run(os.Args[1:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func parse(args []string) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("load", flag.ContinueOnError)
	f.StringVar(&o.driver, "driver", "cgroupfs", "how cgroups are made: cgroupfs or systemd")
	f.StringVar(&o.out, "out", "/run/bench/report.json", "`file` for what was measured")
	f.IntVar(&o.samples, "samples", 100, "owners that come and go with the most containers, with either plugin")
	f.IntVar(&o.runc, "runc", 20, "containers that runc makes and updates")
	f.IntVar(&o.most, "containers", 500,
		"burstable containers in the last stage; a tenth and a hundredth in those before")
	f.IntVar(&o.threads, "threads", 20, "threads of each")
	f.BoolVar(&o.memory, "memory", false, "measure the daemon's memory with everything on, and nothing else")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if !slices.Contains(kubelet.Drivers(), kubelet.Driver(o.driver)) {
		return nil, fmt.Errorf("-driver %s: must be cgroupfs or systemd", o.driver)
	}
	if o.samples < 1 || o.runc < 1 || o.most < 100 || o.threads < 1 {
		return nil, errors.New("-samples, -runc and -threads must be at least 1, -containers 100")
	}
	return o, nil
}

func run(args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	ctx := context.Background()
	if err := os.MkdirAll(workDir, 0o755); err != nil {
		return err
	}
	n, err := newNode(ctx, o)
	if err != nil {
		return err
	}
	defer n.close()
	measure := n.measure
	if o.memory {
		measure = n.memory
	}
	report, err := measure(ctx)
	if err != nil {
		return fmt.Errorf("%w\nthe daemon's log ends:\n%s", err, n.daemon.tail())
	}
	text, err := json.Marshal(report)
	if err != nil {
		return err
	}
	return os.WriteFile(o.out, text, 0o644)
}

// report is one of this guest, with no figures yet.
func (n *node) report() (*figures.Report, error) {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return nil, err
	}
	all, err := n.allCPUs()
	return &figures.Report{Driver: n.o.driver, Kernel: strings.TrimSpace(string(release)), CPUs: all.Count()}, err
}

// measure does everything in one run, so that its figures can be divided.
func (n *node) measure(ctx context.Context) (*figures.Report, error) {
	r, err := n.report()
	if err != nil {
		return nil, err
	}
	for _, containers := range []int{n.o.most / 100, n.o.most / 10, n.o.most} {
		s, err := n.stage(ctx, containers)
		if err != nil {
			return nil, fmt.Errorf("with %d containers: %w", containers, err)
		}
		r.Stages = append(r.Stages, s)
	}
	if err := n.answers(ctx, r); err != nil {
		return nil, fmt.Errorf("answer times: %w", err)
	}
	if r.Audit, err = n.audit(ctx); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	if r.Update, err = n.updates(ctx); err != nil {
		return nil, fmt.Errorf("runc: %w", err)
	}
	return r, nil
}

func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// quiet keeps what NRI's library logs out of the measurement.
type quiet struct{}

func (quiet) Debugf(context.Context, string, ...any) {}
func (quiet) Infof(context.Context, string, ...any)  {}
func (quiet) Warnf(context.Context, string, ...any)  {}
func (quiet) Errorf(_ context.Context, format string, args ...any) {
	fmt.Fprintf(os.Stderr, "nri: "+format+"\n", args...)
}
