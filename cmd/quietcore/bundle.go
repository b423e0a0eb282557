package main

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
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/doctor"
	"github.com/quietcore/quietcore/internal/doctor/bundle"
	"github.com/quietcore/quietcore/internal/doctor/drift"
	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/render"
	"github.com/quietcore/quietcore/internal/topodoc"
)

// bundleLimit bounds the gathering of a bundle; what has not come by then is left out.
const bundleLimit = 2 * time.Minute

// bundledIncidents is how many of the newest incidents a bundle has.
const bundledIncidents = 200

func newBundle() *cobra.Command {
	var file, socket string
	var hash bool
	cmd := &cobra.Command{
		Use:   "bundle [FILE]",
		Short: "gather what a bug report needs into one archive",
		Long: `Writes a tar.gz with what a bug report needs: the version, what doctor and diff find, the daemon's
status, what its containers use, the record of the last events (it replays with quietcore
simulate), the newest incidents, the configuration, health, metrics and the machine. MANIFEST.json
lists every file with its checksum and says what could not be had. FILE is by default
quietcore-bundle-NODE-TIME.tar.gz in this directory; - is standard output.

No environment, no file of the runtime or of kubelet, no secret and no token gets into it, and of
the kernel's command line only what is about CPUs. The names of namespaces, pods, containers, jobs
and of the Node are in it, unless --hash-names: then each is replaced by a hash whose key is thrown
away, the same name by the same hash.`,
		Example: `  quietcore bundle
  quietcore bundle --hash-names report.tar.gz
  kubectl -n quietcore-system exec POD -- /quietcore bundle - > report.tar.gz`,
		Args: cli.AtMostOneArg("the file"),
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file of the daemon; without one "+doctor.UsualConfig+
		" if it is there, else the defaults")
	cmd.Flags().StringVar(&socket, "socket", "", "the daemon's control socket; without it the configuration's")
	cmd.Flags().BoolVar(&hash, "hash-names", false, "replace names by hashes")
	_ = cmd.MarkFlagFilename("config", "yaml") // it exists: defined above
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		g := gathering{file: file, now: time.Now()}
		if err := g.configure(socket); err != nil {
			return err
		}
		name := ""
		if len(args) == 1 {
			name = args[0]
		}
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			return cli.Usage("%s is a directory; name the file to write", name)
		}
		if f, ok := cmd.OutOrStdout().(*os.File); ok && name == "-" && term.IsTerminal(int(f.Fd())) {
			return cli.Usage("an archive is not for a terminal; redirect standard output, or name a file")
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), bundleLimit)
		defer cancel()
		b := bundle.New(version, g.now)
		g.fill(ctx, b)
		if hash {
			host, err := os.Hostname() // "" where there is none: that is no name
			if err != nil {
				host = ""
			}
			if err := b.HashNames(g.cfg.NodeName(), host); err != nil {
				return err
			}
		}
		if name == "-" {
			return b.Write(cmd.OutOrStdout())
		}
		if name == "" {
			name = bundleName(g.cfg.NodeName(), hash, g.now)
		}
		if err := writeBundle(name, b); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", name, b.Summary())
		return err
	}
	return cmd
}

func bundleName(node string, hashed bool, now time.Time) string {
	if node == "" || hashed {
		node = "node"
	}
	return fmt.Sprintf("quietcore-bundle-%s-%s.tar.gz", node, now.UTC().Format("20060102T150405Z"))
}

// writeBundle writes the file as a whole or not at all, for its owner alone.
func writeBundle(name string, b *bundle.Bundle) error {
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
	now          time.Time
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

func (g *gathering) fill(ctx context.Context, b *bundle.Bundle) {
	b.AddJSON("version.json", "quietcore version", func() (any, error) {
		return cli.BuildOf(version, commit, date), nil
	})
	b.AddJSON("doctor.json", "quietcore doctor", func() (any, error) {
		return examine(ctx, doctor.Options{Root: "/", Config: g.file}), nil
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
		c, err := comparison{g.client, g.cfg.Cgroup.Root}.twice(ctx, time.Second)
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
		return g.client.Incidents().List(ctx, incidents.Filter{Limit: bundledIncidents})
	})
	b.AddJSON("readyz.json", "/readyz", func() (any, error) { return readiness(ctx, g.cfg.Listen) })
	b.AddText("metrics.txt", "/metrics", func(w io.Writer) error {
		text, err := fromListener(ctx, g.cfg.Listen, "/metrics")
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	})
	g.machine(b)
}

func (g *gathering) machine(b *bundle.Bundle) {
	t, warnings, err := topodoc.Doc{Sysfs: g.cfg.Sysfs.Root}.Build(openSysfs)
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
