// Package script describes a sequence of events on a node: a machine, its configuration, and steps.
// `quietcore simulate` plays a script on the state machine, the end-to-end tests play the same file
// on a real runtime, and a recording of a daemon is a script as well.
package script

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/strict"
	"github.com/quietcore/quietcore/internal/topodoc"
	"github.com/quietcore/quietcore/policy"
)

// File is a whole script.
type File struct {
	Topology topodoc.Doc       `json:"topology"`
	Node     config.NodeConfig `json:"node"`
	Config   config.Config     `json:"config"`
	Steps    []Step            `json:"steps"`
}

// Step is one thing that happens: exactly one field is set.
type Step struct {
	Create           *Create            `json:"create,omitempty"`
	Resize           *Resize            `json:"resize,omitempty"`
	KubeletUpdate    *KubeletUpdate     `json:"kubeletUpdate,omitempty"`
	RestartContainer *Subject           `json:"restartContainer,omitempty"`
	Stop             *Subject           `json:"stop,omitempty"`
	Remove           *PodName           `json:"remove,omitempty"`
	RestartDaemon    *Restart           `json:"restartDaemon,omitempty"`
	NodeLabels       map[string]*string `json:"nodeLabels,omitempty"`
	KubeletState     *KubeletState      `json:"kubeletState,omitempty"`
	KubeletConfig    *config.Kubelet    `json:"kubeletConfig,omitempty"` // kubelet's own configuration file
	Offline          *CPUs              `json:"offline,omitempty"`
	Online           *CPUs              `json:"online,omitempty"`
	Cap              *Cap               `json:"cap,omitempty"`
	Advance          *Advance           `json:"advance,omitempty"`
	Prepare          *Prepare           `json:"prepare,omitempty"` // a claim of our own DRA driver
	Unprepare        *Unprepare         `json:"unprepare,omitempty"`
	Event            *policy.Record     `json:"event,omitempty"` // recorded by a daemon
}

// Restart kills the daemon and starts it again.
type Restart struct {
	// Config is the new daemon's whole configuration; nil: unchanged.
	Config *config.Config `json:"config,omitempty"`
}

// PodName names a pod; an empty namespace is "default".
type PodName struct {
	Pod       string `json:"pod"`
	Namespace string `json:"namespace"`
}

// Subject names a container.
type Subject struct {
	Pod       string `json:"pod"`
	Namespace string `json:"namespace"`
	Container string `json:"container"`
}

