package plugin

import (
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
func seeing(t *testing.T) (n *rig, sight *partial, rounds func(int)) {
	n = newNode(t, grid(t, testGrid))
	sight = &partial{Reader: n.kernel}
	vanish := make(chan time.Time)
	n.up(func(o *Options) { o.Reader, o.Clock.Vanish = sight, vanish })
	n.rounds(nil, 0)
	return n, sight, func(times int) { n.rounds(vanish, times) }
}

// rounds lets the daemon look at all pods that often, and waits for the last look.
func (n *rig) rounds(vanish chan<- time.Time, times int) {
	n.t.Helper()
	done := func() uint64 { return n.plugin.runner.status.Load().Rounds }
	eventually(n.t, "the round after the Synchronize is done", func() bool { return done() > 0 })
	for range times {
		before := done()
		vanish <- time.Time{}
		eventually(n.t, "the round is done", func() bool { return done() > before })
	}
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
			t.Parallel() // most wait for a deadline
			n, sight, rounds := seeing(t)
			mustRun(t, n, lsr("a", 2000), lsr("b", 2000), lsr("c", 2000), burstable("web"), burstable("app"))
			n.settle()
			sight.hide(c.hides)
			rounds(4)
			if why := n.plugin.Blind(); !strings.Contains(why, c.says) {
				t.Errorf("it is blind because %q, want %q", why, c.says)
			}
			// Where not even the new pod's own cgroup can be seen no owner is started on CPUs
			// that others may still have.
			err := n.run(lsr("new", 2000))
			sight.hide(nil)
			if err != nil {
				if !c.hides(strings.Trim(lsr("new", 2000).parent(), "/")) || !strings.Contains(err.Error(), "Busy") {
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
			rounds(2)
			if why := n.plugin.Blind(); why != "" {
				t.Errorf("it is blind although it sees: %s", why)
			}
			n.wantBooks(5, 5)
		})
	}
}
