package upgrade

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/cmdtest"
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
	// annotations are those of some of them, by name.
	annotations map[string]map[string]string
	// shared are pods of other classes, by name.
	shared map[string]string
	// log is what the daemon that runs has said, and end has it end by itself.
	log func() string
	end func()
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
	n.configure(`cpi: {mode: "off"}`)
	return n
}

// configure writes the configuration, with more in it than every daemon here needs.
func (n *node) configure(more string) {
	n.t.Helper()
	cmdtest.Write(n.t, n.at("config.yaml"), fmt.Sprintf(`apiVersion: quietcore.dev/v1alpha1
state: {dir: %[1]s/state}
socket: %[1]s/q.sock
listen: ""
page: {listen: ''}
nri: {socket: %[1]s/nri.sock}
cgroup: {root: %[1]s/cgroup, driver: cgroupfs}
sysfs: {root: %[1]s/sys}
%[2]s
`, n.dir, more))
}

func (n *node) at(name string) string { return filepath.Join(n.dir, name) }

// running are the pods, each with CPUs of its own.
func (n *node) running() (pods []cmdtest.Pod) {
	for _, name := range n.pods {
		pods = append(pods, cmdtest.Pod{Namespace: "default", Name: name, UID: name, Class: "LSR", CPUs: 2,
			Annotations: n.annotations[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(n.shared)) {
		pods = append(pods, cmdtest.Pod{Namespace: "default", Name: name, UID: name, Class: n.shared[name], CPUs: 1})
	}
	return pods
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
	text, err := os.ReadFile(n.at("state/state.json"))
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return saved{}
	}
	return s
}

// run starts a daemon, waits until it has taken over what runs and saved it as want says,
// and kills it as by kill -9. It returns the owners that it reported, and its log.
func (n *node) run(binary string, want func(saved) bool) (owners, log string) {
	n.t.Helper()
	n.while(binary, want, func(s status, said string) { owners, log = s.owners(), said })
	return owners, log
}

// while does something while such a daemon runs.
func (n *node) while(binary string, want func(saved) bool, do func(s status, log string)) {
	n.t.Helper()
	if err := os.RemoveAll(n.at("cgroup")); err != nil {
		n.t.Fatal(err)
	}
	cmdtest.Cgroups(n.t, n.at("cgroup"), "0-7", n.running())
	runtime := cmdtest.Runtime(n.t, n.at("nri.sock"), n.running())
	defer runtime.Stop()
	out := &cmdtest.Log{}
	cmd := exec.CommandContext(n.t.Context(), binary, "run", "--config", n.at("config.yaml"))
	cmd.Stderr = out
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	defer func() { _ = cmd.Process.Kill(); <-ended }()
	n.log = out.String
	n.end = func() { _ = cmd.Process.Signal(syscall.SIGTERM); <-ended }
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
			do(last, out.String())
			return
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
			return new(net.Dialer).DialContext(ctx, "unix", n.at("q.sock"))
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
