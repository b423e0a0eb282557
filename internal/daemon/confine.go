package daemon

import (
	"path/filepath"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/confine"
	"github.com/quietcore/quietcore/internal/control"
)

// confine gives up, for good, the right to write anywhere but where the daemon has to, and to execute programs. What is
// open stays open. A kernel that cannot do it does not keep the daemon from running.
func (d *daemon) confine(cfg *config.Config) control.Confined {
	if cfg.Confine == config.ConfineOff {
		return control.Confined{Why: "confine is off"}
	}
	allowed, err := confine.Writes(written(cfg))
	if err != nil {
		d.log.Warn("the daemon is not confined: the kernel would let it write wherever root may", "err", err)
		return control.Confined{Why: err.Error()}
	}
	d.log.Info("from here on the daemon writes below these folders alone, and executes nothing", "folders", allowed)
	return control.Confined{Writes: allowed}
}

// written are the folders that a daemon with this configuration writes to, whatever of it is reloaded later.
func written(cfg *config.Config) []string {
	list := []string{cfg.Cgroup.Root, cfg.State.Dir, filepath.Dir(cfg.Socket)}
	if page := cfg.Page.Listen; filepath.IsAbs(page) {
		list = append(list, filepath.Dir(page))
	}
	if cfg.DRA.Mode == config.DRAOn {
		list = append(list, ownSpecs, cfg.DRA.PluginDir, cfg.DRA.RegistryDir)
	}
	return list
}
