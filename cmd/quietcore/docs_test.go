package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/cmdtest"
	"github.com/quietcore/quietcore/internal/doctext"
)

// insideDocs marks the process that runs the commands of the documentation.
const insideDocs = "QUIETCORE_TEST_DOCS"

// TestCommandsOfTheDocs runs every `quietcore …` of the documentation as it stands
// there, paths, ports and pipes included, beside a daemon that was started as the
// documentation starts it; and every `kubectl quietcore …`, and what is run in the
// daemon's pod, beside a kubectl that hands them on to this daemon. The process that does
// so has mounts and a network of its own, so nothing of it reaches the machine.
func TestCommandsOfTheDocs(t *testing.T) {
	if os.Getenv(insideDocs) != "" {
		runDocs(t)
		return
	}
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, "-test.run=^TestCommandsOfTheDocs$", "-test.v", "-test.count=1", "-test.timeout=9m")
	c.Env = append(os.Environ(), insideDocs+"=1", "PATH="+kubectl(t)+":"+os.Getenv("PATH"))
	c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
	out, err := c.CombinedOutput()
	if errors.Is(err, os.ErrPermission) {
		needsRoot(t, fmt.Errorf("mounts and a network of its own: %w", err))
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Log(string(out))
}

// kubectlScript stands in for kubectl in a cluster of one node.
const kubectlScript = `#!/bin/sh
case "$*" in
"quietcore "*) shift; exec kubectl-quietcore "$@" ;;
*" -- /quietcore "*) while [ "$1" != -- ]; do shift; done; shift 2; exec quietcore "$@" ;;
*) echo "kubectl $*: there is no cluster" >&2; exit 1 ;;
esac
`

// apiServer is as much of one as the plugin asks, for a cluster of this node: it passes on what is for the daemon's
// pod to the daemon's socket, which answers the same. internal/fleet plays the rest.
func apiServer(t *testing.T, dir string) {
	t.Helper()
	toSocket := &httputil.ReverseProxy{
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (
			net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", "/run/quietcore/quietcore.sock")
		}},
		Rewrite: func(r *httputil.ProxyRequest) {
			_, path, _ := strings.Cut(r.In.URL.Path, "/proxy/quietcore")
			r.Out.URL = &url.URL{Scheme: "http", Host: "daemon", Path: path, RawQuery: r.In.URL.RawQuery}
		},
	}
	const pods = `{"items":[{"metadata":{"name":"POD","annotations":{"quietcore.dev/reader":"quietcore-reader"}},` +
		`"spec":{"nodeName":"node-a","containers":[{"ports":[{"name":"metrics","containerPort":9464}]}]},` +
		`"status":{"phase":"Running"}}]}`
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case strings.HasPrefix(path, "/api/v1/namespaces/quietcore-system/pods/https:POD:9464/proxy/quietcore/"):
			toSocket.ServeHTTP(w, r)
		case strings.HasSuffix(path, "/quietcore-reader/token"):
			fmt.Fprint(w, `{"status":{"token":"t"}}`)
		case strings.HasSuffix(path, "/quietcore-system/pods"):
			fmt.Fprint(w, pods)
		default: // a pod
			fmt.Fprint(w, `{"spec":{"nodeName":"node-a"}}`)
		}
	}))
	t.Cleanup(api.Close)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	cmdtest.Write(t, kubeconfig, "apiVersion: v1\nkind: Config\ncurrent-context: a\n"+
		"contexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {token: t}}]\n"+
		"clusters: [{name: a, cluster: {server: '"+api.URL+"'}}]\n")
	t.Setenv("KUBECONFIG", kubeconfig)
}

// collector takes log records where OTLP/HTTP does by default.
func collector(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:4318")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/logs" {
			http.NotFound(w, r)
		}
	}))
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
}

// kubectl is a folder with that and with the plugin, built as docs/fleet.md builds it.
func kubectl(t *testing.T) string {
	t.Helper()
	home, repo := t.TempDir(), filepath.Join("..", "..")
	bin := filepath.Join(home, ".local", "bin")
	cmdtest.Write(t, filepath.Join(bin, "kubectl"), kubectlScript)
	if err := os.Chmod(filepath.Join(bin, "kubectl"), 0o700); err != nil {
		t.Fatal(err)
	}
	// What Go keeps at home stays where it is.
	kept, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE", "GOENV").Output()
	if err != nil {
		t.Fatal(err)
	}
	dirs := strings.Fields(string(kept))
	pages, err := doctext.Pages(repo)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages {
		for _, c := range p.Commands() {
			if !strings.HasPrefix(c.Text, "go build -o ~/") {
				continue
			}
			build := exec.Command("sh", "-c", c.Text)
			build.Dir, build.Env = repo, append(os.Environ(), "HOME="+home, "GOCACHE="+dirs[0], "GOMODCACHE="+dirs[1],
				"GOENV="+dirs[2])
			if out, err := build.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", c, err, out)
			}
		}
	}
	return bin
}

