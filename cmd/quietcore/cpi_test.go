package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/quietcore/quietcore/internal/cmdtest"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/top"
)

// freePort is an address that is free.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// statusOf is the daemon's CPI in `quietcore status -o json`.
func (p place) statusOf(t *testing.T) control.CPI {
	t.Helper()
	code, out, errs := call("status", "--socket", p.socket, "-o", "json")
	var s control.Status
	if code != 0 || json.Unmarshal([]byte(out), &s) != nil {
		t.Fatalf("status: exit %d, %s%s", code, out, errs)
	}
	return s.CPI
}

func TestWhatIsNotCountedIsSaidEverywhereAndStopsNothing(t *testing.T) {
	address := freePort(t)
	p := newPlace(t, "")
	text, err := os.ReadFile(p.config)
	if err != nil {
		t.Fatal(err)
	}
	probes := freePort(t)
	changed := strings.NewReplacer(`listen: ""`, "listen: "+address, "health: {listen: ''}",
		"health: {listen: "+probes+"}").Replace(string(text))
	if err := os.WriteFile(p.config, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	log, _ := p.start(t)
	const why = "the cgroups could not be opened"
	waitUntil(t, "status says why", func() bool { return p.statusOf(t).Why == why })
	if s := p.statusOf(t); s.Counting || s.Mode != "observe" {
		t.Errorf("status: %+v", s)
	}
	if n := strings.Count(log.String(), "CPU performance is not counted"); n != 1 {
		t.Errorf("%d lines about it in the log\n%s", n, log)
	}
	waitUntil(t, "readiness, decided once a second, says why", func() bool {
		return strings.Contains(fetch(t, "http://"+probes+"/readyz"), `"CPU performance":"`+why)
	})
	if body := fetch(t, "http://"+address+"/metrics"); !strings.Contains(body, "\nquietcore_cpi_counting 0\n") {
		t.Error("/metrics does not say that nothing is counted")
	}
	if _, out, _ := call("status", "--socket", p.socket); !strings.Contains(out, "CPU performance: "+why) {
		t.Errorf("status for people:\n%s", out)
	}
	if code, out, _ := call("top", "--socket", p.socket, "-d", "100ms"); code != 0 ||
		!strings.Contains(out, "CPI: not counted: "+why) {
		t.Errorf("top: exit %d\n%s", code, out)
	}
}

func TestCountingCanBeOff(t *testing.T) {
	p := newPlace(t, "cpi: {mode: off}")
	log, _ := p.start(t)
	if s := p.statusOf(t); s.Counting || s.Mode != "off" || s.Why != "" {
		t.Errorf("status: %+v", s)
	}
	if _, out, _ := call("top", "--socket", p.socket, "-d", "100ms"); !strings.Contains(out,
		"CPI: not counted: cpi.mode is off") {
		t.Errorf("top:\n%s", out)
	}
	if strings.Contains(log.String(), "CPU performance") {
		t.Errorf("the log complains of it:\n%s", log)
	}
}

// busyContainer is a process that never yields, in a cgroup of its own, and a
// runtime that has it as a container of a best-effort pod.
type busyContainer struct{ cgroup, id string }

func newBusyContainer(t *testing.T, socket string) busyContainer {
	t.Helper()
	const root = "/sys/fs/cgroup"
	b := busyContainer{id: fmt.Sprintf("quietcore-test-%d", os.Getpid())}
	b.cgroup = "/" + b.id
	hierarchies := []string{root}
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err != nil {
		hierarchies = []string{root + "/cpu", root + "/cpuacct", root + "/cpuset"}
	}
	enter := ""
	for _, h := range hierarchies {
		dir := filepath.Join(h, b.cgroup)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			needsRoot(t, err)
		}
		t.Cleanup(func() {
			waitUntil(t, "the cgroup is removed", func() bool {
				err := os.Remove(dir)
				return err == nil || errors.Is(err, os.ErrNotExist)
			})
		})
		if filepath.Base(h) != "cpuset" { // without CPUs of its own nothing can enter it
			enter += "echo $$ > " + dir + "/cgroup.procs; "
		}
	}
	process := exec.Command("sh", "-c", enter+"while :; do :; done")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill() // it may be gone
		_ = process.Wait()
	})
	b.run(t, socket)
	return b
}

func needsRoot(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("QUIETCORE_CI") == "1" {
		t.Fatal(err)
	}
	t.Skipf("needs root and cgroups: %v", err)
}

