package doctor

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/enablenri"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
)

// node is a fixture: files, and what is said of it in its head.
type node struct {
	files  map[string][]byte
	listen map[string]bool
	want   map[string]Level // finding -> level
	not    []string         // areas that must not be well
	daemon string
	locked bool
	inPod  bool // only processes of a pod are seen
}

func at() time.Time { return time.Date(2026, 11, 21, 13, 0, 0, 0, time.UTC) }

// read lays the files of an archive over what is there.
func (n *node) read(t *testing.T, name string) {
	t.Helper()
	a, err := txtar.ParseFile(name)
	if err != nil {
		t.Fatal(err)
	}
	_, head, ok := strings.Cut(string(a.Comment), "\n\n")
	if !ok {
		t.Fatalf("%s: no empty line after what it is about", name)
	}
	for line := range strings.Lines(head) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case len(words) == 3 && words[0] == "want" && words[1] == "no":
			n.not = append(n.not, words[2])
		case len(words) == 3 && words[0] == "want":
			n.want[words[1]] = Level(words[2])
		case len(words) == 2 && words[0] == "listen":
			n.listen[words[1]] = true
		case len(words) == 2 && words[0] == "silent":
			delete(n.listen, words[1])
		case len(words) == 2 && words[0] == "daemon":
			n.daemon = words[1]
		case len(words) == 1 && words[0] == "locked":
			n.locked = true
		case len(words) == 1 && words[0] == "contained":
			n.inPod = true
		case len(words) == 2 && words[0] == "remove":
			maps.DeleteFunc(n.files, func(file string, _ []byte) bool {
				return file == words[1] || strings.HasPrefix(file, words[1]+"/")
			})
		default:
			t.Fatalf("%s: %q is not understood", name, line)
		}
	}
	for _, f := range a.Files {
		n.files[f.Name] = f.Data
	}
}

func load(t *testing.T, fault string) *node {
	t.Helper()
	n := &node{files: map[string][]byte{}, listen: map[string]bool{}, want: map[string]Level{}}
	n.read(t, filepath.Join("testdata", "healthy.txtar"))
	if fault != "" {
		n.read(t, fault)
	}
	return n
}

// build writes the node below a short path: a Unix socket's has 107 bytes.
func (n *node) build(t *testing.T) string {
	t.Helper()
	root, err := os.MkdirTemp("", "qd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	for name, text := range n.files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(string(text)) == "@good" {
			goodState(t, filepath.Dir(name))
			continue
		}
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name := range n.listen {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	}
	namespace := initialPIDs
	if n.inPod {
		namespace = "pid:[4026532999]"
	}
	ns := filepath.Join(root, "proc/self/ns/pid")
	if err := errors.Join(os.MkdirAll(filepath.Dir(ns), 0o755), os.Symlink(namespace, ns)); err != nil {
		t.Fatal(err)
	}
	if n.locked {
		info, err := os.Stat(filepath.Join(root, "var/lib/quietcore/lock"))
		if err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("2: FLOCK  ADVISORY  WRITE 77 08:01:%d 0 EOF\n", info.Sys().(*syscall.Stat_t).Ino)
		if err := os.WriteFile(filepath.Join(root, "proc/locks"), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// goodState is a state file with a cap whose time is over.
func goodState(t *testing.T, dir string) {
	t.Helper()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	then := func() time.Time { return at().Add(-time.Hour) }
	s := state.Store{Dir: dir, Node: "node-a", BootID: "boot-1", Now: then}
	if err := s.Save(state.Snapshot{Caps: []state.Cap{{PodUID: "u", Container: "c", CapMilli: 100,
		Until: then().Add(5 * time.Minute)}}}); err != nil {
		t.Fatal(err)
	}
}

func (n *node) options(root string) Options {
	return Options{Root: root, Now: at(), Probes: Probes{
		Daemon: func(context.Context, *config.Config) DaemonFacts {
			switch n.daemon {
			case "absent":
				return DaemonFacts{}
			case "silent":
				return DaemonFacts{There: true, Err: "connection refused"}
			}
			return DaemonFacts{There: true, Answers: true, Connected: n.listen["/run/nri/nri.sock"],
				Synchronised: true, Containers: 1}
		},
		Counters: func(*config.Config) CounterFacts { return CounterFacts{} },
		API: func(_ context.Context, c *config.Config) APIFacts {
			return APIFacts{Asked: true, Checked: len(Rights(c))}
		},
	}}
}

func TestAHealthyNode(t *testing.T) {
	n := load(t, "")
	f := Gather(t.Context(), n.options(n.build(t)))
	r := Check(f)
	if len(r.Findings) != len(areas()) || r.Worst() != OK || r.Node != "node-a" {
		t.Errorf("worst %s of node %q\n%s", r.Worst(), r.Node, text(t, &r))
	}
	if f.Cgroup.Containers != 1 || len(f.Daemons) != 0 || f.Runtime.Request != 2*time.Second {
		t.Errorf("%d containers, %d daemons, %s for an event", f.Cgroup.Containers, len(f.Daemons), f.Runtime.Request)
	}
}

func text(t *testing.T, r *Report) string {
	t.Helper()
	var b strings.Builder
	if err := r.Text(&b, true); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestFaults plays every fault that files and sockets can be.
func TestFaults(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "faults", "*.txtar"))
	if err != nil || len(files) < 40 {
		t.Fatalf("%d fixtures, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			n := load(t, file)
			root := n.build(t)
			before := tree(t, root)
			r := Check(Gather(t.Context(), n.options(root)))
			for id, level := range n.want {
				i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.ID == id })
				if i < 0 || r.Findings[i].Level != level {
					t.Errorf("want %s as %s in\n%s", id, level, text(t, &r))
				}
			}
			for _, f := range r.Findings {
				area, _, fault := strings.Cut(f.ID, ".")
				if f.Level.rank() > Note.rank() && n.want[f.ID] != f.Level && !slices.Contains(companions(), f.ID) {
					t.Errorf("%s: %s was not played: %s", f.ID, f.Level, f.What)
				}
				if !fault && slices.Contains(n.not, area) {
					t.Errorf("%s is well: %s", f.ID, f.What)
				}
				if f.What == "" || f.Level.rank() > Note.rank() && f.Fix == "" {
					t.Errorf("%s says %q and mends %q", f.ID, f.What, f.Fix)
				}
			}
			if after := tree(t, root); !maps.Equal(before, after) {
				t.Errorf("the node was changed: %v, before %v", after, before)
			}
		})
	}
}

