package upgrade

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"

	"github.com/quietcore/quietcore/sysfs/sysfstest"
	"github.com/quietcore/quietcore/topology"
)

// node is a machine of plain files and a runtime, on which daemons run one after the
// other. Each finds cgroups without masks: what it knows of the time before it, it has
// from the state file.
type node struct {
	t    *testing.T
	dir  string
	pods []string // LSR pods of two CPUs
}

func newNode(t *testing.T, pods ...string) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "qc") // sockets have short names
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, dir: dir, pods: pods}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	machine, err := topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "sys"), sysfstest.Tree(machine)); err != nil {
		t.Fatal(err)
	}
	n.write("config.yaml", fmt.Sprintf(`apiVersion: quietcore.dev/v1alpha1
state: {dir: %[1]s/state}
socket: %[1]s/q.sock
listen: ""
page: {listen: ''}
nri: {socket: %[1]s/nri.sock}
cgroup: {root: %[1]s/cgroup, driver: cgroupfs}
sysfs: {root: %[1]s/sys}
cpi: {mode: "off"}
`, dir))
	return n
}

func (n *node) write(name, text string) {
	n.t.Helper()
	name = filepath.Join(n.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// cgroups makes the tree anew: nobody has a mask.
func (n *node) cgroups() {
	n.t.Helper()
	if err := os.RemoveAll(filepath.Join(n.dir, "cgroup")); err != nil {
		n.t.Fatal(err)
	}
	dirs := []string{"", "kubepods", "kubepods/burstable", "kubepods/besteffort"}
	for _, pod := range n.pods {
		dirs = append(dirs, "kubepods/pod"+pod, "kubepods/pod"+pod+"/"+containerID(pod))
	}
	for _, dir := range dirs {
		for file, text := range map[string]string{
			"cgroup.controllers": "cpuset cpu memory\n", "cgroup.procs": "",
			"cgroup.events": "populated 1\nfrozen 0\n", "cpuset.cpus": "\n", "cpuset.cpus.effective": "0-7\n",
			"cpuset.mems": "\n", "cpuset.mems.effective": "0\n", "cpu.max": "max 100000\n", "cpu.weight": "39\n",
			"cpu.stat": "usage_usec 0\nnr_throttled 0\nthrottled_usec 0\n",
		} {
			n.write(filepath.Join("cgroup", dir, file), text)
		}
	}
}

func containerID(pod string) string { return fmt.Sprintf("%064x", pod) }

// listed is what the runtime says that runs.
func (n *node) listed() (pods []*api.PodSandbox, containers []*api.Container) {
	cpu := &api.LinuxCPU{Shares: api.UInt64(2048), Quota: api.Int64(200_000), Period: api.UInt64(100_000)}
	for _, pod := range n.pods {
		pods = append(pods, &api.PodSandbox{
			Id: "sandbox-" + pod, Uid: pod, Name: pod, Namespace: "default",
			Labels: map[string]string{"koordinator.sh/qosClass": "LSR"},
			Linux: &api.LinuxPodSandbox{CgroupParent: "/kubepods/pod" + pod,
				PodResources: &api.LinuxResources{Cpu: cpu}, Resources: &api.LinuxResources{Cpu: cpu}},
		})
		containers = append(containers, &api.Container{
			Id: containerID(pod), PodSandboxId: "sandbox-" + pod, Name: "main",
			State: api.ContainerState_CONTAINER_RUNNING,
			Linux: &api.LinuxContainer{CgroupsPath: "/kubepods/pod" + pod + "/" + containerID(pod),
				Resources: &api.LinuxResources{Memory: &api.LinuxMemory{}, Cpu: cpu}},
		})
	}
	return pods, containers
}

// runtime starts the runtime's side of NRI, with the pods as they are now.
func (n *node) runtime() (stop func()) {
	n.t.Helper()
	pods, containers := n.listed()
	plugins := n.t.TempDir()
	nri, err := adaptation.New("containerd", "v2.3.0", func(ctx context.Context, cb adaptation.SyncCB) error {
		_, err := cb(ctx, pods, containers)
		return err
	}, func(context.Context, []*adaptation.ContainerUpdate) ([]*adaptation.ContainerUpdate, error) {
		return nil, nil
	}, adaptation.WithSocketPath(filepath.Join(n.dir, "nri.sock")), adaptation.WithPluginPath(plugins),
		adaptation.WithPluginConfigPath(plugins))
	if err != nil {
		n.t.Fatal(err)
	}
	if err := nri.Start(); err != nil {
		n.t.Fatal(err)
	}
	return nri.Stop
}

// status is what a daemon of any version answers.
type status struct {
	Synchronised bool `json:"synchronised"`
	Owners       []struct {
		Pod  string `json:"pod"`
		CPUs string `json:"cpus"`
	} `json:"owners"`
}

func (s *status) owners() string {
	var all []string
	for _, o := range s.Owners {
		all = append(all, o.Pod+" "+o.CPUs)
	}
	return strings.Join(all, ", ")
}

// saved is a state file, in what every version understands of it.
type saved struct {
	Version int `json:"version"`
	Body    struct {
		Pods []struct {
			UID  string `json:"uid"`
			CPUs string `json:"cpus"`
		} `json:"pods"`
		Owners []json.RawMessage `json:"owners"`
	} `json:"body"`
}

func (s *saved) pods() string {
	var all []string
	for _, p := range s.Body.Pods {
		all = append(all, p.UID+" "+p.CPUs)
	}
	return strings.Join(all, ", ")
}

func (n *node) saved() (s saved) {
	text, err := os.ReadFile(filepath.Join(n.dir, "state", "state.json"))
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return saved{}
	}
	return s
}

// run starts a daemon, waits until it has taken over what runs and saved it as want says,
// and kills it as by kill -9. It returns the owners that it told of, and its log.
func (n *node) run(binary string, want func(saved) bool) (owners, log string) {
	n.t.Helper()
	n.cgroups()
	stop := n.runtime()
	defer stop()
	out := &logs{}
	cmd := exec.CommandContext(n.t.Context(), binary, "run", "--config", filepath.Join(n.dir, "config.yaml"))
	cmd.Stderr = out
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	defer func() { _ = cmd.Process.Kill(); <-ended }()
	var last status
	const limit = 2 * time.Minute // for a machine with much else to do
	for deadline := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		select {
		case <-ended:
			n.t.Fatalf("the daemon has ended\n%s", out)
		default:
		}
		last = n.status()
		if last.Synchronised && want(n.saved()) {
			return last.owners(), out.String()
		}
		if time.Now().After(deadline) {
			n.t.Fatalf("after %s: synchronised %t, owners %q, saved %q of format %d\n%s", limit, last.Synchronised,
				last.owners(), new(n.saved()).pods(), n.saved().Version, out)
		}
	}
}

// status asks the daemon; nothing where none answers yet.
func (n *node) status() (s status) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(n.dir, "q.sock"))
		}}}
	resp, err := client.Get("http://quietcore/v1/status")
	if err != nil {
		return status{}
	}
	defer resp.Body.Close()
	if json.NewDecoder(resp.Body).Decode(&s) != nil {
		return status{}
	}
	return s
}

type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
