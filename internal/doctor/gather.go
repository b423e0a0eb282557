package doctor

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/enablenri"
	"github.com/quietcore/quietcore/internal/resctrl"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/sysfs"
)

// Options say what to examine.
type Options struct {
	// Root is where the node's file system is: "/", or where it is mounted.
	Root string
	// Config is the daemon's configuration file; empty: the usual one, if it exists.
	Config string
	// Runtime and RuntimeDir override detection, for k3s and the like.
	Runtime    enablenri.Runtime
	RuntimeDir string
	// Profile of authority.profile to look for pods that it would refuse; empty: none.
	Profile policy.Profile
	// Now is the time of the examination.
	Now time.Time
	// Probes query running programs.
	Probes Probes
}

// Probes query running programs; nil ones are skipped.
type Probes struct {
	// RuntimeVersion asks the runtime at its CRI socket.
	RuntimeVersion func(ctx context.Context, socket string) (string, error)
	// Counters opens the counters and closes them again.
	Counters func(*config.Config) CounterFacts
	// Daemon asks the daemon.
	Daemon func(context.Context, *config.Config) DaemonFacts
	// API asks the API server.
	API func(context.Context, *config.Config) APIFacts
}

// UsualConfig is the default path of the daemon's configuration.
const UsualConfig = "/etc/quietcore/config.yaml"

// maxFile bounds what is read of one file.
const maxFile = 1 << 20

// Gather examines a node. It writes nothing but a copy of the state file in a temporary
// directory, which it removes.
func Gather(ctx context.Context, o Options) *Facts {
	if o.Root == "" {
		o.Root = "/"
	}
	g := &gatherer{o: o, f: &Facts{Root: o.Root, Now: o.Now, Profile: o.Profile}}
	g.config()
	cfg := g.f.Config.Config
	if o.Probes.Daemon != nil {
		g.f.Daemon = o.Probes.Daemon(ctx, cfg)
	}
	g.f.Daemon.Socket = cfg.Socket
	g.runtime(ctx)
	g.others()
	g.cgroup()
	g.kubelet()
	g.systemd()
	g.kernel()
	g.process()
	g.state()
	if cfg.Kubernetes.API == config.APIOff {
		g.f.API.Off = true
	} else if o.Probes.API != nil {
		g.f.API = o.Probes.API(ctx, cfg)
	}
	return g.f
}

type gatherer struct {
	o Options
	f *Facts
}

// at is the path of a file of the node. A link such as /var/run -> /run leads out of a
// root that is mounted elsewhere, so its target is resolved below the root too.
func (g *gatherer) at(path string) string {
	name := filepath.Join(g.o.Root, path)
	if g.o.Root == "/" {
		return name
	}
	if _, err := os.Stat(name); err != nil {
		if rest, ok := strings.CutPrefix(path, "/var/run/"); ok {
			return filepath.Join(g.o.Root, "/run", rest)
		}
	}
	return name
}

// read returns a file's text, "" if it cannot be read.
func (g *gatherer) read(path string) string {
	text, _ := g.text(path) // what is not there is a fact too
	return strings.TrimSpace(text)
}

