package docs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v3"
	admission "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	resource "k8s.io/api/resource/v1"
	kubeyaml "sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/doctext"
	"github.com/quietcore/quietcore/internal/dra"
	"github.com/quietcore/quietcore/internal/rollout"
	"github.com/quietcore/quietcore/internal/script"
)

const root = ".."

func pages(t *testing.T) []doctext.Page {
	t.Helper()
	list, err := doctext.Pages(root)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestLinks: every link inside of the repository leads to a file, and to a heading
// where it names one.
func TestLinks(t *testing.T) {
	anchors := map[string]map[string]bool{}
	for _, p := range pages(t) {
		anchors[p.Path] = p.Anchors
	}
	for _, p := range pages(t) {
		for _, l := range p.Links {
			file, anchor, inside := doctext.Target(p.Path, l.Text)
			if !inside {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(file))); err != nil {
				t.Errorf("%s:%d: %s leads nowhere: %v", p.Path, l.Line, l.Text, err)
				continue
			}
			if known, isPage := anchors[file]; anchor != "" && isPage && !known[anchor] {
				t.Errorf("%s:%d: %s has no heading #%s; it has %s", p.Path, l.Line, file, anchor,
					strings.Join(slices.Sorted(maps.Keys(known)), ", "))
			}
		}
	}
}

// TestBlocks: every fenced block is of a kind that some test holds.
func TestBlocks(t *testing.T) {
	for _, p := range pages(t) {
		for _, b := range p.Blocks {
			language, _, _ := strings.Cut(b.Info, " ")
			switch {
			case b.IsShell(), language == "text", strings.HasPrefix(b.Text, "quietcore top - "),
				strings.ContainsAny(b.Text, "─│"):
				// Commands are TestCommands' and cmd/quietcore's; text is what a program printed, a formula
				// or a drawing.
			case language == "yaml":
				if err := sample(b); err != nil {
					t.Errorf("%s:%d: %v", p.Path, b.Line, err)
				}
			case language == "json":
				if !json.Valid([]byte(b.Text)) {
					t.Errorf("%s:%d: that is no JSON", p.Path, b.Line)
				}
			case language == "toml":
				if err := runtimeConfig(b.Text); err != nil {
					t.Errorf("%s:%d: %v", p.Path, b.Line, err)
				}
			case language == "sql":
				if !strings.Contains(b.Text, "incidents.parquet") {
					t.Errorf("%s:%d: SQL that is not about exported incidents", p.Path, b.Line)
				}
			case language == "promql", strings.Contains(b.Text, "quietcore_"):
				if err := metricsExist(b.Text); err != nil {
					t.Errorf("%s:%d: %v", p.Path, b.Line, err)
				}
			default:
				t.Errorf(
					"%s:%d: nothing holds a block of the language %q that begins with %.40q; mark it sh, console, "+
						"yaml, json, toml, promql or text", p.Path, b.Line, b.Info, b.Text)
			}
		}
	}
}

// sample checks one block of YAML: a script is played, a configuration decoded as
// the daemon does, values are keys of the chart, pods are put on a node, and other
// objects decoded strictly.
func sample(b doctext.Block) error {
	for _, text := range regexp.MustCompile(`(?m)^---\n`).Split(b.Text, -1) {
		var doc map[string]any
		if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
			return err
		}
		if err := document(text, doc); err != nil {
			return err
		}
	}
	return nil
}

// nodePolicy reads a QuietcorePolicy as a daemon does whose file says nothing.
func nodePolicy(text string) error {
	var o struct {
		Spec json.RawMessage `json:"spec"`
	}
	if err := kubeyaml.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	p := rollout.ReadPolicy("p", 1, o.Spec)
	if p.Bad != "" {
		return errors.New(p.Bad)
	}
	file := config.Default()
	_, err := file.With(p.Config)
	return err
}