// Create starts a pod and its containers, init containers first.
type Create struct {
	Pod           string            `json:"pod"`
	Namespace     string            `json:"namespace"`
	UID           string            `json:"uid,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
	Annotations   map[string]string `json:"annotations,omitempty"`
	KubernetesQoS policy.QoS        `json:"kubernetesQoS,omitempty"`
	// DeviceNodes are the NUMA nodes of the pod's devices, a list such as "0-1".
	DeviceNodes string      `json:"deviceNodes,omitempty"`
	Containers  []Container `json:"containers"`
}

// Kind of a container.
type Kind string

const (
	App     Kind = "app"
	Init    Kind = "init"
	Sidecar Kind = "sidecar"
)

// Container is a container of a pod; 0 means no request or no limit.
type Container struct {
	Name         string `json:"name"`
	RequestMilli int64  `json:"requestMilli,omitempty"`
	LimitMilli   int64  `json:"limitMilli,omitempty"`
	Kind         Kind   `json:"kind,omitempty"`
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

// KubeletState is cpu_manager_state; entries are keyed by pod UID or namespace/pod.
type KubeletState struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries,omitempty"`
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

// MaxBytes bounds a script: the record of a full node is a few megabytes.
const MaxBytes = 16 << 20

// Parse reads a script. Every mistake in it is reported, with its line.
func Parse(data []byte) (*File, error) {
	f := &File{Config: config.Default()}
	decoder := strict.NewDecoder()
	decoder.Max = MaxBytes
	if err := decoder.Unmarshal(data, 1, f); err != nil {
		return nil, err
	}
	if err := f.complete(); err != nil {
		return nil, err
	}
	return f, nil
}

// ParseNode reads the node part of a document: a script without steps.
func ParseNode(p strict.Part) (*File, error) {
	f := &File{Config: config.Default()}
	if err := p.Decode(f); err != nil {
		return nil, err
	}
	if len(f.Steps) > 0 {
		return nil, p.Errorf("has steps of its own; put them at the top of the file")
	}
	if err := f.complete(); err != nil {
		return nil, p.Errorf("%v", err)
	}
	return f, nil
}

// ParseStep reads a step of such a node from a document.
func ParseStep(p strict.Part, node *config.NodeConfig) (Step, error) {
	f := &File{Steps: make([]Step, 1)}
	if err := p.Decode(&f.Steps[0]); err != nil {
		return Step{}, err
	}
	if err := f.Steps[0].complete(node); err != nil {
		return Step{}, p.Errorf("%v", err)
	}
	f.resolveEntries()
	return f.Steps[0], nil
}

// complete fills in defaults and checks what the types cannot.
func (f *File) complete() error {
	if given := f.Config.Node; !reflect.DeepEqual(given, config.Default().Node) && !reflect.DeepEqual(given, f.Node) {
		return fmt.Errorf("config.node differs from node; in a script the node stands at the top: move it there")
	}
	f.Config.Node = f.Node
	if err := f.Config.Validate(); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	for i := range f.Steps {
		if err := f.Steps[i].complete(&f.Node); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	f.resolveEntries()
	return nil
}

// resolveEntries replaces namespace/pod in kubelet's state by UIDs.
func (f *File) resolveEntries() {
	uids := map[string]string{}
	for _, s := range f.Steps {
		if s.Create != nil {
			uids[s.Create.Namespace+"/"+s.Create.Pod] = s.Create.UID
		}
	}
	for _, s := range f.Steps {
		if s.KubeletState == nil {
			continue
		}
		entries := make(map[string]map[string]string, len(s.KubeletState.Entries))
		for pod, cpus := range s.KubeletState.Entries {
			if namespace, name, ok := strings.Cut(pod, "/"); ok {
				uid := uids[pod]
				if uid == "" {
					uid = UIDOf(namespace, name)
				}
				pod = uid
			}
			entries[pod] = cpus
		}
		s.KubeletState.Entries = entries
	}
}

// Op is the name of the step, as it is spelt in the script.
func (s *Step) Op() string {
	ops := s.ops()
	if len(ops) != 1 {
		return ""
	}
	return ops[0]
}

func (s *Step) ops() []string {
	var ops []string
	for _, o := range []struct {
		name string
		set  bool
	}{
		{"create", s.Create != nil}, {"resize", s.Resize != nil}, {"kubeletUpdate", s.KubeletUpdate != nil},
		{"restartContainer", s.RestartContainer != nil}, {"stop", s.Stop != nil}, {"remove", s.Remove != nil},
		{"restartDaemon", s.RestartDaemon != nil}, {"nodeLabels", s.NodeLabels != nil},
		{"kubeletState", s.KubeletState != nil}, {"kubeletConfig", s.KubeletConfig != nil},
		{"offline", s.Offline != nil}, {"online", s.Online != nil}, {"cap", s.Cap != nil},
		{"advance", s.Advance != nil}, {"prepare", s.Prepare != nil}, {"unprepare", s.Unprepare != nil},
		{"event", s.Event != nil},
	} {
		if o.set {
			ops = append(ops, o.name)
		}
	}
	return ops
}

// complete fills in defaults and checks what the types cannot.
func (s *Step) complete(node *config.NodeConfig) error {
	ops := s.ops()
	if len(ops) != 1 {
		return fmt.Errorf("has %d operations (%s); a step is exactly one", len(ops), strings.Join(ops, ", "))
	}
	for _, n := range s.namespaces() {
		if *n == "" {
			*n = "default"
		}
	}
	for _, list := range s.cpuLists() {
		if _, err := cpuset.Parse(list); err != nil {
			return fmt.Errorf("%s: %w", ops[0], err)
		}
	}
	if s.Create != nil {
		return s.Create.complete()
	}
	if s.Prepare != nil {
		return s.Prepare.complete()
	}
	if s.RestartDaemon != nil {
		return s.RestartDaemon.complete(node)
	}
	if s.KubeletConfig != nil {
		return config.ValidateKubelet("kubeletConfig", s.KubeletConfig)
	}
	if s.Cap != nil && (s.Cap.CPU <= 0 || s.Cap.CPU > cpuset.MaxCPUs || s.Cap.Seconds <= 0) {
		return fmt.Errorf("cap: cpu is %g and seconds is %g; both must be above 0", s.Cap.CPU, s.Cap.Seconds)
	}
	if s.Advance != nil && (s.Advance.Seconds < 0 || s.Advance.Seconds > 1e9) {
		return fmt.Errorf("advance: seconds is %g; it must be 0 to 1e9", s.Advance.Seconds)
	}
	return nil
}

// complete copies the node into the new configuration: it stays the same.
func (r *Restart) complete(node *config.NodeConfig) error {
	if r.Config == nil {
		return nil
	}
	if !reflect.DeepEqual(r.Config.Node, config.Default().Node) {
		return fmt.Errorf("restartDaemon: config.node is given; in a script the node stands at the top and stays")
	}
	r.Config.Node = *node
	if err := r.Config.Validate(); err != nil {
		return fmt.Errorf("restartDaemon: config: %w", err)
	}
	return nil
}

func (s *Step) namespaces() []*string {
	var n []*string
	switch {
	case s.Create != nil:
		n = append(n, &s.Create.Namespace)
	case s.Resize != nil:
		n = append(n, &s.Resize.Namespace)
	case s.KubeletUpdate != nil:
		n = append(n, &s.KubeletUpdate.Namespace)
	case s.RestartContainer != nil:
		n = append(n, &s.RestartContainer.Namespace)
	case s.Stop != nil:
		n = append(n, &s.Stop.Namespace)
	case s.Remove != nil:
		n = append(n, &s.Remove.Namespace)
	case s.Cap != nil:
		n = append(n, &s.Cap.Namespace)
	case s.Prepare != nil:
		n = append(n, &s.Prepare.Namespace)
	case s.Unprepare != nil:
		n = append(n, &s.Unprepare.Namespace)
	}
	return n
}

func (s *Step) cpuLists() []string {
	switch {
	case s.Offline != nil:
		return []string{s.Offline.CPUs}
	case s.Online != nil:
		return []string{s.Online.CPUs}
	case s.Create != nil:
		return []string{s.Create.DeviceNodes}
	case s.Prepare != nil:
		var lists []string
		for _, d := range s.Prepare.Devices {
			lists = append(lists, d.Within)
		}
		return lists
	case s.KubeletUpdate != nil:
		return []string{s.KubeletUpdate.CPUs}
	case s.KubeletState != nil:
		lists := []string{s.KubeletState.DefaultCPUSet}
		for _, containers := range s.KubeletState.Entries {
			for _, list := range containers {
				lists = append(lists, list)
			}
		}
		return lists
	}
	return nil
}

func (c *Create) complete() error {
	if c.Pod == "" {
		return fmt.Errorf("create: pod has no name")
	}
	if len(c.Containers) == 0 {
		return fmt.Errorf("create: pod %s has no containers", c.Pod)
	}
	if c.UID == "" {
		c.UID = UIDOf(c.Namespace, c.Pod)
	}
	seen := map[string]bool{}
	for i := range c.Containers {
		ctr := &c.Containers[i]
		if ctr.Name == "" || seen[ctr.Name] {
			return fmt.Errorf("create: pod %s: container %d has the name %q; names must be there and differ", c.Pod, i+
				1, ctr.Name)
		}
		seen[ctr.Name] = true
		if ctr.RequestMilli < 0 || ctr.LimitMilli < 0 {
			return fmt.Errorf("create: pod %s: container %s has a negative request or limit", c.Pod, ctr.Name)
		}
		if ctr.RequestMilli == 0 {
			ctr.RequestMilli = ctr.LimitMilli // as the API server does
		}
		switch ctr.Kind {
		case "":
			ctr.Kind = App
		case App, Init, Sidecar:
		default:
			return fmt.Errorf("create: pod %s: container %s has kind %q; it must be app, init or sidecar", c.Pod,
				ctr.Name, ctr.Kind)
		}
	}
	switch c.KubernetesQoS {
	case "":
		c.KubernetesQoS = QoSOf(c.Containers)
	case policy.Guaranteed, policy.Burstable, policy.BestEffort:
	default:
		return fmt.Errorf("create: pod %s: kubernetesQoS is %q; it must be Guaranteed, Burstable or BestEffort", c.Pod,
			c.KubernetesQoS)
	}
	return nil
}

// UIDOf is the UID of a pod without one: the UUIDv5 of namespace/pod.
func UIDOf(namespace, pod string) string {
	return uuid.NewSHA1(uuid.NameSpaceDNS, []byte(namespace+"/"+pod)).String()
}

// QoSOf derives the Kubernetes QoS class from CPU alone, as if memory were set alike.
func QoSOf(containers []Container) policy.QoS {
	guaranteed, any := true, false
	for _, c := range containers {
		if c.RequestMilli > 0 || c.LimitMilli > 0 {
			any = true
		}
		if c.LimitMilli == 0 || c.RequestMilli != c.LimitMilli {
			guaranteed = false
		}
	}
	switch {
	case !any:
		return policy.BestEffort
	case guaranteed:
		return policy.Guaranteed
	}
	return policy.Burstable
}

// Sums are a pod's: containers and sidecars added, init containers by their
// maximum together with the sidecars started before them. A container without a
// request counts 0; one with a request and no limit leaves the pod without one.
func Sums(containers []Container) policy.Resources {
	var request, limit, sidecarRequest, sidecarLimit, initRequest, initLimit int64
	unlimited := false
	for _, c := range slices.Concat(ofKind(containers, false), ofKind(containers, true)) {
		unlimited = unlimited || (c.RequestMilli > 0 && c.LimitMilli == 0)
		switch c.Kind {
		case Init:
			initRequest = max(initRequest, sidecarRequest+c.RequestMilli)
			initLimit = max(initLimit, sidecarLimit+c.LimitMilli)
		case Sidecar:
			sidecarRequest += c.RequestMilli
			sidecarLimit += c.LimitMilli
			fallthrough
		default:
			request += c.RequestMilli
			limit += c.LimitMilli
		}
	}
	r := policy.Resources{RequestMilli: max(request, initRequest), LimitMilli: max(limit, initLimit)}
	if unlimited || r.LimitMilli == 0 {
		r.LimitMilli = policy.NoLimit
	}
	return r
}

// ofKind returns the app containers, or the others, in their order.
func ofKind(containers []Container, app bool) []Container {
	var out []Container
	for _, c := range containers {
		if (c.Kind == App) == app {
			out = append(out, c)
		}
	}
	return out
}

// StartOrder is the order in which kubelet starts containers: init containers
// and sidecars as listed, then the others.
func StartOrder(containers []Container) []Container {
	return slices.Concat(ofKind(containers, false), ofKind(containers, true))
}

// Limits converts a container's numbers to the policy's.
func (c Container) Limits() policy.Resources {
	r := policy.Resources{RequestMilli: c.RequestMilli, LimitMilli: c.LimitMilli}
	if r.LimitMilli == 0 {
		r.LimitMilli = policy.NoLimit
	}
	return r
}

// Shares is cpu.shares as kubelet derives it from a request.
func Shares(requestMilli int64) int64 {
	const least, most = 2, 262144
	return min(max(requestMilli*1024/1000, least), most)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
