package config

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpuset"
)

// Validate reports everything that cannot work whatever the machine is, each
// with its key and what to do.
func (c *Config) Validate() error {
	v := &checker{}
	v.fields(c)
	v.relations(c)
	return errors.Join(v.errs...)
}

type checker struct{ errs []error }

func (v *checker) fail(key, format string, args ...any) {
	v.errs = append(v.errs, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
}

// maxHealAfter bounds how long CPUs may lie free while a pod waits for some.
const maxHealAfter = 24 * time.Hour

// fields checks each key by itself.
func (v *checker) fields(c *Config) {
	v.head(c)
	if n := c.Pools.SharedFloor; n < 0 || n > cpuset.MaxCPUs {
		v.fail("pools.sharedFloor", "is %d, must be 0 (one physical core) to %d CPUs", n, cpuset.MaxCPUs)
	}
	if n := c.Pools.BEFloor; n < 0 || n > cpuset.MaxCPUs {
		v.fail("pools.beFloor", "is %d, must be 0 (one physical core) to %d CPUs", n, cpuset.MaxCPUs)
	}
	if d := time.Duration(c.Admission.HealAfter); d < 0 || d > maxHealAfter {
		v.fail("admission.healAfter", "is %s, must be 0s to %s", c.Admission.HealAfter, Duration(maxHealAfter))
	}
	v.namespaces("system.namespaces", c.System.Namespaces)
	v.namespaces("authority.exclusive.namespaces", c.Authority.Exclusive.Namespaces)
	a := &c.Authority
	v.namespaces("authority.capExemption.namespaces", a.CapExemption.Namespaces)
	v.namespacesOrAll("authority.isolatedCPUs.namespaces", a.IsolatedCPUs.Namespaces)
	v.namespacesOrAll("authority.wholeCores.namespaces", a.WholeCores.Namespaces)
	v.namespacesOrAll("authority.numaExclusive.namespaces", a.NUMAExclusive.Namespaces)
	v.namespacesOrAll("authority.unmanaged.namespaces", a.Unmanaged.Namespaces)
	v.namespacesOrAll("authority.withoutRequest.namespaces", a.WithoutRequest.Namespaces)
	for _, ns := range slices.Sorted(maps.Keys(c.Authority.Exclusive.MaxCPUs)) {
		key := "authority.exclusive.maxCPUs"
		if ns != "*" && !isLabel(ns) {
			v.fail(key, "%s is neither a namespace nor \"*\"", quote(ns))
		}
		if n := c.Authority.Exclusive.MaxCPUs[ns]; n < 0 || n > cpuset.MaxCPUs {
			v.fail(key+"."+ns, "is %d, must be 0 (none) to %d CPUs", n, cpuset.MaxCPUs)
		}
	}
	if env := c.Inject.CPUsEnv; env != "" && !regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`).MatchString(env) {
		v.fail("inject.cpusEnv", "is %s, must be the name of an environment variable: letters, digits and _",
			quote(env))
	}
	v.node(&c.Node)
	v.kubernetes(&c.Kubernetes)
	v.cpi(&c.CPI)
	v.lending(c)
	v.dra(&c.DRA)
	v.shell(c)
}

func (v *checker) head(c *Config) {
	if c.APIVersion != "" && c.APIVersion != APIVersion {
		v.fail("apiVersion", "is %s, this version of quietcore reads %s", quote(c.APIVersion), APIVersion)
	}
	if c.Kind != "" && c.Kind != Kind {
		v.fail("kind", "is %s, must be %s", quote(c.Kind), Kind)
	}
}

func (v *checker) node(n *NodeConfig) {
	if n.Name != "" && (len(n.Name) > 253 || !nodeName(n.Name)) {
		v.fail("node.name", "is %s, must be the name of a Node: lower-case letters, digits, - and .", quote(n.Name))
	}
	for _, k := range slices.Sorted(maps.Keys(n.Labels)) {
		if k == "" {
			v.fail("node.labels", "has a label without a name")
		}
	}
	v.kubelet("node.kubelet", &n.Kubelet)
}

// ValidateKubelet reports what is wrong with kubelet's configuration at a key.
func ValidateKubelet(key string, k *Kubelet) error {
	v := &checker{}
	v.kubelet(key, k)
	return errors.Join(v.errs...)
}

func (v *checker) kubelet(key string, k *Kubelet) {
	known := []string{
		"align-by-socket", "distribute-cpus-across-cores", "distribute-cpus-across-numa", "full-pcpus-only",
		"prefer-align-cpus-by-uncorecache", "strict-cpu-reservation",
	}
	for _, option := range slices.Sorted(maps.Keys(k.Options)) {
		if !slices.Contains(known, option) {
			v.fail(key+".options", "%s is no option of kubelet's static policy; there are %s", quote(option),
				strings.Join(known, ", "))
		} else if value := k.Options[option]; value != "true" && value != "false" {
			v.fail(key+".options."+option, "is %s, must be \"true\" or \"false\"", quote(value))
		}
	}
	if k.StateFile != "" {
		v.path(key+".stateFile", k.StateFile)
	}
	if k.ConfigDir != "" {
		v.path(key+".configDir", k.ConfigDir)
	}
	if k.ConfigFile != "" {
		v.path(key+".configFile", k.ConfigFile)
	}
	if k.PodResources != "" {
		v.socket(key+".podResources", k.PodResources)
	}
}

func (v *checker) kubernetes(k *Kubernetes) {
	if k.Kubeconfig != "" {
		v.path("kubernetes.kubeconfig", k.Kubeconfig)
	}
	if k.StartupTaint && k.API == APIOff {
		v.fail("kubernetes.startupTaint", "is true and kubernetes.api is off: no other daemon takes the taint away")
	}
	if m := k.Topology.ManagedBy; len(m) > 63 || !regexp.MustCompile(
		`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`).MatchString(m) {
		v.fail("kubernetes.nodeResourceTopology.managedBy",
			"is %s, must be the value of a label: 1 to 63 letters, digits, - _ or .", quote(m))
	}
}

// Bounds of windows: below, the edges of a window weigh more than what is in it;
// above, interference is noticed when it is long over.
const (
	minInterval, maxInterval = Duration(time.Second), Duration(time.Hour)
	minWindow                = Duration(100 * time.Millisecond)
)

// Each followed container costs kernel memory on every CPU, each series memory
// wherever metrics are stored.
const (
	maxCPIContainers = 16384
	maxCPISeries     = 20000
	maxProbeBudget   = 60
)

func (v *checker) cpi(c *CPI) {
	before := len(v.errs)
	defer func() {
		if len(v.errs) == before {
			v.detector(c)
		}
	}()
	if c.Interval < minInterval || c.Interval > maxInterval {
		v.fail("cpi.interval", "is %s, must be %s to %s", c.Interval, minInterval, maxInterval)
	} else if most := c.Interval / 2; c.Window < minWindow || c.Window > most {
		v.fail("cpi.window", "is %s, must be %s to %s, half of cpi.interval: others need the counters too", c.Window,
			minWindow, most)
	}
	for key, percent := range map[string]float64{"cpi.budget.node": c.Budget.Node, "cpi.budget.cpu": c.Budget.CPU,
		"cpi.budget.test": c.Budget.Test} {
		if !(percent >= 0 && percent <= 100) {
			v.fail(key, "is %v, must be 0 (unbounded) to 100 percent", percent)
		}
	}
	if n := c.MaxContainers; n < 1 || n > maxCPIContainers {
		v.fail("cpi.maxContainers", "is %d, must be 1 to %d", n, maxCPIContainers)
	}
	if n := c.ContainerSeries; n < 0 || n > maxCPISeries {
		v.fail("cpi.containerSeries", "is %d, must be 0 (none) to %d", n, maxCPISeries)
	}
	if n := c.JobSeries; n < 0 || n > maxCPISeries {
		v.fail("cpi.jobSeries", "is %d, must be 0 (none) to %d", n, maxCPISeries)
	}
	if b := c.Probe.Budget; !(b >= 0 && b <= maxProbeBudget) {
		v.fail("cpi.probe.budget", "is %v, must be 0 (nobody is tested) to %d minutes an hour", b, maxProbeBudget)
	}
	if w := c.Probe.Window; w < minWindow || w > maxInterval {
		v.fail("cpi.probe.window", "is %s, must be %s to %s", w, minWindow, maxInterval)
	}
	if c.Resctrl != "" {
		v.path("cpi.resctrl", c.Resctrl)
	}
	v.specs(&c.Specs.Prometheus)
}

// detector checks what the counting's values bound.
func (v *checker) detector(c *CPI) {
	rest, usual := *c, Default()
	for _, l := range []struct {
		key       string
		cpus, may *float64
	}{{"cpi.capBatch", &rest.CapBatch, &usual.CPI.CapBatch},
		{"cpi.capBestEffort", &rest.CapBestEffort, &usual.CPI.CapBestEffort}} {
		if !(*l.cpus >= 0.001 && *l.cpus <= 1000) {
			v.fail(l.key, "is %v CPUs, must be 0.001 to 1000", *l.cpus)
			*l.cpus = *l.may // it is reported once
		}
	}
	several, ok := rest.Detection().Validate().(interface{ Unwrap() []error })
	if !ok {
		return
	}
	keys := detectorKeys()
	for _, err := range several.Unwrap() {
		var out *detect.RangeError
		if !errors.As(err, &out) || keys[out.Field] == "" {
			v.fail("cpi", "%v", err)
			continue
		}
		v.fail("cpi."+keys[out.Field], "is %v, must be %v to %v", plainly(out.Value), plainly(out.Low),
			plainly(out.High))
	}
}

// detectorKeys are the keys below cpi by the field of detect.Config that they set.
// Others are checked under their own names.
func detectorKeys() map[string]string {
	return map[string]string{
		"MinUsage": "minUsage", "OutlierWindow": "outlierWindow", "Window": "scoreWindow", "History": "history",
		"MinScore": "minScore", "MinConfidence": "minConfidence",
		"MinTasks": "minTasks", "MinTaskSamples": "minTaskSamples", "RespecEvery": "specEvery", "CapFor": "capFor",
		"MoveFor": "moveFor", "EvictAfter": "evictAfter",
	}
}

// plainly is a value as people write it in the file.
func plainly(v any) any {
	if d, ok := v.(time.Duration); ok {
		return Duration(d)
	}
	return strconv.FormatFloat(v.(float64), 'f', -1, 64)
}

// maxSocketPath is what sockaddr_un holds.
const maxSocketPath = 107

// shell checks what the pure core never sees.
func (v *checker) shell(c *Config) {
	v.socket("nri.socket", c.NRI.Socket)
	v.socket("socket", c.Socket)
	if !regexp.MustCompile(`^[A-Za-z0-9_.+-]+$`).MatchString(c.NRI.Name) || len(c.NRI.Name) > 63 {
		v.fail("nri.name", "is %s, must be 1 to 63 letters, digits, or _ . + -", quote(c.NRI.Name))
	}
	if !regexp.MustCompile(`^[0-9]{2}$`).MatchString(c.NRI.Index) {
		v.fail("nri.index", "is %s, must be two digits, \"00\" to \"99\"; lower ones are asked first",
			quote(c.NRI.Index))
	}
	v.path("cgroup.root", c.Cgroup.Root)
	if c.Cgroup.Bus != "" {
		v.socket("cgroup.bus", c.Cgroup.Bus)
	}
	v.path("sysfs.root", c.Sysfs.Root)
	v.path("state.dir", c.State.Dir)
	v.listen("listen", c.Listen)
	v.listen("health.listen", c.Health.Listen)
	v.page(c.Page.Listen)
}

// page takes addresses that cannot be reached from outside of the machine, or of the pod:
// the page authenticates no one.
func (v *checker) page(address string) {
	const key = "page.listen"
	if path.IsAbs(address) {
		v.socket(key, address)
		return
	}
	before := len(v.errs)
	v.listen(key, address)
	if address == "" || len(v.errs) > before {
		return
	}
	host, _, _ := net.SplitHostPort(address) // it could be split
	if ip, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !ip.IsLoopback()) {
		v.fail(key,
			"is %s, must be on loopback, such as 127.0.0.1:9465, or the path of a Unix socket: the page names every "+
				"pod of the node and asks nobody for a password; reach it with kubectl port-forward or ssh -L",
			quote(address))
	}
}

func (v *checker) socket(key, p string) {
	v.path(key, p)
	if len(p) > maxSocketPath {
		v.fail(key, "is %d bytes long, a Unix socket's path has at most %d", len(p), maxSocketPath)
	}
}

func (v *checker) path(key, p string) {
	switch {
	case !path.IsAbs(p):
		v.fail(key, "is %s, must be an absolute path", quote(p))
	case path.Clean(p) != p || strings.ContainsRune(p, 0):
		v.fail(key, "is %s, must be written as %s", quote(p), quote(strings.ReplaceAll(path.Clean(p), "\x00", "")))
	}
}

func (v *checker) listen(key, address string) {
	if address == "" {
		return
	}
	host, port, err := net.SplitHostPort(address)
	if n, convErr := strconv.ParseUint(port, 10, 16); err != nil || convErr != nil ||
		strconv.FormatUint(n, 10) != port || strings.ContainsAny(host, " /") {
		v.fail(key, "is %s, must be HOST:PORT such as 127.0.0.1:9464, or \"\" to serve nothing", quote(address))
	}
}

// namespacesOrAll is for lists that an "*" may make mean every namespace.
func (v *checker) namespacesOrAll(key string, list []string) {
	if len(list) != 1 || list[0] != "*" {
		v.namespaces(key, list)
	}
}

func (v *checker) namespaces(key string, list []string) {
	seen := map[string]bool{}
	for i, ns := range list {
		at := key + "[" + strconv.Itoa(i) + "]"
		switch {
		case ns == "*":
			v.fail(at, "is \"*\"; leave the list empty to mean every namespace where that is allowed, else name them")
		case !isLabel(ns):
			v.fail(at, "is %s, must be the name of a namespace", quote(ns))
		case seen[ns]:
			v.fail(at, "%s is listed twice", quote(ns))
		}
		seen[ns] = true
	}
}

func isLabel(s string) bool {
	return len(s) <= 63 && regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`).MatchString(s)
}

func nodeName(s string) bool {
	return regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`).MatchString(s)
}

// relations checks keys against each other.
func (v *checker) relations(c *Config) {
	if c.System.Exclusive && c.System.CPUs.IsEmpty() {
		v.fail("system.exclusive",
			"is true and system.cpus is empty: name the CPUs that the class SYSTEM has for itself, or remove it")
	}
	if both := c.System.CPUs.And(c.Reserved.CPUs); c.System.Exclusive && !both.IsEmpty() {
		v.fail("system.cpus",
			"CPUs %s are in reserved.cpus too: reserved CPUs belong to the shared pools, exclusive system CPUs to "+
				"the class SYSTEM alone", both)
	}
	v.metrics(c)
	if c.DRA.Mode == DRAOn && c.Kubernetes.API == APIOff {
		v.fail("dra.mode",
			"is on and kubernetes.api is off: claims are read from the API server, and slices written to it")
	}
	if k := &c.Kubernetes; k.BatchSlice == SwitchEnforce && !k.Pods {
		v.fail("kubernetes.batchSlice", "is enforce and kubernetes.pods is false: only the API server says what a pod "+
			"outside of the best-effort slice has to get back; read the pods, or switch it off")
	}
}
