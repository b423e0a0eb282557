package chart

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"

	securityv1 "github.com/openshift/api/security/v1"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chartutil"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/internal/config"
)

const namespace = "quietcore-system"

func kinds() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme,
		monitoringv1.AddToScheme, securityv1.Install} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}

func valuesOf(t *testing.T, name string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return parseValues(t, string(text))
}

func parseValues(t *testing.T, text string) map[string]any {
	t.Helper()
	values := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

func render(t *testing.T, r Release) *Rendered {
	t.Helper()
	if r.Name == "" {
		r.Name, r.Namespace = "quietcore", namespace
	}
	if r.Kubernetes == "" {
		r.Kubernetes = "1.36.0"
	}
	out, err := Render(chartDir, r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var monitoring = []string{"monitoring.coreos.com/v1/PodMonitor", "monitoring.coreos.com/v1/ServiceMonitor",
	"monitoring.coreos.com/v1/PrometheusRule"}

const openshift = "security.openshift.io/v1"

// decode wants every document to be an object of Kubernetes, Prometheus' operator or
// OpenShift without an unknown or doubled key.
func decode(t *testing.T, out *Rendered) []runtime.Object {
	t.Helper()
	var all []string
	for _, name := range out.Names() {
		all = append(all, out.Manifests[name])
	}
	return decodeText(t, strings.Join(all, "\n"))
}

func decodeText(t *testing.T, text string) []runtime.Object {
	t.Helper()
	var objects []runtime.Object
	s := kinds()
	strict := serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, s, s,
		serializer.SerializerOptions{Yaml: true, Strict: true})
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		if !hasText(doc) {
			continue
		}
		o, _, err := strict.Decode(doc, nil, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		objects = append(objects, o)
	}
}

// hasText is whether a document says more than where it is from.
func hasText(doc []byte) bool {
	for line := range bytes.Lines(doc) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && string(line) != "---" {
			return true
		}
	}
	return false
}

func first[T runtime.Object](objects []runtime.Object) (T, bool) {
	for _, o := range objects {
		if x, ok := o.(T); ok {
			return x, true
		}
	}
	var none T
	return none, false
}

func TestLintStrict(t *testing.T) {
	lint := action.NewLint()
	version, err := chartutil.ParseKubeVersion("1.36.0")
	if err != nil {
		t.Fatal(err)
	}
	lint.Strict, lint.Namespace, lint.KubeVersion = true, namespace, version
	for name, values := range cases(t) {
		r := lint.Run([]string{chartDir}, values)
		for _, m := range r.Messages {
			t.Logf("%s: %v", name, m)
		}
		for _, err := range r.Errors {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func cases(t *testing.T) map[string]map[string]any {
	t.Helper()
	files, err := filepath.Glob("testdata/values/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no values in testdata: %v", err)
	}
	all := map[string]map[string]any{}
	for _, f := range files {
		all[strings.TrimSuffix(filepath.Base(f), ".yaml")] = valuesOf(t, f)
	}
	return all
}

// TestWhatIsInstalled renders every set of values, decodes each object strictly and
// compares what the daemon may do with a file that a person has read.
func TestWhatIsInstalled(t *testing.T) {
	for name, values := range cases(t) {
		t.Run(name, func(t *testing.T) {
			out := render(t, Release{Values: values, Kinds: monitoring})
			objects := decode(t, out)
			d, ok := first[*appsv1.DaemonSet](objects)
			if !ok {
				t.Fatal("no DaemonSet")
			}
			checkDaemonSet(t, d)
			checkFile(t, objects, d)
			golden(t, filepath.Join("testdata/privileges", name+".txt"), summary(objects))
		})
	}
}

// checkDaemonSet holds whatever the values.
func checkDaemonSet(t *testing.T, d *appsv1.DaemonSet) {
	t.Helper()
	spec := d.Spec.Template.Spec
	resctrl := slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == "resctrl" })
	if spec.HostPID != resctrl || spec.HostNetwork || spec.HostIPC {
		t.Errorf("the pod shares a namespace with the node, %t for resctrl", resctrl)
	}
	if s := d.Spec.UpdateStrategy.RollingUpdate; s == nil || s.MaxSurge.IntValue() != 0 || s.MaxUnavailable == nil {
		t.Error("an update could run two daemons on a node")
	}
	for k, v := range d.Spec.Selector.MatchLabels {
		if d.Spec.Template.Labels[k] != v {
			t.Errorf("the selector wants %s=%s", k, v)
		}
	}
	if len(d.Spec.Selector.MatchLabels) != 2 {
		t.Errorf("the selector is %v: it cannot be changed later", d.Spec.Selector.MatchLabels)
	}
	mounted := map[string]bool{}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		s := c.SecurityContext
		switch {
		case s == nil || s.Privileged == nil || *s.Privileged:
			t.Errorf("%s is privileged", c.Name)
		case s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation:
			t.Errorf("%s may escalate its privileges", c.Name)
		case s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem:
			t.Errorf("%s can write its root", c.Name)
		case s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}):
			t.Errorf("%s keeps capabilities", c.Name)
		case s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault:
			t.Errorf("%s has no seccomp profile", c.Name)
		}
		if _, limited := c.Resources.Limits[corev1.ResourceCPU]; limited {
			t.Errorf("%s has a CPU limit", c.Name)
		}
		for _, m := range c.VolumeMounts {
			mounted[m.Name] = true
		}
	}
	for _, v := range spec.Volumes {
		if !mounted[v.Name] {
			t.Errorf("volume %s is mounted by nobody", v.Name)
		}
		delete(mounted, v.Name)
	}
	for name := range mounted {
		t.Errorf("no volume %s", name)
	}
}