func document(text string, doc map[string]any) error {
	kind, _ := doc["kind"].(string)
	switch {
	case doc["steps"] != nil:
		_, err := play(text)
		return err
	case kind == "QuietcorePolicy":
		return nodePolicy(text)
	case doc["apiVersion"] == config.APIVersion:
		_, err := config.Parse([]byte(text))
		return err
	case doc["rule_files"] != nil:
		return ruleFiles(doc)
	case kind == "":
		if doc["metadata"] != nil {
			return pod(text)
		}
		return values(doc)
	case kind == "Pod":
		return pod(text)
	case kind == "Deployment":
		var d apps.Deployment
		if err := kubeyaml.UnmarshalStrict([]byte(text), &d); err != nil {
			return err
		}
		return accepted(d.Name, d.Spec.Template.ObjectMeta.Labels, d.Spec.Template.Annotations, d.Spec.Template.Spec)
	case kind == "ResourceClaimTemplate":
		return claimTemplate(text)
	case kind == "KubeletConfiguration":
		return kubelet(doc)
	case kind == "MachineConfig":
		return machineConfig(doc)
	}
	into, known := map[string]any{
		"Role": &rbac.Role{}, "RoleBinding": &rbac.RoleBinding{}, "Namespace": &core.Namespace{},
		"ConfigMap":                        &core.ConfigMap{},
		"ValidatingAdmissionPolicy":        &admission.ValidatingAdmissionPolicy{},
		"ValidatingAdmissionPolicyBinding": &admission.ValidatingAdmissionPolicyBinding{},
	}[kind]
	if !known {
		return fmt.Errorf("no test knows the kind %q", kind)
	}
	return kubeyaml.UnmarshalStrict([]byte(text), into)
}

// claimTemplate decodes a template, and its parameters as the driver does.
func claimTemplate(text string) error {
	var c resource.ResourceClaimTemplate
	if err := kubeyaml.UnmarshalStrict([]byte(text), &c); err != nil {
		return err
	}
	for _, own := range c.Spec.Spec.Devices.Config {
		if own.Opaque.Driver != dra.DriverName {
			return fmt.Errorf("parameters for driver %s", own.Opaque.Driver)
		}
		if _, err := dra.ParseParameters(own.Opaque.Parameters.Raw); err != nil {
			return err
		}
	}
	return nil
}

// pod puts a pod, or the part of one, on an empty machine.
func pod(text string) error {
	var p core.Pod
	if err := kubeyaml.UnmarshalStrict([]byte(text), &p); err != nil {
		return err
	}
	return accepted(p.Name, p.Labels, p.Annotations, p.Spec)
}

const machine = "topology: {grid: {sockets: 2, coresPerL3: 16, threadsPerCore: 2}}\nnode: {name: node-a}\nsteps:\n  " +
	"- create: "

// accepted fails where the pod is refused or an Event would complain about it.
func accepted(name string, labels, annotations map[string]string, spec core.PodSpec) error {
	if name == "" {
		name = "sample"
	}
	create := script.Create{Pod: name, Labels: labels, Annotations: annotations}
	add := func(kind script.Kind, c core.Container) {
		create.Containers = append(create.Containers, script.Container{
			Name: c.Name, Kind: kind, RequestMilli: c.Resources.Requests.Cpu().MilliValue(),
			LimitMilli: c.Resources.Limits.Cpu().MilliValue(),
		})
	}
	for _, c := range spec.InitContainers {
		kind := script.Init
		if c.RestartPolicy != nil && *c.RestartPolicy == core.ContainerRestartPolicyAlways {
			kind = script.Sidecar
		}
		add(kind, c)
	}
	for _, c := range spec.Containers {
		add(script.App, c)
	}
	step, err := json.Marshal(create)
	if err != nil {
		return err
	}
	line, err := play(machine + string(step) + "\n")
	if err != nil {
		return err
	}
	var shown bytes.Buffer
	if err := line.WriteText(&shown, false); err != nil {
		return err
	}
	if line.Error != nil || strings.Contains(shown.String(), "\n  ! ") {
		return fmt.Errorf("the pod is not taken as it is:\n%s", shown.String())
	}
	return nil
}

// play plays a script and returns its last line; docs/semantics is compared
// with what it prints by internal/script.
func play(text string) (last script.Line, err error) {
	f, err := script.Parse([]byte(text))
	if err != nil {
		return last, err
	}
	topo, _, err := f.Topology.Build(func(dir string) (fs.FS, error) { return os.DirFS(dir), nil })
	if err != nil {
		return last, err
	}
	player, err := script.NewPlayer(f, topo)
	if err != nil {
		return last, err
	}
	for _, s := range f.Steps {
		if last, err = player.Play(s); err != nil {
			return last, err
		}
	}
	return last, nil
}

