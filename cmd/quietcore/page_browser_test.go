package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cmdtest"
	"github.com/quietcore/quietcore/internal/page/pagetest"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/sysfs/sysfstest"
	"github.com/quietcore/quietcore/topology"
)

// pageNode is a runtime and a whole daemon that shows its page. The machine is made
// up, so that it has as many CPUs wherever the test runs, and there are neither cgroups
// nor a kubelet, so that nothing reaches the real one: the replies alone place pods.
type pageNode struct {
	t    *testing.T
	nri  *adaptation.Adaptation
	base string // of the page
}

func newPageNode(t *testing.T, grid topology.Grid) *pageNode {
	t.Helper()
	machine, err := grid.Build()
	if err != nil {
		t.Fatal(err)
	}
	sys := t.TempDir()
	if err := os.CopyFS(sys, sysfstest.Tree(machine)); err != nil {
		t.Fatal(err)
	}
	p := newPlace(t,
		fmt.Sprintf(
			"sysfs: {root: %s}\nnode: {name: node-a, kubelet: {stateFile: '', configFile: '', podResources: ''}}", sys))
	text, err := os.ReadFile(p.config)
	if err != nil {
		t.Fatal(err)
	}
	n := &pageNode{t: t}
	address := freePort(t)
	n.base = "http://" + address
	cmdtest.Write(t, p.config, strings.Replace(string(text), `page: {listen: ''}`, "page: {listen: "+address+"}", 1))
	n.nri = cmdtest.Serve(t, filepath.Join(p.dir, "nri.sock"), nil, nil)
	t.Cleanup(n.nri.Stop)
	log, _ := p.start(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(log)
		}
	})
	waitUntil(t, "the daemon has taken over what runs", func() bool {
		_, out, _ := call("status", "--socket", p.socket, "-o", "json")
		return strings.Contains(out, `"synchronised":true`)
	})
	n.nri.BlockPluginSync().Unblock() // the runtime knows a moment later than the plugin
	return n
}

// run has the runtime start a pod with one container, and returns the CPUs of
// the daemon's reply; a pod of a pool gets none by it.
func (n *pageNode) run(name string, class policy.Class, slice string, milli int64) cpuset.Set {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	namespace, pod, _ := strings.Cut(name, "/")
	parent := "/kubepods/" + slice + "pod" + pod
	cpu := &api.LinuxCPU{Shares: api.UInt64(uint64(max(milli*1024/1000, 2))), Period: api.UInt64(100_000)}
	if slice == "" {
		cpu.Quota = api.Int64(milli * 100)
	}
	sandbox := &api.PodSandbox{
		Id: "sandbox-" + pod, Uid: "uid-" + pod, Name: pod, Namespace: namespace,
		Labels: map[string]string{policy.LabelClass: string(class)},
		Linux: &api.LinuxPodSandbox{CgroupParent: parent, PodResources: &api.LinuxResources{Cpu: cpu},
			Resources: &api.LinuxResources{Cpu: cpu}},
	}
	if err := n.nri.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: sandbox}); err != nil {
		n.t.Fatalf("pod %s: %v", name, err)
	}
	container := &api.Container{
		Id: cmdtest.ContainerID(pod), PodSandboxId: sandbox.Id, Name: "main",
		State: api.ContainerState_CONTAINER_CREATED,
		Linux: &api.LinuxContainer{CgroupsPath: parent + "/" + cmdtest.ContainerID(pod),
			Resources: &api.LinuxResources{Memory: &api.LinuxMemory{}, Cpu: cpu}},
	}
	reply, err := n.nri.CreateContainer(ctx, &api.CreateContainerRequest{Pod: sandbox, Container: container})
	if err != nil {
		n.t.Fatalf("container of %s: %v", name, err)
	}
	container.State = api.ContainerState_CONTAINER_RUNNING
	if err := n.nri.PostStartContainer(ctx, &api.PostStartContainerRequest{Pod: sandbox,
		Container: container}); err != nil {
		n.t.Fatalf("container of %s: %v", name, err)
	}
	text := reply.GetAdjust().GetLinux().GetResources().GetCpu().GetCpus()
	cpus, err := cpuset.Parse(text)
	if err != nil {
		n.t.Fatalf("container of %s: the reply has the CPUs %q: %v", name, text, err)
	}
	return cpus
}

// What a browser shows of a whole daemon is what that daemon answered the runtime.
func TestBrowserWholeDaemon(t *testing.T) {
	t.Parallel()
	b := pagetest.New(t, 1400, 900)
	n := newPageNode(t, topology.Grid{Sockets: 1, NodesPerSocket: 1, L3PerNode: 1, CoresPerL3: 4, ThreadsPerCore: 2})
	b.Open(n.base + "/")
	b.Wants("document.title", "quietcore node-a")
	own := n.run("shop/db", policy.LSR, "", 2000)
	if own.Count() != 2 {
		t.Fatalf("the runtime was given the CPUs %q for a pod that asks for 2", own)
	}
	n.run("shop/web", policy.LS, "burstable/", 500)
	n.run("batch/encode", policy.BE, "besteffort/", 0)
	b.Until("document.getElementById('container-list').innerText.includes('batch/encode/main')")
	shared := cpuset.Of(0, 1, 2, 3, 4, 5, 6, 7).Minus(own)
	drawn := func(pool string) string {
		return fmt.Sprintf("[...document.querySelectorAll('#map .cpu.%s')].map((c) => c.dataset.cpu).join()", pool)
	}
	for pool, want := range map[string]cpuset.Set{"lsr": own, "shared": shared} {
		if got, err := cpuset.Parse(b.Text(drawn(pool))); err != nil || got != want {
			t.Errorf("drawn as %s are the CPUs %s, %v; the runtime was given %s", pool, got, err, want)
		}
	}

	b.Click(fmt.Sprintf(`#map [data-cpu="%d"]`, own.First()))
	b.Wants(pagetest.Details, fmt.Sprintf("CPU %d: LSR, exclusive", own.First()), "owner\nshop/db",
		"why\nLSR: owns 2 CPUs of its own")
	b.Click(fmt.Sprintf(`#map [data-cpu="%d"]`, shared.First()))
	b.Wants(pagetest.Details, fmt.Sprintf("CPU %d: shared pool", shared.First()), "why\nit is in the shared pool",
		"shop/web/main LS")

	b.Slash()
	b.Keys("db")
	b.Until("document.querySelectorAll('#found [data-pod]').length === 1")
	b.Keys(kb.Enter)
	b.Wants(pagetest.Details, "shop/db", "owns CPUs\n"+own.String(), "class\nLSR")
	b.Until(fmt.Sprintf("document.querySelectorAll('#map .cpu.hit').length === %d", own.Count()))
	b.Wants("document.getElementById('notes').innerText", "CPU performance: the cgroups could not be opened")
	b.Screenshot("whole-daemon")
	b.Clean(n.base)
}
