package sysfs

import (
	"fmt"
	"io/fs"
	"runtime"
	"strings"
)

// CPUModel is the model name of the CPUs in /proc, so that a CPI is compared only with those of the
// same model.
func CPUModel(proc fs.FS) string {
	text, err := fs.ReadFile(proc, "cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	found := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, ok := strings.Cut(line, ":")
		if key = strings.TrimSpace(key); ok && found[key] == "" {
			found[key] = strings.TrimSpace(value)
		}
	}
	if name := found["model name"]; name != "" {
		return name
	}
	// arm64 has only numbers.
	if part := found["CPU part"]; part != "" {
		return fmt.Sprintf("%s implementer %s part %s variant %s", runtime.GOARCH, found["CPU implementer"], part,
			found["CPU variant"])
	}
	return runtime.GOARCH
}
