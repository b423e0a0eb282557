package simulate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/internal/script"
)

func run(t *testing.T, text string) []Line {
	t.Helper()
	var out bytes.Buffer
	if err := Run([]byte(text), &out, nil); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var lines []Line
	for d := json.NewDecoder(&out); d.More(); {
		var l Line
		if err := d.Decode(&l); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
	return lines
}

const twoNodes = `
nodes:
  - name: node-a
    topology: {grid: {sockets: 1, coresPerL3: 4, threadsPerCore: 2}}
    config: {authority: {resourceStatus: trust}}
  - {name: node-b, topology: {grid: {sockets: 1, coresPerL3: 8, threadsPerCore: 2}}, node: {labels: {}}}
steps:
  - create: {pod: db, node: node-a, labels: {koordinator.sh/qosClass: LSR},
      containers: [{name: main, requestMilli: 4000, limitMilli: 4000}]}
  - create: {pod: large, labels: {koordinator.sh/qosClass: LSR},
      containers: [{name: main, requestMilli: 14000, limitMilli: 14000}]}
  - create: {pod: web, labels: {koordinator.sh/qosClass: LSR},
      containers: [{name: main, requestMilli: 4000, limitMilli: 4000}]}
  - create: {pod: bad, labels: {koordinator.sh/qosClass: gold},
      containers: [{name: main, requestMilli: 1000}]}
  - offline: {node: node-a, cpus: "3"}
  - remove: {pod: large}
`

// TestACluster: pods go where they fit, those that fit nowhere say why for every node, and get
// their place as soon as there is one.
func TestACluster(t *testing.T) {
	lines := run(t, twoNodes)
	var got []string
	for _, l := range lines {
		node := "-"
		if l.Node != nil {
			node = *l.Node
		}
		text := fmt.Sprintf("%d %s %s %s", l.Step, l.Op, l.Pod, node)
		for _, c := range l.Containers {
			if c.Pod == l.Pod {
				text += " " + c.CPUs
			}
		}
		got = append(got, text)
	}
	want := []string{"1 create db node-a 0-3", "2 create large node-b 0-13", "3 create web -", "4 create bad -",
		"5 offline  node-a", "6 remove  node-b", "6 placed web node-b 0-3"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, node := range []string{"node-a", "node-b"} {
		if r := lines[2].Reasons[node]; !strings.HasPrefix(r, "InsufficientCPUs: ") {
			t.Errorf("web on %s: %q", node, r)
		}
		if r := lines[3].Reasons[node]; !strings.HasPrefix(r, "InvalidQoS: ") {
			t.Errorf("bad on %s: %q", node, r)
		}
	}
}

// TestMistakes: what cannot be played says on which line of the file, under which key, and what
// would do.
func TestMistakes(t *testing.T) {
	const a = "nodes:\n- name: a\n  topology: {grid: {}}\n"
	const none = "nodes: there are 0; there must be 1 to 10000"
	for _, c := range []struct{ text, want string }{
		{"", none},
		{"nodes: []", none},
		{"node: []", `line 1: unknown key "node"; did you mean "nodes"?`},
		{"nodes: 3", `line 1: nodes: is a whole number ("3"), must be a list`},
		{"nodes:\n- a", `line 2: nodes[0]: the node has no name; give it the key "name"`},
		{"nodes:\n- topology: {grid: {}}", `line 2: nodes[0]: the node has no name; give it the key "name"`},
		{"nodes:\n- topology: {grid: {}}\n  name: [a]", `line 3: nodes[0].name: is a list, must be text`},
		{"nodes:\n- name: a\n  topologie: {grid: {}}",
			`line 3: nodes[0]: unknown key "topologie"; did you mean "topology"?`},
		{a + "  config:\n    authority: {resourceStatus: maybe}",
			`line 5: nodes[0].config.authority.resourceStatus: is "maybe", must be ignore or trust`},
		{a + "  steps: [{advance: {seconds: 1}}]",
			`line 2: nodes[0]: has steps of its own; put them at the top of the file`},
		{a + "- name: a\n  topology: {grid: {}}",
			`line 4: nodes[1]: node "a" is there twice; give each a name of its own`},
		{a + "steps:\n- offline: {node: b, cpus: '1'}",
			`line 5: steps[0].offline: there is no node "b"; the file has a`},
		{a + "steps:\n- advance: {seconds: 1}\n- create:\n    pod: x\n    containrs: []",
			`line 8: steps[1].create: unknown key "containrs"; did you mean "containers"?`},
		{a + "steps:\n- advance: {seconds: 1}\n- creat: {pod: x}",
			`line 6: steps[1]: unknown key "creat"; did you mean "create"?`},
		{a + "steps:\n- create: {pod: x, node: a, containers: []}",
			`line 5: steps[0]: create: pod x has no containers`},
		{a + "steps:\n- online: {node: a, cpus: 3-1}",
			`line 5: steps[0]: online: CPU list "3-1": "3-1": range runs backwards, write 1-3`},
		{a + "steps:\n- create: {pod: *x}", `not YAML`},
		{a + "steps:\n- offline: {cpus: '1'}", `line 5: steps[0]: offline names no node; give it the key "node"`},
	} {
		var out bytes.Buffer
		if err := Run([]byte(c.text), &out, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\nsays %v\nwant %s", c.text, err, c.want)
		}
	}
}

// TestEachNodeAlone: the steps of one node, played alone as `quietcore simulate` does, give the
// same CPUs.
func TestEachNodeAlone(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 7))
		var file, steps strings.Builder
		heads := map[string]string{}
		file.WriteString("nodes:\n")
		for i := range 3 {
			head := fmt.Sprintf("topology: {grid: {sockets: 2, coresPerL3: %d, threadsPerCore: 2}}, "+
				"config: {authority: {profile: open, resourceStatus: %s}}", 2+rng.IntN(3),
				[]string{"trust", "ignore"}[rng.IntN(2)])
			heads[fmt.Sprintf("node-%d", i)] = head
			fmt.Fprintf(&file, "  - {name: node-%d, %s}\n", i, head)
		}
		var creates []string
		steps.WriteString("steps:\n")
		for i := range 25 {
			create := fmt.Sprintf("labels: {koordinator.sh/qosClass: %s}, annotations: {quietcore.dev/smt: %s}, "+
				"containers: [{name: main, requestMilli: %d000, limitMilli: %[3]d000}]",
				[]string{"LSR", "LSE"}[rng.IntN(2)], []string{"none", "isolate", "roundup"}[rng.IntN(3)],
				1+rng.IntN(4))
			creates = append(creates, create)
			fmt.Fprintf(&steps, "  - create: {pod: pod-%d, %s}\n", i, create)
			if rng.IntN(3) == 0 {
				fmt.Fprintf(&steps, "  - remove: {pod: pod-%d}\n", rng.IntN(i+1))
			}
		}
		alone(t, run(t, file.String()+steps.String()), heads, creates)
	}
}

