package chart

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/quietcore/quietcore/internal/config"
)

const withHub = "hub: {enabled: true}"

// ofHub are the objects with the hub's name.
func ofHub(t *testing.T, r Release) (objects, its []runtime.Object) {
	t.Helper()
	objects = decode(t, render(t, r))
	for _, o := range objects {
		if strings.HasPrefix(nameOf(o), "quietcore-hub") {
			its = append(its, o)
		}
	}
	return objects, its
}

// TestHubIsOptional: it is there where it is wanted, and refused where no daemon would answer it.
func TestHubIsOptional(t *testing.T) {
	for values, want := range map[string]int{
		"{}": 0, "{" + withHub + "}": 7, "{networkPolicy: {enabled: false}, " + withHub + "}": 6,
		"{rbac: {create: false}, " + withHub + "}": 3,
	} {
		if _, its := ofHub(t, Release{Values: parseValues(t, values)}); len(its) != want {
			t.Errorf("%s: %d objects of it, want %d", values, len(its), want)
		}
	}
	for values, want := range map[string]string{
		"{reader: {create: false}, " + withHub + "}":            "needs reader.create",
		"{config: {listen: '127.0.0.1:9464'}, " + withHub + "}": "needs reader.create",
		"{hub: {enabled: true, goMemLimit: 1GiB}}":              "hub.goMemLimit is 1GiB, must be below",
	} {
		_, err := Render(chartDir, Release{Name: "quietcore", Namespace: namespace, Kubernetes: "1.36.0",
			Values: parseValues(t, values)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", values, err, want)
		}
	}
}

// TestHubsRights: to list pods and to get what daemons say, and nothing that makes, changes or reads anything else.
func TestHubsRights(t *testing.T) {
	_, its := ofHub(t, Release{Values: parseValues(t, withHub)})
	role, _ := first[*rbacv1.Role](its)
	const want = "   pods: list\n   pods/proxy: get\n"
	if got := rights(role.Rules); got != want || role.Namespace != namespace {
		t.Errorf("in %s its rights are\n%s", role.Namespace, got)
	}
	api, _ := first[*rbacv1.ClusterRole](its)
	urls := []string{"/quietcore/v1/summary", "/quietcore/v1/top", "/quietcore/v1/incidents"}
	if len(api.Rules) != 1 || !slices.Equal(api.Rules[0].NonResourceURLs, urls) ||
		!slices.Equal(api.Rules[0].Verbs, []string{"get"}) {
		t.Errorf("of daemons it may get %+v", api.Rules)
	}
	binding, _ := first[*rbacv1.ClusterRoleBinding](its)
	if len(binding.Subjects) != 1 || binding.Subjects[0].Name != "quietcore-hub" || binding.RoleRef.Name != api.Name {
		t.Errorf("bound is %+v", binding)
	}
}

// TestHubsPod: no rights on the node, a token for daemons beside its login, and selectors that tell it from others.
func TestHubsPod(t *testing.T) {
	for _, kinds := range [][]string{nil, {openshift}} {
		objects, its := ofHub(t, Release{Kinds: kinds, Values: parseValues(t,
			"{scheduler: {enabled: true}, "+evicting+", "+withHub+"}")})
		d, _ := first[*appsv1.Deployment](its)
		spec, c := d.Spec.Template.Spec, d.Spec.Template.Spec.Containers[0]
		s := c.SecurityContext
		if *d.Spec.Replicas != 1 || spec.HostNetwork || *s.Privileged || !*s.RunAsNonRoot ||
			(s.RunAsUser == nil) != (kinds != nil) || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem ||
			len(s.Capabilities.Add) > 0 || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("its pod is %+v", d.Spec)
		}
		if len(spec.Volumes) != 1 || spec.Volumes[0].Projected == nil {
			t.Fatalf("its volumes are %+v", spec.Volumes)
		}
		token := spec.Volumes[0].Projected.Sources[0].ServiceAccountToken
		file := c.VolumeMounts[0].MountPath + "/" + token.Path
		if token.Audience != "quietcore.dev" || !slices.Contains(c.Args, "--token-file="+file) {
			t.Errorf("%+v for %v", token, c.Args)
		}
		daemons, _ := first[*appsv1.DaemonSet](objects)
		for _, a := range c.Args {
			text, is := strings.CutPrefix(a, "--daemon-selector=")
			if !is {
				continue
			}
			selector, err := labels.Parse(text)
			if err != nil || !selector.Matches(labels.Set(daemons.Spec.Template.Labels)) ||
				selector.Matches(labels.Set(d.Spec.Template.Labels)) {
				t.Errorf("it asks %q, which selects not the daemons alone (%v)", text, err)
			}
		}
		for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe} {
			if p == nil || p.HTTPGet.Port.String() != c.Ports[0].Name ||
				!slices.Contains(c.Args, "--health=:"+"9471") || c.Ports[0].ContainerPort != 9471 {
				t.Errorf("it is probed by %+v", p)
			}
		}
		for _, o := range objects {
			if selector := selectorOf(o); selector != nil {
				if got := selector.Matches(labels.Set(d.Spec.Template.Labels)); got != slices.Contains(its, o) {
					t.Errorf("%T %s selects its pod: %t", o, nameOf(o), got)
				}
			}
		}
		policy, _ := first[*networkingv1.NetworkPolicy](its)
		if len(policy.Spec.Ingress) > 0 || len(policy.Spec.PolicyTypes) != 2 || len(policy.Spec.Egress) != 1 {
			t.Errorf("its policy is %+v", policy.Spec)
		}
	}
}

