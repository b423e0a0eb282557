package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/quietcore/quietcore/e2e/machine"
	"github.com/quietcore/quietcore/e2e/wire"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/script"
)

// Where things are in the guest.
const (
	cgroupRoot       = "/sys/fs/cgroup"
	configPath       = "/etc/quietcore/config.yaml"
	stateDir         = "/var/lib/quietcore"
	socket           = "/run/quietcore/quietcore.sock"
	testSocket       = "/run/quietcore/test.sock"
	kubeletStatePath = "/var/lib/kubelet/cpu_manager_state"
	// kubeletConfigPath is read by the daemon where a script has a kubeletConfig step.
	kubeletConfigPath = "/var/lib/kubelet/config.yaml"
	binary            = "/usr/bin/quietcore"
)

// daemonLimit bounds how long a daemon may take to be ready or idle.
const daemonLimit = time.Minute

// StartDaemon returns when the daemon is registered, synchronised and idle. flags
// are added to those that every daemon gets.
func (g *Guest) StartDaemon(ctx context.Context, flags ...string) error {
	if !g.Daemon {
		return nil
	}
	argv := append([]string{g.Binary, "run", "--config", configPath, "--test-socket", testSocket}, flags...)
	if err := g.Start(ctx, machine.Daemon, argv...); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, daemonLimit)
	defer cancel()
	if err := g.WaitSocket(wait, testSocket); err != nil {
		return fmt.Errorf("%w\nthe daemon's log:\n%s", err, g.LogTail(ctx, machine.Daemon, 3000))
	}
	// Once through the command that people use.
	if _, err := g.Exec(wait, g.Binary, "status", "-o", "json", "--wait-settled"); err != nil {
		return fmt.Errorf("%w\nthe daemon's log:\n%s", err, g.LogTail(ctx, machine.Daemon, 3000))
	}
	return nil
}

// KillDaemon is kill -9.
func (g *Guest) KillDaemon(ctx context.Context) error {
	return g.Signal(ctx, machine.Daemon, int(syscall.SIGKILL))
}

// Settle waits until the daemon has processed all events and written everything. It
// uses the daemon's socket: starting a process for each query would dominate the time
// under emulation.
func (g *Guest) Settle(ctx context.Context) (*control.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, daemonLimit)
	defer cancel()
	tick := time.NewTicker(30 * time.Millisecond)
	defer tick.Stop()
	for {
		status := &control.Status{}
		code, body, err := g.HTTP(ctx, socket, "GET", "/v1/status", nil)
		if err == nil && code == 200 {
			err = json.Unmarshal(body, status)
		}
		if err == nil && status.Settled {
			return status, nil
		}
		if running, exit, perr := g.Running(ctx, machine.Daemon); perr == nil && !running {
			return nil, fmt.Errorf("the daemon ended with code %d", exit)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the daemon is not idle after %v: connected %t, synchronised %t, last error %w",
				daemonLimit, status.Connected, status.Synchronised, errors.Join(err, ctx.Err()))
		case <-tick.C:
		}
	}
}

// Inject sends an event to the daemon through the socket that only a daemon started for
// tests opens.
func (g *Guest) Inject(ctx context.Context, event map[string]any) error {
	if !g.Daemon {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, daemonLimit)
	defer cancel()
	code, body, err := g.HTTP(ctx, testSocket, "POST", "/event", event)
	if err != nil {
		return err
	}
	if code/100 == 2 {
		return nil
	}
	var refusal script.Error
	if json.Unmarshal(body, &refusal) == nil && refusal.Code != "" {
		return fmt.Errorf("%s: %s", refusal.Code, refusal.Message)
	}
	return fmt.Errorf("the daemon answered the event with %d: %s", code, body)
}

// Wipe restores the guest to a node on which nothing has run.
func (g *Guest) Wipe(ctx context.Context) error {
	if err := g.KillDaemon(ctx); err != nil {
		return err
	}
	if err := g.removeSandboxes(ctx, nil); err != nil {
		return err
	}
	for cpu := 1; cpu < g.Present(); cpu++ {
		// A scenario may have ended with a CPU offline; writing 1 to an online one is free.
		if err := g.Online(ctx, cpu); err != nil {
			return err
		}
	}
	if err := g.tree.wipe(ctx); err != nil {
		return err
	}
	_, err := g.Files(ctx,
		wire.FileAction{Do: wire.FileRemoveTree, Path: stateDir},
		wire.FileAction{Do: wire.FileRemoveTree, Path: "/run/quietcore"},
		wire.FileAction{Do: wire.FileRemoveTree, Path: kubeletConfigPath},
		wire.FileAction{Do: wire.FileRemoveTree, Path: machine.LogFile(machine.Daemon)})
	return err
}

func (g *Guest) removeSandboxes(ctx context.Context, labels map[string]string) error {
	service := g.CRI()
	list, err := service.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{
		Filter: &cri.PodSandboxFilter{LabelSelector: labels}})
	if err != nil {
		return fmt.Errorf("ListPodSandbox: %w", err)
	}
	// Several at a time: each is mostly a chain of processes, and a host has two CPUs.
	errs := make([]error, len(list.Items))
	var all sync.WaitGroup
	for i, s := range list.Items {
		all.Go(func() { errs[i] = removeSandbox(ctx, service, s.Id) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// removeSandbox stops the containers first, as kubelet does: CRI-O gives those that it
// finds in a sandbox nearly all the time that the call has.
func removeSandbox(ctx context.Context, service cri.RuntimeServiceClient, id string) error {
	list, err := service.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{PodSandboxId: id}})
	if err != nil {
		return fmt.Errorf("ListContainers: %w", err)
	}
	for _, c := range list.Containers {
		if c.State != cri.ContainerState_CONTAINER_RUNNING {
			continue
		}
		if _, err := service.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: c.Id}); err != nil {
			return fmt.Errorf("StopContainer: %w", err)
		}
	}
	if _, err := service.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		return fmt.Errorf("StopPodSandbox: %w", err)
	}
	if _, err := service.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
		return fmt.Errorf("RemovePodSandbox: %w", err)
	}
	return nil
}

// daemonConfig is the script's configuration with its node, which the daemon would
// have learned from the API server and kubelet. JSON is YAML.
func daemonConfig(s *Script, labels map[string]string) (string, error) {
	c := s.File.Config
	c.Node = s.File.Node
	c.Node.Labels = labels
	c.Node.Kubelet.StateFile = kubeletStatePath
	if slices.ContainsFunc(s.File.Steps, func(st script.Step) bool { return st.KubeletConfig != nil }) {
		c.Node.Kubelet.ConfigFile = kubeletConfigPath
	}
	if c.CPI.Mode == config.CPIObserve {
		c.CPI.Mode = config.CPIOff // counting is expensive under emulation, and not used here
	}
	out, err := json.Marshal(c)
	return string(out), err
}
