package kubelet

import (
	"context"
	"log/slog"
	"sync"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

// Reconciler passes kubelet's configuration to the policy, together with the CPUs that
// kubelet reserves. If the configuration does not name them, they follow from the CPU
// manager's state or the PodResources API, which come later or never.
type Reconciler struct {
	Submit func(context.Context, policy.Event) error
	Online func() cpuset.Set
	Log    *slog.Logger

	mu        sync.Mutex // guards what follows
	config    *Config    // nil: unknown
	state     policy.KubeletState
	inventory Inventory
	unknown   bool // the reserved CPUs could not be determined at the last attempt
}

// Known is what kubelet has reported so far.
type Known struct {
	Config    *Config // nil: nothing
	State     policy.KubeletState
	Inventory Inventory
}

// Known returns what kubelet has reported so far.
func (r *Reconciler) Known() Known {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Known{Config: r.config, State: r.state, Inventory: r.inventory}
}

// TakeConfig takes kubelet's configuration.
func (r *Reconciler) TakeConfig(ctx context.Context, c Config) error {
	r.mu.Lock()
	r.config = &c
	r.mu.Unlock()
	return r.reconcile(ctx)
}

// TakeState takes kubelet's CPU manager state.
func (r *Reconciler) TakeState(ctx context.Context, s policy.KubeletState) error {
	if err := r.Submit(ctx, s); err != nil {
		return err
	}
	r.mu.Lock()
	r.state = s
	missing := r.unknown
	r.mu.Unlock()
	if missing {
		return r.reconcile(ctx)
	}
	return nil
}

// TakeInventory takes what kubelet gave to containers.
func (r *Reconciler) TakeInventory(ctx context.Context, found Inventory) error {
	r.mu.Lock()
	r.inventory = found
	missing := r.unknown
	r.mu.Unlock()
	if missing {
		return r.reconcile(ctx)
	}
	return nil
}

func (r *Reconciler) reconcile(ctx context.Context) error {
	online := r.Online()
	r.mu.Lock()
	if r.config == nil {
		r.mu.Unlock()
		return nil
	}
	reserved, known := r.config.Reserved(online, r.inventory.CPUs, r.state)
	firstMissing := !known && !r.unknown
	r.unknown = !known
	k, count := r.config.Policy(reserved), r.config.ReservedCount()
	r.mu.Unlock()
	if firstMissing {
		r.Log.Warn("cannot determine which CPUs kubelet reserves; name them in reservedSystemCPUs of its "+
			"configuration, or in ours as reserved.cpus", "count", count)
	}
	return r.Submit(ctx, policy.KubeletConfigured{Kubelet: k})
}

// Load reads kubelet's configuration once.
func Load(file, dropIns string) (Config, error) {
	sources, err := Read(file, dropIns)
	if err != nil {
		return Config{}, err
	}
	return Parse(sources...)
}
