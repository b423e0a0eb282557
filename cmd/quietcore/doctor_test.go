package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/doctor"
)

func reportOf(t *testing.T, args ...string) (int, doctor.Report) {
	t.Helper()
	code, out, errs := call(append([]string{"doctor", "-o", "json"}, args...)...)
	var r doctor.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("exit %d, %s%s: %v", code, out, errs, err)
	}
	return code, r
}

func found(r *doctor.Report, id string) *doctor.Finding {
	i := slices.IndexFunc(r.Findings, func(f doctor.Finding) bool { return f.ID == id })
	if i < 0 {
		return nil
	}
	return &r.Findings[i]
}

// nodeOf is a node's file system with what Quietcore needs: a runtime that takes plugins,
// cgroups and CPUs. Only counting does not work there.
func nodeOf(t *testing.T) (root string) {
	t.Helper()
	root, err := os.MkdirTemp("", "qd") // short: a Unix socket's path has 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	for file, text := range map[string]string{
		"sys/fs/cgroup/cgroup.controllers": "cpuset cpu", "sys/devices/system/cpu/online": "0-3",
		"sys/devices/system/cpu/present": "0-3",
		"proc/self/status":               "Uid:\t0\t0\t0\t0\nCapEff:\tffffffffff\n",
		"proc/sys/kernel/osrelease":      "6.12.1",
	} {
		put(t, root, file, text)
	}
	socket := filepath.Join(root, "var/run/nri/nri.sock")
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return root
}

func put(t *testing.T, root, file, text string) {
	t.Helper()
	file = filepath.Join(root, file)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What keeps Quietcore from working is exit code 1, whatever it is; what is wrong with the
// flags is 2.
func TestDoctorsExitCodes(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "config.yaml")
	put(t, filepath.Dir(bad), filepath.Base(bad), "mode: sleep\n")
	remove := func(name string) func(*testing.T, string) {
		return func(t *testing.T, root string) {
			if err := os.RemoveAll(filepath.Join(root, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*testing.T, string)
		args   []string
		code   int
		says   string // on either stream
	}{
		"only warnings":           {code: 0, says: "0 errors, "},
		"only warnings, strictly": {args: []string{"--strict"}, code: cli.Failed, says: "0 errors and "},
		"no runtime":              {change: remove("var/run/nri"), code: cli.Failed, says: "nri.runtime "},
		"no runtime, as JSON": {change: remove("var/run/nri"), args: []string{"-o", "json"}, code: cli.Failed,
			says: `{"id":"nri.runtime","level":"error"`},
		"NRI off": {change: func(t *testing.T, root string) {
			remove("var/run/nri")(t, root)
			put(t, root, "run/containerd/containerd.sock", "")
			put(t, root, "etc/containerd/config.toml",
				"version = 2\n[plugins.'io.containerd.nri.v1.nri']\ndisable = true\n")
		}, code: cli.Failed, says: "nri.disabled"},
		"no cgroups": {change: remove("sys/fs/cgroup"), code: cli.Failed, says: "cgroup.missing"},
		"no controller": {change: func(t *testing.T, root string) {
			put(t, root, "sys/fs/cgroup/cgroup.controllers", "cpu memory")
		}, code: cli.Failed, says: "cgroup.controller"},
		"a bad configuration":   {args: []string{"--config", bad}, code: cli.Failed, says: "config.invalid"},
		"no configuration":      {args: []string{"--config", bad + "x"}, code: cli.Failed, says: "config.invalid"},
		"a relative root":       {args: []string{"--root", "here"}, code: cli.Wrong, says: "must be absolute"},
		"a root that is a file": {args: []string{"--root", "/dev/null"}, code: cli.Wrong, says: "must be a directory"},
		"an unknown runtime":    {args: []string{"--runtime", "docker"}, code: cli.Wrong, says: "must be one of"},
		"an unknown profile":    {args: []string{"--profile", "lax"}, code: cli.Wrong, says: "must be one of"},
		"an argument":           {args: []string{"please"}, code: cli.Wrong, says: "takes no argument"},
		"an unknown form":       {args: []string{"-o", "xml"}, code: cli.Wrong, says: `-o is "xml"`},
		"an unknown flag":       {args: []string{"--now"}, code: cli.Wrong, says: "unknown flag"},
	} {
		t.Run(name, func(t *testing.T) {
			root := nodeOf(t)
			if c.change != nil {
				c.change(t, root)
			}
			code, out, errs := call(append([]string{"doctor", "--root", root}, c.args...)...)
			if code != c.code || !strings.Contains(out+errs, c.says) {
				t.Errorf("exit %d, want %d with %q\n%s%s", code, c.code, c.says, out, errs)
			}
		})
	}
	root := nodeOf(t)
	if _, out, _ := call("doctor", "--root", root); strings.Contains(out, "\nok ") {
		t.Errorf("what is well is shown:\n%s", out)
	}
	if _, out, _ := call("doctor", "--root", root, "--all"); !strings.Contains(out, "ok       kernel") {
		t.Errorf("what is well is not shown:\n%s", out)
	}
}

// A daemon that waits for its runtime is found, with its lock.
func TestDoctorExaminesARunningDaemon(t *testing.T) {
	p := newPlace(t, "")
	_, stop := p.start(t)
	code, r := reportOf(t, "--config", p.config)
	if f := found(&r, "daemon.disconnected"); code != cli.Failed || f == nil || f.Level != doctor.Error {
		t.Errorf("exit %d, %+v", code, r.Findings)
	}
	if f := found(&r, "instances"); f == nil || !strings.Contains(f.What, fmt.Sprintf("pid %d on", os.Getpid())) {
		t.Errorf("its lock is not found: %+v", r.Findings)
	}
	stop()
	if _, r = reportOf(t, "--config", p.config); found(&r, "daemon.absent") == nil {
		t.Errorf("after its end: %+v", r.Findings)
	}
}