// docsNode is what the commands of the documentation find: /etc/quietcore with a
// configuration, a runtime, a daemon, pods and an incident.
type docsNode struct {
	dir      string // where the commands run
	incident string
}

func newDocsNode(t *testing.T) *docsNode {
	t.Helper()
	repo, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	n := &docsNode{dir: t.TempDir()}
	database, ids := incidentDatabase(t)
	n.incident = ids[0]
	up(t)
	for _, at := range []string{"/run", "/etc", "/var/lib", "/sys/fs/cgroup"} {
		if err := unix.Mount("quietcore-docs", at, "tmpfs", 0, "mode=0755"); err != nil {
			t.Fatalf("mount %s: %v", at, err)
		}
	}
	scenario := filepath.Join(repo, "e2e", "scenarios", "classes.yaml")
	copyTo(t, scenario, filepath.Join(n.dir, "FILE"))
	copyTo(t, scenario, filepath.Join(n.dir, "record.yaml"))
	copyTo(t, database, "/var/lib/quietcore/incidents.db")
	config := "apiVersion: quietcore.dev/v1alpha1\nconfine: \"off\"\nnode: {name: node-a}\n"
	for name, text := range map[string]string{
		"/etc/quietcore/config.yaml": config,
		"/etc/hosts":                 "127.0.0.1 localhost\n",
		"/etc/containerd/config.toml": "version = 3\n[plugins.'io.containerd.nri.v1.nri']\n  disable = false\n  " +
			"plugin_request_timeout = '2s'\n",
		"config.yaml": config,
		"new.yaml":    config + "mode: observe\n",
		"cases.json": `{"topology":{"grid":{"coresPerL3":8,"threadsPerCore":2}},"available":"0-15","request":3}` +
			"\n",
		"node.csv": "time,pod,class,request,usage\n0,a,prod,4,1\n0,b,batch,2,0.1\n300,a,prod,4,2\n300,b,batch,2,0.1\n",
	} {
		if !filepath.IsAbs(name) {
			name = filepath.Join(n.dir, name)
		}
		cmdtest.Write(t, name, text)
	}
	for _, dir := range []string{"docs", "e2e"} {
		if err := os.Symlink(filepath.Join(repo, dir), filepath.Join(n.dir, dir)); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"host", "DIR"} {
		if err := os.Mkdir(filepath.Join(n.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	listen(t, "/run/containerd/containerd.sock")
	pods := []cmdtest.Pod{{Namespace: "default", Name: "web"}, {Namespace: "default", Name: "first"},
		{Namespace: "default", Name: "encode"}, {Namespace: "shop", Name: "db"}}
	for i := range pods {
		pods[i].UID, pods[i].Class, pods[i].CPUs = "uid-"+pods[i].Name, "LS", 1
	}
	online, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		t.Fatal(err)
	}
	cmdtest.Cgroups(t, "/sys/fs/cgroup", string(online), pods)
	t.Cleanup(cmdtest.Runtime(t, "/run/nri/nri.sock", pods).Stop)
	return n
}

func up(t *testing.T) {
	t.Helper()
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(s)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_LOOPBACK | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo); err != nil {
		t.Fatal(err)
	}
}

func copyTo(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	cmdtest.Write(t, to, string(text))
}

func listen(t *testing.T, socket string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}

// runHere are the commands that end at the daemon or look at what is its own.
var runHere = regexp.MustCompile(
	`^(quietcore|kubectl quietcore|kubectl -n quietcore-system exec POD -- /quietcore|ls|df) |\| quietcore |^curl ` +
		`.*127\.0\.0\.1:9464/`)

// docsCommands are those of the pages that are run here, each text once, with what is for
// the reader to fill in filled in.
func docsCommands(t *testing.T, n *docsNode) (list []doctext.Command) {
	t.Helper()
	pages, err := doctext.Pages(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("NAMESPACE/POD", "default/web", "20261121-1200", n.incident, "bin/quietcore ",
		"quietcore ", "--root /host", "--root "+n.dir+"/host", "--node NODE", "--node node-a", "worker-7", "node-a")
	optional, id := regexp.MustCompile(` \[-[^]]*\]`), regexp.MustCompile(`\bID\b`)
	seen := map[string]bool{}
	for _, p := range pages {
		commands := p.Commands()
		for _, span := range p.Spans {
			if p.Path == "docs/runbook.md" { // it names them in sentences
				commands = append(commands, doctext.Command{Page: p.Path, Text: span.Text, Line: span.Line})
			}
		}
		for _, c := range commands {
			c.Text = id.ReplaceAllString(fill.Replace(optional.ReplaceAllString(c.Text, "")), n.incident)
			if runHere.MatchString(c.Text) && !seen[c.Text] {
				seen[c.Text] = true
				list = append(list, c)
			}
		}
	}
	return list
}

// waits are commands that measure for a second or two, and change nothing but a file of their own.
var waits = regexp.MustCompile(`^(kubectl .* -- /)?quietcore (doctor|top|bundle)[^>]*$`)

func runDocs(t *testing.T) {
	n := newDocsNode(t)
	all := docsCommands(t, n)
	plugin := slices.DeleteFunc(slices.Clone(all), func(c doctext.Command) bool {
		return !strings.HasPrefix(c.Text, "kubectl quietcore ")
	})
	if len(all) < 45 || len(plugin) < 5 {
		t.Fatalf("only %d commands were found, and %d of the plugin", len(all), len(plugin))
	}
	// What starts the daemon is how it is started here; what needs it gone comes last.
	const start = "quietcore run --config /etc/quietcore/config.yaml"
	if !slices.ContainsFunc(all, func(c doctext.Command) bool { return c.Text == start }) {
		t.Errorf("the pages start the daemon no more by %q", start)
	}
	p := place{dir: n.dir, config: "/etc/quietcore/config.yaml", socket: "/run/quietcore/quietcore.sock"}
	apiServer(t, t.TempDir())
	collector(t)
	log, stop := p.start(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(log)
		}
	})
	waitUntil(t, "the pods are taken over", func() bool {
		_, out, _ := call("status", "-o", "json")
		return strings.Contains(out, `"pod":"db"`)
	})
	var together sync.WaitGroup
	var last []doctext.Command
	for _, c := range all {
		switch {
		case strings.HasPrefix(c.Text, "quietcore run "):
			if c.Text != start {
				t.Errorf("%s: the daemon is started as %q everywhere", c, start)
			}
		case strings.HasPrefix(c.Text, "quietcore restore"):
			last = append(last, c)
		case waits.MatchString(c.Text):
			together.Go(func() { n.run(t, c) })
		default:
			n.run(t, c)
		}
	}
	together.Wait()
	stop()
	for _, c := range last {
		n.run(t, c)
	}
}

