package main

import (
	"encoding/json"
	"fmt"
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

func TestDoctorsExitCodes(t *testing.T) {
	root := t.TempDir()
	if code, r := reportOf(t, "--root", root); code != cli.Failed || found(&r, "cgroup.missing") == nil {
		t.Errorf("an empty node: exit %d, %+v", code, r)
	}
	for file, text := range map[string]string{
		"sys/fs/cgroup/cgroup.controllers": "cpuset cpu", "sys/devices/system/cpu/online": "0-3",
		"sys/devices/system/cpu/present": "0-3",
		"proc/self/status":               "Uid:\t0\t0\t0\t0\nCapEff:\tffffffffff\n",
		"proc/sys/kernel/osrelease":      "6.12.1",
	} {
		file = filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if code, out, errs := call("doctor", "--root", root); code != 0 || !strings.Contains(out, "0 errors, ") ||
		strings.Contains(out, "\nok ") {
		t.Errorf("a node with warnings: exit %d\n%s%s", code, out, errs)
	}
	if code, out, errs := call("doctor", "--root", root, "--strict", "--all"); code != cli.Failed ||
		!strings.Contains(errs, "0 errors and ") || !strings.Contains(out, "ok       kernel") {
		t.Errorf("strictly: exit %d\n%s%s", code, out, errs)
	}
	for want, args := range map[string][]string{
		"must be absolute":    {"--root", "here"},
		"must be a directory": {"--root", "/dev/null"},
		"must be one of":      {"--runtime", "docker"},
		"takes no argument":   {"please"},
		`-o is "xml"`:         {"-o", "xml"},
	} {
		if code, _, errs := call(append([]string{"doctor"}, args...)...); code != cli.Wrong ||
			!strings.Contains(errs, want) {
			t.Errorf("%v: exit %d, %s", args, code, errs)
		}
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
