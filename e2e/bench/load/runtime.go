package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"github.com/quietcore/quietcore/e2e/kubelet"
)

// patience is what the runtime grants a plugin here; usualLimit what a runtime
// grants unless it is configured. The daemon learns of the former and gives up
// after half of it, so that emulation makes no refusals.
const (
	patience   = 2 * time.Minute
	usualLimit = 2 * time.Second
)

// runtimeSide is the runtime's side of NRI with one plugin behind its socket.
type runtimeSide struct {
	nri    *adaptation.Adaptation
	synced atomic.Bool
}

func startRuntime(socket string) (*runtimeSide, error) {
	r := &runtimeSide{}
	empty := filepath.Join(workDir, "none")
	if err := os.MkdirAll(empty, 0o755); err != nil {
		return nil, err
	}
	adaptation.SetPluginRequestTimeout(patience)
	adaptation.SetPluginRegistrationTimeout(patience)
	nri, err := adaptation.New("containerd", "v2.4.2",
		func(ctx context.Context, cb adaptation.SyncCB) error {
			_, err := cb(ctx, nil, nil)
			r.synced.Store(err == nil)
			return err
		},
		func(context.Context, []*adaptation.ContainerUpdate) ([]*adaptation.ContainerUpdate, error) {
			return nil, fmt.Errorf("unexpected unsolicited update")
		},
		adaptation.WithSocketPath(socket), adaptation.WithPluginPath(empty), adaptation.WithPluginConfigPath(empty))
	if err != nil {
		return nil, err
	}
	r.nri = nri
	return r, nri.Start()
}

// joined returns once the plugin is synchronised and gets events.
func (r *runtimeSide) joined(ctx context.Context) error {
	err := until(ctx, "the plugin is synchronised", func() (bool, error) { return r.synced.Load(), nil })
	if err == nil {
		r.nri.BlockPluginSync().Unblock() // which waits for the adaptation to know it too
	}
	return err
}

// enter is what kubelet waits for before the container of a pod can start.
func (r *runtimeSide) enter(ctx context.Context, p *api.PodSandbox,
	c *api.Container) (took answer, cpus string, err error) {
	start := time.Now()
	if err := r.nri.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: p}); err != nil {
		return took, "", err
	}
	took.run = time.Since(start)
	reply, err := r.nri.CreateContainer(ctx, &api.CreateContainerRequest{Pod: p, Container: c})
	took.create = time.Since(start) - took.run
	return took, reply.GetAdjust().GetLinux().GetResources().GetCpu().GetCpus(), err
}

type answer struct{ run, create time.Duration }

func (r *runtimeSide) started(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	if err := r.nri.StartContainer(ctx, &api.StartContainerRequest{Pod: p, Container: c}); err != nil {
		return err
	}
	c.State = api.ContainerState_CONTAINER_RUNNING
	return r.nri.PostStartContainer(ctx, &api.PostStartContainerRequest{Pod: p, Container: c})
}

func (r *runtimeSide) leave(ctx context.Context, p *api.PodSandbox, c *api.Container) error {
	if _, err := r.nri.StopContainer(ctx, &api.StopContainerRequest{Pod: p, Container: c}); err != nil {
		return err
	}
	if err := r.nri.RemoveContainer(ctx, &api.RemoveContainerRequest{Pod: p, Container: c}); err != nil {
		return err
	}
	if err := r.nri.StopPodSandbox(ctx, &api.StopPodSandboxRequest{Pod: p}); err != nil {
		return err
	}
	return r.nri.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{Pod: p})
}

// messages are a pod and its container as the runtime describes them.
func messages(d kubelet.Driver, p *kubelet.Pod, sandbox, id string) (*api.PodSandbox, *api.Container) {
	cgroups := d.ContainerPath(p, id)
	if d == kubelet.Systemd {
		cgroups = p.CgroupName().Unit() + ":cri-containerd:" + id
	}
	return &api.PodSandbox{
			Id: sandbox, Uid: p.UID, Name: p.Name, Namespace: p.Namespace, Labels: p.Labels,
			Linux: &api.LinuxPodSandbox{
				CgroupParent: d.Path(p.CgroupName()), PodResources: &api.LinuxResources{Cpu: cpuOf(p.SandboxCPU())},
				Resources: &api.LinuxResources{Cpu: &api.LinuxCPU{Shares: api.UInt64(uint64(2))}},
			},
		}, &api.Container{
			Id: id, PodSandboxId: sandbox, Name: p.Containers[0].Name, State: api.ContainerState_CONTAINER_CREATED,
			Linux: &api.LinuxContainer{
				CgroupsPath: cgroups,
				Resources:   &api.LinuxResources{Memory: &api.LinuxMemory{}, Cpu: cpuOf(p.Containers[0].CPU())},
			},
		}
}

func cpuOf(c kubelet.CPU) *api.LinuxCPU {
	out := &api.LinuxCPU{Shares: api.UInt64(uint64(c.Shares)), Period: api.UInt64(uint64(c.Period))}
	if c.Quota != 0 {
		out.Quota = api.Int64(c.Quota)
	}
	return out
}

// idler is a plugin that receives the same events as ours and does nothing.
type idler struct{}

func (idler) RunPodSandbox(context.Context, *api.PodSandbox) error { return nil }

func (idler) CreateContainer(context.Context, *api.PodSandbox,
	*api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	return nil, nil, nil
}

// nothing serves as that plugin until the runtime goes away.
func nothing(socket string) error {
	st, err := stub.New(idler{}, stub.WithPluginName("nothing"), stub.WithPluginIdx("90"), stub.WithSocketPath(socket))
	if err != nil {
		return err
	}
	return st.Run(context.Background())
}