// checkFile wants the daemon to understand its file, and the paths in it to be
// where something is mounted.
func checkFile(t *testing.T, objects []runtime.Object, d *appsv1.DaemonSet) {
	t.Helper()
	m, ok := first[*corev1.ConfigMap](objects)
	if !ok {
		t.Fatal("no ConfigMap")
	}
	c, err := config.Parse([]byte(m.Data["config.yaml"]))
	if err != nil {
		t.Fatalf("the daemon does not understand its file: %v\n%s", err, m.Data["config.yaml"])
	}
	ctr := d.Spec.Template.Spec.Containers[0]
	var points []string
	for _, v := range ctr.VolumeMounts {
		points = append(points, v.MountPath)
	}
	want := []string{filepath.Dir(c.NRI.Socket), c.State.Dir, filepath.Dir(c.Socket), c.Cgroup.Root}
	if c.Mode == config.Enforce && c.Cgroup.Driver != config.DriverCgroups {
		bus := c.Cgroup.Bus
		if bus == "" {
			bus = "/run/systemd/private"
		}
		want = append(want, filepath.Dir(bus))
	}
	for _, file := range []string{c.CPI.Specs.Prometheus.TokenFile, c.CPI.Specs.Prometheus.CAFile} {
		if file != "" && !strings.HasPrefix(file, "/var/run/secrets/") {
			want = append(want, filepath.Dir(file))
		}
	}
	if c.CPI.Resctrl != "" {
		want = append(want, c.CPI.Resctrl)
	}
	if c.Node.Kubelet.StateFile != "" {
		want = append(want, filepath.Dir(c.Node.Kubelet.StateFile))
	}
	for _, p := range want {
		if !slices.Contains(points, p) {
			t.Errorf("%s is in the daemon's file and mounted nowhere; mounts: %v", p, points)
		}
	}
	for name, listen := range map[string]string{"metrics": c.Listen, "health": c.Health.Listen} {
		port := int32(0)
		for _, p := range ctr.Ports {
			if p.Name == name {
				port = p.ContainerPort
			}
		}
		if listen == "" && port != 0 || listen != "" && !strings.HasSuffix(listen, fmt.Sprintf(":%d", port)) {
			t.Errorf("the daemon listens on %q, the port %s is %d", listen, name, port)
		}
	}
	if probed := ctr.LivenessProbe != nil && ctr.ReadinessProbe != nil; probed != (c.Health.Listen != "") ||
		probed && (ctr.LivenessProbe.HTTPGet.Port.StrVal != "health" ||
			ctr.ReadinessProbe.HTTPGet.Port.StrVal != "health") {
		t.Errorf("probes %v and %v of %q", ctr.LivenessProbe, ctr.ReadinessProbe, c.Health.Listen)
	}
}

