package control

import (
	"path"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/policy"
)

// Filter chooses containers. Empty lists choose all.
type Filter struct {
	Namespaces []string
	Classes    []string
	Pods       []string // names, or patterns of a shell such as web-*
}

// Classes lists those that a container may have.
func Classes() []string {
	var all []string
	for _, c := range []policy.Class{policy.LSE, policy.LSR, policy.LS, policy.BE, policy.SYSTEM} {
		all = append(all, string(c))
	}
	return all
}

// Check refuses what the flags cannot mean.
func (f *Filter) Check() error {
	for _, class := range f.Classes {
		if err := cli.OneOf("class", class, Classes()...); err != nil {
			return err
		}
	}
	for _, pattern := range f.Pods {
		if _, err := path.Match(pattern, ""); err != nil {
			return cli.Usage("--pod is %q; it must be a name or a pattern such as web-*", pattern)
		}
	}
	return nil
}

// All says that nothing is left out.
func (f *Filter) All() bool { return len(f.Namespaces)+len(f.Classes)+len(f.Pods) == 0 }

// Match reports whether a container is chosen.
func (f *Filter) Match(namespace, pod string, class policy.Class) bool {
	return (len(f.Classes) == 0 || slices.Contains(f.Classes, string(class))) && f.MatchPod(namespace, pod)
}

// MatchPod reports whether a pod is chosen, whatever its class.
func (f *Filter) MatchPod(namespace, pod string) bool {
	return f.MatchNamespace(namespace) && (len(f.Pods) == 0 || slices.ContainsFunc(f.Pods, func(p string) bool {
		ok, _ := path.Match(p, pod) // Check refused bad patterns
		return ok
	}))
}

// MatchNamespace reports whether a namespace is chosen.
func (f *Filter) MatchNamespace(namespace string) bool {
	return len(f.Namespaces) == 0 || slices.Contains(f.Namespaces, namespace)
}

// Filter leaves out of a status what f does not choose: containers, what they are throttled for,
// owners, pods that wait or have powers, lent CPUs, and claims. Where classes are chosen, a pod
// stays if one of its containers does. Claims are chosen by namespace alone.
func (s *Status) Filter(f *Filter) {
	if f.All() {
		return
	}
	pods, throttled := map[[2]string]bool{}, map[string]Throttled{}
	s.Containers = slices.DeleteFunc(s.Containers, func(c script.State) bool {
		if !f.Match(c.Namespace, c.Pod, c.Class) {
			return true
		}
		pods[[2]string{c.Namespace, c.Pod}] = true
		key := c.Namespace + "/" + c.Pod + "/" + c.Container
		if why, is := s.Throttled[key]; is {
			throttled[key] = why
		}
		return false
	})
	s.Throttled = throttled
	out := func(namespace, pod string) bool {
		return !f.MatchPod(namespace, pod) || len(f.Classes) > 0 && !pods[[2]string{namespace, pod}]
	}
	s.Owners = slices.DeleteFunc(s.Owners, func(o Owner) bool { return out(o.Namespace, o.Pod) })
	s.Waiting = slices.DeleteFunc(s.Waiting, func(w policy.Waiting) bool { return out(w.Namespace, w.Pod) })
	s.Powers = slices.DeleteFunc(s.Powers, func(p policy.PowersView) bool { return out(p.Namespace, p.Pod) })
	s.Claims = slices.DeleteFunc(s.Claims, func(c policy.ClaimView) bool { return !f.MatchNamespace(c.Namespace) })
	if s.Lending != nil {
		s.Lending.Pods = slices.DeleteFunc(s.Lending.Pods, func(p BatchPod) bool { return out(p.Namespace, p.Pod) })
		s.Lending.Taken = slices.DeleteFunc(s.Lending.Taken, func(t Taken) bool {
			namespace, pod, one := strings.Cut(t.Pod, "/")
			return one && out(namespace, pod)
		})
	}
}

// Filter leaves out the containers that f does not choose.
func (t *Top) Filter(f *Filter) {
	t.Containers = slices.DeleteFunc(t.Containers, func(c TopContainer) bool {
		return !f.Match(c.Namespace, c.Pod, c.Class)
	})
}