// exported are commands that write a file, or send, and say on standard error how many incidents that are.
var exported, count = regexp.MustCompile(`kubectl quietcore incidents export`),
	regexp.MustCompile(`^[1-9][0-9]* incidents are (in|sent)`)

// run runs one command and wants it to succeed. The doctor finds something here, and
// says so by 1.
func (n *docsNode) run(t *testing.T, c doctext.Command) {
	t.Helper()
	calls, err := c.Calls()
	if err != nil {
		t.Error(err)
		return
	}
	text := c.Text
	for _, call := range calls {
		if _, err := exec.LookPath(call[0]); err != nil {
			if os.Getenv("QUIETCORE_CI") == "1" {
				t.Errorf("%s: %v: install it, hack/setup has the list", c, err)
				return
			}
			text, _, _ = strings.Cut(text, " | ")
			t.Logf("%s: without %s, so only %q", c, call[0], text)
			if call[0] == "curl" {
				return
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	run := exec.CommandContext(ctx, "sh", "-c", text)
	run.Dir = n.dir
	var out, errs bytes.Buffer
	run.Stdout, run.Stderr = &out, &errs
	err = run.Run()
	code := run.ProcessState.ExitCode()
	if code == cli.Failed && strings.Contains(text, "quietcore doctor") && out.Len() > 0 {
		err = nil
	}
	if err != nil {
		t.Errorf("%s: %v\n%s%s", c, err, out.String(), errs.String())
		return
	}
	if exported.MatchString(text) {
		if !count.MatchString(errs.String()) {
			t.Errorf("%s: it says\n%s", c, errs.String())
		}
		return
	}
	complains := errs.Len() > 0 && code != cli.Failed // which only the doctor may end with, see above
	if strings.HasPrefix(text, "kubectl quietcore ") && (complains || out.Len() == 0 ||
		strings.HasPrefix(out.String(), "No incidents")) {
		t.Errorf("%s: it prints\n%sand complains\n%s", c, out.String(), errs.String())
	}
	t.Logf("%s: exit %d, %d bytes", c, code, out.Len())
}

// TestSpansOfTheDocs: a command within a sentence has that subcommand and those flags.
func TestSpansOfTheDocs(t *testing.T) {
	pages, err := doctext.Pages(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, p := range pages {
		for _, s := range p.Spans {
			words := strings.Fields(strings.ReplaceAll(s.Text, "…", ""))
			if len(words) < 2 || words[0] != "quietcore" && words[0] != "/quietcore" {
				continue
			}
			checked++
			if end := slices.Index(words, "|"); end > 0 {
				words = words[:end]
			}
			found, rest, err := newRoot().Find(words[1:])
			if err == nil && !found.HasParent() {
				err = fmt.Errorf("there is no command %q", words[1])
			}
			if err == nil {
				err = found.ParseFlags(rest)
			}
			if err != nil {
				t.Errorf("%s:%d: `%s`: %v", p.Path, s.Line, s.Text, err)
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d were found", checked)
	}
}
