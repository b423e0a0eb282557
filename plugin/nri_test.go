package plugin

import (
	"testing"

	"github.com/quietcore/quietcore/policy"
)

func TestAnExclusivePodGetsItsCPUsAndTheOthersLeaveThem(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	web := spec{name: "web", qos: policy.Burstable, ctrs: []ctr{{name: "main", request: 500}}}
	batch := spec{name: "batch", qos: policy.BestEffort, ctrs: []ctr{{name: "main"}}}
	db := spec{name: "db", class: policy.LSE, qos: policy.Guaranteed, ctrs: main1(4000)}
	mustRun(t, n, web, batch)
	n.want("web-main", "0-15")
	mustRun(t, n, db)
	n.want("db-main", "0-3")
	n.want("web-main", "4-15")
	n.want("batch-main", "4-15")
	n.checkOwners()
	if got := n.quota(db.parent()); got != policy.NoLimit {
		t.Errorf("the pod's quota is %dm, want none", got)
	}
	if got := n.quota(db.parent() + "/db-main"); got != policy.NoLimit {
		t.Errorf("the container's quota is %dm, want none", got)
	}
	n.remove(db)
	n.want("web-main", "0-15")
	n.want("batch-main", "0-15")
}
