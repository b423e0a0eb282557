package daemon

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/resctrl"
)

// resctrlTree is the folder of a machine that can limit memory bandwidth, with what a daemon that was killed has left.
func resctrlTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, folder := range []string{"info/MB", "info/L3", resctrl.Group} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"schemata": "MB:0=100\nL3:0=fff\n", "tasks": "",
		"info/MB/min_bandwidth": "10\n", "info/L3/min_cbm_bits": "1\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func hasGroup(t *testing.T, dir string) bool {
	t.Helper()
	_, err := os.Stat(filepath.Join(dir, resctrl.Group))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// TestBandwidthOnlyWhereItIsWanted: with the key, where verdicts are acted upon and by experiment.
func TestBandwidthOnlyWhereItIsWanted(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*config.Config)
		opens  bool
	}{
		"wanted":          {func(*config.Config) {}, true},
		"off":             {func(c *config.Config) { c.CPI.Resctrl = "" }, false},
		"cpi observes":    {func(c *config.Config) { c.CPI.Mode = config.CPIObserve }, false},
		"observes":        {func(c *config.Config) { c.Mode = config.Observe }, false},
		"by other means":  {func(c *config.Config) { c.CPI.Detector = config.DetectorClassic }, false},
		"is not mounted":  {func(c *config.Config) { c.CPI.Resctrl = t.TempDir() }, true},
		"is a plain file": {func(c *config.Config) { c.CPI.Resctrl += "/schemata" }, true},
	} {
		cfg := config.Default()
		cfg.CPI.Mode, cfg.CPI.Resctrl = config.CPIEnforce, resctrlTree(t)
		dir := cfg.CPI.Resctrl
		c.change(&cfg)
		p := newCounting(countingOptions{config: &cfg, log: slog.New(slog.DiscardHandler)})
		p.openHolder()
		works := name == "wanted"
		if got := p.holder.Load() != nil; got != c.opens || p.narrows("a") != works {
			t.Errorf("%s: it is opened %t, and holds containers back %t", name, got, p.narrows("a"))
		}
		if why := p.Health()[metrics.FeatureCPI]; strings.Contains(why, "memory bandwidth is not limited") !=
			(c.opens && !works) {
			t.Errorf("%s: told is %q", name, why)
		}
		if hasGroup(t, dir) == works {
			t.Errorf("%s: what an earlier daemon has left is there: %t", name, !works)
		}
		if got := slices.Contains(written(&cfg), dir); got != (cfg.CPI.Resctrl == dir) {
			t.Errorf("%s: it may be written to: %t", name, got)
		}
	}
}

// TestBandwidthIsGivenBackAtTheStart, also by a daemon that limits none, but by none that is to write nothing.
func TestBandwidthIsGivenBackAtTheStart(t *testing.T) {
	for name, c := range map[string]struct {
		file config.Mode
		said said
		left bool
	}{
		"enforces":              {config.Enforce, said{}, false},
		"observes":              {config.Observe, said{}, true},
		"is told to observe":    {config.Enforce, said{Command: config.Observe}, false},
		"observes, all is done": {config.Enforce, said{Command: config.Observe, Undone: true}, true},
	} {
		file := config.Default()
		file.Mode, file.CPI.Mode, file.CPI.Resctrl = c.file, config.CPIOff, resctrlTree(t)
		d := &daemon{log: slog.New(slog.DiscardHandler)}
		d.cfg.begin(&file, &modes{said: c.said})
		cfg := file
		cfg.Mode, _ = c.said.of(c.file)
		if d.undoBandwidth(&cfg); hasGroup(t, file.CPI.Resctrl) != c.left {
			t.Errorf("%s: left is %t", name, !c.left)
		}
	}
}
