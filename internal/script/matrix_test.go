package script

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMatrix fills in the tables of docs/semantics/matrix.md, each cell from a run of the
// machine, and compares them with what is there.
func TestMatrix(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "semantics", "matrix.md")
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(doc)
	for name, table := range map[string]func(*testing.T) string{
		"bind":        func(t *testing.T) string { return bindTable(t, 2) },
		"bind-no-smt": func(t *testing.T) string { return bindTable(t, 1) },
		"exclusive":   exclusiveTable,
		"alignment":   alignmentTable,
		"says":        saysTable,
		"class":       classTable,
	} {
		before, rest, ok := strings.Cut(text, "<!-- table "+name+" -->\n")
		was, after, ended := strings.Cut(rest, "<!-- end -->\n")
		if !ok || !ended {
			t.Fatalf("matrix.md has no place for the table %s", name)
		}
		is := table(t)
		if is != was && !*update {
			t.Errorf("table %s of matrix.md:\n%s\nis:\n%s", name, was, is)
		}
		text = before + "<!-- table " + name + " -->\n" + is + "<!-- end -->\n" + after
	}
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// table is a table of a page: a first column and cells.
type table struct{ rows []string }

func newTable(first string, columns ...string) *table {
	return &table{rows: []string{
		"| " + first + " | " + strings.Join(columns, " | ") + " |",
		"|" + strings.Repeat("---|", len(columns)+1),
	}}
}

func (t *table) add(first string, cells ...string) {
	t.rows = append(t.rows, "| "+first+" | "+strings.Join(cells, " | ")+" |")
}

func (t *table) String() string { return strings.Join(t.rows, "\n") + "\n" }

// node is what a cell plays on: the machine, its configuration, and the pods on it.
type node struct{ topology, node, config, before string }

// pod is the pod of a cell.
type pod struct {
	class, qos, namespace string
	request, limit        int
	annotations           []string // key: 'value'
}

func (p pod) step(name string) string {
	var s strings.Builder
	fmt.Fprintf(&s, "  - create: {pod: %s", name)
	if p.namespace != "" {
		fmt.Fprintf(&s, ", namespace: %s", p.namespace)
	}
	if p.class != "" {
		fmt.Fprintf(&s, ", labels: {koordinator.sh/qosClass: %s}", p.class)
	}
	if p.qos != "" {
		fmt.Fprintf(&s, ", kubernetesQoS: %s", p.qos)
	}
	fmt.Fprintf(&s, ", annotations: {%s}, containers: [{name: main", strings.Join(p.annotations, ", "))
	if p.request > 0 {
		fmt.Fprintf(&s, ", requestMilli: %d", p.request)
	}
	if p.limit > 0 {
		fmt.Fprintf(&s, ", limitMilli: %d", p.limit)
	}
	return s.String() + "}]}\n"
}

func owner(cpus int, annotations ...string) pod {
	return pod{class: "LSR", request: cpus * 1000, limit: cpus * 1000, annotations: annotations}
}

// outcome plays a script whose last step is the pod's creation.
func (n node) outcome(t *testing.T, p pod, class bool) string {
	t.Helper()
	text := "topology: " + n.topology + "\n"
	if n.node != "" {
		text += "node: " + n.node + "\n"
	}
	if n.config != "" {
		text += "config: " + n.config + "\n"
	}
	text += "steps:\n" + n.before + p.step("pod")
	lines := play(t, []byte(text))
	for _, l := range lines[:len(lines)-1] {
		if l.Error != nil {
			t.Fatalf("%s\nstep %d is refused: %s", text, l.Step, l.Error.Message)
		}
	}
	last := lines[len(lines)-1]
	if last.Error != nil {
		return string(last.Error.Code)
	}
	for _, s := range last.Containers {
		if s.Pod != "pod" {
			continue
		}
		cell := s.CPUs
		if s.Withheld != "" {
			cell += " (" + s.Withheld + ")"
		}
		if class {
			cell = fmt.Sprintf("%s %s %s", s.Class, s.Pool, cell)
			if s.ByKubelet {
				cell += ", kubelet's"
			}
		}
		return cell
	}
	t.Fatalf("%s\nthe pod is not there", text)
	return ""
}

const (
	bindLabel      = "node.koordinator.sh/cpu-bind-policy"
	alignLabel     = "node.koordinator.sh/numa-topology-alignment-policy"
	alignLabelToo  = "node.koordinator.sh/numa-topology-policy"
	specAnnotation = "scheduling.koordinator.sh/resource-spec"
	numaAnnotation = "scheduling.koordinator.sh/numa-topology-spec"
)

func annotation(key, format string, args ...any) string {
	return fmt.Sprintf("%s: '%s'", key, fmt.Sprintf(format, args...))
}

// group is the rows of one demand of a node, or the cells of one row, under the
// names of all that have the same.
type group struct {
	names []string
	cells []string
	rows  []group
}

