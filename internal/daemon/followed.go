package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/kube"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/rollout"
	"github.com/quietcore/quietcore/internal/rollout/agent"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// followed is the QuietcorePolicy that is written over the file.
type followed struct {
	// base is what the file says alone, as it was read last. says is what the policy does; nil: there is none. They
	// change with the configuration's turn held.
	base *config.Config
	says []byte

	agent *agent.Agent // nil: none are followed
	kept  rollout.Applied
	// spread is within what time nodes act that all have a reason; 0: the usual.
	spread time.Duration
	lost   atomic.Pointer[string]    // why the one from before the start is not in force
	mode   atomic.Pointer[wordOfOne] // what the policy says of the mode
}

// wordOfOne is a policy's word on the mode.
type wordOfOne struct{ mode config.Mode }

// over is a file with the policy written over it.
func (f *followed) over(file *config.Config) (*config.Config, error) {
	if f.says == nil {
		return file, nil
	}
	both, err := file.With(f.says)
	if err != nil {
		return nil, fmt.Errorf("with the QuietcorePolicy in force: %w", err)
	}
	return both, nil
}

// noteMode notes whether the mode is the policy's word.
func (f *followed) noteMode(both *config.Config) {
	if f.says == nil || both.Mode == f.base.Mode {
		f.mode.Store(nil)
		return
	}
	f.mode.Store(&wordOfOne{both.Mode})
}

// maxKept bounds what is read of what was kept.
const maxKept = 4 * rollout.MaxSpec

// resume has the policy of before the start in force, whether or not the API server answers. A file that does not
// follow policies forgets it.
func (d *daemon) resume(file *config.Config, t *topology.Topology) *config.Config {
	f := &d.cfg.followed
	name := filepath.Join(file.State.Dir, state.PolicyFile)
	if !file.Kubernetes.Policy {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			d.log.Warn("the QuietcorePolicy of before is not forgotten", "err", err)
		}
		return d.cfg.Load()
	}
	kept, both, err := readFollowed(name, file, t)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return d.cfg.Load()
	case err != nil:
		why := err.Error()
		f.lost.Store(&why)
		d.log.Error("the QuietcorePolicy of before is not in force; the file is", "err", err)
		if !rollout.Stops(kept.Config) {
			return d.cfg.Load()
		}
		kept.Config = rollout.Stopped(nil) // enforcement has ended, whatever else it said
		if both, err = file.With(kept.Config); err != nil {
			return d.cfg.Load()
		}
	}
	f.kept, f.says = kept, kept.Config
	f.noteMode(both)
	d.log.Info("the policy of before is in force", "policy", kept.Policy, "revision", kept.Generation)
	d.level.Set(both.Log.Level.Slog())
	d.cfg.file.Store(both)
	now := d.cfg.effective(both)
	d.cfg.Store(now)
	return now
}

// readFollowed reads what was kept. The machine may have changed since then.
func readFollowed(name string, file *config.Config, t *topology.Topology) (rollout.Applied, *config.Config, error) {
	var kept rollout.Applied
	text, err := state.ReadFile(name, maxKept)
	if err == nil {
		err = json.Unmarshal(text, &kept)
	}
	if err != nil {
		return kept, nil, err
	}
	both, err := file.With(kept.Config)
	if err != nil {
		return kept, nil, fmt.Errorf("policy %s, revision %d: %w", kept.Policy, kept.Generation, err)
	}
	if _, err := policy.New(t, both.Policy()); err != nil {
		return kept, nil, fmt.Errorf("policy %s, revision %d: %w", kept.Policy, kept.Generation, err)
	}
	return kept, both, nil
}

// keepPolicy keeps what is in force for the next start.
func (d *daemon) keepPolicy(a rollout.Applied) error {
	name := filepath.Join(d.cfg.Load().State.Dir, state.PolicyFile)
	if a.Policy == "" {
		if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return state.WriteFile(name, text)
}

// follow makes the part that follows policies, before the client of the API server that it needs.
func (d *daemon) follow(cfg *config.Config) {
	k := cfg.Kubernetes
	if !k.Policy || k.API == config.APIOff || !kube.Available(k.Kubeconfig) || cfg.NodeName() == "" {
		return
	}
	const look = time.Second
	d.cfg.followed.agent = agent.New(agent.Options{
		Node: cfg.NodeName(), Version: d.options.Version, Log: d.log, Now: time.Now, Tick: time.NewTicker(look).C,
		Random: rand.Uint64, API: agent.NewAPI(func() (*rest.Config, error) { return d.api.client.REST() }),
		NodeUID: func() types.UID { return d.api.client.NodeUID() },
		Spread:  d.cfg.followed.spread, Applied: d.cfg.followed.kept,
		Keep: d.keepPolicy, Apply: d.takePolicy, Lacks: d.lacks,
		Report: func(what string, err error) { d.metrics.APIRequest(what, kube.Result(err)) },
	})
}

// takePolicy has in force what a policy says; nil: the file alone. On an error the one from before stays.
func (d *daemon) takePolicy(ctx context.Context, says []byte) error {
	d.cfg.turn.Lock()
	defer d.cfg.turn.Unlock()
	f := &d.cfg.followed
	both := f.base
	if says != nil {
		var err error
		if both, err = f.base.With(says); err != nil {
			return err
		}
	}
	before := d.cfg.file.Load()
	if err := d.takeOver(ctx, before.Reloaded(both)); err != nil {
		return errors.Join(err, d.takeOver(ctx, before))
	}
	f.says = says
	f.lost.Store(nil)
	f.noteMode(both)
	return nil
}

// lacks is what does not work, but for the policy itself, and why.
func (d *daemon) lacks() map[string]string {
	r := d.health.Ready()
	all := map[string]string{}
	for feature, why := range r.Degraded {
		if feature != metrics.FeaturePolicy {
			all[feature] = why
		}
	}
	for _, reason := range r.Reasons {
		all[reason] = ""
	}
	return all
}

// policyPart follows policies beside the other parts.
type policyPart struct{ f *followed }

func (p policyPart) Run(ctx context.Context) {
	if p.f.agent != nil {
		p.f.agent.Run(ctx)
	}
}

func (p policyPart) Health() map[string]string {
	why := ""
	if lost := p.f.lost.Load(); lost != nil {
		why = *lost
	}
	if p.f.agent != nil {
		if problem := p.f.agent.Problem(); problem != "" {
			why = problem
		}
	}
	return map[string]string{metrics.FeaturePolicy: why}
}

// policyNow is what `quietcore status` says of the policy.
func (d *daemon) policyNow() *control.FollowedPolicy {
	a := d.cfg.followed.agent
	if a == nil {
		return nil
	}
	r := a.Report()
	out := &control.FollowedPolicy{Policy: r.Policy, Revision: r.Revision, State: string(r.State), Why: r.Why}
	if r.Applied != nil {
		out.Applied, out.AppliedRevision = r.Applied.Policy, r.Applied.Revision
	}
	return out
}
