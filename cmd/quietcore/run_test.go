package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/cmdtest"
)

// place is where one daemon of a test lives.
type place struct{ dir, config, socket string }

func newPlace(t *testing.T, more string) place {
	t.Helper()
	dir := t.TempDir()
	p := place{dir: dir, config: filepath.Join(dir, "config.yaml"), socket: filepath.Join(dir, "run", "q.sock")}
	p.write(t, more)
	return p
}

func (p place) write(t *testing.T, more string) {
	t.Helper()
	text := fmt.Sprintf(`apiVersion: quietcore.dev/v1alpha1
state: {dir: %[1]s/state}
confine: "off" # it would hold for the other tests of this process
socket: %[1]s/run/q.sock
listen: ""
health: {listen: ''}
page: {listen: ''}
nri: {socket: %[1]s/nri.sock}
cgroup: {root: %[1]s/cgroup}
%[2]s
`, p.dir, more)
	if err := os.WriteFile(p.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// start runs `quietcore run` until stop, which returns its exit code.
func (p place) start(t *testing.T) (log *cmdtest.Log, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	log = &cmdtest.Log{}
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"run", "--config", p.config}, strings.NewReader(""), io.Discard, log)
	}()
	var once sync.Once
	result := 0
	stop = func() int {
		once.Do(func() { cancel(); result = <-code })
		return result
	}
	t.Cleanup(func() { stop() })
	waitUntil(t, "the daemon's socket accepts", func() bool {
		c, err := net.Dial("unix", p.socket) // the file is there before it is listened on
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return log, stop
}

func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	const limit = 2 * time.Minute // for a machine with much else to do
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %s is still not so", limit, what)
		}
	}
}

func call(args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = run(context.Background(), args, strings.NewReader(""), &o, &e)
	return code, o.String(), e.String()
}

func TestADaemonServesWithoutARuntimeAndEndsCleanly(t *testing.T) {
	p := newPlace(t, "")
	_, stop := p.start(t)
	if code, out, errs := call("status", "--socket", p.socket, "-o", "json"); code != 0 ||
		!strings.Contains(out, `"connected":false`) {
		t.Errorf("status: exit %d, %s%s", code, out, errs)
	}
	if code, out, _ := call("status", "--socket", p.socket); code != 0 ||
		!strings.Contains(out, "not connected to the runtime") {
		t.Errorf("status for people: exit %d\n%s", code, out)
	}
	if code, _, errs := call("explain", "--socket", p.socket, "default/nobody"); code != cli.Failed ||
		!strings.Contains(errs, "no container of default/nobody runs here") {
		t.Errorf("explain of nobody: exit %d, %s", code, errs)
	}
	if code, _, errs := call("explain", "--socket", p.socket, "nobody"); code != cli.Wrong ||
		!strings.Contains(errs, "NAMESPACE/POD") {
		t.Errorf("explain without a namespace: exit %d, %s", code, errs)
	}
	if code, out, _ := call("explain", "--socket", p.socket, "default/nobody", "-o", "json"); code != cli.Failed ||
		out != "" {
		t.Errorf("explain of nobody as JSON: exit %d, %s", code, out)
	}
	for _, command := range []string{"status", "top"} {
		if code, _, errs := call(command, "--socket", p.socket, "--class", "ls"); code != cli.Wrong ||
			!strings.Contains(errs, "--class is \"ls\"; it must be one of [LSE LSR LS BE SYSTEM]") {
			t.Errorf("%s of no class: exit %d, %s", command, code, errs)
		}
	}
	if code := stop(); code != 0 {
		t.Errorf("after SIGTERM the exit code is %d", code)
	}
	if code, _, errs := call("status", "--socket", p.socket); code != cli.Failed ||
		!strings.Contains(errs, "start the daemon") {
		t.Errorf("status without a daemon: exit %d, %s", code, errs)
	}
}

func TestASecondDaemonSaysWhoIsThere(t *testing.T) {
	p := newPlace(t, "")
	p.start(t)
	code, _, errs := call("run", "--config", p.config)
	if code != cli.Failed || !strings.Contains(errs, fmt.Sprintf("in use by another quietcore, pid %d", os.Getpid())) {
		t.Errorf("exit %d, %s", code, errs)
	}
	if code, _, _ := call("status", "--socket", p.socket); code != 0 {
		t.Error("the second one broke the first one's socket")
	}
}

func TestABadConfigurationIsTheCallersMistake(t *testing.T) {
	for name, more := range map[string]string{
		"an unknown key":                     "reservd: {}",
		"a wrong case":                       "Mode: enforce",
		"a wrong type":                       "pools: {sharedFloor: many}",
		"a CPU that the machine has not got": `reserved: {cpus: "8000"}`,
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t, more)
			code, _, errs := call("run", "--config", p.config)
			if code != cli.Wrong || len(errs) < 20 {
				t.Errorf("exit %d, %s", code, errs)
			}
		})
	}
	if code, _, _ := call("run", "--config", filepath.Join(t.TempDir(), "none.yaml")); code != cli.Wrong {
		t.Errorf("a configuration that is not there: exit %d", code)
	}
}

