package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/hack/image/build"
)

const (
	// forge is where the files of a release are attached, below releases/download/VERSION.
	forge = "https://github.com/quietcore/quietcore"

	plugin       = "kubectl-quietcore"
	krewManifest = "quietcore.yaml" // krew wants the plugin's name

	// Programs of krew, which judge and install what is made for it.
	krewValidator = "sigs.k8s.io/krew/cmd/validate-krew-manifest@v0.4.3"
	krewInstaller = "sigs.k8s.io/krew/cmd/krew@v0.4.3"
)

// krewPlugin is what krew's index has of a plugin.
type krewPlugin struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   krewName `json:"metadata"`
	Spec       krewSpec `json:"spec"`
}

type krewName struct {
	Name string `json:"name"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Caveats          string         `json:"caveats"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector krewSelector `json:"selector"`
	URI      string       `json:"uri"`
	Sha256   string       `json:"sha256"`
	Bin      string       `json:"bin"`
}

type krewSelector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

// krewArchive is what krew downloads for a platform: the plugin and its licence.
func krewArchive(platform string) string { return binaryName(plugin, platform) + ".tar.gz" }

// writeKrew packs the plugin of kubectl for krew, and writes the manifest that krew's index takes.
func writeKrew(source build.Source, dist string) error {
	license, err := os.ReadFile(filepath.Join(dist, "LICENSE"))
	if err != nil {
		return err
	}
	for _, platform := range build.Platforms() {
		binary, err := os.ReadFile(filepath.Join(dist, binaryName(plugin, platform)))
		if err != nil {
			return err
		}
		files := []packed{{plugin, 0o755, binary}, {"LICENSE", 0o644, license}}
		if err := pack(filepath.Join(dist, krewArchive(platform)), source.Date, files); err != nil {
			return err
		}
	}
	manifest, err := manifestOfKrew(dist, source.Version)
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(manifest)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dist, krewManifest), text, 0o644)
}

// manifestOfKrew is that of the archives which lie in dist.
func manifestOfKrew(dist, version string) (krewPlugin, error) {
	p := krewPlugin{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin",
		Metadata: krewName{strings.TrimPrefix(plugin, "kubectl-")},
		Spec: krewSpec{
			Version: version, Homepage: forge,
			ShortDescription: "Show which pods have which CPUs of which nodes",
			Description: "Shows the CPUs of all nodes with their owners, why a container has its CPUs,\n" +
				"who disturbs whom, and which idle CPUs are lent. It asks the daemons of Quietcore.\n",
			Caveats: "Needs Quietcore in the cluster, and the rights to list pods and to exec in its namespace.\n",
		},
	}
	for _, platform := range build.Platforms() {
		sum, err := sumOf(filepath.Join(dist, krewArchive(platform)))
		if err != nil {
			return p, err
		}
		system, arch, _ := strings.Cut(platform, "/")
		p.Spec.Platforms = append(p.Spec.Platforms, krewPlatform{
			Selector: krewSelector{map[string]string{"os": system, "arch": arch}},
			URI:      forge + "/releases/download/" + version + "/" + krewArchive(platform), Sha256: sum, Bin: plugin,
		})
	}
	return p, nil
}

// checkKrew: the manifest names the archives that lie next to it, and each holds the binary that does.
func checkKrew(dist, version string) error {
	has, err := os.ReadFile(filepath.Join(dist, krewManifest))
	if err != nil {
		return err
	}
	manifest, err := manifestOfKrew(dist, version)
	if err != nil {
		return err
	}
	want, err := yaml.Marshal(manifest)
	if err != nil {
		return err
	}
	if !bytes.Equal(has, want) {
		return fmt.Errorf("it is not the manifest of the archives, which is\n%s", want)
	}
	for _, platform := range build.Platforms() {
		files, err := unpack(filepath.Join(dist, krewArchive(platform)))
		if err != nil {
			return err
		}
		for inside, outside := range map[string]string{plugin: binaryName(plugin, platform), "LICENSE": "LICENSE"} {
			data, err := os.ReadFile(filepath.Join(dist, outside))
			if err != nil {
				return err
			}
			if !bytes.Equal(files[inside], data) {
				return fmt.Errorf("%s in %s is not %s", inside, krewArchive(platform), outside)
			}
		}
	}
	return nil
}
