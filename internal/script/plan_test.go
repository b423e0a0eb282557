package script

import (
	"reflect"
	"testing"
)

// TestPlan: moves are listed even if the configuration forbids them, and none if all owners lie well.
func TestPlan(t *testing.T) {
	const text = `
topology: {grid: {sockets: 2, coresPerL3: 3, threadsPerCore: 2}}
config: {pools: {sharedFloor: 1}}
steps:
  - create:
      {pod: a, labels: {koordinator.sh/qosClass: LSR}, containers: [{name: main, requestMilli: 4000, limitMilli: 4000}]}
  - create:
      {pod: b, labels: {koordinator.sh/qosClass: LSR}, containers: [{name: main, requestMilli: 4000, limitMilli: 4000}]}
  - create:
      {pod: c, labels: {koordinator.sh/qosClass: LSR}, containers: [{name: main, requestMilli: 3000, limitMilli: 3000}]}
`
	for _, c := range []struct {
		end  string
		want []Move
	}{
		{"", []Move{}},
		{"  - remove: {pod: a}\n", []Move{{Namespace: "default", Pod: "c", From: "4-5,10", To: "0-2",
			Why: "1 NUMA node instead of 2"}}},
	} {
		f, p := load(t, []byte(text+c.end))
		for _, s := range f.Steps {
			if line, err := p.Play(s); err != nil || line.Error != nil {
				t.Fatal(err, line.Error)
			}
		}
		got, err := p.Plan()
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("planned are %+v, %v; want %+v", got, err, c.want)
		}
	}
}
