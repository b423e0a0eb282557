package control

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/faults"
	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/plugin"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// daemon is a plugin without a runtime, with both sockets.
func daemon(t *testing.T, change ...func(*Server)) (*plugin.Plugin, Client, string) {
	t.Helper()
	topo, err := topology.Grid{Sockets: 2, NodesPerSocket: 1, L3PerNode: 1, CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.Node.Labels = map[string]string{"zone": "a", policy.LabelBind: "FullPCPUsOnly"}
	dir := t.TempDir()
	p, err := plugin.New(plugin.Options{Topology: topo, Config: cfg.Policy(), Socket: filepath.Join(dir, "no-runtime")})
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Plugin: p, Config: func() *config.Config { return &cfg }}
	for _, c := range change {
		c(s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{}, 3)
	go func() { p.Run(ctx); ended <- struct{}{} }()
	socket, tests := filepath.Join(dir, "run", "quietcore.sock"), filepath.Join(dir, "test.sock")
	for path, h := range map[string]http.Handler{socket: s.Handler(), tests: faults.Handler(p)} {
		l, err := Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if err := Serve(ctx, l, h); err != nil {
				t.Error(err)
			}
			ended <- struct{}{}
		}()
	}
	t.Cleanup(func() {
		cancel()
		for range 3 {
			<-ended
		}
	})
	return p, Client{Socket: socket}, tests
}

func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func live(t *testing.T, p *plugin.Plugin) {
	t.Helper()
	at := time.Now()
	pod := func(name string, qos policy.QoS, class string, milli int64) policy.Pod {
		return policy.Pod{
			UID: "uid-" + name, Sandbox: "sb-" + name, Namespace: "default", Name: name, QoS: qos, CreatedAt: at,
			Labels:    policy.Relevant(map[string]string{policy.LabelClass: class}, ""),
			Resources: &policy.Resources{RequestMilli: milli, LimitMilli: milli},
		}
	}
	db, batch := pod("db", policy.Guaranteed, "LSR", 4000), pod("batch", policy.BestEffort, "BE", 0)
	for _, e := range []policy.Event{
		policy.PodRun{Pod: db},
		policy.ContainerCreate{Pod: db, Container: policy.Container{ID: "db-1", Sandbox: db.Sandbox, Name: "main",
			Resources: *db.Resources, Shares: 4096, CreatedAt: at}},
		policy.ContainerCreate{Pod: batch, Container: policy.Container{ID: "batch-1", Sandbox: batch.Sandbox,
			Name: "main", Shares: 2, CreatedAt: at}},
	} {
		if err := p.Submit(limited(t), e); err != nil {
			t.Fatal(err)
		}
	}
}

func post(t *testing.T, socket, body string) (int, script.Error) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context,
		string, string) (net.Conn, error) {
		return net.Dial("unix", socket)
	}}}
	resp, err := client.Post("http://daemon/event", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var e script.Error
	if err := json.NewDecoder(resp.Body).Decode(&e); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, e
}