// values checks a part of the chart's values: every key is one of the chart, and
// what is below config is a configuration.
func values(doc map[string]any) error {
	text, err := os.ReadFile(filepath.Join(root, "charts", "quietcore", "values.yaml"))
	if err != nil {
		return err
	}
	var all map[string]any
	if err := yaml.Unmarshal(text, &all); err != nil {
		return err
	}
	if c, ok := doc["config"].(map[string]any); ok {
		whole := maps.Clone(c)
		whole["apiVersion"] = config.APIVersion
		text, err := yaml.Marshal(whole)
		if err != nil {
			return err
		}
		if _, err := config.Parse(text); err != nil {
			return fmt.Errorf("config: %w", err)
		}
	}
	return within(doc, all, "")
}

// within says which keys of part are not those of all. A map that is empty in all
// takes any keys; config has been checked.
func within(part, all map[string]any, path string) error {
	for _, key := range slices.Sorted(maps.Keys(part)) {
		known, ok := all[key]
		if !ok {
			return fmt.Errorf("the chart has no value %s%s", path, key)
		}
		below, isMap := known.(map[string]any)
		given, alsoMap := part[key].(map[string]any)
		if isMap && alsoMap && len(below) > 0 {
			if err := within(given, below, path+key+"."); err != nil {
				return err
			}
		}
	}
	return nil
}

// ruleFiles checks a piece of Prometheus' configuration: the rules are ours.
func ruleFiles(doc map[string]any) error {
	files, _ := doc["rule_files"].([]any)
	for _, f := range files {
		if found, err := filepath.Glob(filepath.Join(root, "charts", "quietcore", "rules",
			filepath.Base(fmt.Sprint(f)))); err != nil || len(found) == 0 {
			return fmt.Errorf("charts/quietcore/rules has no %v", f)
		}
	}
	return nil
}

// kubelet checks the keys of kubelet's configuration that the pages write about.
func kubelet(doc map[string]any) error {
	known := []string{"apiVersion", "kind", "cpuManagerPolicy", "cpuManagerPolicyOptions", "reservedSystemCPUs",
		"topologyManagerPolicy", "topologyManagerScope", "cgroupDriver"}
	for key := range doc {
		if !slices.Contains(known, key) {
			return fmt.Errorf("kubelet's key %q is in no table of these pages: %q are", key, known)
		}
	}
	return nil
}

// machineConfig checks the file in one of OpenShift's: it is CRI-O's configuration.
func machineConfig(doc map[string]any) error {
	text, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	var m struct {
		Spec struct {
			Config struct {
				Storage struct {
					Files []struct {
						Path     string
						Contents struct{ Source string }
					}
				}
			}
		}
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}
	for _, f := range m.Spec.Config.Storage.Files {
		if !strings.HasPrefix(f.Path, "/etc/crio/crio.conf.d/") {
			return fmt.Errorf("%s is not where CRI-O reads", f.Path)
		}
		// A data URL of RFC 2397, percent-encoded, as people can read it.
		plain, isData := strings.CutPrefix(f.Contents.Source, "data:,")
		plain, err := url.PathUnescape(plain)
		if err != nil || !isData {
			return fmt.Errorf("%.40q is no data URL: %v", f.Contents.Source, err)
		}
		if err := runtimeConfig(plain); err != nil {
			return err
		}
	}
	if len(m.Spec.Config.Storage.Files) == 0 {
		return fmt.Errorf("there is no file in it")
	}
	return nil
}

// runtimeConfig checks a piece of containerd's or CRI-O's configuration.
func runtimeConfig(text string) error {
	var doc struct {
		Version int
		Plugins struct {
			NRI struct {
				Disable             *bool
				DisableConnections  *bool  `toml:"disable_connections"`
				RequestTimeout      string `toml:"plugin_request_timeout"`
				RegistrationTimeout string `toml:"plugin_registration_timeout"`
				Validator           struct {
					Enable   bool
					Required []string `toml:"required_plugins"`
					Tolerate string   `toml:"tolerate_missing_plugins_annotation"`
				} `toml:"default_validator"`
			} `toml:"io.containerd.nri.v1.nri"`
		}
		CRIO struct {
			NRI struct {
				Enable              *bool  `toml:"enable_nri"`
				RequestTimeout      string `toml:"nri_plugin_request_timeout"`
				RegistrationTimeout string `toml:"nri_plugin_registration_timeout"`
			}
		} `toml:"crio"`
	}
	text = strings.ReplaceAll(text, "{{ template \"base\" . }}\n", "") // of k3s' template
	if err := toml.NewDecoder(strings.NewReader(text)).DisallowUnknownFields().Decode(&doc); err != nil {
		var strict *toml.StrictMissingError
		if errors.As(err, &strict) {
			return fmt.Errorf("keys that the runtimes do not have: %s", strict.String())
		}
		return err
	}
	return nil
}

