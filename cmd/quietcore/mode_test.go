package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/cmdtest"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/sysfs/sysfstest"
	"github.com/quietcore/quietcore/topology"
)

// given are the CPUs in the reply to an LSR pod of two CPUs that starts; empty: none.
func given(t *testing.T, nri *adaptation.Adaptation, name string) string {
	t.Helper()
	cpu := &api.LinuxCPU{Shares: api.UInt64(2048), Quota: api.Int64(200_000), Period: api.UInt64(100_000)}
	sandbox := &api.PodSandbox{Id: "sb-" + name, Uid: "uid-" + name, Name: name, Namespace: "default",
		Labels: map[string]string{"koordinator.sh/qosClass": "LSR"},
		Linux: &api.LinuxPodSandbox{CgroupParent: "/kubepods/pod" + name, Resources: &api.LinuxResources{Cpu: cpu},
			PodResources: &api.LinuxResources{Cpu: cpu}}}
	if err := nri.RunPodSandbox(context.Background(), &api.RunPodSandboxRequest{Pod: sandbox}); err != nil {
		t.Fatal(err)
	}
	r, err := nri.CreateContainer(context.Background(), &api.CreateContainerRequest{Pod: sandbox,
		Container: &api.Container{Id: cmdtest.ContainerID(name), PodSandboxId: sandbox.Id, Name: "main",
			Linux: &api.LinuxContainer{CgroupsPath: "/kubepods/pod" + name + "/main",
				Resources: &api.LinuxResources{Cpu: cpu, Memory: &api.LinuxMemory{}}}}})
	if err != nil {
		t.Fatal(err)
	}
	return r.GetAdjust().GetLinux().GetResources().GetCpu().GetCpus()
}

// The switch of an incident: it stops new places within seconds, survives a restart, and is taken back.
func TestTheModeIsSwitchedByCommand(t *testing.T) {
	machine, err := topology.Grid{Sockets: 2, CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	sys := t.TempDir()
	if err := os.CopyFS(sys, sysfstest.Tree(machine)); err != nil {
		t.Fatal(err)
	}
	p := newPlace(t, fmt.Sprintf(
		"sysfs: {root: %s}\nnode: {name: node-a, kubelet: {stateFile: '', configFile: '', podResources: ''}}", sys))
	nri := cmdtest.Serve(t, filepath.Join(p.dir, "nri.sock"), nil, nil)
	t.Cleanup(nri.Stop)
	_, stop := p.start(t)
	ready := func() {
		t.Helper()
		waitUntil(t, "the runtime has listed what runs", func() bool {
			_, out, _ := call("status", "--socket", p.socket, "-o", "json")
			return strings.Contains(out, `"synchronised":true`)
		})
		nri.BlockPluginSync().Unblock()
	}
	mode := func(want int, says string, args ...string) {
		t.Helper()
		code, out, errs := call(append([]string{"mode", "--socket", p.socket}, args...)...)
		if code != want || !strings.Contains(out+errs, says) {
			t.Errorf("mode %v: exit %d, want %d, and %q in\n%s%s", args, code, want, says, out, errs)
		}
		ready()
	}
	ready()
	mode(0, "mode enforce, by the configuration\n")
	if got := given(t, nri, "a"); got == "" {
		t.Error("an owner gets no CPUs")
	}
	mode(0, "mode observe, by `quietcore mode` since ", "observe")
	if got := given(t, nri, "b"); got != "" {
		t.Errorf("after the switch an owner gets CPUs %s", got)
	}
	if _, out, _ := call("status", "--socket", p.socket); !strings.Contains(out, ": nothing is enforced") {
		t.Errorf("status does not say it:\n%s", out)
	}
	waitUntil(t, "metrics say it", p.scraped(`quietcore_mode_info{mode="observe",source="command"} 1`,
		"quietcore_mode_undoing 0"))
	stop()
	p.start(t)
	ready()
	mode(0, `"mode":"observe","source":"command"`, "-o", "json")
	if got := given(t, nri, "c"); got != "" {
		t.Errorf("after a restart an owner gets CPUs %s", got)
	}
	mode(0, "mode enforce, by `quietcore mode`", "enforce")
	if got := given(t, nri, "d"); got == "" {
		t.Error("an owner gets no CPUs after the switch back")
	}
	mode(cli.Wrong, `one of observe, enforce, config, or nothing; got "off"`, "off")
}

// Without a daemon the switch fails, and says what to do.
func TestTheModeOfNoDaemon(t *testing.T) {
	p := newPlace(t, "")
	if code, _, errs := call("mode", "observe", "--socket", p.socket); code != cli.Failed || errs == "" {
		t.Errorf("exit %d, %s", code, errs)
	}
}

// A reload that waits for a restart is not called successful, until it is taken back.
func TestAReloadInPartIsNotSuccessful(t *testing.T) {
	p := newPlace(t, "")
	log, _ := p.start(t)
	waitUntil(t, "the first one is successful", p.scraped("quietcore_config_last_reload_successful 1"))
	p.write(t, "node: {name: other}\ncpi: {mode: enforce}\nmode: observe\n")
	waitUntil(t, "the part that waits is said", p.scraped("quietcore_config_last_reload_successful 0",
		"quietcore_config_restart_required 1",
		`quietcore_config_info{cpi="enforce",mode="observe",reclaim="off",suppression="off"} 1`))
	if code, out, _ := call("status", "--socket", p.socket); code != 0 ||
		!strings.Contains(out, "a restart is required for node.name") {
		t.Errorf("status: exit %d\n%s", code, out)
	}
	waitUntil(t, "the log says it", func() bool {
		return strings.Contains(log.String(), "a part of the configuration waits")
	})
	p.write(t, "")
	waitUntil(t, "it is taken back", p.scraped("quietcore_config_last_reload_successful 1",
		"quietcore_config_restart_required 0"))
}

// scraped reports whether the daemon's metrics have these lines.
func (p place) scraped(want ...string) func() bool {
	return func() bool {
		text, _ := control.Client{Socket: p.socket}.Metrics(context.Background())
		for _, line := range want {
			if !strings.Contains(string(text), line+"\n") {
				return false
			}
		}
		return true
	}
}
