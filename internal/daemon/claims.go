package daemon

import (
	"context"
	"fmt"
	"io/fs"
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
	"github.com/quietcore/quietcore/internal/kubelet"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// claims is Quietcore's own DRA driver, and what owners leave to its claims.
type claims struct {
	driver *driver.Driver // nil: off, or it cannot work
	broken string         // why it cannot

	devices func() *dra.Node // nil while the node is not known
	beside  func() bool      // another driver serves claims instead
	share   func(context.Context, []policy.ClaimShare) error
	stale   chan struct{} // holds one when the devices may be others
	log     *slog.Logger
}

// newClaims makes the driver of a daemon that may speak with an API server.
func newClaims(a *apiServer) *claims {
	cfg := a.o.config
	c := &claims{}
	switch {
	case cfg.DRA.Mode != config.DRAOn:
		return c
	case a.client == nil:
		c.broken = "there is no API server to read claims from: no claim is served"
	default:
		roots := dra.ReadRoots(os.DirFS(cfg.Sysfs.Root))
		c.devices = func() *dra.Node { return a.devices(roots) }
		c.share, c.stale, c.log = a.o.labels.share, make(chan struct{}, 1), a.o.log
		c.driver = driver.New(driver.Options{
			Policy: a.o.node, API: driver.NewAPI(a.client.REST), Log: a.o.log,
			Node: c.devices,
			Foreign: func(ctx context.Context) string {
				return foreignDriver(ctx, cfg.DRA.RegistryDir, cdi.Dirs(), a.o.log)
			},
			NodeUID: func() string { return string(a.client.NodeUID()) },
			Beside:  c.sharesChanged,
			Claims:  a.claimsHere,
			Known:   func() (map[string]bool, error) { return kubeletsClaims(cfg) },
			Specs:   cdi.Own{Dir: ownSpecs}, PluginDir: cfg.DRA.PluginDir, RegistryDir: cfg.DRA.RegistryDir,
		})
		c.beside = c.driver.IsBeside
		return c
	}
	a.o.log.Warn("CPUs cannot be claimed; everything else works", "why", c.broken)
	return c
}

// changed says that devices may return others. It never blocks.
func (c *claims) changed() {
	if c.driver == nil {
		return
	}
	c.driver.Changed()
	c.sharesChanged()
}

// sharesChanged says that owners may have to leave other shares to claims. It never blocks.
func (c *claims) sharesChanged() {
	select {
	case c.stale <- struct{}{}:
	default:
	}
}

// run serves claims until ctx ends.
func (c *claims) run(ctx context.Context) {
	if c.driver != nil {
		together(ctx, c.driver.Run, c.driver.Reconcile, c.shareOut)
	}
}

// shareOut has owners leave to claims what the devices offer, as long as ctx lasts: CPUs come and go, and kubelet may
// reserve others. Where another driver serves claims instead of ours, they leave nothing: no claim could have it.
func (c *claims) shareOut(ctx context.Context) {
	for {
		if node := c.devices(); node != nil {
			shares := node.Shares()
			if c.beside() {
				shares = nil
			}
			if err := c.share(ctx, shares); err != nil && ctx.Err() == nil {
				c.log.Warn("owners leave to claims what they left before, not dra.share of the CPUs that there are now",
					"err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-c.stale:
		}
	}
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

// claimsHere are the claims that have CPUs; none while what runs is not known.
func (a *apiServer) claimsHere() []policy.ClaimView {
	if a.o.node.Plugin == nil || !a.o.node.Synchronised() {
		return nil
	}
	return a.o.node.Snapshot().Claims
}

// kubeletsClaims are those that kubelet knows, by UID.
func kubeletsClaims(cfg *config.Config) (map[string]bool, error) {
	state := cfg.Node.Kubelet.StateFile
	if state == "" {
		return nil, fs.ErrNotExist
	}
	return kubelet.ReadClaims(filepath.Join(filepath.Dir(state), kubelet.ClaimsFile))
}

// devices is the node as claims see it; nil while what runs is not known.
func (a *apiServer) devices(roots map[string]cpuset.Set) *dra.Node {
	if a.o.node.Plugin == nil || !a.o.node.Synchronised() {
		return nil
	}
	return a.devicesOf(a.o.node.Snapshot(), roots)
}

func (a *apiServer) devicesOf(now *policy.Snapshot, roots map[string]cpuset.Set) *dra.Node {
	o := a.deviceOptions(now.Ledger.Rules, now.Topology)
	o.Roots, o.Free, o.Spare, o.Had = roots, now.Free(), now.Spare(now.Ledger.Rules.SharedFloor), map[string]int{}
	for i := range now.Claims {
		for _, r := range now.Claims[i].Requests {
			o.Had[r.Device] += r.Asked
		}
	}
	return dra.NewNode(o)
}

// deviceOptions make the devices by the rules in force. They do not change when a pod owns a reserved CPU, which is
// then not among the reserved CPUs of the pools.
func (a *apiServer) deviceOptions(r *policy.Config, t *topology.Topology) dra.Options {
	cfg := a.o.config
	return dra.Options{
		Name: cfg.NodeName(), Topology: t, By: cfg.DRA.Devices, Share: cfg.DRA.Share,
		Kept: r.Reserved.Or(r.Kubelet.Reserved).Or(r.System.CPUs), Lists: cfg.DRA.ListAttributes,
		Allocatable: cfg.DRA.NodeAllocatable,
	}
}

// firstShares are what owners leave to claims until the devices are known; none: no claim is served.
func (a *apiServer) firstShares(t *topology.Topology, p *policy.Config) []policy.ClaimShare {
	if a.claims.driver == nil || !a.begun.has() {
		return nil
	}
	return dra.NewNode(a.deviceOptions(p, t)).Shares()
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
