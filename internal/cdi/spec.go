package cdi

import (
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

const (
	// maxSpec bounds a file, maxDevices the devices of all files.
	maxSpec    = 1 << 20
	maxDevices = 4096
	// cpusEnv begins the variables that hold CPUs, by convention of dra-driver-cpu.
	cpusEnv = "DRA_CPUSET_"
	// cpuClass is the class of CDI kinds whose devices are CPUs, whoever the vendor is.
	cpuClass = "cpu"
	// MaxName bounds the qualified name of a device that is kept.
	MaxName = 253
)

// Device is a device of a spec that stands for CPUs.
type Device struct {
	Name string     // qualified: vendor/class=name
	CPUs cpuset.Set // empty where the spec does not say
}

// IsCPU reports whether a qualified device name is one of a kind for CPUs.
func IsCPU(name string) bool {
	kind, device, ok := strings.Cut(name, "=")
	vendor, class, slash := strings.Cut(kind, "/")
	return ok && slash && vendor != "" && class == cpuClass && device != "" && len(name) <= MaxName
}

// spec is the part of a CDI spec that is read.
type spec struct {
	Kind    string `json:"kind"`
	Devices []struct {
		Name           string `json:"name"`
		ContainerEdits struct {
			Env []string `json:"env"`
		} `json:"containerEdits"`
	} `json:"devices"`
}

// Parse reads other drivers' devices for CPUs in a spec, JSON or YAML: those of a kind of class cpu.
// Specs of other kinds have none, whatever variables they set.
func Parse(text []byte) ([]Device, error) {
	if len(text) > maxSpec {
		return nil, fmt.Errorf("CDI spec is larger than %d bytes", maxSpec)
	}
	var s spec
	if err := yaml.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("CDI spec: %w", err)
	}
	if _, class, _ := strings.Cut(s.Kind, "/"); class != cpuClass || s.Kind == policy.ClaimKind {
		return nil, nil // what our own driver gave, the policy knows
	}
	if len(s.Devices) > maxDevices {
		return nil, fmt.Errorf("CDI spec of kind %.60q has %d devices; at most %d are read", s.Kind, len(s.Devices),
			maxDevices)
	}
	devices := make([]Device, 0, len(s.Devices))
	for _, d := range s.Devices {
		name := s.Kind + "=" + d.Name
		if !IsCPU(name) {
			return nil, fmt.Errorf("CDI spec: %.60q is no qualified name of a device", name)
		}
		cpus, err := cpusOf(d.ContainerEdits.Env)
		if err != nil {
			return nil, fmt.Errorf("CDI device %s: %w", name, err)
		}
		devices = append(devices, Device{name, cpus})
	}
	return devices, nil
}

// cpusOf are the CPUs in the variables of a device.
func cpusOf(env []string) (all cpuset.Set, err error) {
	for _, e := range env {
		name, list, ok := strings.Cut(e, "=")
		if !ok || !strings.HasPrefix(name, cpusEnv) {
			continue
		}
		cpus, err := cpuset.Parse(list)
		if err != nil {
			return cpuset.Set{}, fmt.Errorf("variable %.80s: %w", name, err)
		}
		all.AddSet(&cpus)
	}
	return all, nil
}