// alone plays what happened on each node by itself.
func alone(t *testing.T, lines []Line, heads map[string]string, creates []string) {
	t.Helper()
	steps, want := map[string]string{}, map[string]string{}
	where := map[string]string{}
	for _, l := range lines {
		if l.Error != nil {
			if l.Op != "remove" {
				t.Fatalf("%s of %s: %v", l.Op, l.Pod, l.Error)
			}
			continue
		}
		if l.Node == nil {
			continue
		}
		switch l.Op {
		case "create", "placed":
			var i int
			if _, err := fmt.Sscanf(l.Pod, "pod-%d", &i); err != nil {
				t.Fatal(err)
			}
			where[l.Pod] = *l.Node
			steps[*l.Node] += fmt.Sprintf("  - create: {pod: %s, %s}\n", l.Pod, creates[i])
		case "remove":
			for pod, node := range where {
				if node == *l.Node && !strings.Contains(states(l.Containers), pod+" ") {
					delete(where, pod)
					steps[node] += fmt.Sprintf("  - remove: {pod: %s}\n", pod)
				}
			}
		}
		want[*l.Node] = states(l.Containers)
	}
	for node, text := range steps {
		f, err := script.Parse([]byte("{" + heads[node] + ", steps: []}"))
		if err != nil {
			t.Fatal(err)
		}
		all, err := script.Parse([]byte("topology: {grid: {}}\nsteps:\n" + text))
		if err != nil {
			t.Fatal(err)
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
		for _, s := range all.Steps {
			if last, err = player.Play(s); err != nil {
				t.Fatal(err)
			}
		}
		if got := states(last.Containers); got != want[node] {
			t.Errorf("%s alone:\n%s\nin the cluster:\n%s\n%s", node, got, want[node], text)
		}
	}
}

func states(list []script.State) (text string) {
	for _, s := range list {
		text += fmt.Sprintf("%s %s %s\n", s.Pod, s.CPUs, s.Withheld)
	}
	return text
}