var metricName = regexp.MustCompile(`\bquietcore_[a-z0-9_]+`)

// metricsExist looks the metrics of a text up in the catalogue.
func metricsExist(text string) error {
	catalogue := read("docs/metrics.md")
	for _, name := range metricName.FindAllString(text, -1) {
		base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		if !strings.Contains(catalogue, "`"+name+"`") && !strings.Contains(catalogue, "`"+base+"`") {
			return fmt.Errorf("docs/metrics.md has no metric %s", name) // recording rules have colons
		}
	}
	return nil
}

// TestMetricsOfThePages: a metric that a page names is one of the catalogue.
func TestMetricsOfThePages(t *testing.T) {
	for _, p := range pages(t) {
		for _, s := range p.Spans {
			if strings.HasPrefix(s.Text, "quietcore_") && !strings.ContainsAny(s.Text, "*…") {
				if err := metricsExist(s.Text); err != nil {
					t.Errorf("%s:%d: %v", p.Path, s.Line, err)
				}
			}
		}
	}
}

// goesOn is where a literal is broken into two lines.
var goesOn = regexp.MustCompile("[\"`] ?\\+\\n\\s*[\"`]")

// TestQuotations: what the pages of troubleshooting say that a program prints is in the
// program. `…` stands for what differs; a literal that goes on in the next line is one.
func TestQuotations(t *testing.T) {
	printed := read("docs/doctor.md")
	for _, dir := range []string{"cmd", "cpuallocator", "internal", "plugin", "policy"} {
		printed += sources(dir)
	}
	printed = goesOn.ReplaceAllString(printed, "")
	n := 0
	blocks := slices.Concat(pageOf(t, "docs/troubleshooting.md").Blocks,
		pageOf(t, "docs/troubleshooting-daemon.md").Blocks)
	for _, b := range blocks {
		if b.Info != "text" {
			continue
		}
		for i, line := range strings.Split(strings.TrimSpace(b.Text), "\n") {
			code, rest, _ := strings.Cut(line, ": ")
			if !strings.Contains(code, " ") {
				line = code + "…" + rest // a code and its sentence come from two places
			}
			for _, part := range regexp.MustCompile(`…|  +`).Split(line, -1) {
				if part = strings.TrimLeft(part, " :,;"); len(part) < 4 {
					continue
				}
				n++
				if !strings.Contains(printed, strings.TrimSpace(part)) {
					t.Errorf("%s:%d: nothing says %q", b.Page, b.Line+i, part)
				}
			}
		}
	}
	if n < 40 {
		t.Errorf("only %d pieces were found", n)
	}
}

func pageOf(t *testing.T, name string) doctext.Page {
	t.Helper()
	for _, p := range pages(t) {
		if p.Path == name {
			return p
		}
	}
	t.Fatalf("there is no page %s", name)
	return doctext.Page{}
}

// TestArchitectureNamesEveryPackage: who looks for something finds it on the page.
func TestArchitectureNamesEveryPackage(t *testing.T) {
	page := read("docs/architecture.md")
	for _, top := range []string{"cmd", "cpi", "cpuallocator", "internal", "plugin", "policy", "reclaim", "sysfs",
		"topology"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(name string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			if d.Name() == "testdata" {
				return filepath.SkipDir
			}
			files, err := filepath.Glob(filepath.Join(name, "*.go"))
			rel, _ := filepath.Rel(root, name)
			if dir := filepath.ToSlash(rel); len(files) > 0 && !strings.HasSuffix(dir, "test") &&
				!strings.Contains(page, dir) {
				t.Errorf("docs/architecture.md does not name %s", dir)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
