package policy

import "testing"

// Whether a pod needs a mask of its own follows from who else is on the node.
func TestExposed(t *testing.T) {
	owner := func(name string, qos QoS) Pod {
		p := lsr(name, 2000, nil)
		p.QoS = qos
		return p
	}
	plain := func(name string, qos QoS, class Class) Pod {
		p := lsr(name, 500, nil)
		p.QoS, p.Labels = qos, map[string]string{LabelClass: string(class)}
		return p
	}
	for _, c := range []struct {
		name    string
		others  []Pod
		pod     Pod
		exposed bool
	}{
		{"nobody owns anything", nil, plain("web", Guaranteed, LS), false},
		{"a pod in no slice", []Pod{owner("db", Guaranteed)}, plain("web", Guaranteed, LS), true},
		{"the owner lies elsewhere", []Pod{owner("db", Guaranteed)}, plain("web", Burstable, LS), false},
		{"the owner lies in the same slice", []Pod{owner("db", Burstable)}, plain("web", Burstable, LS), true},
		{"its class is not its slice's", []Pod{owner("db", Guaranteed)}, plain("job", Burstable, BE), true},
		{"another's class is not the slice's", []Pod{owner("db", Guaranteed), plain("job", Burstable, BE)},
			plain("web", Burstable, LS), true},
		{"an owner itself", []Pod{owner("a", Guaranteed)}, owner("db", Guaranteed), false},
	} {
		m := small(t, Config{})
		for _, p := range append(c.others, c.pod) {
			told(t, m, PodRun{Pod: p})
		}
		if got := m.Exposed(c.pod.UID); got != c.exposed {
			t.Errorf("%s: exposed is %t", c.name, got)
		}
	}
}
