package daemon

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/plugin"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// Labels that come while a new configuration is taken over are in force in the end,
// whoever was first.
func TestLabelsAreNotLostToAReload(t *testing.T) {
	machine, err := topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	log := NewLog(t.Output(), config.LogText, nil)
	nri := config.Default().NRI
	p, err := plugin.New(plugin.Options{
		Topology: machine, Log: log, Observe: true, Socket: filepath.Join(t.TempDir(), "nri.sock"), Name: nri.Name,
		Index: nri.Index,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { p.Run(ctx) })
	l := &labels{node: &node{p}, log: log}
	for i := range 200 {
		want := fmt.Sprint(i)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if err := l.reconfigure(ctx, policy.Config{}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Go(func() { l.take(ctx, map[string]string{"round": want}) })
		all.Wait()
		records, err := p.Records(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]string
		for _, r := range records {
			if r.NodeLabels != nil {
				got = r.NodeLabels.Labels
			}
		}
		if got["round"] != want {
			t.Fatalf("in round %s the labels in force are %v", want, got)
		}
	}
}

// Rules that hold by architecture hold on a Node without labels, and a label wins.
func TestLabelsNameTheArchitecture(t *testing.T) {
	given := map[string]string{policy.LabelBind: "None"}
	got := withArch(given)
	if got[policy.LabelArch] != runtime.GOARCH || got[policy.LabelBind] != "None" || len(given) != 1 {
		t.Errorf("labels are %v, and those given %v", got, given)
	}
	if got := withArch(nil)[policy.LabelArch]; got != runtime.GOARCH {
		t.Errorf("without labels the architecture is %q", got)
	}
	if got := withArch(map[string]string{policy.LabelArch: "arm64"})[policy.LabelArch]; got != "arm64" {
		t.Errorf("a label says arm64, in force is %q", got)
	}
}