// Units that are beside the CPUs' own count no container, and say nothing of reference cycles.
func TestUnitsBesideTheCPUs(t *testing.T) {
	n := load(t, filepath.Join("testdata", "faults", "pmu-amd-zen4.txtar"))
	k := &Gather(t.Context(), n.options(n.build(t))).Kernel
	if !slices.Equal(k.PMUs, []string{"cpu"}) || k.PMU.NoReference {
		t.Errorf("%v, no reference cycles: %t", k.PMUs, k.PMU.NoReference)
	}
}

// companions come with many faults: a fixture's directories are open, and a daemon
// cannot be registered with a runtime that does not listen.
func companions() []string {
	return []string{"state.open", "daemon.disconnected"}
}

func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		text := ""
		if d.Type().IsRegular() {
			b, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			text = string(b)
		}
		all[name] = d.Type().String() + text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// facts of a node on which nothing is wrong.
func facts(t *testing.T) *Facts {
	t.Helper()
	n := load(t, "")
	return Gather(t.Context(), n.options(n.build(t)))
}

// TestFactsThatNoFixtureCanBe plays what only a running system can be.
func TestFactsThatNoFixtureCanBe(t *testing.T) {
	for name, c := range map[string]struct {
		edit  func(*Facts)
		id    string
		level Level
		says  string
	}{
		"a read-only tree": {func(f *Facts) {
			f.Cgroup.ReadOnly = true
		}, "cgroup.read-only", Error, "mount it writable"},
		"many containers": {func(f *Facts) {
			f.Cgroup.Containers = dense
		}, "nri.timeout", Warning, "--request-timeout 5s"},
		"an old containerd": {func(f *Facts) { f.Runtime.Version = "v1.6.36" }, "nri.version", Error, "1.7"},
		"an old CRI-O": {func(f *Facts) {
			f.Runtime.Names, f.Runtime.Version = []enablenri.Runtime{enablenri.CRIO}, "1.25.4"
		}, "nri.version", Error, "1.26"},
		"both runtimes": {func(f *Facts) {
			f.Runtime.Names = []enablenri.Runtime{enablenri.Containerd, enablenri.CRIO}
		}, "nri.runtime", Note, "--runtime"},
		"both runtimes, and nothing listens": {func(f *Facts) {
			f.Runtime = RuntimeFacts{Names: []enablenri.Runtime{enablenri.Containerd, enablenri.CRIO}}
			f.Daemon = DaemonFacts{}
		}, "nri.not-listening", Error, "enable-nri --runtime"},
		"a daemon that is alone": {func(f *Facts) {
			f.Daemon.Connected = false
		}, "daemon.disconnected", Error, "not placed"},
		"a daemon that takes over": {func(f *Facts) {
			f.Daemon.Synchronised = false
		}, "daemon.unsynchronised", Error, "taken over"},
		"a degraded daemon": {func(f *Facts) {
			f.Daemon.Degraded = map[string]string{"kube": "no API server"}
		}, "daemon.degraded", Warning, "kube: no API server"},
		"pods that were never announced": {func(f *Facts) {
			f.Daemon.Unannounced = []string{"kubepods/pod1", "kubepods/pod2"}
			f.Daemon.Masked = []string{"kubepods/pod1"}
		}, "daemon.unannounced", Warning, "kubepods/pod1, kubepods/pod2"},
		"pods that a profile would refuse": {func(f *Facts) {
			f.Profile = policy.ProfileStrict
			f.Config.Config.Authority.Exclusive.Namespaces = []string{"prod"}
			f.Daemon.Powers = []policy.PowersView{
				{Namespace: "prod", Pod: "db", Powers: []policy.Power{policy.PowerExclusive}},
				{Namespace: "ops", Pod: "agent", Powers: []policy.Power{policy.PowerUnmanaged}}}
		}, "daemon.unauthorized", Warning, "pod ops/agent would be refused if it came again: unmanaged"},
		"a daemon whose record cannot be played": {func(f *Facts) {
			f.Profile, f.Daemon.PowersErr = policy.ProfileStrict, "no record"
		}, "daemon.powers", Warning, "no record"},
		"a shared pool that is short": {func(f *Facts) {
			f.Daemon.Short = []policy.Shortage{{Pool: "shared@0", CPUs: 4, Reserved: 2, RequestMilli: 3500}}
		}, "daemon.short", Warning, "pool shared@0 has 4 CPUs, and its pods request 3500m; 2 CPUs reserved"},
		"a configuration that waits for a restart": {func(f *Facts) {
			f.Daemon.RestartRequired = []string{"cpi.mode", "mode"}
		}, "daemon.restart", Note, "cpi.mode, mode"},
		"refused counters": {func(f *Facts) {
			f.Kernel.Counters = &CounterFacts{Err: "not permitted"}
		}, "pmu.refused", Warning, "not permitted"},
		"no instructions": {func(f *Facts) {
			f.Kernel.Counters = &CounterFacts{Absent: map[string]string{"instructions": "no such counter"}}
		}, "pmu.event", Warning, "instructions"},
		"stand-ins on a machine with a PMU": {func(f *Facts) {
			f.Config.Config.CPI.StandIns.Instructions = config.PageFaults
			f.Kernel.Counters = &CounterFacts{Absent: map[string]string{"cycles": "stand-ins are configured"}}
		}, "pmu.event", Warning, "remove cpi.standIns"},
		"a PMU without reference cycles": {func(f *Facts) {
			f.Kernel.Counters = &CounterFacts{Absent: map[string]string{"ref-cycles": "no such counter"}}
		}, "pmu.core-cycles", Note, "in core cycles"},
		"the watchdog of an Intel CPU": {func(f *Facts) {
			f.Kernel.Watchdog = true
		}, "pmu.watchdog", Note, "counting takes a general one"},
		"the watchdog of an AMD CPU": {func(f *Facts) {
			f.Kernel.Watchdog, f.Kernel.PMU = true, PMUFacts{Vendor: "AuthenticAMD", Extended: true}
		}, "pmu.watchdog", Note, "5 of 6 are left, which suffices"},
		"the watchdog of an AMD CPU with four counters": {func(f *Facts) {
			f.Kernel.Watchdog, f.Kernel.PMU = true, PMUFacts{Vendor: "AuthenticAMD"}
		}, "pmu.watchdog", Note, "3 of 4 are left; cycles and instructions keep theirs"},
		"the watchdog of another CPU": {func(f *Facts) {
			f.Kernel.Watchdog, f.Kernel.PMU = true, PMUFacts{}
		}, "pmu.watchdog", Note, "events may take turns"},
		"jobs that cannot be judged": {func(f *Facts) {
			f.Daemon.Unjudged = "3 of 14 jobs are judged"
		}, "daemon.judged", Note, "of every job: 3 of 14 jobs are judged"},
		"a kernel without seccomp filters": {func(f *Facts) {
			f.Daemon.Undenied = "there are no seccomp filters"
		}, "daemon.undenied", Note, "any call from the daemon: there are no seccomp filters"},
		"more containers than are counted": {func(f *Facts) {
			f.Daemon.Uncounted = "4 of 9 containers were counted"
		}, "daemon.watchlist", Note, "4 of 9 containers were counted"},
		"a full disk": {func(f *Facts) {
			f.State.Known, f.State.Free = true, 4096
		}, "state.full", Warning, "4 KiB"},
		"a read-only disk": {func(f *Facts) {
			f.State.Known, f.State.ReadOnly = true, true
		}, "state.read-only", Warning, "read-only file system"},
		"a state directory of others": {func(f *Facts) {
			f.State.Err = "permission denied"
		}, "state.unreadable", Warning, "permission denied"},
		"an API server that is away": {func(f *Facts) {
			f.API.Err = "connection refused"
		}, "api.unreachable", Warning, "connection refused"},
		"no credentials":        {func(f *Facts) { f.API = APIFacts{} }, "api.unseen", Note, "credentials"},
		"a node without a name": {func(f *Facts) { f.Config.Node = "" }, "api.node-name", Warning, "NODE_NAME"},
		"no such node":          {func(f *Facts) { f.API.NoNode = true }, "api.node", Warning, `"node-a"`},
		"no CRD":                {func(f *Facts) { f.API.NoCRD = true }, "api.crd", Warning, "crds.install"},
		"a right that is missing": {func(f *Facts) {
			f.API.Denied = []Right{{"patch", "events.k8s.io", "events", "Events on pods"}}
		}, "api.rights", Warning, "patch events.events.k8s.io"},
	} {
		t.Run(name, func(t *testing.T) {
			f := facts(t)
			c.edit(f)
			r := Check(f)
			i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.ID == c.id })
			if i < 0 || r.Findings[i].Level != c.level || !strings.Contains(r.Findings[i].What+r.Findings[i].Fix,
				c.says) {
				t.Errorf("want %s as %s with %q in\n%s", c.id, c.level, c.says, text(t, &r))
			}
			if r.Worst() != c.level {
				t.Errorf("the worst is %s\n%s", r.Worst(), text(t, &r))
			}
		})
	}
}

