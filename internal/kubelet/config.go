package kubelet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

// Config is the part of kubelet's configuration that concerns CPUs, with kubelet's
// defaults for missing keys.
type Config struct {
	CPUManagerPolicy string            // none or static
	Options          map[string]string // cpuManagerPolicyOptions
	// ReservedCPUs is reservedSystemCPUs. Without it the static policy reserves as many
	// CPUs as ReservedMilli needs, rounded up, and chooses them itself.
	ReservedCPUs  cpuset.Set
	ReservedMilli int64 // kubeReserved and systemReserved; 0 with a list

	TopologyPolicy  string // none, best-effort, restricted or single-numa-node
	TopologyScope   string // container or pod
	TopologyOptions map[string]string

	// ReservedMemory is what the memory manager keeps from pods, in bytes by NUMA node
	// ID and resource name.
	ReservedMemory map[int]map[string]int64
	// CgroupDriver may be outdated: kubelet asks the runtime for its driver.
	CgroupDriver string
}

const (
	policyNone   = "none"
	policyStatic = "static"
	optionStrict = "strict-cpu-reservation"
)

// Source is one file of the configuration.
type Source struct {
	Name string
	Text []byte
}

const (
	// maxSource and maxSources bound the input; a configuration with every key takes
	// some 10 KiB.
	maxSource  = 1 << 20
	maxSources = 100
)

// Parse parses kubelet's configuration file and its drop-ins, each as a JSON merge
// patch of the previous ones, as kubelet does. It ignores keys that Quietcore does not
// use. A used key of a wrong type is an error, as for kubelet.
func Parse(sources ...Source) (Config, error) {
	merged := object{}
	if len(sources) == 0 || len(sources) > maxSources {
		return Config{}, fmt.Errorf("kubelet's configuration has %d files, it may have 1 to %d", len(sources),
			maxSources)
	}
	for _, s := range sources {
		o, err := decode(s)
		if err != nil {
			return Config{}, err
		}
		merge(merged, o)
	}
	c, err := merged.config()
	if err != nil {
		return Config{}, fmt.Errorf("kubelet's configuration %s: %w", names(sources), err)
	}
	return c, nil
}

func names(sources []Source) string {
	if len(sources) == 1 {
		return sources[0].Name
	}
	return fmt.Sprintf("%s with %d drop-ins", sources[0].Name, len(sources)-1)
}

// object is JSON; numbers are json.Number.
type object map[string]any

func decode(s Source) (object, error) {
	if len(s.Text) > maxSource {
		return nil, fmt.Errorf("kubelet's configuration %s is larger than %d bytes", s.Name, maxSource)
	}
	text, err := yaml.YAMLToJSON(s.Text)
	if err != nil {
		return nil, fmt.Errorf("kubelet's configuration %s: %w", s.Name, err)
	}
	var o object
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&o); err != nil {
		return nil, fmt.Errorf("kubelet's configuration %s is no object: %w", s.Name, err)
	}
	// Kubelet wants both too; they also distinguish a file from one that is empty, since it
	// is only just being written.
	const version, kind = "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"
	if o["apiVersion"] != version || o["kind"] != kind {
		return nil, fmt.Errorf("kubelet's configuration %s has apiVersion %.60v and kind %.60v, they are %s and %s",
			s.Name, o["apiVersion"], o["kind"], version, kind)
	}
	return o, nil
}

// merge applies a JSON merge patch (RFC 7386).
func merge(to, patch map[string]any) {
	for key, value := range patch {
		switch v := value.(type) {
		case nil:
			delete(to, key)
		case map[string]any:
			inner, ok := to[key].(map[string]any)
			if !ok {
				inner = map[string]any{}
				to[key] = inner
			}
			merge(inner, v)
		default:
			to[key] = v
		}
	}
}

func (o object) config() (Config, error) {
	var c Config
	var reserved string
	var kube, system map[string]string
	for _, field := range []struct {
		key  string
		to   *string
		need []string // the values there are; the first is the default
	}{
		{"cpuManagerPolicy", &c.CPUManagerPolicy, []string{policyNone, policyStatic}},
		{"topologyManagerPolicy", &c.TopologyPolicy, []string{"none", "best-effort", "restricted", "single-numa-node"}},
		{"topologyManagerScope", &c.TopologyScope, []string{"container", "pod"}},
		{"cgroupDriver", &c.CgroupDriver, []string{"cgroupfs", "systemd"}},
		{"reservedSystemCPUs", &reserved, nil},
	} {
		if err := o.text(field.key, field.to, field.need); err != nil {
			return c, err
		}
	}
	for _, field := range []struct {
		key string
		to  *map[string]string
	}{
		{"cpuManagerPolicyOptions", &c.Options}, {"topologyManagerPolicyOptions", &c.TopologyOptions},
		{"kubeReserved", &kube}, {"systemReserved", &system},
	} {
		if err := o.texts(field.key, field.to); err != nil {
			return c, err
		}
	}
	var err error
	if c.ReservedCPUs, err = list(reserved); err != nil {
		return c, fmt.Errorf("reservedSystemCPUs: %w", err)
	}
	if c.ReservedCPUs.IsEmpty() {
		if c.ReservedMilli, err = reservedMilli(kube, system); err != nil {
			return c, err
		}
	}
	c.ReservedMemory, err = o.reservedMemory()
	return c, err
}

