package chart

import (
	"fmt"
	"sort"
	"strings"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
)

// Release says how the chart is rendered.
type Release struct {
	Name, Namespace string
	Kubernetes      string   // version of the cluster, such as 1.36.0
	Kinds           []string // kinds that the cluster knows in addition to Kubernetes' own
	Values          map[string]any
	Reused          map[string]any // in place of values.yaml: what --reuse-values leaves of an older chart's
}

// Rendered is the text of every template that was not empty, by its name, and the
// notes.
type Rendered struct {
	Manifests map[string]string
	Notes     string
}

// Render does what `helm template` does.
func Render(dir string, r Release) (*Rendered, error) {
	c, err := loader.Load(dir)
	if err != nil {
		return nil, err
	}
	if r.Reused != nil {
		c.Values = r.Reused
	}
	version, err := chartutil.ParseKubeVersion(r.Kubernetes)
	if err != nil {
		return nil, err
	}
	install := action.NewInstall(new(action.Configuration))
	install.DryRun, install.ClientOnly, install.Replace = true, true, true
	install.ReleaseName, install.Namespace = r.Name, r.Namespace
	install.KubeVersion = version
	install.APIVersions = r.Kinds
	values := r.Values
	if values == nil {
		values = map[string]any{}
	}
	release, err := install.Run(c, values)
	if err != nil {
		return nil, err
	}
	out := &Rendered{Manifests: map[string]string{}, Notes: release.Info.Notes}
	for _, doc := range strings.Split(release.Manifest, "\n---\n") {
		doc = strings.TrimPrefix(doc, "---\n")
		first, text, _ := strings.Cut(doc, "\n")
		name := strings.TrimPrefix(first, "# Source: quietcore/templates/")
		if name == first {
			return nil, fmt.Errorf("helm wrote a document without its source: %.60q", doc)
		}
		if strings.TrimSpace(text) != "" {
			out.Manifests[name] += "---\n" + text + "\n"
		}
	}
	return out, nil
}

// Names are the templates that wrote something.
func (r *Rendered) Names() []string {
	names := make([]string, 0, len(r.Manifests))
	for n := range r.Manifests {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}