// TestWhatIsOffIsNotMissed: no finding asks to repair what is disabled.
func TestWhatIsOffIsNotMissed(t *testing.T) {
	f := facts(t)
	cfg := *f.Config.Config
	cfg.CPI.Mode, cfg.Cgroup.Driver = config.CPIOff, config.DriverCgroups
	f.Config.Config = &cfg
	f.Kernel = KernelFacts{Release: "5.6.1", Lockdown: "confidentiality"}
	f.Cgroup.Systemd, f.Cgroup.Plain = false, true
	f.Systemd = SystemdFacts{}
	f.Process.Capabilities = 0
	f.API = APIFacts{Off: true}
	f.Kubelet.Config.CgroupDriver = "cgroupfs"
	if r := Check(f); r.Worst() != OK {
		t.Errorf("worst %s\n%s", r.Worst(), text(t, &r))
	}
}

func TestRightsFollowTheConfiguration(t *testing.T) {
	c := config.Default()
	if n := len(Rights(&c)); n != 9 {
		t.Errorf("by default %d rights: %v", n, Rights(&c))
	}
	c.Reclaim.Mode, c.Reclaim.Evict = config.SwitchEnforce, true
	list := fmt.Sprint(Rights(&c))
	for _, want := range []string{"patch nodes/status", "patch pods/status"} {
		if !strings.Contains(list, want) {
			t.Errorf("lending wants %s, got %s", want, list)
		}
	}
	c.Mode = config.Observe
	for _, r := range Rights(&c) {
		if r.Verb != "list" && r.Verb != "watch" {
			t.Errorf("observing wants %s", r)
		}
	}
}

