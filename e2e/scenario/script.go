package scenario

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/machine"
	"github.com/quietcore/quietcore/internal/script"
)

// Script is a scenario file: the format of `quietcore simulate`.
type Script struct {
	Path string
	File *script.File
}

// Load reads a scenario file.
func Load(path string) (*Script, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// Parse reads a scenario with the parser of simulate.
func Parse(path string, data []byte) (*Script, error) {
	file, err := script.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &Script{Path: path, File: file}, nil
}

// Grid is the machine that the scenario needs, or why there is none.
func (s *Script) Grid() (machine.Grid, error) {
	t := s.File.Topology
	switch {
	case t.Grid == nil && t.Sysfs != "":
		return machine.Grid{}, machine.NotRealisable{
			Why: "topology.sysfs describes a machine that QEMU cannot copy; use grid"}
	case t.Grid == nil && t.CPUs != nil:
		return machine.Grid{}, machine.NotRealisable{
			Why: "topology.cpus describes a machine that QEMU cannot copy; use grid"}
	case t.Grid == nil:
		return machine.Grid{}, fmt.Errorf("%s: topology: nothing is given; give grid", s.Path)
	}
	g := machine.Grid{
		Sockets: max(t.Grid.Sockets, 1), NodesPerSocket: max(t.Grid.NodesPerSocket, 1),
		L3PerNode:  max(t.Grid.L3PerNode, 1),
		CoresPerL3: max(t.Grid.CoresPerL3, 1), ThreadsPerCore: max(t.Grid.ThreadsPerCore, 1),
		Numbering: string(t.Grid.Numbering), Isolated: t.Isolated.String(),
	}
	if err := g.Check(); err != nil {
		return g, err
	}
	return g, s.checkSteps()
}

// checkSteps refuses what no machine can do before one is started.
func (s *Script) checkSteps() error {
	for i, st := range s.File.Steps {
		switch {
		case st.Event != nil:
			return machine.NotRealisable{Why: fmt.Sprintf(
				"step %d is a recorded event of another node; play it with simulate", i+1)}
		case st.Prepare != nil || st.Unprepare != nil:
			return machine.NotRealisable{Why: fmt.Sprintf(
				"step %d is about a claim, which only a scheduler gives a node; play it with simulate", i+1)}
		case st.Create != nil && st.Create.DeviceNodes != "":
			return machine.NotRealisable{Why: fmt.Sprintf(
				"step %d gives a pod devices, which a virtual machine has none of; play it with simulate", i+1)}
		case st.Offline != nil:
			cpus, err := cpuset.Parse(st.Offline.CPUs)
			if err != nil {
				return fmt.Errorf("%s: step %d: offline: %w", s.Path, i+1, err)
			}
			if cpus.Has(0) {
				return machine.NotRealisable{Why: fmt.Sprintf(
					"step %d takes CPU 0 offline, which has no such switch on x86", i+1)}
			}
		}
	}
	return nil
}

// Simulate plays the script on the state machine alone.
func (s *Script) Simulate() ([]script.Line, error) {
	t, _, err := s.File.Topology.Build(nil)
	if err != nil {
		return nil, err
	}
	p, err := script.NewPlayer(s.File, t)
	if err != nil {
		return nil, err
	}
	var lines []script.Line
	for _, step := range s.File.Steps {
		line, err := p.Play(step)
		if err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	return lines, nil
}

func podOf(c *script.Create) *kubelet.Pod {
	p := &kubelet.Pod{Name: c.Pod, Namespace: c.Namespace, UID: c.UID, Labels: c.Labels, Annotations: c.Annotations,
		QoS: string(c.KubernetesQoS)}
	for _, k := range c.Containers {
		p.Containers = append(p.Containers, kubelet.Container{Name: k.Name, RequestMilli: k.RequestMilli,
			LimitMilli: k.LimitMilli, Kind: string(k.Kind)})
	}
	return p
}

// entryUID accepts "namespace/pod" where a UID is due.
func entryUID(key string) string {
	if ns, pod, ok := strings.Cut(key, "/"); ok {
		return script.UIDOf(ns, pod)
	}
	return key
}

// cpuList reads a list of the script, which simulate has checked already.
func cpuList(list string) ([]int, error) {
	s, err := cpuset.Parse(list)
	if err != nil {
		return nil, err
	}
	var out []int
	for cpu := range cpuset.MaxCPUs {
		if s.Has(cpu) {
			out = append(out, cpu)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the CPU list is empty")
	}
	return out, nil
}
