package docs_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/doctext"
	"github.com/quietcore/quietcore/internal/promtest"
)

// TestCommands: every command of the pages is one that a test runs, or whose parts
// are checked here. `quietcore …` and `kubectl quietcore …` are run by cmd/quietcore
// (TestCommandsOfTheDocs), `helm …` by the test of the same name in hack/chart, which
// knows the names of the objects that a `kubectl …` asks for, too, and what is looked at
// in a release by hack/release. What needs a cluster, a registry or a machine of its own
// is held against what of it is ours: targets, packages, tests, labels; and against the
// flags that the pages may use of somebody else's program.
//
// A sentence's `make …` and `go …` are checked like commands of a block.
func TestCommands(t *testing.T) {
	n, used := 0, map[string]bool{}
	for _, p := range pages(t) {
		list := p.Commands()
		for _, s := range p.Spans {
			if strings.HasPrefix(s.Text, "make ") || strings.HasPrefix(s.Text, "go ") {
				list = append(list, doctext.Command{Page: p.Path, Text: s.Text, Line: s.Line})
			}
		}
		for _, c := range list {
			// Brackets around what may be left out are for people.
			c.Text = regexp.MustCompile(` \[-[^]]*\]`).ReplaceAllString(c.Text, "")
			calls, err := c.Calls()
			if err != nil {
				t.Error(err)
				continue
			}
			for _, call := range calls {
				n++
				for _, word := range call {
					used[word] = true
				}
				if err := check(call); err != nil {
					t.Errorf("%s: %v", c, err)
				}
			}
		}
	}
	if n < 100 {
		t.Errorf("only %d commands were found", n)
	}
	for name := range others {
		if !used[name] {
			t.Errorf("no page uses %s any more", name)
		}
	}
	inCI := made()
	for name := range byHand {
		if !used[name] || inCI[name] {
			t.Errorf(
				"make %s: used by a page %t, made by CI %t; the table of those that CI does not make is to go "+
					"without it", name, used[name], inCI[name])
		}
	}
}

