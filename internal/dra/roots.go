package dra

import (
	"io/fs"
	"path"
	"regexp"
	"strings"

	"github.com/quietcore/quietcore/cpuset"
)

// maxRoots bounds the PCIe roots that are read.
const maxRoots = 256

// ReadRoots reads the PCIe roots of a /sys tree, with the CPUs near each:
//
//	devices/pci0000:00/pci_bus/0000:00/cpulistaffinity
//
// One that does not say is left out. The root of fsys is /sys itself, or a directory that contains it as "sys".
func ReadRoots(fsys fs.FS) map[string]cpuset.Set {
	if sub, err := fs.Sub(fsys, "sys"); err == nil {
		if _, err := fs.Stat(sub, "devices"); err == nil {
			fsys = sub
		}
	}
	root := regexp.MustCompile(`^pci[0-9a-f]{4,8}:[0-9a-f]{2}$`)
	entries, err := fs.ReadDir(fsys, "devices")
	if err != nil {
		return nil
	}
	roots := map[string]cpuset.Set{}
	for _, e := range entries {
		if !root.MatchString(e.Name()) || len(roots) == maxRoots {
			continue
		}
		bus := strings.TrimPrefix(e.Name(), "pci")
		text, err := fs.ReadFile(fsys, path.Join("devices", e.Name(), "pci_bus", bus, "cpulistaffinity"))
		if err != nil {
			continue
		}
		if cpus, err := cpuset.Parse(strings.TrimSpace(string(text))); err == nil && !cpus.IsEmpty() {
			roots[e.Name()] = cpus
		}
	}
	return roots
}