// summary is what a reviewer asks for: what runs with which rights.
func summary(objects []runtime.Object) string {
	var b strings.Builder
	var others []map[string]any
	for _, o := range objects {
		switch o := o.(type) {
		case *appsv1.DaemonSet:
			spec := o.Spec.Template.Spec
			fmt.Fprintf(&b, "DaemonSet %s: account %s, token %v, priority %s\n", o.Name, spec.ServiceAccountName,
				*spec.AutomountServiceAccountToken, spec.PriorityClassName)
			if spec.HostPID {
				b.WriteString("  processes of the node\n")
			}
			for _, v := range spec.Volumes {
				if v.HostPath != nil {
					fmt.Fprintf(&b, "  node %s (%s) as %s\n", v.HostPath.Path, *v.HostPath.Type, v.Name)
				}
			}
			b.WriteString(containers(spec))
		case *appsv1.Deployment:
			spec := o.Spec.Template.Spec
			fmt.Fprintf(&b, "Deployment %s: %d times, account %s, token %v, priority %s\n", o.Name, *o.Spec.Replicas,
				spec.ServiceAccountName, *spec.AutomountServiceAccountToken, spec.PriorityClassName)
			b.WriteString(containers(spec))
		case *rbacv1.ClusterRole:
			fmt.Fprintf(&b, "ClusterRole %s\n%s", o.Name, rights(o.Rules))
		case *rbacv1.Role:
			fmt.Fprintf(&b, "Role %s in %s\n%s", o.Name, o.Namespace, rights(o.Rules))
		case *securityv1.SecurityContextConstraints:
			fmt.Fprintf(&b,
				"SecurityContextConstraints %s: for %v, volumes %v, capabilities %v, user %d, seccomp %v\n", o.Name,
				o.Users, o.Volumes, o.AllowedCapabilities, *o.RunAsUser.UID, o.SeccompProfiles)
		default:
			m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
			if err != nil {
				panic(err)
			}
			others = append(others, m)
		}
	}
	var rest []string
	for _, m := range others {
		rest = append(rest, fmt.Sprintf("%v %v\n", m["kind"], m["metadata"].(map[string]any)["name"]))
	}
	sort.Strings(rest)
	b.WriteString(strings.Join(rest, ""))
	return b.String()
}

// containers are what a pod runs.
func containers(spec corev1.PodSpec) string {
	var b strings.Builder
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		user := "that of the image"
		if id := c.SecurityContext.RunAsUser; id != nil {
			user = fmt.Sprint(*id)
		}
		fmt.Fprintf(&b, "  container %s: %s, user %s, capabilities %v\n    %s\n", c.Name, c.Image, user,
			c.SecurityContext.Capabilities.Add, strings.Join(c.Args, " "))
		for _, m := range c.VolumeMounts {
			way := "rw"
			if m.ReadOnly {
				way = "ro"
			}
			fmt.Fprintf(&b, "    %s %s <- %s\n", way, m.MountPath, m.Name)
		}
	}
	return b.String()
}