// join adds a group, or its name to an equal one.
func join(groups []group, g group) []group {
	for i := range groups {
		if fmt.Sprint(groups[i].cells, groups[i].rows) == fmt.Sprint(g.cells, g.rows) {
			groups[i].names = append(groups[i].names, g.names...)
			return groups
		}
	}
	return append(groups, g)
}

func bindTable(t *testing.T, threads int) string {
	var columns []string
	smts, counts := []string{"none", "isolate", "align", "roundup"}, []int{3, 4}
	for _, smt := range smts {
		for _, n := range counts {
			columns = append(columns, fmt.Sprintf("%s %d", smt, n))
		}
	}
	var demands []group
	for _, demand := range []struct{ name, later string }{
		{"nothing", ""},
		{"label `None`", labelled("None")},
		{"label `FullPCPUsOnly`", labelled("FullPCPUsOnly")},
		{"label `PCPUOnly`", labelled("PCPUOnly")},
		{"label `SpreadByPCPUs`", labelled("SpreadByPCPUs")},
		{"kubelet `full-pcpus-only`", optioned("full-pcpus-only")},
		{"label `None` over kubelet `full-pcpus-only`", labelled("None") + optioned("full-pcpus-only")},
		{"label `SpreadByPCPUs` over kubelet `full-pcpus-only`", labelled("SpreadByPCPUs") +
			optioned("full-pcpus-only")},
		{"kubelet `distribute-cpus-across-cores`", optioned("distribute-cpus-across-cores")},
		{"label `FullPCPUsOnly` over kubelet `distribute-cpus-across-cores`", labelled("FullPCPUsOnly") +
			optioned("distribute-cpus-across-cores")},
	} {
		n := node{topology: fmt.Sprintf("{grid: {sockets: 1, coresPerL3: 8, threadsPerCore: %d}}", threads),
			config: "{authority: {wholeCores: {namespaces: [default]}}}"}
		n.before = owner(1).step("other") + demand.later // it came before the node had a policy
		g := group{names: []string{demand.name}}
		for _, word := range []struct{ name, spec string }{
			{"nothing", "{}"},
			{"like `Default`", `{"preferredCPUBindPolicy":"Default"}`},
			{"must `Default`", `{"requiredCPUBindPolicy":"Default"}`},
			{"like `FullPCPUs`", `{"preferredCPUBindPolicy":"FullPCPUs"}`},
			{"must `FullPCPUs`", `{"requiredCPUBindPolicy":"FullPCPUs"}`},
			{"like `SpreadByPCPUs`", `{"preferredCPUBindPolicy":"SpreadByPCPUs"}`},
			{"must `SpreadByPCPUs`", `{"requiredCPUBindPolicy":"SpreadByPCPUs"}`},
			{"must `FullPCPUs`, like `SpreadByPCPUs`",
				`{"requiredCPUBindPolicy":"FullPCPUs","preferredCPUBindPolicy":"SpreadByPCPUs"}`},
		} {
			row := group{names: []string{word.name}}
			for _, smt := range smts {
				for _, count := range counts {
					row.cells = append(row.cells, n.outcome(t,
						owner(count, annotation("quietcore.dev/smt", "%s", smt),
							annotation(specAnnotation, "%s", word.spec)), false))
				}
			}
			g.rows = join(g.rows, row)
		}
		demands = join(demands, g)
	}
	out := newTable("the node says", append([]string{"the pod says"}, columns...)...)
	for _, g := range demands {
		for _, row := range g.rows {
			out.add(strings.Join(g.names, "; "), append([]string{strings.Join(row.names, "; ")}, row.cells...)...)
		}
	}
	return out.String()
}

func labelled(policy string) string { return "  - nodeLabels: {" + bindLabel + ": " + policy + "}\n" }

func optioned(option string) string {
	return `  - kubeletConfig: {options: {` + option + `: "true"}}` + "\n"
}

func exclusiveTable(t *testing.T) string {
	policies := []string{"None", "PCPULevel", "NUMANodeLevel"}
	var columns []string
	for _, p := range policies {
		columns = append(columns, p+", room", p+", narrow", p+", none")
	}
	out := newTable("the pod \\ its neighbour", columns...)
	placed := func(cpus int, list, policy string) pod {
		return owner(cpus, annotation("scheduling.koordinator.sh/resource-status", `{"cpuset":"%s"}`, list),
			annotation(specAnnotation, `{"preferredCPUExclusivePolicy":"%s"}`, policy))
	}
	for _, required := range []bool{false, true} {
		for _, mine := range policies {
			var cells []string
			for _, theirs := range policies {
				for _, filled := range []string{"", "6", "4-6"} {
					n := node{topology: "{grid: {sockets: 2, coresPerL3: 2, threadsPerCore: 2}}",
						before: placed(1, "0", theirs).step("neighbour")}
					// A reserved CPU is the shared pool's floor, so that all others can be given.
					n.config = fmt.Sprintf(
						`{reserved: {cpus: "7"}, pools: {sharedFloor: 1}, `+
							`authority: {profile: open, resourceStatus: trust}, `+
							`allocation: {exclusiveRequired: %t}}`, required)
					if filled != "" {
						n.before += placed(len(filled), filled, "None").step("fill")
					}
					cells = append(cells, n.outcome(t, owner(3,
						annotation(specAnnotation, `{"preferredCPUExclusivePolicy":"%s"}`, mine)), false))
				}
			}
			first := mine
			if required {
				first += ", required"
			}
			out.add(first, cells...)
		}
	}
	return out.String()
}

