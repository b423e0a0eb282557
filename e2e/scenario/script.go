package scenario

import (
	"bytes"
	"crypto/sha1"
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/machine"
)

// Script is a scenario file: the format of `quietcore simulate`.
type Script struct {
	Path     string         `json:"-"`
	Topology Topology       `json:"topology"`
	Node     map[string]any `json:"node"`
	Config   map[string]any `json:"config"`
	Steps    []Step         `json:"steps"`
}

// Topology is given in one of three ways; machines can only be grids.
type Topology struct {
	Grid  *Grid            `json:"grid"`
	CPUs  []map[string]any `json:"cpus"`
	SysFS string           `json:"sysfs"`
}

// Grid is machine.Grid in the words of a file.
type Grid struct {
	Sockets        int    `json:"sockets"`
	NodesPerSocket int    `json:"nodesPerSocket"`
	L3PerNode      int    `json:"l3PerNode"`
	CoresPerL3     int    `json:"coresPerL3"`
	ThreadsPerCore int    `json:"threadsPerCore"`
	Numbering      string `json:"numbering"`
}

// Step holds exactly one operation.
type Step struct {
	Create           *Create             `json:"create"`
	Resize           *Resize             `json:"resize"`
	KubeletUpdate    *KubeletUpdate      `json:"kubeletUpdate"`
	RestartContainer *Ref                `json:"restartContainer"`
	Stop             *Ref                `json:"stop"`
	Remove           *Ref                `json:"remove"`
	RestartDaemon    *struct{}           `json:"restartDaemon"`
	NodeLabels       *map[string]*string `json:"nodeLabels"`
	KubeletState     *KubeletState       `json:"kubeletState"`
	Offline          *CPUs               `json:"offline"`
	Online           *CPUs               `json:"online"`
	Cap              *Cap                `json:"cap"`
	Advance          *Advance            `json:"advance"`
}

// Ref names a pod, and a container in it where the operation is about one.
type Ref struct {
	Pod       string `json:"pod"`
	Namespace string `json:"namespace"`
	Container string `json:"container"`
}

type Create struct {
	Pod           string            `json:"pod"`
	Namespace     string            `json:"namespace"`
	UID           string            `json:"uid"`
	Labels        map[string]string `json:"labels"`
	Annotations   map[string]string `json:"annotations"`
	KubernetesQoS string            `json:"kubernetesQoS"`
	Containers    []Container       `json:"containers"`
}

type Container struct {
	Name         string `json:"name"`
	RequestMilli int64  `json:"requestMilli"`
	LimitMilli   int64  `json:"limitMilli"`
	Kind         string `json:"kind"`
}

type Resize struct {
	Pod          string `json:"pod"`
	Namespace    string `json:"namespace"`
	Container    string `json:"container"`
	RequestMilli int64  `json:"requestMilli"`
	LimitMilli   int64  `json:"limitMilli"`
}

type KubeletUpdate struct {
	Pod       string `json:"pod"`
	Namespace string `json:"namespace"`
	Container string `json:"container"`
	CPUs      string `json:"cpus"`
}

type KubeletState struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries"`
}

type CPUs struct {
	CPUs string `json:"cpus"`
}

type Cap struct {
	Pod       string  `json:"pod"`
	Namespace string  `json:"namespace"`
	Container string  `json:"container"`
	CPU       float64 `json:"cpu"`
	Seconds   float64 `json:"seconds"`
}

type Advance struct {
	Seconds float64 `json:"seconds"`
}

// Load reads a scenario strictly: a misspelt key would otherwise silently test
// something else.
func Load(path string) (*Script, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &Script{Path: path}
	if err := yaml.UnmarshalStrict(bytes.TrimPrefix(data, []byte("\ufeff")), s); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// Grid is the machine that the scenario needs, or why there is none.
func (s *Script) Grid() (machine.Grid, error) {
	switch {
	case s.Topology.Grid == nil && s.Topology.SysFS != "":
		return machine.Grid{}, machine.NotRealisable{Why: "topology.sysfs describes a machine that QEMU cannot copy; use grid"}
	case s.Topology.Grid == nil && s.Topology.CPUs != nil:
		return machine.Grid{}, machine.NotRealisable{Why: "topology.cpus describes a machine that QEMU cannot copy; use grid"}
	case s.Topology.Grid == nil:
		return machine.Grid{}, fmt.Errorf("%s: topology: missing", s.Path)
	}
	g := machine.Grid(*s.Topology.Grid)
	if err := g.Check(); err != nil {
		return g, err
	}
	return g, s.checkOffline()
}

// checkOffline refuses what x86 kernels cannot do before a machine is started.
func (s *Script) checkOffline() error {
	for i, st := range s.Steps {
		if st.Offline == nil {
			continue
		}
		cpus, err := parseList(st.Offline.CPUs)
		if err != nil {
			return fmt.Errorf("%s: step %d: offline: %w", s.Path, i+1, err)
		}
		for _, c := range cpus {
			if c == 0 {
				return machine.NotRealisable{Why: fmt.Sprintf("step %d takes CPU 0 offline, which has no such switch on x86", i+1)}
			}
		}
	}
	return nil
}

// Op is the operation's name in the file.
func (s *Step) Op() string {
	switch {
	case s.Create != nil:
		return "create"
	case s.Resize != nil:
		return "resize"
	case s.KubeletUpdate != nil:
		return "kubeletUpdate"
	case s.RestartContainer != nil:
		return "restartContainer"
	case s.Stop != nil:
		return "stop"
	case s.Remove != nil:
		return "remove"
	case s.RestartDaemon != nil:
		return "restartDaemon"
	case s.NodeLabels != nil:
		return "nodeLabels"
	case s.KubeletState != nil:
		return "kubeletState"
	case s.Offline != nil:
		return "offline"
	case s.Online != nil:
		return "online"
	case s.Cap != nil:
		return "cap"
	case s.Advance != nil:
		return "advance"
	}
	return ""
}

func (c *Create) pod() *kubelet.Pod {
	p := &kubelet.Pod{Name: c.Pod, Namespace: c.Namespace, UID: c.UID, Labels: c.Labels, Annotations: c.Annotations, QoS: c.KubernetesQoS}
	if p.UID == "" {
		p.UID = podUID(c.Namespace, c.Pod)
	}
	for _, k := range c.Containers {
		p.Containers = append(p.Containers, kubelet.Container(k))
	}
	return p
}

// podUID is the UUIDv5 of "namespace/pod" in the DNS namespace.
func podUID(namespace, pod string) string {
	dns := []byte{0x6b, 0xa7, 0xb8, 0x10, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0x00, 0xc0, 0x4f, 0xd4, 0x30, 0xc8}
	sum := sha1.Sum(append(dns, namespace+"/"+pod...))
	u := sum[:16]
	u[6], u[8] = u[6]&0x0f|0x50, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// entryUID accepts "namespace/pod" where a UID is due.
func entryUID(key string) string {
	if ns, pod, ok := strings.Cut(key, "/"); ok {
		return podUID(ns, pod)
	}
	return key
}
