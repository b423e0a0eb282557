package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cdi"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/dra"
	"github.com/quietcore/quietcore/internal/dra/driver"
	"github.com/quietcore/quietcore/policy"
)

// claims is Quietcore's own DRA driver.
type claims struct {
	driver *driver.Driver // nil: off, or it cannot work
	broken string         // why it cannot
}

// newClaims makes the driver of a daemon that may speak with an API server.
func newClaims(a *apiServer) *claims {
	cfg := a.o.config
	c := &claims{}
	switch {
	case cfg.DRA.Mode != config.DRAOn:
		return c
	case cfg.Mode == config.Observe:
		c.broken = "dra.mode is on and mode is observe, which gives no CPUs: no claim is served"
	case a.client == nil:
		c.broken = "there is no API server to read claims from: no claim is served"
	default:
		roots := dra.ReadRoots(os.DirFS(cfg.Sysfs.Root))
		c.driver = driver.New(driver.Options{
			Policy: a.o.node, API: driver.NewAPI(a.client.REST), Log: a.o.log,
			Node: func() *dra.Node { return a.devices(roots) },
			Foreign: func(ctx context.Context) string {
				return foreignDriver(ctx, cfg.DRA.RegistryDir, cdi.Dirs(), a.o.log)
			},
			NodeUID: func() string { return string(a.client.NodeUID()) },
			Specs:   cdi.Own{Dir: ownSpecs}, PluginDir: cfg.DRA.PluginDir, RegistryDir: cfg.DRA.RegistryDir,
		})
		return c
	}
	a.o.log.Warn("CPUs cannot be claimed; everything else works", "why", c.broken)
	return c
}

// state says why claims are not served; empty: they are, or nobody asked for it.
func (c *claims) state() string {
	if c.driver != nil {
		return c.driver.State()
	}
	return c.broken
}

// ownSpecs is where the CDI specs of our claims are: a directory that a reboot empties, as it ends their pods.
const ownSpecs = "/var/run/cdi"

// devices is the node as claims see it; nil while what runs is not known.
func (a *apiServer) devices(roots map[string]cpuset.Set) *dra.Node {
	if a.o.node.Plugin == nil || !a.o.node.Synchronised() {
		return nil
	}
	cfg, now := a.o.config, a.o.node.Snapshot()
	return dra.NewNode(dra.Options{
		Name: cfg.NodeName(), Topology: now.Topology, By: cfg.DRA.Devices, Share: cfg.DRA.Share,
		Kept: now.Pools.Reserved.Or(now.Pools.System), Roots: roots, Lists: cfg.DRA.ListAttributes,
	})
}

// foreignDriver names another driver for CPUs: by a spec of its claims, or by its socket. Two drivers would give out
// the same CPUs: the scheduler knows nothing of the one's when it allocates the other's.
func foreignDriver(ctx context.Context, registry string, dirs []string, log *slog.Logger) string {
	if sockets, _ := filepath.Glob(filepath.Join(registry, "dra.cpu*")); len(sockets) > 0 {
		return refusal(fmt.Sprintf("driver dra.cpu has a socket at %s", sockets[0]))
	}
	var kinds []string
	specs := cdi.New(cdi.Options{Dirs: dirs, Log: log,
		Take: func(_ context.Context, e policy.ForeignClaims) error {
			for _, device := range slices.Sorted(maps.Keys(e.Devices)) {
				kind, _, _ := strings.Cut(device, "=")
				kinds = append(kinds, kind)
			}
			return nil
		}})
	specs.Look(ctx)
	if len(kinds) == 0 {
		return ""
	}
	return refusal(fmt.Sprintf("CDI specs of kind %s are in %s", kinds[0], strings.Join(dirs, " or ")))
}

func refusal(what string) string {
	return what + ": another driver for CPUs is on this node, and two would give out the same CPUs; remove it and " +
		"its specs, or set dra.mode to off"
}
