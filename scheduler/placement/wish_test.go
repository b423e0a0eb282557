package placement

import (
	"testing"

	"github.com/quietcore/quietcore/policy"
)

// TestAlike: pods that every node answers alike are known as such, whoever they belong to, and
// others are not.
func TestAlike(t *testing.T) {
	wish := func(uid, namespace, owner string, milli int64) *Wish {
		r := policy.Resources{RequestMilli: milli, LimitMilli: milli}
		return NewWish(&policy.Pod{UID: uid, Sandbox: uid, Namespace: namespace, Name: uid, QoS: policy.Guaranteed,
			Resources: &r, Labels: map[string]string{policy.LabelClass: "LSR"},
			Facts: &policy.PodFacts{UID: uid, Resources: r, Owner: owner}})
	}
	first := wish("a", "shop", "Deployment/web", 4000)
	for _, c := range []struct {
		other *Wish
		alike bool
	}{
		{wish("b", "shop", "Deployment/web", 4000), true},
		{wish("b", "shop", "Deployment/db", 4000), true},
		{wish("b", "shop", "Deployment/web", 2000), false},
		{wish("b", "yard", "Deployment/web", 4000), false}, // what it may do differs
	} {
		if got := first.Alike(c.other); got != c.alike {
			t.Errorf("alike: %v, of %s and %s", got, first.alike().Value(), c.other.alike().Value())
		}
	}
}