func alignmentTable(t *testing.T) string {
	sizes := []int{6, 7, 9}
	var columns []string
	for _, kind := range []string{"owner", "LS"} {
		for _, size := range sizes {
			columns = append(columns, fmt.Sprintf("%s %d", kind, size))
		}
	}
	out := newTable("alignment", columns...)
	row := func(later string, annotations ...string) []string {
		n := node{topology: twoNodes, before: halfFull() + later}
		var cells []string
		for _, p := range []pod{{class: "LSR"}, {}} {
			for _, size := range sizes {
				p.request, p.limit, p.annotations = size*1000, size*1000, annotations
				cells = append(cells, n.outcome(t, p, false))
			}
		}
		return cells
	}
	for _, value := range alignments() {
		want := row("  - nodeLabels: {" + alignLabel + ": " + value + "}\n")
		for who, got := range map[string][]string{
			"the other label": row("  - nodeLabels: {" + alignLabelToo + ": " + value + "}\n"),
			"the pod":         row("", annotation(numaAnnotation, `{"numaTopologyPolicy":"%s"}`, value)),
		} {
			if strings.Join(got, "|") != strings.Join(want, "|") {
				t.Errorf("%s by %s is %v, by the label %v", value, who, got, want)
			}
		}
		out.add(value, want...)
	}
	return out.String()
}

const twoNodes = "{grid: {sockets: 2, coresPerL3: 4, threadsPerCore: 2}}"

func alignments() []string {
	return []string{"None", "BestEffort", "Restricted", "SingleNUMANode"}
}

// halfFull owns CPUs 0-1 and 8-9 of two NUMA nodes of 8.
func halfFull() string {
	least := "  - nodeLabels: {node.koordinator.sh/numa-allocate-strategy: LeastAllocated}\n"
	return least + owner(2).step("a") + owner(2).step("b") +
		"  - nodeLabels: {node.koordinator.sh/numa-allocate-strategy: null}\n"
}

func saysTable(t *testing.T) string {
	out := newTable("the node \\ the pod", append([]string{"nothing"}, alignments()...)...)
	row := func(name, later string) {
		n := node{topology: twoNodes, before: halfFull() + later}
		cells := []string{n.outcome(t, owner(7), false)}
		for _, v := range alignments() {
			cells = append(cells, n.outcome(t, owner(7, annotation(numaAnnotation, `{"numaTopologyPolicy":"%s"}`, v)),
				false))
		}
		out.add(name, cells...)
	}
	row("nothing", "")
	for _, v := range alignments() {
		row("label "+v, "  - nodeLabels: {"+alignLabel+": "+v+"}\n")
	}
	for _, v := range []string{"none", "best-effort", "restricted", "single-numa-node"} {
		row("kubelet "+v, "  - kubeletConfig: {topologyManagerPolicy: "+v+"}\n")
	}
	row("label None, kubelet restricted", "  - kubeletConfig: {topologyManagerPolicy: restricted}\n  - nodeLabels: {"+
		alignLabel+": None}\n")
	row("label BestEffort, kubelet restricted",
		"  - kubeletConfig: {topologyManagerPolicy: restricted}\n  - nodeLabels: {"+alignLabel+": BestEffort}\n")
	return out.String()
}

func classTable(t *testing.T) string {
	out := newTable("label; Kubernetes' class", "kubelet none", "kubelet static")
	for _, class := range []string{"", "LSE", "LSR", "LS", "BE", "SYSTEM"} {
		for _, k := range []struct {
			name           string
			request, limit int
		}{
			{"Guaranteed, 2 CPUs", 2000, 2000}, {"Guaranteed, 1.5 CPUs", 1500, 1500},
			{"Burstable, 2 CPUs of no limit", 2000, 0}, {"BestEffort", 0, 0},
		} {
			p := pod{class: class, request: k.request, limit: k.limit}
			key := "default/pod"
			if class == "SYSTEM" {
				p.namespace, key = "kube-system", "kube-system/pod"
			}
			n := node{topology: "{grid: {sockets: 1, coresPerL3: 4, threadsPerCore: 2}}",
				config: `{reserved: {cpus: "0"}}`}
			static := n
			entry := ""
			if strings.HasPrefix(k.name, "Guaranteed, 2") {
				entry = key + `: {main: "4-5"}`
			}
			static.before = `  - kubeletState: {policyName: static, defaultCpuSet: "0-3,6-7", entries: {` + entry +
				"}}\n"
			first := class
			if class == "" {
				first = "—"
			}
			out.add(first+"; "+k.name, n.outcome(t, p, true), static.outcome(t, p, true))
		}
	}
	return out.String()
}
