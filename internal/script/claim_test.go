package script

import (
	"strings"
	"testing"
)

func TestClaimSteps(t *testing.T) {
	const node = "topology: {grid: {coresPerL3: 4, threadsPerCore: 2}}\nsteps:\n"
	for _, c := range []struct{ name, steps, want string }{
		{"without a name", "- prepare: {devices: [{within: 0-7, cpus: 1}]}", "claim has no name"},
		{"no list of CPUs", "- prepare: {claim: a, devices: [{within: 0-, cpus: 1}]}", "prepare: "},
		{"an unknown policy", "- prepare: {claim: a, devices: [{within: 0-7, cpus: 1, smt: some}]}", "some"},
	} {
		if _, err := Parse([]byte(node + c.steps)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	lines := play(t, []byte(node+`
- create: {pod: early, uid: of-its-own, containers: [{name: main}]}
- prepare: {claim: a, pods: [early, late], devices: [{within: 0-7, cpus: 2, bindPolicy: SpreadByPCPUs}]}
- create: {pod: late, containers: [{name: main}, {name: side}]}
- create: {pod: late, namespace: other, containers: [{name: main}]}
- restartContainer: {pod: late, container: side}
- unprepare: {claim: a, namespace: other}
`))
	last := lines[len(lines)-1]
	for _, s := range last.Containers {
		want := "0,2"
		if s.Namespace == "other" {
			want = "1,3-7"
		}
		if s.CPUs != want {
			t.Errorf("%s runs on %s, want %s: %s", s.key(), s.CPUs, want, s.Why)
		}
	}
	if len(last.Containers) != 4 || last.Error != nil {
		t.Errorf("%d containers, %+v", len(last.Containers), last.Error)
	}
}