// TestCheapCommands runs those that need neither a cluster nor minutes: make help and
// promtool.
func TestCheapCommands(t *testing.T) {
	here := func(name string, args ...string) string {
		t.Helper()
		c := exec.Command(name, args...)
		c.Dir = root
		out, err := c.CombinedOutput()
		if err != nil {
			t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	if help := here("make", "-s", "help"); !strings.Contains(help, "  test-fast ") ||
		!strings.Contains(help, "  release ") {
		t.Errorf("make help does not list the targets:\n%s", help)
	}
	rules := "charts/quietcore/rules/alerts.yaml"
	promtool, n := promtest.Tool(t, "promtool"), 0
	for _, p := range pages(t) {
		for _, s := range p.Spans {
			if args := strings.Fields(strings.Replace(s.Text, "FILE", rules, 1)); len(args) > 2 &&
				args[0] == "promtool" {
				here(promtool, args[1:]...)
				n++
			}
		}
	}
	if n < 2 {
		t.Errorf("only %d commands of promtool were found", n)
	}
}

func check(call []string) error {
	name, args := call[0], call[1:]
	switch name {
	case "quietcore", "bin/quietcore", "/quietcore":
		return nil
	case "sudo":
		return check(args)
	case "ssh": // HOST and what runs there, or a forwarded port
		if len(args) > 1 && args[0] != "-L" {
			return check(args[1:])
		}
	case "make":
		return makefile(args)
	case "go":
		return goTool(args)
	case "kubectl":
		return kubectl(args)
	case "helm":
		return nil // hack/chart runs these
	}
	known, ok := others[name]
	if !ok {
		return fmt.Errorf(
			"no test knows the program %s; add it to the table with the arguments that the pages need of it", name)
	}
	for i, a := range args {
		if a == "--" && i+1 < len(args) {
			return check(args[i+1:])
		}
		if !strings.HasPrefix(a, "-") || a == "-" {
			continue
		}
		if flag, _, _ := strings.Cut(a, "="); !slices.Contains(strings.Fields(known.flags), flag) {
			return fmt.Errorf("%s %s is not in the table of what the pages use", name, flag)
		}
	}
	if sub := strings.Fields(known.sub); len(sub) > 0 && !slices.ContainsFunc(args, func(a string) bool {
		return slices.Contains(sub, a)
	}) {
		return fmt.Errorf("%s is used with one of %q", name, sub)
	}
	return nil
}

// usage is what the pages may use of a program, and what it takes that no test has. With
// nothing of that, cmd/quietcore runs what is about the daemon.
type usage struct{ sub, flags, takes string }

// others are programs that are not ours and of which the pages use little; each
// word was looked up in the program's own manual.
var others = map[string]usage{
	"systemctl": {sub: "start stop restart", takes: "a node's systemd"},
	"ctr":       {sub: "images", flags: "-n --local", takes: "a node's containerd"},
	"k3s":       {sub: "ctr", takes: "a node of k3s"},
	"skopeo":    {sub: "copy", flags: "--all", takes: "a registry"},
	"cosign": {sub: "verify verify-attestation verify-blob verify-blob-attestation", flags: "--key --type --bundle " +
		"--certificate-identity --certificate-oidc-issuer", takes: "a release; hack/release trust runs them"},
	"oc":  {sub: "create debug label", takes: "a cluster of OpenShift"},
	"ssh": {flags: "-L", takes: "another machine"},
	"scp": {takes: "another machine"},
	"rm":  {takes: "kubelet's state on a node"},
	"ls":  {flags: "-l"}, "curl": {flags: "-s"}, "jq": {flags: "-c -r"}, "grep": {flags: "-E -i"},
	"head": {flags: "-n"}, "tail": {flags: "-n"},
}

// byHand are the targets that pages name and .ci/run does not make, and why.
var byHand = map[string]string{
	"help":                "TestCheapCommands runs it",
	"bench":               "measures; takes a machine of its own",
	"bench-vm":            "measures; takes a machine of its own",
	"bench-scheduler":     "measures; builds Kubernetes first",
	"scheduler":           "writes the binary; test-scheduler builds it, too",
	"image-scheduler":     "compiles Kubernetes' scheduler for two architectures; hack/image tests what makes it",
	"pmu-check":           "takes a PMU",
	"bound-cpi":           "takes minutes; cpi/experiment tests the same with fewer",
	"eval-cpi":            "writes figures; hack/evalcpi tests what makes them",
	"eval-reclaim":        "takes recorded traces",
	"test-flood":          "two minutes of what go test plays a second of",
	"test-fleet":          "500 daemons; e2e-kubernetes-smoke plays it with 20",
	"test-hostile":        "plays again what other targets test; e2e/hostile tests that each attack is one",
	"world":               "half an hour of what go test plays a few seeds of",
	"world-replay":        "minutes of what go test replays a few seeds of",
	"mutate":              "takes an hour; hack/mutate tests what it does",
	"campaign":            "plays tests again and writes a page; hack/campaign tests that what it names exists",
	"e2e":                 "takes hours",
	"e2e-runtimes":        "takes an hour and more",
	"e2e-kernels":         "takes the better part of an hour; test has the same on Linux 6.1",
	"e2e-kubernetes":      "test has the quick proofs",
	"test-counters":       "takes an emulated arm64; test has x86",
	"try-kernels":         "part of test-counters",
	"test-arm64":          "takes an emulated arm64; go test runs the same tests",
	"test-experiment":     "needs a host that nobody loads; test-interference plays the same circle",
	"test-proof":          "test has the quick proofs",
	"release":             "release-smoke makes two",
	"release-publish":     "takes a registry and an identity; release-trust plays it, and hack/release tests its parts",
	"release-trust":       "compiles cosign; hack/release tests its parts",
	"push":                "takes a registry; hack/release tests it with one",
	"release-twice":       "takes syft; release-smoke is its short form",
	"soak":                "hours; test plays some seconds of it",
	"corpus":              "follows a long fuzz; hack/corpus has tests",
	"vulncheck-scheduler": "vulncheck of the packages of Kubernetes: minutes",
	"quality-scheduler":   "test-scheduler plays 20 of its clusters",
	"load-scheduler":      "test-scheduler plays it with 120 pods",
	"e2e-random":          "the proof scheduler of e2e-kubernetes plays 30 of its pods",
	"e2e-soak":            "hours; e2e-kubernetes plays 48 of its pods",
	"demo-cluster":        "boots two guests beside a cluster; it is the proof scheduler of e2e/kubernetes",
	"e2e-scheduler":       "boots a guest beside a cluster, and builds the scheduler's image first",
	"changelog":           "writes; hack/release tests it",
}

// made are the targets that .ci/run makes, with what they need.
func made() map[string]bool {
	needs, all := map[string][]string{}, map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z0-9 -]+):([a-z0-9 -]*)`).FindAllStringSubmatch(read("Makefile"),
		-1) {
		for _, target := range strings.Fields(m[1]) {
			needs[target] = append(needs[target], strings.Fields(m[2])...)
		}
	}
	var add func(name string)
	add = func(name string) {
		all[name] = true
		for _, n := range needs[name] {
			add(n)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^part .*\bmake ([a-z0-9-]+)`).FindAllStringSubmatch(read(".ci/run"), -1) {
		add(m[1])
	}
	return all
}