func rights(rules []rbacv1.PolicyRule) string {
	var b strings.Builder
	for _, r := range rules {
		fmt.Fprintf(&b, "  %s %s: %s", strings.Join(r.APIGroups, ","), strings.Join(r.Resources, ","),
			strings.Join(r.Verbs, ","))
		if len(r.ResourceNames) > 0 {
			fmt.Fprintf(&b, " (%s)", strings.Join(r.ResourceNames, ","))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestRights holds the ClusterRole to the verbs that the daemon uses
// (docs/kubernetes.md): nothing that is read is a secret, and no word stands for many.
func TestRights(t *testing.T) {
	const (
		pods     = "/pods list, /pods watch"
		reading  = pods + ", /nodes list, /nodes watch"
		telling  = ", events.k8s.io/events create, events.k8s.io/events patch"
		topology = ", topology.node.k8s.io/noderesourcetopologies get, topology.node.k8s.io/noderesourcetopologies " +
			"create, topology.node.k8s.io/noderesourcetopologies patch"
		published = ", /nodes/status patch"
		evicting  = ", /pods/status patch"
		claims    = ", resource.k8s.io/resourceclaims get, resource.k8s.io/resourceslices list, " +
			"resource.k8s.io/resourceslices create, resource.k8s.io/resourceslices patch, " +
			"resource.k8s.io/resourceslices delete"
	)
	const following = ", quietcore.dev/quietcorepolicies list, quietcore.dev/quietcorepolicies watch, " +
		"quietcore.dev/quietcoreturns list, quietcore.dev/quietcoreturns watch, quietcore.dev/quietcoreturns create, " +
		"quietcore.dev/quietcoreturns patch, quietcore.dev/quietcoreturns delete, " +
		"quietcore.dev/quietcorenodes create, quietcore.dev/quietcorenodes patch"
	const reviews = ", authentication.k8s.io/tokenreviews create, authorization.k8s.io/subjectaccessreviews create"
	for values, want := range map[string]string{
		"config: {metrics: {auth: \"off\"}}":   reading + telling + topology,
		"config: {listen: \"127.0.0.1:9464\"}": reading + telling + topology,
		"{}":                                   reading + telling + topology,
		"config: {reclaim: {mode: observe, evict: true}}": reading +
			telling + topology,
		"config: {mode: observe, reclaim: {mode: enforce, evict: true}}": reading +
			telling + topology,
		"config: {suppression: {mode: enforce}}": reading +
			telling + topology,
		"config: {reclaim: {mode: enforce}}": reading +
			published + telling + topology,
		"config: {reclaim: {mode: enforce, evict: true}}": reading +
			published + evicting + telling + topology,
		"config: {reclaim: {mode: enforce}, kubernetes: {pods: false, labels: false}}": reading +
			published + telling + topology,
		"config: {reclaim: {mode: enforce, evict: true}, kubernetes: {api: \"off\"}}": "",
		"config: {cpi: {mode: observe, evictAfter: 3}}": reading +
			telling + topology,
		"config: {cpi: {mode: enforce}}": reading +
			telling + topology,
		"config: {cpi: {mode: enforce, evictAfter: 3}}": reading +
			evicting + telling + topology,
		"config: {cpi: {mode: enforce, evictAfter: 3}, kubernetes: {pods: false, labels: false}}": pods +
			evicting + telling + topology,
		"{config: {kubernetes: {pods: false, labels: false}}}": telling[2:] +
			topology,
		"config: {kubernetes: {policy: true}}": reading + telling + topology + following,
		"config: {kubernetes: {policy: true, pods: false, labels: false}}": "/nodes list, /nodes watch" +
			telling + topology + following,
		"config: {kubernetes: {policy: true, api: \"off\"}}": "",
		"config: {dra: {mode: \"on\"}}":                      reading + telling + topology + claims,
		"config: {dra: {mode: \"on\"}, mode: observe}": reading +
			telling + topology,
		"{rbac: {keepLending: true}, config: {kubernetes: {nodeResourceTopology: {enabled: false}}}}": reading +
			published + telling,
	} {
		objects := decode(t, render(t, Release{Values: parseValues(t, values)}))
		var got []string
		if role, ok := first[*rbacv1.ClusterRole](objects); ok {
			for _, r := range role.Rules {
				for _, g := range r.APIGroups {
					for _, res := range r.Resources {
						for _, verb := range r.Verbs {
							got = append(got, g+"/"+res+" "+verb)
						}
					}
				}
			}
		}
		if want != "" && !strings.Contains(values, "metrics:") && !strings.Contains(values, "listen:") {
			want += reviews
		}
		if have := strings.Join(got, ", "); have != want {
			t.Errorf("%s: rights are\n%s\nwant\n%s", values, have, want)
		}
	}
}

// TestCapabilities: counting takes two, and nothing else takes any.
func TestCapabilities(t *testing.T) {
	for values, want := range map[string][]corev1.Capability{
		"{}":                             {"BPF", "PERFMON"},
		"config: {cpi: {mode: observe}}": {"BPF", "PERFMON"},
		"config: {mode: observe}":        {"BPF", "PERFMON"},
		"config: {cpi: {mode: \"off\"}}": nil,
		"security: {capabilities: [BPF, SYS_RESOURCE]}": {"BPF", "PERFMON",
			"SYS_RESOURCE"},
		"{config: {cpi: {mode: \"off\"}}, security: {capabilities: [SYS_RESOURCE]}}":   {"SYS_RESOURCE"},
		"{enableNRI: {enabled: true}, security: {seccompProfile: {type: Unconfined}}}": {"BPF", "PERFMON"},
	} {
		objects := decode(t, render(t, Release{Values: parseValues(t, values)}))
		d, _ := first[*appsv1.DaemonSet](objects)
		if got := d.Spec.Template.Spec.Containers[0].SecurityContext.Capabilities.Add; !slices.Equal(got, want) {
			t.Errorf("%s: capabilities are %v, want %v", values, got, want)
		}
		for _, c := range d.Spec.Template.Spec.InitContainers {
			if got := c.SecurityContext; len(got.Capabilities.Add) > 0 ||
				got.SeccompProfile.Type != corev1.SeccompProfileTypeUnconfined {
				t.Errorf("%s: %s has %v and seccomp profile %s", values, c.Name, got.Capabilities.Add,
					got.SeccompProfile.Type)
			}
		}
	}
}

// TestMemoryFits: what counting takes of the kernel is on the pod's account, and the
// Go runtime does not know of it.
func TestMemoryFits(t *testing.T) {
	objects := decode(t, render(t, Release{}))
	d, _ := first[*appsv1.DaemonSet](objects)
	m, _ := first[*corev1.ConfigMap](objects)
	c, err := config.Parse([]byte(m.Data["config.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	ctr := d.Spec.Template.Spec.Containers[0]
	var soft resource.Quantity
	for _, e := range ctr.Env {
		if e.Name == "GOMEMLIMIT" {
			soft = resource.MustParse(strings.TrimSuffix(e.Value, "B"))
		}
	}
	const rowBytes, cpus = 128, 512
	counting := int64(rowBytes * cpus * c.CPI.MaxContainers)
	if room := ctr.Resources.Limits.Memory().Value() - soft.Value(); soft.IsZero() || room < counting {
		t.Errorf("the limit is %v and the Go runtime's %v: %d bytes between them, counting on %d CPUs takes %d",
			ctr.Resources.Limits.Memory(), &soft, room, cpus, counting)
	}
	if request := ctr.Resources.Requests.Memory().Value(); request < 64<<20 ||
		request > ctr.Resources.Limits.Memory().Value()/2 {
		t.Errorf("%d bytes are requested; the daemon takes up to 64 MiB", request)
	}
}

func TestMistakesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		values, kubernetes string
		want               string // a part of the message
	}{
		"a typo":                {"imagee: {}", "", "imagee"},
		"a typo below":          {"kubelet: {Mount: true}", "", "Mount"},
		"a typo in the file":    {"config: {reserved: {cpu: \"0\"}}", "", "cpu"},
		"another case":          {"config: {Mode: observe}", "", "Mode"},
		"a wrong type":          {"config: {reserved: {strict: \"yes\"}}", "", "strict"},
		"a CPU limit":           {"resources: {limits: {cpu: 1}}", "", "cpu"},
		"a digest without hash": {"image: {digest: latest}", "", "digest"},
		"a relative path":       {"nri: {hostDir: run/nri}", "", "hostDir"},
		"an unknown runtime":    {"enableNRI: {runtime: docker}", "", "runtime"},
		"no such action":        {"admissionPolicies: {claims: {workloads: deny}}", "", "workloads"},
		"an unknown mode": {"config: {mode: Observe}", "",
			"'Observe' does not match pattern '^(enforce|observe)$'"},
		"no such alert": {"metrics: {rules: {enabled: true, disabledAlerts: [QuietcoreDrfit]}}", "",
			"\"QuietcoreDrfit\"; there are Quietcore"},
		"less than the Go runtime": {"resources: {limits: {memory: 128Mi}}", "",
			"goMemLimit is 176MiB, must be below resources.limits.memory, which is 128Mi"},
		"a token for nobody": {"specs: {token: {secretName: a}}", "", "config.cpi.specs.prometheus.url is empty"},
		"two tokens": {
			"{specs: {token: {secretName: a}}, config: {cpi: {specs: {prometheus: {url: \"http://p\", tokenFile: " +
				"/t}}}}}", "", "a and config.cpi.specs.prometheus.tokenFile is /t"},
		"two authorities": {
			"{specs: {ca: {secretName: a, configMapName: b}}, config: {cpi: {specs: {prometheus: {url: " +
				"\"http://p\"}}}}}", "", "specs.ca.configMapName is b"},
		"a file and an authority": {
			"{specs: {ca: {secretName: a}}, config: {cpi: {specs: {prometheus: {url: \"http://p\", caFile: /c}}}}}",
			"", "caFile is /c"},
		"a Prometheus without way": {"config: {cpi: {specs: {prometheus: {url: \"prometheus:9090\"}}}}", "",
			"is prometheus:9090, must be such as http://"},
		"an interval of nothing": {"metrics: {podMonitor: {interval: soon}}", "", "'soon' does not match"},
		"constraints, perhaps": {"openshift: {scc: perhaps}", "",
			"'perhaps' does not match pattern '^(auto|always|never)$'"},
		"tokens that nobody reviews": {"config: {listen: \":1\", kubernetes: {api: \"off\"}}", "",
			"no token of a reader of /metrics can be reviewed"},
		"a probe of loopback": {"config: {health: {listen: \"127.0.0.1:9466\"}}", "",
			"config.health.listen is 127.0.0.1:9466"},
		"policies before 1.30": {"admissionPolicies: {claims: {enabled: true}}", "1.29.4", "needs 1.30"},
		"evictions before 1.30": {"config: {reclaim: {mode: enforce, evict: true}}", "1.29.4",
			"Kubernetes is v1.29.4 and ValidatingAdmissionPolicy needs 1.30; leave evictions off"},
		"evictions that nothing binds": {
			"{config: {reclaim: {mode: enforce, evict: true}}, admissionPolicies: {ownNode: {enabled: false}}}", "",
			"nothing would bind a daemon to the pods of its own node: admissionPolicies.ownNode.enabled is false"},
		"caps that evict, before 1.30": {"config: {cpi: {mode: enforce, evictAfter: 3}}", "1.29.4",
			"leave evictions off"},
		"an evictor without memory": {
			"{config: {reclaim: {mode: enforce, evict: true}}, evictor: {resources: {limits: {memory: 128Mi}}}}", "",
			"evictor.goMemLimit is 384MiB, must be below evictor.resources.limits.memory, which is 128Mi"},
		"a rate of nothing":           {"evictor: {burst: 0}", "", "burst"},
		"a startup taint before 1.30": {"startupTaint: {enabled: true}", "1.29.4", "leave startupTaint off"},
		"a startup taint that nothing binds": {
			"{startupTaint: {enabled: true}, admissionPolicies: {ownNode: {enabled: false}}}", "",
			"nothing would bind a daemon to the taint of its own Node: admissionPolicies.ownNode.enabled is false"},
		"a startup taint without an API server": {
			"{startupTaint: {enabled: true}, config: {kubernetes: {api: \"off\"}, listen: 127.0.0.1:9464}}", "",
			"nobody would take the taint away"},
		"frozen before 1.30":     {"admissionPolicies: {frozen: {enabled: true}}", "1.29.4", "needs 1.30"},
		"Kubernetes before 1.26": {"{}", "1.25.0", "kubeVersion"},
		"profiles of one's own": {"scheduler: {enabled: true, config: {profiles: []}}", "",
			"scheduler.config.profiles is set"},
		"a scheduler without memory": {"scheduler: {enabled: true, resources: {limits: {memory: 512Mi}}}", "",
			"scheduler.goMemLimit is 768MiB, must be below scheduler.resources.limits.memory, which is 512Mi"},
		"no such policy":           {"scheduler: {args: {absentNodes: refuse}}", "", "absentNodes"},
		"nobody updated, for ever": {"updateStrategy: {maxUnavailable: 0}", "", "maxUnavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			r := Release{Name: "quietcore", Namespace: namespace, Kubernetes: "1.36.0", Kinds: monitoring,
				Values: parseValues(t, c.values)}
			if c.kubernetes != "" {
				r.Kubernetes = c.kubernetes
			}
			_, err := Render(chartDir, r)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, want one with %q", err, c.want)
			}
		})
	}
}

// TestOldKubernetes leaves out what it does not have, and says so.
func TestOldKubernetes(t *testing.T) {
	out := render(t, Release{Kubernetes: "1.28.3", Values: parseValues(t, "metrics: {podMonitor: {enabled: true}}")})
	for _, name := range out.Names() {
		if strings.Contains(out.Manifests[name], "ValidatingAdmissionPolicy") ||
			strings.Contains(out.Manifests[name], "PodMonitor") {
			t.Errorf("%s has what this cluster does not know", name)
		}
	}
	if !strings.Contains(out.Notes, "1.28.3 has no ValidatingAdmissionPolicy") {
		t.Errorf("the notes do not say what is missing:\n%s", out.Notes)
	}
}

func TestNotes(t *testing.T) {
	for values, want := range map[string]string{
		"{}":                         "exec POD -- /quietcore status",
		"config: {mode: observe}":    "writes nothing",
		"kubelet: {mount: false}":    "kubelet.mount is false",
		"enableNRI: {enabled: true}": "only printed",
		"enableNRI: {enabled: true, apply: true}":         "restart the runtime",
		"restore: {enabled: true}":                        "a daemon that writes nothing follows",
		"scheduler: {enabled: true, name: q}":             "schedulerName: q",
		"config: {reclaim: {mode: enforce, evict: true}}": "quietcore-evictor evicts them",
		"metrics: {podMonitor: {enabled: true}}": "does not know PodMonitor of Prometheus' " +
			"operator: nothing was made of it",
		"metrics: {podMonitor: {enabled: true}, rules: {enabled: true}}": "PodMonitor and PrometheusRule of " +
			"Prometheus' operator: nothing was made of them",
	} {
		if notes := render(t, Release{Values: parseValues(t, values)}).Notes; !strings.Contains(notes, want) {
			t.Errorf("%s: no %q in\n%s", values, want, notes)
		}
	}
}

// TestRestartsOnlyForKeysThatNeedOne compares the pod template, a change of which
// restarts the pods, with what the daemon itself says needs a restart.
func TestRestartsOnlyForKeysThatNeedOne(t *testing.T) {
	template := func(values string) string {
		objects := decode(t, render(t, Release{Values: parseValues(t, values)}))
		d, _ := first[*appsv1.DaemonSet](objects)
		text, err := json.Marshal(d.Spec.Template)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	file := func(values string) *config.Config {
		objects := decode(t, render(t, Release{Values: parseValues(t, values)}))
		m, _ := first[*corev1.ConfigMap](objects)
		c, err := config.Parse([]byte(m.Data["config.yaml"]))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	before, was := file("{}"), template("{}")
	changes := []string{
		"mode: observe", "unannounced: mask", "admission: degrade", "admission: {heal: \"off\"}", "memory: strict",
		"reserved: {cpus: \"0\"}", "pools: {sharedFloor: 2}",
		"allocation: {bindPolicy: SpreadByPCPUs}",
		"quota: {liftContainersOfMultiContainerPods: true}", "system: {cpus: \"0\"}",
		"authority: {resourceStatus: trust}", "node: {labels: {a: b}}",
		"node: {name: x}", "node: {kubelet: {stateFile: /x}}", "node: {kubelet: {configFile: /x}}",
		"node: {kubelet: {podResources: /x}}",
		"node: {kubelet: {configDir: /x}}", "cpi: {mode: \"off\"}", "cpi: {window: 5s}", "reclaim: {mode: observe}",
		"suppression: {mode: observe}", "dra: {share: \"8\"}",
		"confine: \"off\"",
		"inject: {cpusEnv: CPUS}", "kubernetes: {events: false}",
		"kubernetes: {policy: true}", "kubernetes: {startupTaint: true}",
		"nri: {index: \"10\"}", "cgroup: {driver: systemd}",
		"sysfs: {root: /x}",
		"state: {dir: /x}", "socket: /x/y", "listen: \":1\"", "health: {listen: \":2\"}",
		"metrics: {auth: \"off\"}",
		"page: {listen: ''}", "log: {format: json}",
		"log: {level: debug}",
	}
	// The daemon takes these over, too, but its pod has fewer rights with them.
	rights := []string{"mode: observe", "cpi: {mode: \"off\"}"}
	for _, change := range changes {
		values := "config: {" + change + "}"
		needs := config.NeedsRestart(before, file(values))
		if wants := len(needs) > 0 || slices.Contains(rights, change); (template(values) != was) != wants {
			t.Errorf("%s restarts the pods: %v; the daemon needs one for %v", change, !wants, needs)
		}
	}
	for f := range reflect.TypeFor[config.Config]().Fields() {
		key := f.Tag.Get("json")
		if key != "apiVersion" && key != "kind" && !slices.ContainsFunc(changes, func(c string) bool {
			return strings.HasPrefix(c, key+":")
		}) {
			t.Errorf("nobody has tried to change %s", key)
		}
	}
}

// TestCRDStays: it is shared with schedulers, and their objects die with it.
func TestCRDStays(t *testing.T) {
	objects := decode(t, render(t, Release{}))
	crd, ok := first[*apiextensionsv1.CustomResourceDefinition](objects)
	if !ok {
		t.Fatal("no CRD")
	}
	if crd.Annotations["helm.sh/resource-policy"] != "keep" || crd.Annotations["api-approved.kubernetes.io"] == "" {
		t.Errorf("annotations are %v", crd.Annotations)
	}
	objects = decode(t, render(t, Release{Values: parseValues(t, "crds: {install: false}")}))
	if _, ok := first[*apiextensionsv1.CustomResourceDefinition](objects); ok {
		t.Error("crds.install is false and there is one")
	}
}

// TestNoHooks: uninstalling runs nothing, so that it moves no pod.
func TestNoHooks(t *testing.T) {
	for name, values := range cases(t) {
		for file, text := range render(t, Release{Values: values}).Manifests {
			if strings.Contains(text, "helm.sh/hook") {
				t.Errorf("%s: %s has a hook", name, file)
			}
		}
	}
}

// TestTwoReleases: names of cluster-wide objects come from the release.
func TestTwoReleases(t *testing.T) {
	name := func(o runtime.Object) string {
		m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := json.Marshal(m["metadata"].(map[string]any)["name"])
		return o.GetObjectKind().GroupVersionKind().String() + string(text)
	}
	seen := map[string]bool{}
	all := parseValues(t,
		"admissionPolicies: {claims: {enabled: true}, frozen: {enabled: true}}\ncrds: {install: false}\n"+
			"scheduler: {enabled: true}")
	for _, release := range []string{"one", "two"} {
		objects := decode(t, render(t, Release{Name: release, Namespace: namespace, Values: maps.Clone(all)}))
		for _, o := range objects {
			if n := name(o); seen[n] {
				t.Errorf("both releases have %s", n)
			} else {
				seen[n] = true
			}
		}
	}
}

// TestSecurityPageNamesEveryRight: docs/security/rights.md names every right that the chart takes.
func TestSecurityPageNamesEveryRight(t *testing.T) {
	page, err := os.ReadFile("../../docs/security/rights.md")
	if err != nil {
		t.Fatal(err)
	}
	objects := decode(t, render(t, Release{Values: parseValues(t,
		"config: {reclaim: {mode: enforce, evict: true}, dra: {mode: \"on\"}, kubernetes: {policy: true}}")}))
	d, _ := first[*appsv1.DaemonSet](objects)
	for _, c := range d.Spec.Template.Spec.Containers[0].SecurityContext.Capabilities.Add {
		if row := "`" + string(c) + "`"; !bytes.Contains(page, []byte(row)) {
			t.Errorf("docs/security/rights.md has no row with %s", row)
		}
	}
	for _, v := range d.Spec.Template.Spec.Volumes {
		if v.HostPath != nil && !regexp.MustCompile("(?m)^\\| .*`"+regexp.QuoteMeta(v.HostPath.Path)+"`").Match(page) {
			t.Errorf("docs/security/rights.md has no row for %s", v.HostPath.Path)
		}
	}
	role, _ := first[*rbacv1.ClusterRole](objects)
	for _, r := range role.Rules {
		if row := "`" + r.Resources[0] + "`: " + strings.Join(r.Verbs, ", "); !bytes.Contains(page, []byte(row)) {
			t.Errorf("docs/security/rights.md has no row with %s", row)
		}
	}
}
