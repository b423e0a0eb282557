package plugin

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// helperEnv makes the test binary a process that holds nothing but the plugin,
// so that its memory can be measured from outside.
const helperEnv = "QUIETCORE_TEST_PLUGIN_ON"

// plain is a tree that has the masks that were written, and no cgroup without one: the
// memory that is measured is the daemon's.
type plain struct {
	online cpuset.Set
	mu     sync.Mutex
	masks  map[string]cpuset.Set
}

func (p *plain) Apply(_ context.Context, path string, v cgroup.Values) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !v.CPUs.IsZero() {
		p.masks[path] = v.CPUs.Set()
	}
	return nil
}

func (p *plain) CPUs(path string) (cgroup.Effective, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	own, ok := p.masks[path]
	if !ok {
		return cgroup.Effective{CPUs: p.online}, nil
	}
	return cgroup.Effective{CPUs: own, OwnCPUs: own}, nil
}

func (p *plain) Effective(path string) (cgroup.Effective, error) {
	e, err := p.CPUs(path)
	e.Quota, e.QuotaMilli = cgroup.Quota{Micros: -1}, policy.NoLimit
	return e, err
}

func (p *plain) Allowed(path string) (cpuset.Set, error) {
	e, err := p.CPUs(path)
	return e.CPUs, err
}

func (p *plain) Children(string) ([]string, error) { return nil, nil }

func helper(socket string) {
	debug.SetGCPercent(GCPercent)
	topo, err := topology.Grid{Sockets: 2, NodesPerSocket: 4, L3PerNode: 4, CoresPerL3: 8, ThreadsPerCore: 2}.Build()
	if err != nil {
		panic(err)
	}
	store := &state.Store{Dir: os.Getenv(helperEnv + "_STATE"), Now: time.Now}
	tree := &plain{online: topo.Online(), masks: map[string]cpuset.Set{}}
	p, err := New(Options{Topology: topo, Driver: tree, Reader: tree, Store: store, Socket: socket,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	for !p.Settled() {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("settled", len(p.Snapshot().Containers))
	for asked := bufio.NewScanner(os.Stdin); asked.Scan(); {
		debug.FreeOSMemory()
		fmt.Println("collected")
	}
	cancel()
	<-done
}

// The budget is 36 MiB for the daemon with a thousand containers; metrics are in
// it, the HTTP servers are not. How much garbage lies about at a moment is a matter
// of who else needs the CPUs, so what is held to the budget is what is left without
// it; the other figure is logged.
func TestMemoryWithAThousandContainers(t *testing.T) {
	if raceEnabled {
		t.Skip("measures memory, and the race detector needs some of its own: runs without -race")
	}
	n, pods, containers := full(t)
	for i, p := range pods {
		n.pods[p.Id] = p
		n.containers[containers[i].Id] = containers[i]
	}
	n.direct = true
	n.startRuntime()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), helperEnv+"="+n.socket, helperEnv+"_STATE="+t.TempDir())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(out)
	line, err := said.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "settled 1000") {
		t.Fatalf("the helper said %q, %v", line, err)
	}
	n.admitted()
	for i := range 2000 { // a while of churn, so that the record and the heap fill
		s := burstable(fmt.Sprint("churn", i))
		mustRun(t, n, s)
		n.remove(s)
	}
	before := residentKiB(t, cmd.Process.Pid)
	rss := before
	for range 3 { // what a tick or an audit has just left is garbage too
		fmt.Fprintln(in, "collect")
		if line, err := said.ReadString('\n'); err != nil || line != "collected\n" {
			t.Fatalf("the helper said %q, %v", line, err)
		}
		rss = min(rss, residentKiB(t, cmd.Process.Pid))
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("resident memory with 1,000 containers after 2,000 pods came and went: %.1f MiB, with its garbage %.1f MiB",
		float64(rss)/1024, float64(before)/1024)
	if rss > 36<<10 {
		t.Errorf("%d KiB are resident, the budget is 36 MiB", rss)
	}
}

func residentKiB(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var kib int
		if _, err := fmt.Sscanf(string(line), "VmRSS: %d kB", &kib); err == nil {
			return kib
		}
	}
	t.Fatal("no VmRSS in /proc")
	return 0
}