func read(name string) string {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		panic(err) // a file that these tests name is gone or was renamed
	}
	return string(text)
}

// makefile checks targets and variables; CI makes the target, or it is said why not.
func makefile(args []string) error {
	text, inCI := read("Makefile"), made()
	for _, a := range args {
		name, _, isVariable := strings.Cut(a, "=")
		switch {
		case isVariable && !strings.Contains(text, "$("+name+")") && !strings.Contains(text, "$(if $("+name+")"):
			return fmt.Errorf("the Makefile reads no variable %s", name)
		case !isVariable && !regexp.MustCompile(`(?m)^[a-z0-9 -]*\b`+regexp.QuoteMeta(name)+
			`\b[a-z0-9 -]*:`).MatchString(text):
			return fmt.Errorf("the Makefile has no target %s", name)
		case !isVariable && !inCI[name] && byHand[name] == "":
			return fmt.Errorf(".ci/run does not make %s, and no table says why", name)
		}
	}
	return nil
}

// goTool checks packages, names of tests and flags of our own programs.
func goTool(args []string) error {
	if len(args) == 0 || !slices.Contains([]string{"run", "test", "build", "generate", "doc", "vet", "get", "tool"},
		args[0]) {
		return fmt.Errorf("go %q is not used by the pages", args)
	}
	dir := ""
	for i, a := range args {
		if strings.HasPrefix(a, "./") && !strings.HasSuffix(a, "/...") {
			dir = a
			if info, err := os.Stat(filepath.Join(root, a)); err != nil || !info.IsDir() {
				return fmt.Errorf("there is no package %s", a)
			}
			if args[0] == "run" {
				return ownFlags(a, args[i+1:])
			}
		}
	}
	for i, a := range args[:len(args)-1] {
		if a != "-run" && a != "-bench" && a != "-fuzz" || dir == "" {
			continue
		}
		for _, pattern := range strings.Split(strings.Trim(args[i+1], "'\"^$"), "|") {
			if pattern != "." && !declares(dir, pattern) {
				return fmt.Errorf("%s has no test %s", dir, pattern)
			}
		}
	}
	return nil
}

func sources(dir string) string {
	var text strings.Builder
	// what cannot be read says nothing
	_ = filepath.WalkDir(filepath.Join(root, dir), func(name string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, ".go") {
			b, _ := os.ReadFile(name)
			text.Write(b)
		}
		return nil
	})
	return text.String()
}

func declares(dir, pattern string) bool {
	return regexp.MustCompile(`func (Test|Benchmark|Fuzz)\w*` +
		regexp.QuoteMeta(strings.TrimPrefix(strings.TrimPrefix(pattern, "Test"), "Fuzz")) +
		`\w*\(`).MatchString(sources(dir))
}

func ownFlags(dir string, args []string) error {
	text := sources(dir)
	for _, a := range args {
		if name, _, _ := strings.Cut(strings.TrimLeft(a, "-"), "="); strings.HasPrefix(a, "-") &&
			!strings.Contains(text, `"`+name+`"`) {
			return fmt.Errorf("%s has no flag -%s", dir, name)
		}
	}
	return nil
}

// kubectlFlags are, by subcommand, the flags that the pages may use, since running them
// takes a cluster; from the reference of kubectl 1.36.
var kubectlFlags = map[string]string{
	"get": "-o -w -A --sort-by -l --field-selector", "describe": "", "logs": "--previous --tail -l -c --since",
	"exec": "-it -c", "apply": "-f --server-side", "create": "-f", "delete": "-l --ignore-not-found",
	"label": "--overwrite", "annotate": "--overwrite -l", "patch": "--subresource --type -p", "port-forward": "",
	"cordon": "", "uncordon": "", "drain": "--ignore-daemonsets --delete-emptydir-data",
	"rollout": "", "run": "", "auth": "--as --list", "cp": "", "wait": "--for --timeout",
	"create role": "--verb --resource", "create rolebinding": "--role --serviceaccount", "create namespace": "",
	"top": "", "events": "--for", "taint": "", "debug": "-it --image",
}