func (g *gatherer) text(path string) (string, error) {
	f, err := os.OpenFile(g.at(path), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	return string(text), err
}

func (g *gatherer) there(path string) bool {
	_, err := os.Stat(g.at(path))
	return err == nil
}

// accepts says whether a Unix socket accepts connections.
func (g *gatherer) accepts(path string) bool {
	c, err := net.DialTimeout("unix", g.at(path), time.Second)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// config reads the daemon's configuration. Without a valid one everything else is
// judged by the defaults.
func (g *gatherer) config() {
	c := &g.f.Config
	standard := config.Default()
	c.Config, c.File = &standard, g.o.Config
	if c.File == "" && g.there(UsualConfig) {
		c.File = g.at(UsualConfig)
	}
	if cfg, err := config.Load(c.File); err != nil {
		c.Err = err.Error()
	} else {
		c.Config = cfg
	}
	c.Node = c.Config.NodeName()
	t, _, err := sysfs.Read(os.DirFS(g.at(c.Config.Sysfs.Root)))
	if err != nil {
		c.Machine = err.Error()
		return
	}
	g.f.Cgroup.Online = t.Online()
	isolated := t.Isolated()
	g.f.Kernel.Isolated = isolated.String()
	if _, err := policy.New(t, c.Config.Policy()); err != nil {
		c.Machine = err.Error()
	}
}

// process reads this process' rights.
func (g *gatherer) process() {
	p := &g.f.Process
	for line := range strings.Lines(g.read("/proc/self/status")) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch fields := strings.Fields(value); {
		case key == "Uid" && len(fields) == 4:
			p.UID = number(fields[1]) // the effective one
		case key == "CapEff" && len(fields) == 1:
			p.Capabilities, p.Known = hexadecimal(fields[0])
		}
	}
}

func (g *gatherer) systemd() {
	s := &g.f.Systemd
	s.Booted = g.there("/run/systemd/system")
	list := []string{g.f.Config.Config.Cgroup.Bus}
	if list[0] == "" {
		list = []string{"/run/systemd/private", "/run/dbus/system_bus_socket"}
	}
	for _, path := range list {
		one := Socket{Path: path, There: g.there(path)}
		one.Answers = one.There && g.accepts(path)
		s.Sockets = append(s.Sockets, one)
	}
}

func (g *gatherer) kernel() {
	k := &g.f.Kernel
	k.Release = g.read("/proc/sys/kernel/osrelease")
	_, rest, _ := strings.Cut(g.read("/sys/kernel/security/lockdown"), "[")
	k.Lockdown, _, _ = strings.Cut(rest, "]")
	k.BTF = g.there("/sys/kernel/btf/vmlinux")
	k.Watchdog = g.read("/proc/sys/kernel/nmi_watchdog") == "1"
	k.Paranoid, _ = strconv.Atoi(g.read("/proc/sys/kernel/perf_event_paranoid")) // what cannot be read forbids nothing
	// A unit of CPUs is "cpu", "cpu_core" and "cpu_atom" on hybrid machines, and on arm64
	// it is named after the core; only those have the file cpus or are "cpu".
	const units = "/sys/bus/event_source/devices"
	entries, err := os.ReadDir(g.at(units))
	if err == nil {
		for _, e := range entries {
			name := e.Name()
			if name == "cpu" || name == "cpu_core" || name == "cpu_atom" || strings.HasPrefix(name, "armv") ||
				g.there(units+"/"+name+"/cpus") {
				k.PMUs = append(k.PMUs, name)
				k.PMU.NoReference = k.PMU.NoReference || g.there(units+"/"+name+"/events") &&
					!g.there(units+"/"+name+"/events/ref-cycles")
			}
		}
	}
	g.cpuinfo(&k.PMU)
	if dir := g.f.Config.Config.CPI.Resctrl; dir != "" {
		// In a pod it may be elsewhere than on the node.
		for _, dir := range []string{dir, "/sys/fs/resctrl"} {
			err := resctrl.Check(resctrl.Dir(g.at(dir)))
			if err == nil {
				k.Resctrl = ""
				break
			}
			k.Resctrl = err.Error()
		}
	}
	if g.o.Probes.Counters != nil && g.f.counts() {
		found := g.o.Probes.Counters(g.f.Config.Config)
		k.Counters = &found
	}
}

// cpuinfo reads what the first CPU says. Its lines are "vendor_id	: GenuineIntel" and
// "flags	: fpu vme ..."; on arm64 there are others.
func (g *gatherer) cpuinfo(p *PMUFacts) {
	first, _, _ := strings.Cut(g.read("/proc/cpuinfo"), "\n\n")
	for line := range strings.Lines(first) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "vendor_id":
			p.Vendor = strings.TrimSpace(value)
		case "flags":
			flags := strings.Fields(value)
			p.Virtual = slices.Contains(flags, "hypervisor")
			p.Extended = slices.Contains(flags, "perfctr_core")
		}
	}
}

func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
