package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
	"github.com/quietcore/quietcore/e2e/wire"
)

// staticPolicy is kubelet's configuration on nodes that pin already.
var staticPolicy = map[string]any{
	"cpuManagerPolicy": "static", "reservedSystemCPUs": "0-1",
	"cpuManagerPolicyOptions": map[string]string{"full-pcpus-only": "true"},
}

// static: what kubelet pins stays kubelet's, what we pin avoids it, and nothing that
// kubelet writes in its rounds moves a pod. Then the policy is taken back.
func static(ctx context.Context, b *bench) ([]figure, error) {
	if err := b.changePolicy(ctx, staticPolicy); err != nil {
		return nil, err
	}
	figures, err := b.withKubeletsOwners(ctx)
	if err != nil {
		return figures, err
	}
	if err := b.changePolicy(ctx, nil); err != nil {
		return figures, err
	}
	more, err := b.policyIsNone(ctx)
	return append(figures, more...), err
}

// changePolicy does it as kubelet demands: drained, and its state file removed.
func (b *bench) changePolicy(ctx context.Context, config map[string]any) error {
	if err := b.DeletePods(ctx, namespace); err != nil {
		return err
	}
	if err := b.node.Forget(ctx); err != nil {
		return err
	}
	if err := b.node.StopKubelet(ctx); err != nil {
		return err
	}
	if _, err := b.node.Files(ctx, wire.FileAction{Do: wire.FileRemove, Path: cluster.KubeletState,
		Optional: true}); err != nil {
		return err
	}
	if err := b.node.Configure(ctx, config); err != nil {
		return err
	}
	if err := b.node.StartKubelet(ctx); err != nil {
		return err
	}
	return b.node.WaitReady(ctx)
}

func (b *bench) withKubeletsOwners(ctx context.Context) ([]figure, error) {
	pods, err := b.startAll(ctx, burstable("web"), owner("plain", "", 2), owner("lsr", "LSR", 2), bestEffort("batch"))
	if err != nil {
		return nil, err
	}
	web, plain, lsr, batch := pods[0], pods[1], pods[2], pods[3]
	before, err := b.place(ctx, pods...)
	if err != nil {
		return nil, err
	}
	state, err := b.kubeletState(ctx)
	if err != nil {
		return nil, err
	}
	figures := []figure{{Name: "kubelet's entry of plain", Value: state.Entries[plain.Metadata.UID]["main"]}}
	for _, p := range pods {
		figures = append(figures, figure{Name: "CPUs of " + p.Metadata.Name, Value: before[p.Key()+"/main"]})
	}
	if got, want := before[plain.Key()+"/main"], state.Entries[plain.Metadata.UID]["main"]; got != want || want == "" {
		return figures, fmt.Errorf("plain runs on CPUs %q, kubelet gave it %q", got, want)
	}
	if err := apart(before, [2]*cluster.Pod{plain, lsr}, [2]*cluster.Pod{plain, web}, [2]*cluster.Pod{plain, batch},
		[2]*cluster.Pod{lsr, web}); err != nil {
		return figures, err
	}
	if cpus := before[lsr.Key()+"/main"]; !wholeCore(cpus) {
		return figures,
			fmt.Errorf("lsr runs on CPUs %s, which are no whole core although kubelet's full-pcpus-only holds", cpus)
	}
	looks, err := b.hold(ctx, before, pods, pass(b.options.window()))
	figures = append(figures, figure{Name: fmt.Sprintf("looks in %g minutes, no pod moved", b.options.minutes),
		Value: looks})
	if err != nil {
		return figures, err
	}
	looks, err = b.hold(ctx, before, pods, func(ctx context.Context) error {
		if err := b.node.Signal(ctx, cluster.Kubelet, int(syscall.SIGKILL)); err != nil {
			return err
		}
		if err := b.node.StartKubelet(ctx); err != nil {
			return err
		}
		return pass(afterwards)(ctx)
	})
	figures = append(figures, figure{Name: "looks over kubelet's death, no pod moved", Value: looks})
	return figures, errors.Join(err, b.sameContainers(ctx, pods))
}

// policyIsNone: a Guaranteed pod without a class is one of the shared pool again.
func (b *bench) policyIsNone(ctx context.Context) ([]figure, error) {
	pods, err := b.startAll(ctx, burstable("web"), owner("plain", "", 2), owner("lsr", "LSR", 2))
	if err != nil {
		return nil, err
	}
	now, err := b.place(ctx, pods...)
	if err != nil {
		return nil, err
	}
	web, plain := now[pods[0].Key()+"/main"], now[pods[1].Key()+"/main"]
	figures := []figure{{Name: "CPUs of plain after static was taken back", Value: plain}}
	if plain != web || plain == "" {
		return figures,
			fmt.Errorf(
				"plain runs on CPUs %q and web on %q: both belong to the shared pool under kubelet's policy none",
				plain, web)
	}
	return figures, apart(now, [2]*cluster.Pod{pods[1], pods[2]})
}

// apart fails if the two of a pair share a CPU.
func apart(p cluster.Placement, pairs ...[2]*cluster.Pod) error {
	var errs []error
	for _, pair := range pairs {
		a, b := p[pair[0].Key()+"/main"], p[pair[1].Key()+"/main"]
		sa, err := cpuset.Parse(a)
		if err != nil {
			return err
		}
		sb, err := cpuset.Parse(b)
		if err != nil {
			return err
		}
		if both := sa.And(sb); a == "" || b == "" || !both.IsEmpty() {
			errs = append(errs, fmt.Errorf("%s on CPUs %q and %s on %q share CPUs %q", pair[0].Key(), a, pair[1].Key(),
				b, both))
		}
	}
	return errors.Join(errs...)
}

// kubeletState is kubelet's own record of the pods that it pinned.
func (b *bench) kubeletState(ctx context.Context) (*struct {
	PolicyName, DefaultCPUSet string
	Entries                   map[string]map[string]string
}, error) {
	text, err := b.node.ReadFile(ctx, cluster.KubeletState)
	if err != nil {
		return nil, err
	}
	state := &struct {
		PolicyName, DefaultCPUSet string
		Entries                   map[string]map[string]string
	}{}
	return state, json.Unmarshal([]byte(text), state)
}