func kubectl(args []string) error {
	sub := ""
	var flags []string
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case a == "--":
			i = len(args)
		case a == "-n" || a == "--namespace":
			i++
		case strings.HasPrefix(a, "-") && a != "-":
			name, _, _ := strings.Cut(a, "=")
			flags = append(flags, name)
		case sub == "":
			sub = a
		case sub == "create" && (a == "role" || a == "rolebinding" || a == "namespace"):
			sub += " " + a
		case (sub == "label" || sub == "annotate") && strings.Contains(a, "/"):
			if err := ourKey(a); err != nil {
				return err
			}
		}
	}
	if sub == "quietcore" {
		return nil // cmd/quietcore runs these
	}
	known, ok := kubectlFlags[sub]
	if !ok {
		return fmt.Errorf("kubectl %s is not in the table of what the pages use", sub)
	}
	for _, f := range flags {
		if !slices.Contains(strings.Fields(known), f) {
			return fmt.Errorf("kubectl %s %s is not in the table of what the pages use", sub, f)
		}
	}
	return nil
}

// ourKey: a label or annotation that a page sets is one that the code or the chart
// reads, or one of Kubernetes' own.
func ourKey(assignment string) error {
	key, _, _ := strings.Cut(assignment, "=")
	key = strings.TrimSuffix(key, "-")
	if strings.HasPrefix(key, "pod-security.kubernetes.io/") || strings.HasPrefix(key, "node-role.kubernetes.io/") ||
		strings.HasPrefix(key, "openshift.io/") {
		return nil
	}
	prefix, name, _ := strings.Cut(key, "/")
	// The policy of the chart names labels of namespaces without their prefix; a label of
	// nodes is one that the same page has the chart select by.
	known := read("policy/intent.go") + read("docs/configuration.md") + read("docs/migrating.md") +
		read("internal/kube/client.go")
	if strings.Contains(known, `"`+key+`"`) || prefix == "quietcore.dev" &&
		strings.Contains(read("charts/quietcore/templates/policy-claims.yaml"), `"label" "`+name+`"`) {
		return nil
	}
	return fmt.Errorf("nothing reads the label or annotation %s", key)
}

// TestRangesAreDocumented: the range that docs/configuration.md gives a number or a
// duration is the one that is enforced: both ends are taken, and what is beyond is not.
func TestRangesAreDocumented(t *testing.T) {
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| `([^`]*)` \\| (.+) \\|$")
	closed := regexp.MustCompile(`(?:^|[ :(])(\d[\w.]*) (?:\(\w+\) )?to (\d[\w.]*)`)
	number := regexp.MustCompile(`^[0-9.]+(ms|s|m|h)?$`)
	bounded := regexp.MustCompile(`\d[\w.]* .*\bto \w|\bfrom .* to |\d[\w.]* or more|[Pp]ercent|above \d`)
	n := 0
	for _, m := range row.FindAllStringSubmatch(read("docs/configuration.md"), -1) {
		key, text := m[1], m[3]
		if number.MatchString(m[2]) && !bounded.MatchString(text) {
			t.Errorf("%s is a number, and the page gives no range", key)
		}
		ends := closed.FindStringSubmatch(text)
		if ends == nil || key == "nri.name" || key == "authority.exclusive.maxCPUs" {
			continue // their ranges are of letters, of each entry
		}
		n++
		for _, end := range ends[1:] {
			end = strings.TrimRight(end, ".,;:")
			if err := set(key, end); err != nil {
				t.Errorf("%s: the page says that %s is in its range: %v", key, end, err)
			}
		}
		if err := set(key, beyond(strings.TrimRight(ends[2], ".,;:"))); err == nil {
			t.Errorf("%s: the page says that it is at most %s, and more is taken", key, ends[2])
		}
		if err := set(key, "-1"); err == nil {
			t.Errorf("%s: -1 is taken", key)
		}
	}
	if n < 15 {
		t.Errorf("only %d ranges were found", n)
	}
}

// set is the verdict on a configuration with this key alone; others that have to be
// larger or smaller go with it.
func set(key, value string) error {
	doc := "apiVersion: " + config.APIVersion + "\n"
	depth := ""
	keys := strings.Split(key, ".")
	for _, k := range keys[:len(keys)-1] {
		doc += depth + k + ":\n"
		depth += "  "
	}
	doc += depth + keys[len(keys)-1] + ": " + value + "\n"
	if value != "-1" {
		for _, with := range append(company[key], company[key+"="+value]...) {
			doc += depth + with + "\n"
		}
	}
	_, err := config.Parse([]byte(doc))
	return err
}

// company is what has to stand beside a key at the ends of its range.
var company = map[string][]string{
	"cpi.interval": {"window: 100ms"},
	"cpi.interval=1h": {"outlierWindow: 1h", "scoreWindow: 1h", "history: 1h", "specEvery: 1h",
		"capFor: 1h", "moveFor: 1h"},
	"cpi.specs.prometheus.period": {"maxAge: 168h"},
}

func beyond(end string) string {
	number := strings.TrimRight(end, "hmsn")
	var f float64
	if _, err := fmt.Sscan(number, &f); err != nil {
		return end
	}
	return fmt.Sprint(f+1) + strings.TrimPrefix(end, number)
}

// TestReloadIsDocumented: the line *Reload* above a table of docs/configuration.md says
// of each of its keys whether a running daemon takes a change over.
func TestReloadIsDocumented(t *testing.T) {
	var all config.Config
	fill(reflect.ValueOf(&all).Elem())
	restart := config.NeedsRestart(&config.Config{}, &all)
	needs := func(key string) bool {
		return slices.ContainsFunc(restart, func(r string) bool { return key == r || strings.HasPrefix(key, r+".") })
	}
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")
	line := regexp.MustCompile(`(?s)\n\*Reload\*: (.*?)\n\n`)
	named := regexp.MustCompile("`([^`]+)`")
	n := 0
	for _, section := range strings.Split(read("docs/configuration.md"), "\n## ")[1:] {
		says := line.FindStringSubmatch(section)
		if says == nil {
			t.Errorf("the section %.30q has no line *Reload*", section)
			continue
		}
		var listed []string
		for _, m := range named.FindAllStringSubmatch(says[1], -1) {
			listed = append(listed, m[1])
		}
		for _, m := range row.FindAllStringSubmatch(section, -1) {
			n++
			taken := strings.HasPrefix(says[1], "all") != slices.Contains(listed, m[1])
			if m[1] != "apiVersion" && m[1] != "kind" && taken == needs(m[1]) {
				t.Errorf("%s: the page says %q; a change needs a restart: %v", m[1], says[1], needs(m[1]))
			}
		}
	}
	if n < 100 || len(restart) < 15 {
		t.Errorf("%d keys, %d of them need a restart", n, len(restart))
	}
}

// fill makes every field that it can something else than it is at first.
func fill(v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Struct:
			if f.NumField() > 0 && f.Type().Field(0).IsExported() {
				fill(f)
			}
		case reflect.String:
			f.SetString("x")
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Int, reflect.Int64:
			f.SetInt(1)
		case reflect.Uint8, reflect.Uint32, reflect.Uint64:
			f.SetUint(1)
		case reflect.Float64:
			f.SetFloat(1)
		}
	}
}

