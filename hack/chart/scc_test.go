package chart

import (
	"slices"
	"testing"

	securityv1 "github.com/openshift/api/security/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// TestConstraintsAreWhatThePodsNeed: OpenShift admits the pods, and would not admit
// pods with more.
func TestConstraintsAreWhatThePodsNeed(t *testing.T) {
	for _, values := range []string{
		"{}",
		"config: {cpi: {mode: \"off\"}}",
		"config: {cpi: {resctrl: /host/resctrl}}",
		"{config: {cpi: {resctrl: /host/resctrl, mode: \"off\"}}, restore: {enabled: true}}",
		"{enableNRI: {enabled: true}, restore: {enabled: true}, security: {capabilities: [SYS_RESOURCE]}}",
		"{extraVolumes: [{name: a, nfs: {server: s, path: /}}], extraVolumeMounts: [{name: a, mountPath: /a}]}",
		"{specs: {token: {secretName: a}}, config: {cpi: {specs: {prometheus: {url: \"http://p\"}}}}}",
	} {
		objects := decode(t, render(t, Release{Values: parseValues(t, values), Kinds: []string{openshift}}))
		scc, ok := first[*securityv1.SecurityContextConstraints](objects)
		if !ok {
			t.Fatalf("%s: none", values)
		}
		d, _ := first[*appsv1.DaemonSet](objects)
		spec := d.Spec.Template.Spec
		if !slices.Equal(scc.Users, []string{"system:serviceaccount:" + namespace + ":" + spec.ServiceAccountName}) ||
			len(scc.Groups) > 0 {
			t.Errorf("%s: they are for %v and %v", values, scc.Users, scc.Groups)
		}
		// kubelet's own: the volume of the token.
		used := []securityv1.FSType{securityv1.FSProjected}
		for _, v := range spec.Volumes {
			used = append(used, kindOf(v))
		}
		for _, k := range used {
			if !slices.Contains(scc.Volumes, k) {
				t.Errorf("%s: a volume of kind %s is not let in by %v", values, k, scc.Volumes)
			}
		}
		for _, k := range scc.Volumes {
			if !slices.Contains(used, k) {
				t.Errorf("%s: volumes of kind %s are let in, and nobody has one", values, k)
			}
		}
		var capabilities []corev1.Capability
		for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
			s := c.SecurityContext
			capabilities = append(capabilities, s.Capabilities.Add...)
			if *s.RunAsUser != *scc.RunAsUser.UID || s.SELinuxOptions.Type != "spc_t" ||
				!slices.Equal(scc.SeccompProfiles, []string{"runtime/default"}) {
				t.Errorf("%s: %s has %+v", values, c.Name, s)
			}
		}
		slices.Sort(capabilities)
		allowed := slices.Sorted(slices.Values(scc.AllowedCapabilities))
		if got := slices.Compact(capabilities); !slices.Equal(got, allowed) {
			t.Errorf("%s: capabilities %v are used and %v let in", values, got, allowed)
		}
		if scc.AllowPrivilegedContainer || scc.AllowHostNetwork || scc.AllowHostPID != spec.HostPID ||
			scc.AllowHostIPC || scc.AllowHostPorts || *scc.AllowPrivilegeEscalation || !scc.ReadOnlyRootFilesystem {
			t.Errorf("%s: more is let in than is used: %+v", values, scc)
		}
	}
}

func kindOf(v corev1.Volume) securityv1.FSType {
	switch {
	case v.HostPath != nil:
		return securityv1.FSTypeHostPath
	case v.ConfigMap != nil:
		return securityv1.FSTypeConfigMap
	case v.EmptyDir != nil:
		return securityv1.FSTypeEmptyDir
	case v.Projected != nil:
		return securityv1.FSProjected
	case v.NFS != nil:
		return securityv1.FSTypeNFS
	}
	return securityv1.FSType("unknown: " + v.Name)
}

func TestConstraintsOnlyOnOpenShift(t *testing.T) {
	for _, c := range []struct {
		values string
		kinds  []string
		want   bool
	}{
		{"{}", nil, false},
		{"{}", []string{openshift}, true},
		{"openshift: {scc: never}", []string{openshift}, false},
		{"openshift: {scc: always}", nil, true},
	} {
		objects := decode(t, render(t, Release{Values: parseValues(t, c.values), Kinds: c.kinds}))
		if _, got := first[*securityv1.SecurityContextConstraints](objects); got != c.want {
			t.Errorf("%s, cluster knows %v: constraints %v, want %v", c.values, c.kinds, got, c.want)
		}
		d, _ := first[*appsv1.DaemonSet](objects)
		if got := d.Spec.Template.Spec.Containers[0].SecurityContext.SELinuxOptions != nil; got != c.want {
			t.Errorf("%s, cluster knows %v: an SELinux type %v, want %v", c.values, c.kinds, got, c.want)
		}
	}
	objects := decode(t, render(t, Release{Values: parseValues(t, "security: {seLinuxOptions: {type: quietcore_t}}"),
		Kinds: []string{openshift}}))
	if d, _ := first[*appsv1.DaemonSet](
		objects); d.Spec.Template.Spec.Containers[0].SecurityContext.SELinuxOptions.Type != "quietcore_t" {
		t.Error("the SELinux type that values name gives way")
	}
}
