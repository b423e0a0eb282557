package chart

import (
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestReaderRightsAreDerived keeps what the chart gives those who ask the daemons, as internal/fleet uses it at a
// real API server.
func TestReaderRightsAreDerived(t *testing.T) {
	out := render(t, Release{Values: parseValues(t, "reader: {subjects: [{kind: User, name: reader}]}")})
	golden(t, "testdata/reader.yaml", out.Manifests["reader.yaml"])
	for _, o := range decode(t, out) {
		role, is := o.(*rbacv1.ClusterRole)
		if !is {
			continue
		}
		for _, r := range role.Rules {
			for _, url := range r.NonResourceURLs {
				// Kubernetes' own role system:discovery gives those to everybody.
				if strings.HasPrefix(url, "/api") || url == "*" {
					t.Errorf("%s is no right of its own", url)
				}
			}
		}
	}
}

// hasReader says whether there is an account of readers.
func hasReader(objects []runtime.Object) bool {
	for _, o := range objects {
		if b, is := o.(*rbacv1.Role); is && strings.HasSuffix(b.Name, "-reader") {
			return true
		}
	}
	return false
}

// TestNoReaderWithoutTokens: where no token is taken there is nothing to give.
func TestNoReaderWithoutTokens(t *testing.T) {
	for text, want := range map[string]bool{
		"{}": true, "reader: {create: false}": false, "rbac: {create: false}": false,
		"config: {listen: '127.0.0.1:9464'}": false, "config: {listen: ''}": false,
		"config: {metrics: {auth: 'off'}}": false, "config: {kubernetes: {api: 'off'}}": false,
	} {
		if got := hasReader(decode(t, render(t, Release{Values: parseValues(t, text)}))); got != want {
			t.Errorf("%s: a Role for readers: %t", text, got)
		}
	}
}