// TestKeysOfThePages: a key of the configuration or a value of the chart that a
// sentence names is one.
func TestKeysOfThePages(t *testing.T) {
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")
	keys := map[string]bool{}
	sections := map[string]bool{}
	for _, m := range row.FindAllStringSubmatch(read("docs/configuration.md"), -1) {
		parts := strings.Split(m[1], ".")
		sections[parts[0]] = true
		for i := range parts {
			keys[strings.Join(parts[:i+1], ".")] = true
		}
	}
	findings := map[string]bool{}
	for _, m := range row.FindAllStringSubmatch(read("docs/doctor.md"), -1) {
		findings[m[1]] = true
	}
	var chart map[string]any
	if err := yaml.Unmarshal([]byte(read("charts/quietcore/values.yaml")), &chart); err != nil {
		t.Fatal(err)
	}
	dotted := regexp.MustCompile(`^(config\.)?([a-z][a-zA-Z]*(?:\.[a-z][a-zA-Z]*)+)(?:$|[:=])`)
	// files, domains, and a name of OpenTelemetry's
	others := regexp.MustCompile(
		`^(dra\.cpu|log\.record\.uid|cgroup\.(procs|controllers|events|type|subtree_control)|` +
			`\w+\.(json|yaml|txt|csv|db|sock|go|jsonl|service|slice|io|dev))$`)
	n := 0
	for _, p := range pages(t) {
		for _, span := range p.Spans {
			m := dotted.FindStringSubmatch(span.Text)
			if m == nil || m[1] == "" && !sections[strings.SplitN(m[2], ".", 2)[0]] || findings[m[2]] ||
				findings["config."+m[2]] || others.MatchString(m[2]) {
				continue
			}
			n++
			if keys[m[2]] || m[1] == "" && inChart(chart, strings.Split(m[2], ".")) {
				continue
			}
			t.Errorf("%s:%d: `%s` is neither a key of docs/configuration.md nor a value of the chart", p.Path,
				span.Line, span.Text)
		}
	}
	if n < 100 {
		t.Errorf("only %d keys were found", n)
	}
}

func inChart(values map[string]any, path []string) bool {
	v, ok := values[path[0]]
	if below, isMap := v.(map[string]any); ok && isMap && len(path) > 1 && len(below) > 0 {
		return inChart(below, path[1:])
	}
	return ok
}