func (b busyContainer) run(t *testing.T, socket string) {
	t.Helper()
	cpu := &api.LinuxCPU{Shares: api.UInt64(2)}
	pod := &api.PodSandbox{Id: "sandbox", Uid: "uid", Name: "busy", Namespace: "default", Linux: &api.LinuxPodSandbox{
		CgroupParent: "/kubepods/besteffort/poduid", PodResources: &api.LinuxResources{Cpu: cpu},
		Resources: &api.LinuxResources{Cpu: cpu},
	}}
	ctr := &api.Container{Id: b.id, PodSandboxId: "sandbox", Name: "main", State: api.ContainerState_CONTAINER_RUNNING,
		Linux: &api.LinuxContainer{
			CgroupsPath: b.cgroup, Resources: &api.LinuxResources{Memory: &api.LinuxMemory{}, Cpu: cpu},
		}}
	t.Cleanup(cmdtest.Serve(t, socket, []*api.PodSandbox{pod}, []*api.Container{ctr}).Stop)
}

// The whole way: a runtime's container, the kernel's counters, a window, and what
// people see of it. Both stand-ins are the same clock, so its
// ratio is 1 whatever else the machine does.
func TestTopShowsWhatAContainerReallyDoes(t *testing.T) {
	t.Parallel()
	p := newPlace(t,
		"mode: observe\ncpi: {detector: contrast, interval: 1s, window: 300ms, containerSeries: 6, minTasks: 1, "+
			"minTaskSamples: 3, minUsage: 0.001, standIns: {cycles: cpu-clock, instructions: cpu-clock}}")
	text, err := os.ReadFile(p.config)
	if err != nil {
		t.Fatal(err)
	}
	address := freePort(t)
	changed := strings.NewReplacer(p.dir+"/cgroup", "/sys/fs/cgroup", `listen: ""`, "listen: "+
		address).Replace(string(text))
	if err := os.WriteFile(p.config, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	newBusyContainer(t, filepath.Join(p.dir, "nri.sock"))
	log, _ := p.start(t)
	var row top.Row
	var last string
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(log, last)
		}
	})
	waitUntil(t, "top shows a CPI", func() bool {
		if s := p.statusOf(t); strings.Contains(s.Why, "counting needs") {
			if os.Getenv("QUIETCORE_CI") == "1" {
				t.Fatal(s.Why)
			}
			t.Skip(s.Why)
		}
		_, last, _ = call("top", "--socket", p.socket, "-o", "json", "-d", "200ms")
		var f top.Frame
		if json.Unmarshal([]byte(last), &f) != nil || len(f.Containers) != 1 {
			return false
		}
		row = f.Containers[0]
		// A look that is interrupted between the cgroup and the clock says more than one CPU.
		return row.Sample.CPI != nil && row.Usage != nil && *row.Usage > 0 && *row.Usage <= 1.1
	})
	if *row.Sample.CPI < 0.98 || *row.Sample.CPI > 1.02 {
		t.Errorf("ticks of a clock for each tick of the same: %v", *row.Sample.CPI)
	}
	if u := row.Sample.Usage; u == nil || *u <= 0 || *u > 1.02 {
		t.Errorf("one thread uses more than a CPU, or none: %+v", row.Sample)
	}
	if row.Pod != "busy" || row.Class != "BE" || row.Wait == nil {
		t.Errorf("%+v", row)
	}
	_, table, _ := call("top", "--socket", p.socket, "-d", "200ms")
	if t.Log("\n" + table); !strings.Contains(table, " default/busy/main\n") ||
		!strings.Contains(table, "windows of 300ms every 1s, the last one ") {
		t.Error("that is not the table of it")
	}
	body := fetch(t, "http://"+address+"/metrics")
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "quietcore_cpi_samples_") || strings.HasPrefix(line, "quietcore_cpi_windows_") {
			t.Log(strings.TrimSpace(line))
		}
	}
	waitUntil(t, "it is known what is normal for the container's job", func() bool {
		body = fetch(t, "http://"+address+"/metrics")
		return strings.Contains(body, `quietcore_cpi_jobs{spec="own"} 1`)
	})
	wanted := []string{"\nquietcore_cpi_counting 1\n",
		`quietcore_cpi_container_on_cpu_seconds_total{container="main",namespace="default",pod="busy"} `,
		"quietcore_cpi_containers{state=\"followed\"} 1\n"}
	waitUntil(t, "metrics show the windows, two intervals later", func() bool {
		body = fetch(t, "http://"+address+"/metrics")
		return !slices.ContainsFunc(wanted, func(s string) bool { return !strings.Contains(body, s) })
	})
}
