package chart

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/release"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"

	"github.com/quietcore/quietcore/internal/doctext"
)

const repo = "../.."

// TestCommandsOfTheDocs runs every `helm …` of the pages as it stands there, by Helm's own
// program and in the order of the page, so that an upgrade reuses the values of the
// installation before it. In place of the cluster is a server that knows of no object;
// Helm keeps releases in memory, and then sends no object anywhere. What a `kubectl …` asks
// of the chart's objects is among those that were installed last.
func TestCommandsOfTheDocs(t *testing.T) {
	pages, err := doctext.Pages(repo)
	if err != nil {
		t.Fatal(err)
	}
	modules, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	h := newHelm(t)
	n := 0
	for _, p := range pages {
		for _, s := range p.Spans {
			if _, version, ok := strings.Cut(s.Text, "go run helm.sh/helm/v3/cmd/helm@"); ok &&
				!strings.Contains(string(modules), "helm.sh/helm/v3 "+version+"\n") {
				t.Errorf("%s:%d: Helm %s is not the one that was tried here", p.Path, s.Line, version)
			}
		}
		for _, c := range commandsOf(p) {
			calls, err := c.Calls()
			if err != nil {
				t.Error(err)
			}
			for _, words := range calls {
				if words[0] == "kubectl" {
					h.asked(t, c, words)
				}
				if words[0] != "helm" {
					continue
				}
				n++
				if i := slices.Index(words, "…"); i > 0 {
					words = slices.Delete(words, i-1, i+1) // any values, so none
				}
				h.run(t, c, words[1:])
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d commands were found", n)
	}
}

// commandsOf are the commands of a page, those spans of it that name the chart, and those
// that are flags for it, by line. `helm unittest` is TestHelmUnittest's.
func commandsOf(p doctext.Page) []doctext.Command {
	list := p.Commands()
	for _, s := range p.Spans {
		switch text := s.Text; {
		case strings.HasPrefix(text, "helm unittest"):
		case strings.HasPrefix(text, "helm ") && strings.Contains(text, " charts/quietcore"),
			strings.HasPrefix(text, "helm ") && strings.Contains(text, " oci://REGISTRY/charts/quietcore"):
			list = append(list, doctext.Command{Page: p.Path, Text: text, Line: s.Line})
		case strings.HasPrefix(text, "--set") && strings.Contains(text, "="),
			strings.HasPrefix(text, "--api-versions "):
			list = append(list, doctext.Command{Page: p.Path,
				Text: "helm template quietcore charts/quietcore --kube-version 1.36 " + text, Line: s.Line})
		}
	}
	slices.SortStableFunc(list, func(a, b doctext.Command) int { return a.Line - b.Line })
	return list
}

// helm is Helm with a cluster without objects.
type helm struct {
	program, releases string
	env               []string
	installed         []runtime.Object
	scheduler         []runtime.Object // that the chart adds where it is asked to
}

func newHelm(t *testing.T) *helm {
	t.Helper()
	dir := t.TempDir()
	h := &helm{program: filepath.Join(dir, "helm"), releases: filepath.Join(dir, "releases")}
	if out, err := exec.Command("go", "build", "-o", h.program,
		"helm.sh/helm/v3/cmd/helm").CombinedOutput(); err != nil {
		t.Fatalf("build Helm: %v\n%s", err, out)
	}
	h.env = append(os.Environ(), "HOME="+dir, "KUBECONFIG="+os.DevNull, "HELM_KUBEAPISERVER="+cluster(t),
		"HELM_DRIVER=memory", "HELM_MEMORY_DRIVER_DATA="+h.releases)
	h.keep(t)
	_, h.scheduler = ofScheduler(t, withScheduler)
	return h
}

// cluster answers what Helm asks before it renders: the version, the kinds, and whether
// the CRD is there already.
func cluster(t *testing.T) string {
	t.Helper()
	type object = map[string]any
	var groups []any
	answers := map[string]object{
		"/version": {"major": "1", "minor": "36", "gitVersion": "v1.36.0"},
		"/api":     {"kind": "APIVersions", "versions": []string{"v1"}},
		"/api/v1":  {"kind": "APIResourceList", "groupVersion": "v1", "resources": []any{}},
	}
	for _, kind := range append([]string{"apiextensions.k8s.io/v1/CustomResourceDefinition"}, monitoring...) {
		gv, kind := path.Dir(kind), path.Base(kind)
		at := "/apis/" + gv
		if answers[at] == nil {
			answers[at] = object{"kind": "APIResourceList", "groupVersion": gv, "resources": []any{}}
			groups = append(groups, object{"name": path.Dir(gv),
				"versions": []any{object{"groupVersion": gv, "version": path.Base(gv)}}})
		}
		answers[at]["resources"] = append(answers[at]["resources"].([]any),
			object{"name": strings.ToLower(kind) + "s", "kind": kind, "verbs": []string{"get"}})
	}
	answers["/apis"] = object{"kind": "APIGroupList", "groups": groups}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		w.Header().Set("Content-Type", "application/json")
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			answer = object{"kind": "Status", "status": "Failure", "reason": "NotFound", "code": http.StatusNotFound}
		}
		_ = json.NewEncoder(w).Encode(answer) // Helm complains about what it did not get
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func (h *helm) keep(t *testing.T, releases ...*release.Release) {
	t.Helper()
	text, err := json.Marshal(releases)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.releases, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// run runs one command. What it installs has to be of known kinds, and the daemon has to
// take its configuration; the release is there for the next command.
func (h *helm) run(t *testing.T, c doctext.Command, args []string) {
	t.Helper()
	releases := args[0] == "install" || args[0] == "upgrade"
	for i, a := range args { // hack/release pulls it from a registry
		if a == "oci://REGISTRY/charts/quietcore" {
			args[i] = "charts/quietcore"
		}
	}
	if args[0] == "install" {
		h.keep(t) // another page's, or another way on the same
	}
	if releases {
		args = append(args, "--output", "json")
	}
	cmd := exec.Command(h.program, args...)
	cmd.Dir, cmd.Env = repo, h.env
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil || out.Len() == 0 {
		t.Errorf("%s: %v, and prints %q\n%s", c, err, &out, &errs)
		return
	}
	manifest := out.String()
	if releases {
		var r release.Release
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			t.Errorf("%s: %v", c, err)
			return
		}
		manifest = r.Manifest
		h.keep(t, &r)
	}
	t.Logf("%s: %d bytes", c, len(manifest))
	switch args[0] {
	case "install", "upgrade", "template":
		objects := decodeText(t, manifest)
		d, ok := first[*appsv1.DaemonSet](objects)
		if !ok {
			t.Fatalf("%s: no DaemonSet", c)
		}
		checkDaemonSet(t, d)
		checkFile(t, objects, d)
		if releases {
			h.installed = objects
		}
	case "list":
		if !strings.Contains(manifest, "quietcore-system") {
			t.Errorf("%s: %s", c, manifest)
		}
	}
}

// asked looks for the DaemonSet, Deployment or ConfigMap that a kubectl's words name, for what is
// taken out of it, and for pods with the labels. The scheduler may be installed anywhere.
func (h *helm) asked(t *testing.T, c doctext.Command, words []string) {
	t.Helper()
	kind, name, template := "", "", ""
	known := slices.Concat(h.installed, h.scheduler)
	for i, w := range words {
		switch {
		case strings.HasPrefix(w, "daemonset/"), strings.HasPrefix(w, "deployment/"):
			kind, name = path.Split(w)
		case w == "configmap":
			kind, name = w+"/", words[i+1]
		case strings.HasPrefix(w, "jsonpath="):
			template = strings.TrimPrefix(w, "jsonpath=")
		case w == "-l" && slices.Contains(words, "pods"):
			s, err := labels.Parse(words[i+1])
			if err != nil || !slices.ContainsFunc(known, func(o runtime.Object) bool { return runs(o, s) }) {
				t.Errorf("%s: no pods of the chart have these labels: %v", c, err)
			}
		}
	}
	if kind == "" {
		return
	}
	for _, o := range byName(t, known) {
		if !strings.EqualFold(o.GetKind()+"/", kind) || o.GetName() != name {
			continue
		}
		var out bytes.Buffer
		j := jsonpath.New("")
		if err := j.Parse(template); err != nil {
			t.Errorf("%s: %v", c, err)
		} else if err := j.Execute(&out, o.Object); err != nil || template != "" && out.Len() == 0 {
			t.Errorf("%s: %v, and prints %q", c, err, &out)
		}
		return
	}
	t.Errorf("%s: the chart installs no %s%s", c, kind, name)
}

// runs says that an object makes pods that a selector finds.
func runs(o runtime.Object, s labels.Selector) bool {
	switch o := o.(type) {
	case *appsv1.DaemonSet:
		return s.Matches(labels.Set(o.Spec.Template.Labels))
	case *appsv1.Deployment:
		return s.Matches(labels.Set(o.Spec.Template.Labels))
	}
	return false
}
