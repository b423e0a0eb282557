package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/hack/image/build"
)

const chartFile = "Chart.yaml"

// packChart does what `helm package --version --app-version` does, without its clock.
// The application's version is the image's tag, with its v, since the chart takes the
// one for the other.
func packChart(source build.Source, dir, dist string) error {
	c, err := loader.LoadDir(dir)
	if err != nil {
		return err
	}
	c.Metadata.Version, c.Metadata.AppVersion = strings.TrimPrefix(source.Version, "v"), source.Version
	if err := c.Validate(); err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	if len(c.Dependencies()) > 0 || len(c.Metadata.Dependencies) > 0 {
		return fmt.Errorf("chart %s has dependencies, which are not packed", c.Name())
	}
	var files []packed
	for _, f := range c.Raw { // what .helmignore leaves
		data := f.Data
		if f.Name == chartFile {
			if data, err = yaml.Marshal(c.Metadata); err != nil {
				return err
			}
		}
		files = append(files, packed{c.Name() + "/" + f.Name, 0o644, data})
	}
	return pack(filepath.Join(dist, chartArchive(source.Version)), source.Date, files)
}

// chartArchive is the name that Helm gives it.
func chartArchive(version string) string {
	return "quietcore-" + strings.TrimPrefix(version, "v") + ".tgz"
}
