package probe

import (
	"testing"

	"github.com/quietcore/quietcore/policy"
)

// A record of the version before has no profile in its configuration, and what its pods
// ask for would be refused today: it is found all the same.
func TestPowersInARecord(t *testing.T) {
	const record = `
topology: {grid: {sockets: 1, coresPerL3: 4, threadsPerCore: 2}}
config: {}
steps:
  - create: {pod: quiet, labels: {koordinator.sh/qosClass: LSE}, annotations: {quietcore.dev/smt: isolate},
      containers: [{name: main, requestMilli: 1000, limitMilli: 1000}]}
  - create: {pod: agent, namespace: ops, annotations: {quietcore.dev/managed: "false"}, containers: [{name: main}]}
  - create: {pod: web, containers: [{name: main, requestMilli: 1000}]}
`
	got, err := powersIn([]byte(record))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].Pod != "quiet" || len(got[0].Powers) != 2 ||
		got[0].Powers[1] != policy.PowerWholeCores || got[1].Pod != "agent" ||
		got[1].Powers[0] != policy.PowerUnmanaged {
		t.Errorf("got %+v", got)
	}
	if _, err := powersIn([]byte("steps: 7")); err == nil {
		t.Error("what is no record is played")
	}
}
