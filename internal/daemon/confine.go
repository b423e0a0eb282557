package daemon

import (
	"os"
	"path/filepath"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/confine"
	"github.com/quietcore/quietcore/internal/control"
)

// confine gives up, for good, the right to write anywhere but where the daemon has to, to execute programs, and to ask
// the kernel for what the daemon never does. What is open stays open. A kernel that cannot do one of it does the other,
// or none, and does not keep the daemon from running.
func (d *daemon) confine(cfg *config.Config) control.Confined {
	if cfg.Confine == config.ConfineOff {
		return control.Confined{Why: "confine is off", Undenied: "confine is off"}
	}
	var c control.Confined
	var err error
	if c.Writes, err = confine.Writes(written(cfg)); err != nil {
		d.log.Warn("the kernel would let the daemon write wherever root may", "err", err)
		c.Why = err.Error()
	} else {
		d.log.Info("from here on the daemon writes below these folders alone, and executes nothing", "folders",
			c.Writes)
	}
	// Counting opens its events anew when CPUs come and when the configuration changes, so it keeps its calls for good.
	counts := cfg.CPI.Mode != config.CPIOff || confine.MayCount()
	if c.Denied, err = confine.Calls(counts); err != nil {
		d.log.Warn("the kernel would take any call from the daemon", "err", err)
		c.Undenied = err.Error()
	} else {
		d.log.Info("from here on the kernel denies the daemon", "calls", c.Denied)
	}
	return c
}

// written are the folders that a daemon with this configuration writes to, whatever of it is reloaded later.
func written(cfg *config.Config) []string {
	list := []string{cfg.Cgroup.Root, cfg.State.Dir, filepath.Dir(cfg.Socket)}
	if page := cfg.Page.Listen; filepath.IsAbs(page) {
		list = append(list, filepath.Dir(page))
	}
	// Where it is not there now, the nearest above it would be allowed.
	if info, err := os.Stat(cfg.CPI.Resctrl); err == nil && info.IsDir() {
		list = append(list, cfg.CPI.Resctrl)
	}
	if cfg.DRA.Mode == config.DRAOn {
		list = append(list, ownSpecs, cfg.DRA.PluginDir, cfg.DRA.RegistryDir)
	}
	return list
}