// TestHubsRightsAreDerived keeps what internal/fleet tries on a real API server.
func TestHubsRightsAreDerived(t *testing.T) {
	out := render(t, Release{Values: parseValues(t, withHub)})
	golden(t, "testdata/hub.yaml", out.Manifests["hub-rbac.yaml"])
}

// TestHubsPrometheus: its own, else that of specs with what specs mounts, and it may reach it.
func TestHubsPrometheus(t *testing.T) {
	const specs = "config: {cpi: {mode: observe, specs: {prometheus: {url: 'https://prom.example'}}}}, " +
		"specs: {token: {secretName: t, key: k}, ca: {configMapName: c}}"
	for name, c := range map[string]struct {
		values string
		args   []string
		mounts []string // of its volume, beside nothing
		ports  []string // of its egress, beside the API server's
	}{
		"none": {withHub, nil, nil, nil},
		"of specs": {specs + ", " + withHub, []string{"--prometheus=https://prom.example",
			"--prometheus-token-file=/etc/quietcore-prometheus/token",
			"--prometheus-ca-file=/etc/quietcore-prometheus/ca.crt"}, []string{"t k token", "c ca.crt ca.crt"},
			[]string{"443", "53", "53", "5353", "5353"}},
		"not that of specs": {specs + ", hub: {enabled: true, prometheus: {url: none}}", nil, nil, nil},
		"its own": {specs + `, hub: {enabled: true, prometheus: {url: 'http://10.0.0.1:9090', ` +
			`matchers: 'cluster="a"'}}`,
			[]string{"--prometheus=http://10.0.0.1:9090", `--prometheus-matchers=cluster="a"`}, nil, []string{"9090"}},
		"its own, with a token": {"hub: {enabled: true, prometheus: {url: 'http://prom:9090', " +
			"token: {secretName: t}, ca: {secretName: s, key: x}}}", []string{"--prometheus=http://prom:9090",
			"--prometheus-token-file=/etc/quietcore-prometheus/token",
			"--prometheus-ca-file=/etc/quietcore-prometheus/ca.crt"}, []string{"t token token", "s x ca.crt"},
			[]string{"9090", "53", "53", "5353", "5353"}},
	} {
		_, its := ofHub(t, Release{Values: parseValues(t, "{"+c.values+"}")})
		d, _ := first[*appsv1.Deployment](its)
		spec := d.Spec.Template.Spec
		args := slices.DeleteFunc(slices.Clone(spec.Containers[0].Args), func(a string) bool {
			return !strings.HasPrefix(a, "--prometheus")
		})
		if !slices.Equal(args, c.args) {
			t.Errorf("%s: it is told %q, want %q", name, args, c.args)
		}
		if got := projected(spec.Volumes[1:]); !slices.Equal(got, c.mounts) ||
			len(spec.Containers[0].VolumeMounts) != len(spec.Volumes) {
			t.Errorf("%s: %q is mounted, want %q", name, got, c.mounts)
		}
		policy, _ := first[*networkingv1.NetworkPolicy](its)
		var ports []string
		for _, rule := range policy.Spec.Egress[1:] {
			for _, p := range rule.Ports {
				ports = append(ports, p.Port.String())
			}
		}
		if !slices.Equal(ports, c.ports) {
			t.Errorf("%s: it may reach ports %q, want %q", name, ports, c.ports)
		}
	}
	for values, want := range map[string]string{
		"{token: {secretName: t}}":                                 "nobody would read them",
		"{url: 'http://p', ca: {secretName: s, configMapName: c}}": "come from one of them",
	} {
		_, err := Render(chartDir, Release{Name: "quietcore", Namespace: namespace, Kubernetes: "1.36.0",
			Values: parseValues(t, "{hub: {enabled: true, prometheus: "+values+"}}")})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", values, err, want)
		}
	}
}

