package main

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/doctor/drift"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/policy"
)

// talking answers like a daemon with these two containers, one of them capped.
func talking(t *testing.T) (socket, web, batch string) {
	t.Helper()
	web, batch = strings.Repeat("a", 64), strings.Repeat("b", 64)
	states := []script.State{
		{Namespace: "shop", Pod: "web", Container: "main", Class: policy.LSR, Pool: policy.PoolExclusive, CPUs: "0-1",
			Mems: "0", QuotaMilli: -1, Why: "2 CPUs of its own"},
		{Namespace: "shop", Pod: "batch", Container: "main", Class: policy.BE, Pool: policy.PoolBE, CPUs: "0-3",
			Mems: "0", QuotaMilli: 100, Why: "capped since web suffered"},
	}
	top := control.Top{Connected: true, CPUs: 4}
	for i, id := range []string{web, batch} {
		s := &states[i]
		top.Containers = append(top.Containers, control.TopContainer{ID: id, Namespace: s.Namespace, Pod: s.Pod,
			Container: s.Container, Class: s.Class, Pool: s.Pool, CPUs: s.CPUs})
	}
	mux := http.NewServeMux()
	answer := func(path string, body any) {
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(text) })
	}
	answer("/v1/status", control.Status{Connected: true, Synchronised: true, Settled: true, Containers: states})
	answer("/v1/top", top)
	answer("/v1/record", map[string]any{"steps": []any{map[string]any{"pod": map[string]any{"name": "web",
		"namespace": "shop", "class": "LSR"}}}})
	dir, err := os.MkdirTemp("", "qc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "q.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mux}
	done := make(chan struct{})
	go func() { _ = server.Serve(l); close(done) }()
	t.Cleanup(func() { server.Close(); <-done })
	return socket, web, batch
}

