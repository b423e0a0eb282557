package cmdtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
)

// Pod is a pod of QoS class Guaranteed with one container, main, that runs.
type Pod struct {
	Namespace, Name, UID string
	Class                string // of koordinator.sh/qosClass
	CPUs                 int64
	Annotations          map[string]string
}

// ID is that of its container, as long as a runtime's.
func (p *Pod) ID() string { return ContainerID(p.Name) }

// ContainerID is that of the container of a pod.
func ContainerID(pod string) string { return fmt.Sprintf("%064x", pod) }

// cgroup is the pod's, below the root.
func (p *Pod) cgroup() string { return "kubepods/pod" + p.Name }

func (p *Pod) quota() int64 { return p.CPUs * 100_000 }

// listed is the pod as the runtime lists it.
func (p *Pod) listed() (*api.PodSandbox, *api.Container) {
	const shares = 1024
	cpu := &api.LinuxCPU{Shares: api.UInt64(uint64(p.CPUs) * shares), Quota: api.Int64(p.quota()),
		Period: api.UInt64(100_000)}
	parent := "/" + p.cgroup()
	sandbox := &api.PodSandbox{
		Id: "sandbox-" + p.Name, Uid: p.UID, Name: p.Name, Namespace: p.Namespace,
		Labels: map[string]string{"koordinator.sh/qosClass": p.Class}, Annotations: p.Annotations,
		Linux: &api.LinuxPodSandbox{CgroupParent: parent, PodResources: &api.LinuxResources{Cpu: cpu},
			Resources: &api.LinuxResources{Cpu: cpu}},
	}
	return sandbox, &api.Container{
		Id: p.ID(), PodSandboxId: sandbox.Id, Name: "main", State: api.ContainerState_CONTAINER_RUNNING,
		Linux: &api.LinuxContainer{CgroupsPath: parent + "/" + p.ID(),
			Resources: &api.LinuxResources{Memory: &api.LinuxMemory{}, Cpu: cpu}},
	}
}

// Cgroups makes a tree of plain files below root, in which nothing has a mask: everything
// may run on the CPUs online. Pods have the quota that kubelet gives them.
func Cgroups(t *testing.T, root, online string, pods []Pod) {
	t.Helper()
	quotas := map[string]string{"": "max", "kubepods": "max", "kubepods/burstable": "max", "kubepods/besteffort": "max"}
	for i := range pods {
		p := &pods[i]
		quotas[p.cgroup()] = fmt.Sprint(p.quota())
		quotas[p.cgroup()+"/"+p.ID()] = fmt.Sprint(p.quota())
	}
	for dir, quota := range quotas {
		for file, text := range map[string]string{
			"cgroup.controllers": "cpuset cpu memory", "cgroup.procs": "", "cgroup.events": "populated 1\nfrozen 0",
			"cpuset.cpus": "", "cpuset.cpus.effective": strings.TrimSpace(online), "cpuset.mems": "",
			"cpuset.mems.effective": "0", "cpu.max": quota + " 100000", "cpu.weight": "39",
			"cpu.stat": "usage_usec 0\nnr_throttled 0\nthrottled_usec 0",
		} {
			Write(t, filepath.Join(root, dir, file), text+"\n")
		}
	}
}

// Runtime starts the runtime's side of NRI on a socket, with pods that run. The caller
// stops it.
func Runtime(t *testing.T, socket string, pods []Pod) *adaptation.Adaptation {
	t.Helper()
	var sandboxes []*api.PodSandbox
	var containers []*api.Container
	for i := range pods {
		s, c := pods[i].listed()
		sandboxes, containers = append(sandboxes, s), append(containers, c)
	}
	return Serve(t, socket, sandboxes, containers)
}

// Serve is Runtime for anything that a runtime can list. The caller stops it; a daemon
// that asks for an update is refused.
func Serve(t *testing.T, socket string, pods []*api.PodSandbox, containers []*api.Container) *adaptation.Adaptation {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	plugins := t.TempDir()
	nri, err := adaptation.New("containerd", "v2.3.0", func(ctx context.Context, cb adaptation.SyncCB) error {
		_, err := cb(ctx, pods, containers)
		return err
	}, func(context.Context, []*adaptation.ContainerUpdate) ([]*adaptation.ContainerUpdate, error) {
		return nil, fmt.Errorf("this runtime takes no updates")
	}, adaptation.WithSocketPath(socket), adaptation.WithPluginPath(plugins), adaptation.WithPluginConfigPath(plugins))
	if err == nil {
		err = nri.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return nri
}

// Write writes a file and makes its directory.
func Write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Log is the standard error of a daemon, which may be read while it is written.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
