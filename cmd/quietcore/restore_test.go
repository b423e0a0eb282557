package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/internal/cli"
)

func TestRestoreWantsTheDaemonToHaveEnded(t *testing.T) {
	p := newPlace(t, "")
	_, stop := p.start(t)
	code, _, errs := call("restore", "--config", p.config)
	if code != cli.Failed || !strings.Contains(errs, "end the daemon first") {
		t.Errorf("next to a daemon: exit %d, %s", code, errs)
	}
	stop()
	if err := os.MkdirAll(filepath.Join(p.dir, "cgroup"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"cgroup.controllers", "cpuset.cpus.effective"} {
		if err := os.WriteFile(filepath.Join(p.dir, "cgroup", f), []byte("cpuset cpu\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	code, _, errs = call("restore", "--config", p.config)
	if code != cli.Failed || !strings.Contains(errs, filepath.Join(p.dir, "nri.sock")) {
		t.Errorf("without a runtime: exit %d, %s", code, errs)
	}
}
