package plugin

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/sysfs/sysfstest"
)

func TestKubeletsStateIsFollowed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "cpu_manager_state")
	var last atomic.Pointer[policy.KubeletState]
	var taken atomic.Int64
	k := &Kubelet{Path: path, Log: slog.New(slog.DiscardHandler), Take: func(_ context.Context,
		s policy.KubeletState) error {
		last.Store(&s)
		taken.Add(1)
		return nil
	}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); k.Watch(ctx) }()
	defer func() { cancel(); <-done }()

	write := func(text string) {
		t.Helper()
		// As kubelet does: a new file in the old one's place.
		if err := os.WriteFile(path+".tmp", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".tmp", path); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the file is looked at", k.Fresh)
	}
	if !k.Fresh() {
		t.Error("a file that is not there is waited for")
	}
	write(`{"policyName":"static","defaultCpuSet":"2-15","entries":{"uid-a":{"main":"0-1"}},"checksum":1}`)
	s := last.Load()
	if s == nil || s.PolicyName != "static" || s.Default != cpuset.Range(2, 15) ||
		s.Entries["uid-a"]["main"] != cpuset.Range(0, 1) {
		t.Fatalf("state is %+v", s)
	}
	before := taken.Load()
	write(`{"policyName":"static","defaultCpuSet":"2-1`) // half written
	if taken.Load() != before {
		t.Error("half a file was taken over")
	}
	write(`{"policyName":"static","defaultCpuSet":"0-15","checksum":2}`)
	if got := last.Load(); got.Default != cpuset.Range(0, 15) || len(got.Entries) != 0 {
		t.Errorf("state is %+v after the file was whole again", got)
	}
}

func TestKubeletsStateIsBounded(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON":        "x",
		"huge":           `{"policyName":"` + strings.Repeat("x", maxKubeletState) + `"}`,
		"policy unknown": `{"policyName":"dynamic"}`,
		"huge range":     `{"policyName":"static","defaultCpuSet":"0-2000000000"}`,
		"negative":       `{"policyName":"static","defaultCpuSet":"-1"}`,
		"reversed":       `{"policyName":"static","defaultCpuSet":"3-1"}`,
		"overlapping":    `{"policyName":"static","defaultCpuSet":"0-3,2"}`,
		"bad entry":      `{"policyName":"static","defaultCpuSet":"0-3","entries":{"u":{"c":"0-99999999"}}}`,
		"wrong type":     `{"policyName":"static","defaultCpuSet":7}`,
	} {
		if s, err := ParseKubeletState([]byte(text)); err == nil {
			t.Errorf("%s: taken as %+v", name, s)
		} else if len(err.Error()) > 300 {
			t.Errorf("%s: the error has %d bytes", name, len(err.Error()))
		}
	}
}

func FuzzParseKubeletState(f *testing.F) {
	f.Add([]byte(`{"policyName":"static","defaultCpuSet":"2-15","entries":{"u":{"main":"0-1"}},"checksum":1}`))
	f.Add([]byte(`{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := ParseKubeletState(text)
		if err == nil && s.PolicyName != "none" && s.PolicyName != "static" {
			t.Errorf("policy %q was taken", s.PolicyName)
		}
	})
}

// TestCPUsThatGoOffAreFollowedFromOneFile: which CPUs are on is taken over before
// the rest of /sys is read, and only once.
func TestCPUsThatGoOffAreFollowedFromOneFile(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	root := t.TempDir()
	if err := os.CopyFS(root, sysfstest.Tree(n.topo)); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root, "devices/system/cpu")
	p := n.up()
	h := &Hardware{Root: root, Plugin: p, Log: slog.New(slog.DiscardHandler)}
	for _, online := range []string{"0-2,4-15", "0-15"} {
		if err := os.WriteFile(filepath.Join(dir, "online"), []byte(online+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		h.look(t.Context())
		if got := p.Snapshot().Topology.Online().String(); got != online {
			t.Errorf("online is %s, want %s", got, online)
		}
		before, err := p.Records(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		h.look(t.Context())
		if after, err := p.Records(t.Context()); err != nil || len(after) != len(before) {
			t.Errorf("%d events after a look at what was known, want %d (%v)", len(after), len(before), err)
		}
	}
}