func (o object) text(key string, to *string, need []string) error {
	value, there := o[key]
	s, ok := value.(string)
	if there && !ok {
		return fmt.Errorf("%s is %.60v, it has to be a string", key, value)
	}
	if s == "" && len(need) > 0 {
		s = need[0]
	}
	*to = s
	for _, n := range need {
		if s == n {
			return nil
		}
	}
	if need == nil {
		return nil
	}
	return fmt.Errorf("%s is %.60q, Quietcore knows %s", key, s, strings.Join(need, ", "))
}

func (o object) texts(key string, to *map[string]string) error {
	value, there := o[key]
	m, ok := value.(map[string]any)
	if there && !ok {
		return fmt.Errorf("%s is %.60v, it has to be a map", key, value)
	}
	for k, v := range m {
		s, ok := v.(string)
		if !ok {
			return fmt.Errorf("%s: %.60s is %.60v, it has to be a string", key, k, v)
		}
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[k] = s
	}
	return nil
}

// list parses a CPU list like kubelet, which accepts duplicates.
func list(text string) (cpuset.Set, error) {
	var s cpuset.Set
	if text == "" || len(text) > maxSource {
		return s, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			return s, fmt.Errorf("CPU list %.60q: a CPU number is missing", text)
		}
		cpus, err := cpuset.Parse(part)
		if err != nil {
			return cpuset.Set{}, err
		}
		s.AddSet(&cpus)
	}
	return s, nil
}

func reservedMilli(lists ...map[string]string) (int64, error) {
	var sum int64
	for _, l := range lists {
		text, ok := l["cpu"]
		if !ok {
			continue
		}
		q, err := quantity(text, cpuset.MaxCPUs)
		if err != nil {
			return 0, fmt.Errorf("reserved cpu: %w", err)
		}
		sum += q.MilliValue()
	}
	return sum, nil
}

// quantity parses a Kubernetes quantity from 0 to most. It rejects extreme exponents,
// whose arithmetic takes seconds or overflows.
func quantity(text string, most int64) (resource.Quantity, error) {
	if at := strings.IndexAny(text, "eE"); len(text) > 32 || at >= 0 && len(text)-at > len("e-99") {
		return resource.Quantity{}, fmt.Errorf("%.40q is no quantity of this machine", text)
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return q, fmt.Errorf("%q: %w", text, err)
	}
	if q.Sign() < 0 || q.Cmp(*resource.NewQuantity(most, resource.DecimalSI)) > 0 {
		return q, fmt.Errorf("%q has to be 0 to %d", text, most)
	}
	return q, nil
}

func (o object) reservedMemory() (map[int]map[string]int64, error) {
	value, there := o["reservedMemory"]
	if !there {
		return nil, nil
	}
	var entries []struct {
		NUMANode *int              `json:"numaNode"`
		Limits   map[string]string `json:"limits"`
	}
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, &entries)
	}
	if err != nil {
		return nil, fmt.Errorf("reservedMemory: %w", err)
	}
	all := map[int]map[string]int64{}
	for _, e := range entries {
		if e.NUMANode == nil || *e.NUMANode < 0 || *e.NUMANode >= cpuset.MaxCPUs {
			return nil, fmt.Errorf("reservedMemory: a numaNode is missing or outside 0-%d", cpuset.MaxCPUs-1)
		}
		if all[*e.NUMANode] == nil {
			all[*e.NUMANode] = map[string]int64{}
		}
		for name, text := range e.Limits {
			q, err := quantity(text, 1<<60)
			if err != nil {
				return nil, fmt.Errorf("reservedMemory of NUMA node %d: %w", *e.NUMANode, err)
			}
			all[*e.NUMANode][name] = q.Value()
		}
	}
	return all, nil
}

// Static says that kubelet pins containers itself.
func (c *Config) Static() bool { return c.CPUManagerPolicy == policyStatic }

// ReservedCount is how many CPUs the static policy reserves.
func (c *Config) ReservedCount() int {
	if n := c.ReservedCPUs.Count(); n > 0 {
		return n
	}
	return int(math.Ceil(float64(c.ReservedMilli) / 1000))
}

// Policy converts the configuration for the policy, with the CPUs that kubelet
// reserves; see Reserved.
func (c *Config) Policy(reserved cpuset.Set) policy.Kubelet {
	return policy.Kubelet{
		Static: c.Static(), Options: maps.Clone(c.Options), Reserved: reserved, TopologyPolicy: c.TopologyPolicy,
	}
}

// Reserved finds the CPUs that kubelet keeps for the system; known is false if it
// reserves some but they cannot be determined. Without a list there are two sources.
// The first is the online CPUs that the PodResources API does not count as allocatable.
// The second, with strict reserved CPUs, is the CPUs that kubelet's state neither
// shares nor gives away. Both date from kubelet's last start, so either is accepted
// only if its count is right.
func (c *Config) Reserved(online, allocatable cpuset.Set, state policy.KubeletState) (reserved cpuset.Set, known bool) {
	want := c.ReservedCount()
	if !c.ReservedCPUs.IsEmpty() || !c.Static() || want == 0 {
		return c.ReservedCPUs, true
	}
	if !allocatable.IsEmpty() {
		if rest := online.Minus(allocatable); rest.Count() == want {
			return rest, true
		}
	}
	if c.Options[optionStrict] == "true" && state.PolicyName == policyStatic && !state.Default.IsEmpty() {
		rest := online.Minus(state.Default)
		for _, containers := range state.Entries {
			for _, cpus := range containers {
				rest.RemoveSet(&cpus)
			}
		}
		if rest.Count() == want {
			return rest, true
		}
	}
	return cpuset.Set{}, false
}