// kernelWith is a tree with a cgroup for each path.
func kernelWith(t *testing.T, groups map[string][2]string) string {
	t.Helper()
	root := t.TempDir()
	write := func(name, text string) {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("cgroup.controllers", "cpuset cpu")
	for path, v := range groups {
		for file, text := range map[string]string{
			"cpuset.cpus": v[0], "cpuset.cpus.effective": v[0], "cpuset.mems": "", "cpuset.mems.effective": "0",
			"cpu.max": v[1], "cpu.weight": "100",
		} {
			write(path+"/"+file, text)
		}
	}
	return root
}

func TestDiff(t *testing.T) {
	socket, web, batch := talking(t)
	at := func(id string) string { return "kubepods.slice/kubepods-pod1.slice/cri-containerd-" + id + ".scope" }
	right := kernelWith(t, map[string][2]string{at(web): {"0-1", "max 100000"}, at(batch): {"0-3", "10000 100000"}})
	if code, out, errs := call("diff", "--socket", socket, "--cgroup-root", right, "--pause", "1ms"); code != 0 ||
		out != "2 containers: the kernel has what is wanted\n" {
		t.Errorf("where all is right: exit %d, %s%s", code, out, errs)
	}
	wrong := kernelWith(t, map[string][2]string{at(web): {"0-3", "max 100000"}})
	code, out, errs := call("diff", "--socket", socket, "--cgroup-root", wrong, "--pause", "1ms")
	if code != cli.Failed || !strings.Contains(errs, "2 values differ") {
		t.Errorf("exit %d, %s", code, errs)
	}
	for _, want := range []string{"shop/web/main    cpus    0-1     0-3", "shop/batch/main  cgroup  one     none"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	code, out, _ = call("diff", "--socket", socket, "--cgroup-root", wrong, "--pause", "0", "-o", "json")
	var found drift.Compared
	if err := json.Unmarshal([]byte(out), &found); err != nil || code != cli.Failed || found.Containers != 2 ||
		len(found.Differences) != 2 || found.Differences[1].Why != "2 CPUs of its own" {
		t.Errorf("exit %d, %v, %s", code, err, out)
	}
	for want, args := range map[string][]string{
		"must be between":   {"--pause", "-1s"},
		"takes no argument": {"x"},
	} {
		if code, _, errs := call(append([]string{"diff"}, args...)...); code != cli.Wrong ||
			!strings.Contains(errs, want) {
			t.Errorf("%v: exit %d, %s", args, code, errs)
		}
	}
	if code, _, errs := call("diff", "--socket", socket, "--cgroup-root", t.TempDir()); code != cli.Failed ||
		!strings.Contains(errs, "neither cgroup v2") {
		t.Errorf("without cgroups: exit %d, %s", code, errs)
	}
	if code, _, errs := call("diff", "--socket", filepath.Join(t.TempDir(), "none")); code != cli.Failed ||
		!strings.Contains(errs, "no daemon answers") {
		t.Errorf("without a daemon: exit %d, %s", code, errs)
	}
}

func TestMetricsCatalogue(t *testing.T) {
	code, out, errs := call("metrics", "-o", "json")
	var list []metrics.Entry
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 || len(list) < 60 {
		t.Fatalf("exit %d, %d metrics, %v, %s", code, len(list), err, errs)
	}
	const one = "quietcore_nri_connections_total  counter\n  Attempts to connect to the runtime, and connections " +
		"lost.\n  result: error, lost, ok, timeout\n"
	if code, out, _ := call("metrics", "nri_connections"); code != 0 || out != one {
		t.Errorf("one: exit %d\n%s", code, out)
	}
	if code, _, errs := call("metrics", "nonsense"); code != cli.Wrong || !strings.Contains(errs, "nonsense") {
		t.Errorf("none: exit %d, %s", code, errs)
	}
}

func TestConfigDiff(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte("apiVersion: quietcore.dev/v1alpha1\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	a := write("a.yaml", "reserved: {cpus: \"0\"}\nauthority: {exclusive: {maxCPUs: {shop: 8}}}\n")
	b := write("b.yaml", "reserved: {cpus: \"0-1\"}\nnri: {index: \"10\"}\n")
	code, out, errs := call("config", "diff", a, b, "-o", "json")
	var got struct{ Changes []config.Change }
	if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil {
		t.Fatalf("exit %d, %v, %s%s", code, err, out, errs)
	}
	var lines []string
	for _, c := range got.Changes {
		line := c.Key + " " + string(c.Old) + " " + string(c.New)
		if c.Restart {
			line += " restart"
		}
		lines = append(lines, line)
	}
	want := `authority.exclusive.maxCPUs.shop 8 null
nri.index "90" "10" restart
reserved.cpus "0" "0-1"`
	if have := strings.Join(lines, "\n"); have != want {
		t.Errorf("got\n%s\nwant\n%s", have, want)
	}
	if code, out, _ := call("config", "diff", a); code != 0 ||
		!strings.Contains(out, `reserved.cpus                     "" -> "0"`) {
		t.Errorf("against the defaults: exit %d\n%s", code, out)
	}
	if code, out, _ := call("config", "diff", a, a); code != 0 || out != "they mean the same\n" {
		t.Errorf("the same: exit %d, %s", code, out)
	}
	bad := write("bad.yaml", "reservd: {}\n")
	for want, args := range map[string][]string{
		"unknown key": {a, bad}, "one file or two": {}, "only one": {"-", "-"},
		"no such file": {filepath.Join(dir, "none")},
	} {
		if code, _, errs := call(append([]string{"config", "diff"}, args...)...); code != cli.Wrong ||
			!strings.Contains(errs, want) {
			t.Errorf("%v: exit %d, %s", args, code, errs)
		}
	}
}

// A key that the next version refuses is taken, and named.
func TestValidateNamesKeysOfEarlierVersions(t *testing.T) {
	for text, want := range map[string]string{
		"reclaim: {idle: {window: 12h}}": "warning: reclaim.idle goes with the next version",
		"reclaim: {risk: 2}":             "",
	} {
		out, errs, err := executed(newConfigValidate(), "apiVersion: quietcore.dev/v1alpha1\n"+text+"\n", "-")
		if err != nil || !strings.HasSuffix(out, " is valid\n") || (errs == "") != (want == "") ||
			!strings.HasPrefix(errs, want) {
			t.Errorf("%s: %q, %q, %v; want %q", text, out, errs, err, want)
		}
	}
}
