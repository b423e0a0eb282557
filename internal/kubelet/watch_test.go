package kubelet

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not in 20 s: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// takes collects what a Watcher hands over.
type takes struct {
	mu   sync.Mutex
	last Config
	n    int
	err  error
}

func (k *takes) take(_ context.Context, c Config) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.n++
	if k.err != nil {
		return k.err
	}
	k.last = c
	return nil
}

func (k *takes) policy() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last.CPUManagerPolicy + "/" + k.last.TopologyPolicy
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestConfigurationIsFollowed(t *testing.T) {
	dir := t.TempDir()
	file, dropIns := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "kubelet.conf.d")
	if err := os.MkdirAll(filepath.Join(dropIns, "more"), 0o700); err != nil {
		t.Fatal(err)
	}
	var k takes
	w := &Watcher{File: file, DropIns: dropIns, Take: k.take, Log: slog.New(slog.DiscardHandler),
		settle: 5 * time.Millisecond}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.Watch(ctx) }()
	defer func() { cancel(); <-done }()

	eventually(t, "a missing file is said", func() bool { return strings.Contains(w.State(), "no such file") })
	write(t, file, head+"cpuManagerPolicy: static\n")
	eventually(t, "the file is taken over", func() bool { return k.policy() == "static/none" && w.State() == "" })

	write(t, file, head+"cpuManagerPolicy: [stat") // half written
	eventually(t, "half a file is said", func() bool { return w.State() != "" && w.Fresh() })
	if got := k.policy(); got != "static/none" {
		t.Errorf("half a file was taken over: %s", got)
	}
	write(t, file, "") // as it is while it is written in place
	eventually(t, "an empty file is said", func() bool { return strings.Contains(w.State(), "apiVersion <nil>") })
	if got := k.policy(); got != "static/none" {
		t.Errorf("an empty file was taken over: %s", got)
	}

	write(t, file, head+"cpuManagerPolicy: static\ntopologyManagerPolicy: restricted\n")
	write(t, filepath.Join(dropIns, "10-a.conf"), head+"topologyManagerPolicy: best-effort\n")
	write(t, filepath.Join(dropIns, "20-b.conf.bak"), "not read")
	eventually(t, "the drop-in is taken over", func() bool { return k.policy() == "static/best-effort" })
	write(t, filepath.Join(dropIns, "more", "99.conf"), head+"topologyManagerPolicy: single-numa-node\n")
	write(t, filepath.Join(dropIns, "20-b.conf"), head+"cpuManagerPolicy: none\n")
	eventually(t, "the last drop-in wins", func() bool { return k.policy() == "none/single-numa-node" })

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the file's absence is said", func() bool { return w.State() != "" })
	if got := k.policy(); got != "none/single-numa-node" {
		t.Errorf("a missing file was taken for %s", got)
	}
}

func TestRefusedConfigurationIsOfferedAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file, head)
	k := takes{err: errors.New("busy")}
	w := &Watcher{File: file, Take: k.take, Log: slog.New(slog.DiscardHandler)}
	if w.Fresh() {
		t.Error("a file that was not looked at is fresh")
	}
	w.Look(t.Context())
	if !w.Fresh() {
		t.Error("a file that was looked at is not fresh")
	}
	if w.State() == "" || !w.differs() {
		t.Errorf("state is %q after a refusal", w.State())
	}
	k.err = nil
	w.Look(t.Context())
	w.Look(t.Context())
	if k.n != 2 || w.State() != "" || w.differs() {
		t.Errorf("offered %d times, state %q; want twice and no more", k.n, w.State())
	}
}

func TestReadIsBounded(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	write(t, file, head+strings.Repeat("#", 2*maxSource))
	sources, err := Read(file, filepath.Join(dir, "none.d"))
	if err != nil || len(sources) != 1 || len(sources[0].Text) > maxSource+1 {
		t.Errorf("%d sources, error %v", len(sources), err)
	}
	if _, err := Parse(sources...); err == nil {
		t.Error("a file of 2 MiB was read")
	}
	if _, err := Read(dir, ""); err == nil {
		t.Error("a directory was read")
	}
	for range maxSources {
		f, err := os.CreateTemp(dir, "*.conf")
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	if _, err := Read(file, dir); err == nil {
		t.Errorf("%d drop-ins were read", maxSources)
	}
}
