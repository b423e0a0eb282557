package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/Masterminds/semver/v3"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/hack/image/build"
)

const (
	chartFile  = "Chart.yaml"
	valuesFile = "values.yaml"
	readmeFile = "README.md"

	// placeholder is where the pages have the registry.
	placeholder = "REGISTRY"

	// pinPrefix begins the annotations with the digests that the chart's templates read: what follows is the program.
	pinPrefix = "digest.quietcore.dev/"
)

// pins are the images that a chart runs by default, and where they will be.
type pins struct {
	registry string // empty: nowhere, so that no digest can be asked for
	images   []made
}

// packChart does what `helm package --version --app-version` does, without its clock.
// The application's version is the image's tag, with its v, since the chart takes the
// one for the other.
func packChart(source build.Source, dir, dist string, pins pins) error {
	c, err := loader.LoadDir(dir)
	if err != nil {
		return err
	}
	c.Metadata.Version, c.Metadata.AppVersion = chartVersion(source.Version), source.Version
	if err := annotate(c.Metadata, source.Version, pins); err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	if len(c.Dependencies()) > 0 || len(c.Metadata.Dependencies) > 0 {
		return fmt.Errorf("chart %s has dependencies, which are not packed", c.Name())
	}
	var files []packed
	for _, f := range c.Raw { // what .helmignore leaves
		data := f.Data
		switch f.Name {
		case chartFile:
			data, err = yaml.Marshal(c.Metadata)
		case valuesFile:
			data, err = pins.values(data)
		case readmeFile:
			data, err = pins.readme(data)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		files = append(files, packed{c.Name() + "/" + f.Name, 0o644, data})
	}
	return pack(filepath.Join(dist, chartArchive(source.Version)), source.Date, files)
}

// annotate adds what Artifact Hub shows of a version, and the digests of the images.
func annotate(m *chart.Metadata, version string, pins pins) error {
	type object = map[string]any
	lists := map[string]any{
		"artifacthub.io/changes": []object{{
			"kind": "changed", "description": "What changed in " + version + " is in its changelog.",
			"links": []object{{"name": changelogName, "url": forge + "/blob/" + version + "/" + changelogName}},
		}},
	}
	if pins.registry != "" {
		var images []object
		for _, i := range pins.images {
			images = append(images, object{"name": i.program, "image": i.name + ":" + version})
		}
		lists["artifacthub.io/images"] = images
	}
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	for key, list := range lists {
		text, err := yaml.Marshal(list)
		if err != nil {
			return err
		}
		m.Annotations[key] = string(text)
	}
	m.Annotations["artifacthub.io/prerelease"] = fmt.Sprint(strings.Contains(version, "-"))
	if pins.registry == "" {
		return nil
	}
	for _, i := range pins.images {
		m.Annotations[pinPrefix+i.program] = i.digest
	}
	return nil
}

// values names the images where they will be.
func (p pins) values(text []byte) ([]byte, error) {
	if p.registry == "" {
		return text, nil
	}
	for _, i := range p.images {
		was, is := " repository: "+i.program+"\n", " repository: "+i.name+"\n"
		if n := bytes.Count(text, []byte(was)); n != 1 {
			return nil, fmt.Errorf("%d lines are %q, want one that names the image", n, strings.TrimSpace(was))
		}
		text = bytes.Replace(text, []byte(was), []byte(is), 1)
	}
	return text, nil
}

// readme is the page for those who look at the published chart: its commands can be copied.
func (p pins) readme(text []byte) ([]byte, error) {
	if p.registry == "" {
		return text, nil
	}
	text = bytes.ReplaceAll(text, []byte(placeholder+"/"), []byte(p.registry+"/"))
	for _, i := range p.images {
		text = bytes.ReplaceAll(text, []byte("repository` | `\""+i.program+"\"`"),
			[]byte("repository` | `\""+i.name+"\"`"))
	}
	return text, nil
}

// chartVersion is the chart's for a tag: without v, and one at all where the tag is none, such as a commit.
func chartVersion(version string) string {
	bare := strings.TrimPrefix(version, "v")
	if _, err := semver.StrictNewVersion(bare); err != nil {
		return "0.0.0-tag-" + version
	}
	return bare
}

// chartArchive is the name that Helm gives it.
func chartArchive(version string) string { return "quietcore-" + chartVersion(version) + ".tgz" }