func TestABadReloadKeepsTheOldConfiguration(t *testing.T) {
	p := newPlace(t, "log: {level: debug}")
	log, _ := p.start(t)
	p.write(t, "admission: sometimes")
	waitUntil(t, "the bad file is refused", func() bool {
		return strings.Contains(log.String(), "the configuration is refused")
	})
	p.write(t, "admission: degrade")
	waitUntil(t, "the good file is taken", func() bool {
		return strings.Contains(log.String(), "the configuration is taken over")
	})
}

// What a running daemon cannot take over is named, and not reported as taken over.
func TestAReloadNamesWhatWaitsForARestart(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "")
	log, _ := p.start(t)
	p.write(t, "inject: {cpusEnv: CPUS}\nnode: {name: other}")
	waitUntil(t, "both keys are named", func() bool {
		return strings.Contains(log.String(), "inject.cpusEnv changed: takes effect after a restart") &&
			strings.Contains(log.String(), "node.name changed: takes effect after a restart")
	})
	p.write(t, "inject: {cpusEnv: CPUS}\nlog: {level: debug}")
	waitUntil(t, "the level is taken over", func() bool {
		return strings.Contains(log.String(), "changed=[log.level]")
	})
	if n := strings.Count(log.String(), "the configuration is taken over"); n != 1 {
		t.Errorf("the configuration was taken over %d times, want 1\n%s", n, log)
	}
	statusHas := func(text string, args ...string) {
		waitUntil(t, "status has "+text, func() bool {
			_, out, _ := call(append([]string{"status", "--socket", p.socket}, args...)...)
			return strings.Contains(out, text)
		})
	}
	statusHas(`"restartRequired":["inject.cpusEnv"]`, "-o", "json")
	statusHas("a restart is required for inject.cpusEnv\n")
	if _, r := reportOf(t, "--config", p.config); found(&r, "daemon.restart") == nil {
		t.Errorf("doctor has no finding: %+v", r.Findings)
	}
	p.write(t, "admission: sometimes") // is refused, and takes nothing back
	waitUntil(t, "the bad file is refused", func() bool {
		return strings.Contains(log.String(), "the configuration is refused")
	})
	statusHas("a restart is required for inject.cpusEnv\n")
	p.write(t, "log: {level: debug}")
	waitUntil(t, "nothing waits any more", func() bool {
		_, out, _ := call("status", "--socket", p.socket)
		return !strings.Contains(out, "a restart is required")
	})
}

func TestAStateFileOfNonsenseIsPutAside(t *testing.T) {
	p := newPlace(t, "")
	state := filepath.Join(p.dir, "state")
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(state, "state.json"), []byte(`{"version":99}`), 0o600); err != nil {
		t.Fatal(err)
	}
	log, stop := p.start(t)
	stop()
	if !strings.Contains(log.String(), "has format 99") {
		t.Errorf("the log says nothing of it:\n%s", log)
	}
	if aside, _ := filepath.Glob(filepath.Join(state, "state.json.corrupt-*")); len(aside) != 1 {
		t.Errorf("put aside: %v", aside)
	}
}

// What an earlier daemon left and something spoilt costs what was learned and kept, and
// nothing else; the log has the reason.
func TestFilesOfNonsenseStopNothing(t *testing.T) {
	p := newPlace(t, "reclaim: {mode: observe}\nnode: {name: node-a}")
	state, root := filepath.Join(p.dir, "state"), filepath.Join(p.dir, "cgroup")
	for _, dir := range []string{state, root} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		filepath.Join(root, "cgroup.controllers"): "cpuset cpu\n", filepath.Join(root, "cpuset.cpus.effective"): "0\n",
		filepath.Join(state, "incidents.db"): strings.Repeat("nonsense", 4096),
		filepath.Join(state, "lending.json"): `{"version":1,"node":"node-b"`,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log, _ := p.start(t)
	if code, out, errs := call("status", "--socket", p.socket); code != 0 || !strings.Contains(out, "lending observe") {
		t.Errorf("status: exit %d, %s%s", code, out, errs)
	}
	waitUntil(t, "the database is put aside", func() bool {
		aside, _ := filepath.Glob(filepath.Join(state, "incidents.db.corrupt-*"))
		return len(aside) == 1
	})
	waitUntil(t, "there is a new one", func() bool {
		code, out, _ := call("incidents", "--socket", p.socket)
		return code == 0 && out == "No incidents are kept.\n"
	})
	if !strings.Contains(log.String(), "nobody is idle until a window is full again") {
		t.Errorf("the log says nothing of the checkpoint:\n%s", log)
	}
}