func TestStatusIsWhatTheSimulatorWouldPrint(t *testing.T) {
	p, client, _ := daemon(t)
	live(t, p)
	s, err := client.Status(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	containers, pools := script.StateOf(p.Snapshot())
	if !reflect.DeepEqual(s.Containers, containers) || s.Pools != pools {
		t.Errorf("status is %+v %+v", s.Containers, s.Pools)
	}
	if pools.Exclusive != "0-3" || s.Connected || s.Synchronised || s.Settled {
		t.Errorf("pools %+v, connected %t, synchronised %t, settled %t without a runtime", pools, s.Connected,
			s.Synchronised, s.Settled)
	}
}

// An owner whose container crashed is still there.
func TestAnOwnerWithoutAContainerIsAnOwner(t *testing.T) {
	p, client, _ := daemon(t)
	live(t, p)
	if err := p.Submit(limited(t), policy.ContainerStopped{ID: "db-1"}); err != nil {
		t.Fatal(err)
	}
	s, err := client.Status(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Containers) != 1 || !reflect.DeepEqual(s.Owners, []Owner{{Namespace: "default", Pod: "db", CPUs: "0-3"}}) {
		t.Errorf("containers %+v, owners %+v", s.Containers, s.Owners)
	}
}

// A recorded run replays to the same state (P8).
func TestARecordReplaysToTheSameState(t *testing.T) {
	p, client, tests := daemon(t)
	live(t, p)
	for _, body := range []string{
		`{"cap":{"pod":"batch","namespace":"default","container":"main","cpu":0.1,"seconds":300}}`,
		`{"nodeLabels":{"zone":null,"node.koordinator.sh/cpu-bind-policy":"SpreadByPCPUs"}}`,
		`{"advance":{"seconds":60}}`,
		`{"audit":{}}`,
	} {
		if code, e := post(t, tests, body); code != http.StatusOK {
			t.Fatalf("%s: %d %+v", body, code, e)
		}
	}
	text, err := client.Record(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	f, err := script.Parse(text)
	if err != nil {
		t.Fatalf("the record is no script: %v\n%.2000s", err, text)
	}
	topo, _, err := f.Topology.Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	player, err := script.NewPlayer(f, topo)
	if err != nil {
		t.Fatal(err)
	}
	var last script.Line
	for _, step := range f.Steps {
		if last, err = player.Play(step); err != nil {
			t.Fatal(err)
		}
	}
	want, pools := script.StateOf(p.Snapshot())
	if !reflect.DeepEqual(last.Containers, want) || last.Pools != pools {
		t.Errorf("replayed %+v %+v\nwant     %+v %+v", last.Containers, last.Pools, want, pools)
	}
	if len(want) != 2 || want[0].CapMilli == nil || *want[0].CapMilli != 100 {
		t.Errorf("the cap is not in the state: %+v", want)
	}
}

func TestTheTestSocketRefusesInWords(t *testing.T) {
	p, _, tests := daemon(t)
	live(t, p)
	for body, want := range map[string]struct {
		status int
		code   policy.Code
	}{
		`{"cap":{"pod":"nobody","container":"main","cpu":0.1,"seconds":1}}`: {http.StatusUnprocessableEntity,
			policy.InvalidRequest},
		`{"cap":{"pod":"db","container":"main","cpu":0.1,"seconds":1}}`: {http.StatusUnprocessableEntity,
			policy.InvalidRequest},
		`{}`:            {http.StatusUnprocessableEntity, ""},
		`{"kap":{}}`:    {http.StatusBadRequest, ""},
		`not JSON`:      {http.StatusBadRequest, ""},
		`{"advance":7}`: {http.StatusBadRequest, ""},
	} {
		status, e := post(t, tests, body)
		if status != want.status || e.Code != want.code || e.Message == "" {
			t.Errorf("%s: %d %+v, want %d %s and a sentence", body, status, e, want.status, want.code)
		}
	}
}

func TestACapEndsWhenTheClockIsPutForward(t *testing.T) {
	p, _, tests := daemon(t)
	live(t, p)
	post(t, tests, `{"cap":{"pod":"batch","container":"main","cpu":0.25,"seconds":60}}`)
	if c := p.Snapshot().Containers[0]; c.CapMilli != 250 {
		t.Fatalf("the cap is %dm, want 250m", c.CapMilli)
	}
	post(t, tests, `{"advance":{"seconds":61}}`)
	if c := p.Snapshot().Containers[0]; c.CapMilli != 0 {
		t.Errorf("the cap is still %dm after its deadline", c.CapMilli)
	}
}

func TestSocketsAreForRootAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "quietcore.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v (%v), want %v", name, info.Mode(), err, want)
		}
	}
	// What a killed daemon leaves behind is replaced, a file of another program is not.
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if l, err = Listen(path); err != nil {
		t.Fatalf("a dead socket is in the way: %v", err)
	}
	l.Close()
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path); err == nil || !strings.Contains(err.Error(), "in its place") {
		t.Errorf("error is %v", err)
	}
}

func TestAClientSaysThatNoDaemonIsThere(t *testing.T) {
	_, err := Client{Socket: filepath.Join(t.TempDir(), "none")}.Status(limited(t))
	if err == nil || !strings.Contains(err.Error(), "quietcore run") {
		t.Errorf("error is %v", err)
	}
	short, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if _, err := (Client{Socket: filepath.Join(t.TempDir(), "none")}).Settled(short); err == nil {
		t.Error("waited for nobody and got an answer")
	}
}