func TestContainerID(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	for name, want := range map[string]string{
		"cri-containerd-" + id + ".scope": id, "crio-" + id + ".scope": id, id: id, "kubepods-pod1.slice": "", "pod" +
			id: "",
		"crio-conmon-" + id + ".scope": "", strings.ToUpper(id): "", "": "",
	} {
		if got := ContainerID(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestTheLockIsFoundWhereItIsHeld takes the lock for real.
func TestTheLockIsFoundWhereItIsHeld(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	lock, err := state.TakeLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	look := func() LockFacts {
		g := &gatherer{o: Options{Root: "/"}, f: &Facts{}}
		g.f.State.Dir = dir
		g.lock(dir)
		return g.f.Lock
	}
	if got := look(); !got.Known || !got.Held || !strings.HasPrefix(got.Holder,
		fmt.Sprintf("pid %d on ", os.Getpid())) {
		t.Errorf("while it is held: %+v", got)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	if got := look(); got.Held {
		t.Errorf("when it is given up: %+v", got)
	}
}

// TestEveryFaultIsDocumented holds the names in the code and the table of
// docs/doctor.md together.
func TestEveryFaultIsDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "doctor.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n## Findings\n")
	table, _, _ = strings.Cut(table, "\n## ")
	documented := map[string]bool{}
	for line := range strings.Lines(table) {
		if rest, ok := strings.CutPrefix(line, "| `"); ok {
			id, _, _ := strings.Cut(rest, "`")
			documented[id] = true
		}
	}
	played := map[string]bool{}
	files, err := filepath.Glob(filepath.Join("testdata", "faults", "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		for id := range load(t, file).want {
			played[id] = true
		}
	}
	for id := range played {
		if !documented[id] {
			t.Errorf("%s is not in docs/doctor.md", id)
		}
	}
	faults := faultsInCode(t)
	for id := range documented {
		if _, fault, ok := strings.Cut(id, "."); ok && !faults[fault] {
			t.Errorf("docs/doctor.md has %s, which nothing finds", id)
		}
	}
	for fault := range faults {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(documented)), func(id string) bool {
			return strings.HasSuffix(id, "."+fault)
		}) {
			t.Errorf("docs/doctor.md has nothing that ends in .%s", fault)
		}
	}
}

