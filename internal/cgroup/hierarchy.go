package cgroup

import (
	"os"
	"path/filepath"
)

// CPUHierarchy is the directory of the hierarchy in which CPU use is counted.
func CPUHierarchy(root string, v1 bool) string {
	if !v1 {
		return root
	}
	for _, name := range []string{"cpu", "cpu,cpuacct", "cpuacct,cpu"} {
		if dir := filepath.Join(root, name); isDir(dir) {
			return dir
		}
	}
	return filepath.Join(root, "cpu")
}

// ThreadHierarchy is the directory of the hierarchy in which threads are counted.
func ThreadHierarchy(root string, v1 bool) string {
	if v1 {
		return filepath.Join(root, "pids")
	}
	return root
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}
