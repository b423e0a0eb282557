package daemon

import (
	"log/slog"
	"sync"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/plugin"
)

// tree is the cgroups and what writes them. Without them pinning goes on through the
// replies to the runtime.
type tree struct {
	metrics *metrics.Metrics
	files   *cgroup.FS      // nil: they could not be opened
	units   *cgroup.Systemd // nil: systemd is not asked
	router  *cgroup.Router  // nil with units
	broken  string          // why there are no files

	mu      sync.Mutex
	systemd string // why systemd does not answer
}

func openTree(cfg *config.Config, m *metrics.Metrics, log *slog.Logger) *tree {
	t := &tree{metrics: m}
	files, err := cgroup.Open(cfg.Cgroup.Root)
	if err != nil {
		t.broken = err.Error()
		log.Error("cgroups are not written: pods are pinned at creation only, and the pools do not give way", "err",
			err)
		return t
	}
	t.files = files
	if cfg.Cgroup.Driver == config.DriverCgroups {
		return t
	}
	t.units = cgroup.NewSystemd(files, cgroup.BusOptions{Socket: cfg.Cgroup.Bus, Report: t.systemdAnswered})
	t.router = cgroup.NewRouter(files, t.units)
	t.router.UnitsOnly = cfg.Cgroup.Driver == config.DriverSystemd
	return t
}

func (t *tree) open() bool { return t.files != nil }
func (t *tree) v1() bool   { return t.open() && t.files.V1() }

// enter has the plugin read and write the cgroups.
func (t *tree) enter(o *plugin.Options) {
	if !t.open() {
		return
	}
	o.Driver, o.Reader, o.Flat = t.files, t.files, t.files.V1()
	if t.router != nil {
		o.Driver, o.Recorded = t.router, t.router.Recorded
	}
}

func (t *tree) close() {
	if t.units != nil {
		t.units.Close()
	}
	if t.open() {
		t.files.Close()
	}
}

// systemdAnswered follows how systemd fares. The daemon stays ready without it: what
// runs stays where it is, and a pod that starts is placed by the runtime's own call.
func (t *tree) systemdAnswered(result string, err error) {
	t.metrics.SystemdCall(result)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.systemd = ""
	if result != "ok" {
		t.systemd = err.Error()
	}
}

func (t *tree) health() map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return map[string]string{metrics.FeatureCgroups: t.broken, metrics.FeatureSystemd: t.systemd}
}

// enforcement is the plugin with the cgroups that it writes.
type enforcement struct {
	*plugin.Plugin
	cgroups *tree
}

func (e enforcement) Health() map[string]string {
	health := e.cgroups.health()
	if health[metrics.FeatureCgroups] == "" {
		health[metrics.FeatureCgroups] = e.Unseen()
	}
	return health
}