// faultsInCode are the first arguments of fail, warn and note.
func faultsInCode(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("check_*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 3 {
				return true
			}
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok &&
				slices.Contains([]string{"fail", "warn", "note"}, sel.Sel.Name) {
				if lit, ok := call.Args[0].(*ast.BasicLit); ok {
					found[strings.Trim(lit.Value, `"`)] = true
				}
			}
			return true
		})
	}
	return found
}

func TestHostileTextReachesNoTerminal(t *testing.T) {
	r := Report{Node: "n\x1b[2J", Findings: []Finding{{ID: "a.b", Level: Error, What: "x\x1b[31m\ny", Fix: "z\u202e"}}}
	if got := text(t, &r); strings.ContainsAny(got, "\x1b\u202e") || strings.Contains(got, "m\ny") {
		t.Errorf("%q", got)
	}
}

func TestAFileThatIsNone(t *testing.T) {
	n := load(t, "")
	root := n.build(t)
	if err := os.Remove(filepath.Join(root, "proc/sys/kernel/osrelease")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(root, "proc/sys/kernel/osrelease"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "var/lib/quietcore")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.Symlink("/etc/passwd",
		filepath.Join(dir, "state.json"))); err != nil {
		t.Fatal(err)
	}
	r := Check(Gather(t.Context(), n.options(root)))
	got := text(t, &r)
	if !strings.Contains(got, "kernel.unknown") || !strings.Contains(got, "not a file") {
		t.Errorf("a FIFO and a link in place of files:\n%s", got)
	}
}

// The lock says which daemon has this state directory; a process of that name may be
// another one, or one that is about to end.
func TestTheHolderOfTheLockIsTheDaemon(t *testing.T) {
	f := facts(t)
	f.Daemons, f.Lock = []Process{{PID: 7}}, LockFacts{Known: true, Held: true, Holder: "pid 8 on node-a"}
	for held, want := range map[bool]string{true: "one daemon, pid 8 on node-a", false: "one daemon, pid 7"} {
		f.Lock.Held = held
		r := Check(f)
		i := slices.IndexFunc(r.Findings, func(f Finding) bool { return f.ID == "instances" })
		if i < 0 || r.Findings[i].What != want {
			t.Errorf("lock held %t: %+v, want %q", held, r.Findings, want)
		}
	}
}
