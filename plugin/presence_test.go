package plugin

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
)

// partial is a reader that can be blinded, as by a wrong root or by another cgroup
// namespace: what hides says is not there.
type partial struct {
	cgroup.Reader
	hides atomic.Pointer[func(path string) bool]
}

func (p *partial) hide(hides func(path string) bool) { p.hides.Store(&hides) }

func (p *partial) hidden(path string) bool {
	hides := p.hides.Load()
	return hides != nil && *hides != nil && (*hides)(strings.Trim(path, "/"))
}

func (p *partial) CPUs(path string) (cgroup.Effective, error) {
	if p.hidden(path) {
		return cgroup.Effective{}, cgroup.ErrGone
	}
	return p.Reader.CPUs(path)
}

func (p *partial) Effective(path string) (cgroup.Effective, error) {
	if p.hidden(path) {
		return cgroup.Effective{}, cgroup.ErrGone
	}
	return p.Reader.Effective(path)
}

func (p *partial) Allowed(path string) (cpuset.Set, error) {
	e, err := p.CPUs(path)
	return e.CPUs, err
}

func (p *partial) Children(path string) ([]string, error) {
	if p.hidden(path) {
		return nil, cgroup.ErrGone
	}
	names, err := p.Reader.Children(path)
	return slices.DeleteFunc(names, func(name string) bool {
		return p.hidden(strings.TrimPrefix(strings.Trim(path, "/")+"/"+name, "/"))
	}), err
}

// seeing is a node whose reader can be blinded; rounds runs that many rounds of the
// collection and returns when the last is done.
func seeing(t *testing.T) (n *node, sight *partial, rounds func(int)) {
	n = newNode(t, grid(t, testGrid))
	sight = &partial{Reader: n.kernel}
	vanish := make(chan time.Time)
	n.up(func(o *Options) { o.Reader, o.Clock.Vanish = sight, vanish })
	n.collected()
	return n, sight, func(times int) {
		for range times {
			vanish <- time.Time{}
		}
		n.collected()
	}
}

// collected waits until the collection of pods that ended has done what it was asked:
// it takes one thing after the other.
func (n *node) collected() {
	n.t.Helper()
	e := n.plugin.ending
	eventually(n.t, "the round after the Synchronize is taken", func() bool { return len(e.scan) == 0 })
	e.wake <- struct{}{}
	eventually(n.t, "the rounds are done", func() bool { return len(e.wake) == 0 })
}

// A reader that sees nothing, or lacks much at once, ends nothing: owners keep their
// CPUs, health says why, and when it sees again what really ended is collected.
func TestABlindReaderEndsNoPod(t *testing.T) {
	for _, c := range []struct {
		name  string
		hides func(path string) bool
		says  string
	}{
		{"everything", func(string) bool { return true }, "cannot be listed"},
		{"all below kubepods", func(path string) bool {
			return strings.HasPrefix(path, "kubepods/")
		}, "cannot be listed"},
		{"the burstable slice", func(path string) bool {
			return strings.HasPrefix(path, "kubepods/burstable")
		}, "kubepods/burstable, in which pods run, cannot be listed"},
		{"all pods", func(path string) bool { return strings.Contains(path, "/pod") }, "all 5 pods"},
		{"most owners", func(path string) bool {
			return strings.Contains(path, "poduid-a") || strings.Contains(path, "poduid-b")
		}, "2 of 3 pods with CPUs of their own"},
		{"all of a slice", func(path string) bool {
			return strings.Contains(path, "burstable/pod")
		}, "all 2 pods in kubepods/burstable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, sight, rounds := seeing(t)
			mustRun(t, n, lsr("a", 2000), lsr("b", 2000), lsr("c", 2000), burstable("web"), burstable("app"))
			n.settle()
			sight.hide(c.hides)
			rounds(2 * enoughMisses)
			if why := n.plugin.Blind(); !strings.Contains(why, c.says) {
				t.Errorf("it is blind because %q, want %q", why, c.says)
			}
			// Where not even the new pod's own cgroup can be seen nobody is started on CPUs
			// that others may still have.
			err := n.run(lsr("new", 2000))
			sight.hide(nil)
			if err != nil {
				if !c.hides("kubepods") || !strings.Contains(err.Error(), "Busy") {
					t.Fatal(err)
				}
				n.remove(lsr("new", 2000))
				n.plugin.Audit()
				n.settle()
				mustRun(t, n, lsr("new", 2000))
			}
			n.want("a-main", "0-1")
			if got := n.on("new-main"); got != "6-7" {
				t.Errorf("the new owner runs on %s, want CPUs that were free", got)
			}
			n.wantBooks(6, 6)
			n.checkOwners()
			n.kernel.Rmdir(lsr("a", 2000).parent())
			rounds(enoughMisses)
			if why := n.plugin.Blind(); why != "" {
				t.Errorf("it is blind although it sees: %s", why)
			}
			n.wantBooks(5, 5)
		})
	}
}

