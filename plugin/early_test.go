package plugin

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

type countingStore struct{ saves atomic.Int64 }

func (s *countingStore) Save(state.Snapshot) error { s.saves.Add(1); return nil }

// Before the first Synchronize the machine is empty and the file is not: what
// changes the pools by then must not replace it, or a crash would lose the caps
// that have to be undone.
func TestNothingIsSavedBeforeWhatRunsIsTakenOver(t *testing.T) {
	topo, err := topology.Grid{CoresPerL3: 4}.Build()
	if err != nil {
		t.Fatal(err)
	}
	store := &countingStore{}
	p, err := New(Options{Topology: topo, Store: store, Socket: filepath.Join(t.TempDir(), "nri.sock")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { p.Run(ctx); close(done) }()
	if err := p.Reconfigure(ctx, policy.Config{Reserved: cpuset.Of(0)}); err != nil {
		t.Fatal(err)
	}
	if got := p.Snapshot().Reserved; got != cpuset.Of(0) {
		t.Fatalf("the configuration had no effect: reserved %s", got)
	}
	cancel()
	<-done // what was to be saved is saved by now
	if n := store.saves.Load(); n != 0 {
		t.Fatalf("%d saves before the first Synchronize", n)
	}
}
