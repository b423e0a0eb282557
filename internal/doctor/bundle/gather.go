package bundle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/doctor"
	"github.com/quietcore/quietcore/internal/doctor/drift"
	"github.com/quietcore/quietcore/internal/doctor/probe"
	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/render"
	"github.com/quietcore/quietcore/internal/topodoc"
)

// limit bounds the gathering; what has not come by then is left out.
const limit = 2 * time.Minute

// newestIncidents is how many of the newest incidents a bundle has.
const newestIncidents = 200

// Options say what is gathered.
type Options struct {
	Config    string    // file of the daemon; empty: the usual one, if it is there
	Socket    string    // of the daemon; empty: the configuration's
	Build     cli.Build // of this program
	HashNames bool
	// Within says that the daemon itself gathers.
	Within bool
}

// Gather makes the bundle of this machine, and a name for its file.
func Gather(ctx context.Context, o Options) (b *Bundle, name string, err error) {
	g := gathering{file: o.Config, build: o.Build, examine: probe.Examine}
	if o.Within {
		g.examine = probe.Within
	}
	if err := g.configure(o.Socket); err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	now := time.Now()
	b = New(o.Build.Version, now)
	g.fill(ctx, b)
	node := g.cfg.NodeName()
	if o.HashNames {
		host, err := os.Hostname() // "" where there is none: that is no name
		if err != nil {
			host = ""
		}
		if err := b.HashNames(node, host); err != nil {
			return nil, "", err
		}
	}
	if node == "" || o.HashNames {
		node = "node"
	}
	return b, fmt.Sprintf("quietcore-bundle-%s-%s.tar.gz", node, now.UTC().Format("20060102T150405Z")), nil
}

// WriteFile writes the file as a whole or not at all, for its owner alone.
func (b *Bundle) WriteFile(name string) error {
	f, err := renameio.NewPendingFile(name, renameio.WithStaticPermissions(0o600))
	if err != nil {
		return err
	}
	defer func() { _ = f.Cleanup() }()
	if err := b.Write(f); err != nil {
		return err
	}
	return f.CloseAtomicallyReplace()
}

// gathering is where the parts of a bundle come from.
type gathering struct {
	file, broken string
	cfg          *config.Config
	client       control.Client
	build        cli.Build
	examine      func(context.Context, doctor.Options, string) doctor.Report
}

// configure reads the configuration; one that is refused is a finding, not a failure.
func (g *gathering) configure(socket string) error {
	if g.file == "" && exists(doctor.UsualConfig) {
		g.file = doctor.UsualConfig
	}
	if g.file != "" && !exists(g.file) {
		return cli.Usage("configuration %s is not there", g.file)
	}
	cfg, err := config.Load(g.file)
	if err != nil {
		standard := config.Default()
		cfg, g.broken = &standard, err.Error()
	}
	g.cfg = cfg
	if socket == "" {
		socket = cfg.Socket
	}
	g.client = control.Client{Socket: socket}
	return nil
}

func (g *gathering) fill(ctx context.Context, b *Bundle) {
	b.AddJSON("version.json", "quietcore version", func() (any, error) {
		return g.build, nil
	})
	b.AddJSON("doctor.json", "quietcore doctor", func() (any, error) {
		return g.examine(ctx, doctor.Options{Root: "/", Config: g.file}, g.build.Version), nil
	})
	b.AddJSON("config.json", "the configuration with its defaults", func() (any, error) {
		if g.broken != "" {
			return nil, errors.New(g.broken)
		}
		return g.cfg, nil
	})
	b.AddJSON("status.json", "quietcore status", func() (any, error) { return g.client.Status(ctx) })
	b.AddJSON("top.json", "quietcore top", func() (any, error) { return g.client.Top(ctx) })
	b.AddJSON("diff.json", "quietcore diff", func() (any, error) {
		c, err := drift.Compare(ctx, g.client, g.cfg.Cgroup.Root, time.Second)
		if c.Differences == nil {
			c.Differences = []drift.Difference{}
		}
		return c, err
	})
	b.AddJSON("record.json", "quietcore record: replay it with `quietcore simulate record.json`", func() (any, error) {
		text, err := g.client.Record(ctx)
		return json.RawMessage(text), err
	})
	b.AddJSON("incidents.json", "quietcore incidents", func() (any, error) {
		return g.client.Incidents().List(ctx, incidents.Filter{Limit: newestIncidents})
	})
	b.AddJSON("readyz.json", "/readyz", func() (any, error) { return probe.Readiness(ctx, g.cfg.Health.Listen) })
	b.AddText("metrics.txt", "/metrics", func(w io.Writer) error {
		text, err := g.client.Metrics(ctx)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	})
	g.machine(b)
}

func (g *gathering) machine(b *Bundle) {
	t, warnings, err := topodoc.Doc{Sysfs: g.cfg.Sysfs.Root}.Build(topodoc.Open)
	b.AddJSON("topology.json", "quietcore topology", func() (any, error) {
		if err != nil {
			return nil, err
		}
		text, err := topodoc.JSON(t)
		return json.RawMessage(text), err
	})
	b.AddText("topology.txt", "the machine for people", func(w io.Writer) error {
		if err != nil {
			return err
		}
		return render.Describe(w, t, warnings, false)
	})
	for name, file := range map[string]string{"/proc/sys/kernel/osrelease": "kernel.txt",
		"/proc/pressure/cpu": "pressure.txt"} {
		b.AddText(file, name, func(w io.Writer) error {
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			_, err = w.Write(text)
			return err
		})
	}
	b.AddText("cmdline.txt", "of /proc/cmdline what is about CPUs and cgroups", func(w io.Writer) error {
		text, err := os.ReadFile("/proc/cmdline")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(w, strings.Join(aboutCPUs(string(text)), " "))
		return err
	})
}

// aboutCPUs picks from a kernel's command line, in which people write passwords too,
// what decides about CPUs.
func aboutCPUs(line string) []string {
	known := []string{
		"isolcpus", "nohz", "nohz_full", "rcu_nocbs", "irqaffinity", "nosmt", "maxcpus", "nr_cpus", "possible_cpus",
		"mitigations", "numa", "numa_balancing", "noapic", "acpi",
		"cgroup_disable", "cgroup_no_v1", "systemd.unified_cgroup_hierarchy", "lockdown", "nmi_watchdog", "nowatchdog",
		"intel_pstate", "amd_pstate", "intel_idle.max_cstate", "psi", "preempt", "tsc", "clocksource",
	}
	return slices.DeleteFunc(strings.Fields(line), func(word string) bool {
		key, _, _ := strings.Cut(word, "=")
		return !slices.Contains(known, key)
	})
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