// What presence makes of a row of looks, without a tree.
func TestAnEndNeedsAgreement(t *testing.T) {
	pod := func(uid string, owner bool) member {
		return member{id: uid, uid: uid, path: "kubepods/pod" + uid, owner: owner}
	}
	members := []member{
		pod("a", true), pod("b", true), pod("c", false), pod("d", false),
		{id: "x", uid: "c", path: "kubepods/podc/x", container: true},
	}
	see := func(names ...string) sighting {
		return sighting{"kubepods": {names: names}, "kubepods/podc": {names: []string{"x"}}}
	}
	every := []string{"poda", "podb", "podc", "podd"}
	without := func(gone ...string) sighting {
		return see(slices.DeleteFunc(slices.Clone(every), func(name string) bool {
			return slices.Contains(gone, name)
		})...)
	}
	failed := see()
	failed["kubepods"] = children{err: errors.New("input/output error")}
	noContainer := see(every...)
	noContainer["kubepods/podc"] = children{names: nil}
	type step struct {
		seen  sighting
		only  map[string]bool
		named map[string]bool
		ended string
		blind bool
	}
	for _, c := range []struct {
		name  string
		ready func([]member)
		steps []step
	}{
		{name: "twice in a row", steps: []step{{seen: without("poda")}, {seen: without("poda"), ended: "[a]"}}},
		{name: "there in between", steps: []step{{seen: without("poda")}, {seen: see(every...)},
			{seen: without("poda")}}},
		{name: "a listing that fails says nothing", steps: []step{{seen: without("poda")}, {seen: failed, blind: true},
			{seen: without("poda")}}},
		{name: "named since", steps: []step{{seen: without("poda")},
			{seen: without("poda"), named: map[string]bool{"a": true}}, {seen: without("poda"), ended: "[a]"}}},
		{name: "most owners at once", steps: []step{{seen: without("poda", "podb"), blind: true},
			{seen: without("poda", "podb"), blind: true}, {seen: without("poda")}}},
		{name: "most owners, announced", ready: func(m []member) {
			m[0].ending, m[1].ending = true, true
		}, steps: []step{{seen: without("poda", "podb")}, {seen: without("poda", "podb"), ended: "[a b]"}}},
		{name: "all pods", steps: []step{{seen: without(every...), blind: true}}},
		{name: "looks count apart", steps: []step{{seen: without("poda")},
			{seen: without("poda"), only: map[string]bool{"a": true}},
			{seen: without("poda"), only: map[string]bool{"a": true}, ended: "[a]"}}},
		{name: "a look is at those that end", steps: []step{{seen: without("poda"), only: map[string]bool{"b": true}},
			{seen: without("poda"), only: map[string]bool{"b": true}}}},
		{name: "a container", steps: []step{{seen: noContainer}, {seen: noContainer, ended: "[x]"}}},
		{name: "a container of a pod that was not listed", steps: []step{{seen: sighting{"kubepods": {names: every}}},
			{seen: sighting{"kubepods": {names: every}}}}},
		{name: "nobody lists the parent", steps: []step{{seen: sighting{}}, {seen: sighting{}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			list := slices.Clone(members)
			if c.ready != nil {
				c.ready(list)
			}
			var p presence
			for i, s := range c.steps {
				ended := []string{}
				for _, m := range p.look(list, s.seen, s.only, s.named) {
					ended = append(ended, m.id)
				}
				if want := s.ended; fmt.Sprint(ended) != want && !(want == "" && len(ended) == 0) ||
					(p.blind != "") != s.blind {
					t.Errorf("look %d: ended %v, blind %q; want %q and blind %t", i, ended, p.blind, s.ended, s.blind)
				}
			}
		})
	}
}
