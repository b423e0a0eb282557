package plugin

import (
	"encoding/json"
	"testing"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/state"
)

// What a newer daemon gave a pod, and wrote as a kind of owner that this one does not know,
// stays that pod's on the node and in the file, until the pod is gone.
func TestCPUsOfANewerDaemonsOwnerAreKept(t *testing.T) {
	for name, claims := range map[string]spec{"shared before": burstable("claims"),
		"owner before": lsr("claims", 2000)} {
		t.Run(name, func(t *testing.T) { keepsReservation(t, claims) })
	}
}

func keepsReservation(t *testing.T, claims spec) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	mustRun(t, n, claims, burstable("web"))
	n.settle()
	n.kill()
	var o state.Owner
	entry := `{"kind":"claim","uid":"uid-claims","cpus":"2-5","later":{"a":1}}`
	if err := json.Unmarshal([]byte(entry), &o); err != nil {
		t.Fatal(err)
	}
	n.store.set(state.Snapshot{Owners: []state.Owner{o}})
	n.up()
	n.settle()
	n.want("claims-main", "2-5")
	n.want("web-main", "0-1,6-15")
	mustRun(t, n, lsr("db", 4000))
	n.settle()
	n.want("claims-main", "2-5")
	db, err := cpuset.Parse(n.on("db-main"))
	if reserved := cpuset.Range(2, 5); err != nil || db.Count() != 4 || db.Intersects(&reserved) {
		t.Errorf("the owner that came later has %s, %v", db, err)
	}
	eventually(t, "the state is saved", func() bool { return len(n.store.load().Pods) > 0 })
	if saved := n.store.load().Owners; len(saved) != 1 || string(saved[0].Entry) != entry {
		t.Errorf("saved are %+v", saved)
	}
	n.remove(claims)
	n.settle()
	eventually(t, "the state without it is saved", func() bool { return len(n.store.load().Owners) == 0 })
	if shared := n.plugin.Snapshot().Shared; shared.Count() != 12 {
		t.Errorf("the shared pool is %s after the pod has gone", shared)
	}
}