// projected are the files of volumes: of what, its key, and the name.
func projected(volumes []corev1.Volume) (list []string) {
	for _, v := range volumes {
		for _, s := range v.Projected.Sources {
			if s.Secret != nil {
				list = append(list, s.Secret.Name+" "+s.Secret.Items[0].Key+" "+s.Secret.Items[0].Path)
			}
			if s.ConfigMap != nil {
				list = append(list, s.ConfigMap.Name+" "+s.ConfigMap.Items[0].Key+" "+s.ConfigMap.Items[0].Path)
			}
		}
	}
	return list
}

// TestSpecsOfTheHubsPrometheus: one URL is enough for the hub, for specs and for the series that they are made of.
// Daemons ask the hub's Prometheus where it has the rules and knows this cluster alone, unless the values say whom they
// ask.
func TestSpecsOfTheHubsPrometheus(t *testing.T) {
	const hub = "hub: {prometheus: {url: 'https://prom:9091', token: {secretName: t}, ca: {configMapName: c, key: x}}}"
	const ruled = "metrics: {rules: {enabled: true}}"
	asks := func(values string, kinds []string) (c *config.Config, mounts []string) {
		out := render(t, Release{Values: parseValues(t, "{"+values+"}"), Kinds: kinds})
		objects := decode(t, out)
		m, _ := first[*corev1.ConfigMap](objects)
		c, err := config.Parse([]byte(m.Data["config.yaml"]))
		if err != nil {
			t.Fatal(err)
		}
		daemon, _ := first[*appsv1.DaemonSet](objects)
		for _, v := range daemon.Spec.Template.Spec.Volumes {
			if v.Name == "prometheus" {
				mounts = projected([]corev1.Volume{v})
			}
		}
		unread := kinds != nil && strings.Contains(values, ruled) && c.CPI.Mode != config.CPIOff &&
			c.CPI.Specs.Prometheus.URL == ""
		if strings.Contains(out.Notes, "no daemon reads what they record") != unread {
			t.Errorf("%s: nobody reads the rules: %t; the notes:\n%s", values, unread, out.Notes)
		}
		return c, mounts
	}
	files := []string{"t token token", "c x ca.crt"}
	for name, c := range map[string]struct {
		values, specs string // of `config.cpi`
		url           string
		series        int
		mounts        []string
	}{
		"one URL":       {ruled + ", " + hub, "{}", "https://prom:9091", 1000, files},
		"how often":     {ruled + ", " + hub, "{specs: {prometheus: {period: 1m}}}", "https://prom:9091", 1000, files},
		"fewer series":  {ruled + ", " + hub, "{jobSeries: 7}", "https://prom:9091", 7, files},
		"no rules":      {hub, "{}", "", 0, nil},
		"others' rules": {"metrics: {rules: {enabled: true, specs: false}}, " + hub, "{}", "", 0, nil},
		"nobody counts": {ruled + ", " + hub, "{mode: 'off'}", "", 0, nil},
		"many clusters": {ruled + `, hub: {prometheus: {url: 'http://p', matchers: 'cluster="a"'}}`, "{}", "", 0, nil},
		"none":          {ruled + ", hub: {prometheus: {url: none}}", "{}", "", 0, nil},
		"not wanted":    {ruled + ", " + hub, "{specs: {prometheus: {url: ''}}}", "", 0, nil},
		"another":       {ruled + ", " + hub, "{specs: {prometheus: {url: 'http://p'}}}", "http://p", 1000, nil},
		"its token": {ruled + ", " + hub + ", specs: {token: {secretName: o}}",
			"{specs: {prometheus: {url: 'http://p'}}}", "http://p", 1000, []string{"o token token"}},
	} {
		got, mounts := asks(c.values+", config: {cpi: "+c.specs+"}", monitoring)
		if p := got.CPI.Specs.Prometheus; p.URL != c.url || got.CPI.JobSeries != c.series ||
			(p.TokenFile != "") != (len(c.mounts) > 0) || (p.CAFile != "") != (len(c.mounts) > 1) {
			t.Errorf("%s: it asks %+v and has %d series", name, p, got.CPI.JobSeries)
		}
		if !slices.Equal(mounts, c.mounts) {
			t.Errorf("%s: %q is mounted, want %q", name, mounts, c.mounts)
		}
	}
	_, err := Render(chartDir, Release{Name: "quietcore", Namespace: namespace, Kubernetes: "1.36.0", Kinds: monitoring,
		Values: parseValues(t, "{"+ruled+
			", hub: {prometheus: {url: 'http://p', ca: {secretName: s, configMapName: c}}}}")})
	if err == nil || !strings.Contains(err.Error(), "come from one of them") {
		t.Errorf("certificates of two objects: %v", err)
	}
	// The kinds of an operator are not there, and so nobody loads the rules.
	if got, mounts := asks(ruled+", "+hub, nil); got.CPI.Specs.Prometheus.URL != "" || mounts != nil {
		t.Errorf("without PrometheusRule it asks %q", got.CPI.Specs.Prometheus.URL)
	}
}
