package plugin

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
)

// held is a reader whose reads wait: those of paths in hold for ever, until the test is
// over, the others until they are let through.
type held struct {
	cgroup.Reader
	mu     sync.Mutex
	open   bool
	budget int                    // reads that pass before it is open
	hold   func(path string) bool // nil: none
	moved  chan struct{}          // closed and replaced when one of these changes
	// podsOnly lets pass what is no pod's: a slice whose read hangs holds up the writer,
	// and with it every container that would start in that slice.
	podsOnly bool
	reads    map[string]int // by path, how often it was read while the gate was shut
	over     chan struct{}
}

func newHeld(t *testing.T, r cgroup.Reader, budget int) *held {
	h := &held{Reader: r, budget: budget, moved: make(chan struct{}), reads: map[string]int{},
		over: make(chan struct{})}
	t.Cleanup(func() { close(h.over) })
	return h
}

func (h *held) change(do func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	do()
	close(h.moved)
	h.moved = make(chan struct{})
}

func (h *held) wait(path string) {
	if h.podsOnly && !strings.Contains(path, "/pod") {
		return
	}
	first := true
	for {
		h.mu.Lock()
		if first && !h.open {
			h.reads[strings.Trim(path, "/")]++
		}
		first = false
		hangs := h.hold != nil && h.hold(strings.Trim(path, "/"))
		if !hangs && (h.open || h.budget > 0) {
			if !h.open {
				h.budget--
			}
			h.mu.Unlock()
			return
		}
		moved := h.moved
		h.mu.Unlock()
		select {
		case <-moved:
		case <-h.over:
			return
		}
	}
}

func (h *held) CPUs(path string) (cgroup.Effective, error) { h.wait(path); return h.Reader.CPUs(path) }
func (h *held) Effective(path string) (cgroup.Effective, error) {
	h.wait(path)
	return h.Reader.Effective(path)
}
func (h *held) Allowed(path string) (cpuset.Set, error) { h.wait(path); return h.Reader.Allowed(path) }

// takeOver starts a daemon over a reader that lets few reads pass, and has the wait for
// them end: the Synchronize has to be answered by what there is.
func (n *node) takeOver(h *held, change ...func(*Options)) {
	n.t.Helper()
	enough := make(chan time.Time, 10)
	for range cap(enough) {
		enough <- time.Time{}
	}
	n.start(append(change, func(o *Options) {
		o.Reader = h
		o.after(half(0)/2, enough)
	})...)
	eventually(n.t, "the Synchronize is answered", n.plugin.Synchronised)
	n.admitted()
	if strings.Contains(n.log.String(), "not connected to the runtime") {
		n.t.Error("it was not answered at the first attempt")
	}
}

// A thousand containers, 30 of them owners, on a node whose reads are slow and one of
// which hangs, the state file lost: the first Synchronize is answered, nothing is
// written and no owner starts before it is known who owns what, and nothing moves.
func TestSynchronizeIsAnsweredWhateverReadsTake(t *testing.T) {
	for _, c := range []struct {
		name    string
		pass    int // reads before the answer
		hangs   string
		unknown bool // who owns what stays unknown while it hangs
	}{
		{"none is read", 0, "", false},
		{"a container's read hangs", 400, "kubepods/burstable/poduid-p500/p500-main", false},
		{"the read of an owner hangs", 400, "owner", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, pods, containers := full(t)
			for i, p := range pods {
				n.pods[p.Id] = p
				n.containers[containers[i].Id] = containers[i]
			}
			n.up()
			before, owned := n.places(), n.plugin.Snapshot().Exclusive
			hangs := c.hangs
			if hangs == "owner" {
				owner := n.plugin.Snapshot().Owners[7]
				hangs = "kubepods/pod" + owner.PodUID
			}
			n.kill()
			n.store.set(state.Snapshot{})
			n.kernel.Writes()
			h := newHeld(t, n.kernel, c.pass)
			h.podsOnly = true
			h.hold = func(path string) bool { return hangs != "" && path == hangs }
			n.takeOver(h)
			if n.plugin.Settled() {
				t.Error("it calls itself settled while it reads")
			}
			busy := func() {
				t.Helper()
				if n.plugin.Unread() == "" {
					t.Fatal("it says that nothing is unread")
				}
				err := n.run(lsr("new", 2000))
				if err == nil || !strings.Contains(err.Error(), "Busy") {
					t.Fatalf("an owner that comes meanwhile: error is %v, want Busy", err)
				}
				if w := n.kernel.Writes(); len(w) > 0 {
					t.Errorf("%d writes before it is known who owns what, the first %s", len(w), w[0])
				}
			}
			if c.pass == 0 || c.unknown {
				busy()
			}
			web := burstable("web")
			if err := n.run(web); err != nil { // the masks of a thousand are not yet known: kubelet tries again
				eventually(t, "a shared pod that comes meanwhile starts", func() bool {
					return n.startContainer(web, "web-main", web.ctrs[0]) == nil
				})
			}
			n.end("web-main")
			h.change(func() { h.open = true })
			if c.unknown {
				eventually(t, "all others are read", func() bool { left, _ := n.plugin.reads.left(); return left == 1 })
				busy()
				h.change(func() { h.hold = nil })
			}
			eventually(t, "it is known who owns what", func() bool { return n.plugin.Unread() == "" })
			h.change(func() { h.hold = nil })
			n.settle()
			n.samePlaces(before)
			if got := n.plugin.Snapshot().Exclusive; got != owned {
				t.Errorf("%s is owned, before %s", got, owned)
			}
			mustRun(t, n, lsr("new", 2000))
			n.settle()
			n.checkOwners()
		})
	}
}

// With the state file there nothing is open to question, however little is read.
func TestARestartWithItsStateWithholdsNothing(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	populate(t, n)
	before := n.places()
	n.kill()
	h := newHeld(t, n.kernel, 0)
	n.takeOver(h)
	if why := n.plugin.Unread(); why != "" {
		t.Errorf("unread: %s", why)
	}
	h.change(func() { h.open = true })
	n.samePlaces(before)
	mustRun(t, n, lsr("new", 2000))
	n.want("new-main", "0-1")
	n.checkOwners()
}

// A runtime that gives up and asks again finds what was read already.
func TestWhatWasReadIsKeptOverAReconnect(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	populate(t, n)
	before := n.places()
	n.kill()
	mustRun(t, n, lsr("late", 1000)) // nobody places it
	n.store.set(state.Snapshot{})
	h := newHeld(t, n.kernel, 6)
	n.takeOver(h)
	eventually(t, "some are read and others wait", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.budget == 0 && len(h.reads) > lanes
	})
	n.stopRuntime()
	eventually(t, "the loss is noticed", func() bool { return !n.plugin.Connected() })
	n.startRuntime()
	eventually(t, "the plugin is back", n.plugin.Synchronised)
	h.mu.Lock()
	for path, times := range h.reads {
		// Slices are read by the writer too, containers by the collection of what ended.
		if times > 1 && strings.Contains(path, "/pod") && !strings.HasSuffix(path, "-main") {
			t.Errorf("%s was read %d times", path, times)
		}
	}
	h.mu.Unlock()
	h.change(func() { h.open = true })
	n.want("late-main", "0")
	n.want("a-main", before["a-main"])
	n.want("isolated-main", before["isolated-main"])
	mustRun(t, n, lsr("new", 2000))
	n.want("new-main", "12-13")
	n.checkOwners()
}

// What the kernel says over the record is found also when it is read after the answer.
func TestALateReadCorrectsTheRecord(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	mustRun(t, n, lsr("db", 2000), lsr("other", 2000), burstable("web"))
	n.settle()
	n.kill()
	// The daemon was killed after a resize and before it was saved; of the other owner
	// there is no record, so that nothing is written before it is read.
	saved := n.store.load()
	saved.Pods = slices.DeleteFunc(saved.Pods, func(p state.Pod) bool { return p.UID == "uid-other" })
	n.store.set(saved)
	if err := n.update("db-main", cpuOf(4000, 4000, "0-1,4-5")); err != nil {
		t.Fatal(err)
	}
	n.kernel.Tamper("kubepods/poduid-db", "0-1,4-5")
	h := newHeld(t, n.kernel, 0)
	n.takeOver(h)
	if got := n.plugin.Snapshot().Exclusive.String(); got != "0-1" {
		t.Errorf("%s is owned by the record, want 0-1", got)
	}
	h.change(func() { h.open = true })
	n.want("db-main", "0-1,4-5")
	n.want("other-main", "2-3")
	n.want("web-main", "6-15")
	n.checkOwners()
}

// The order of reads, and what is asked of a pod that is gone.
func TestReadsAreOrderedByWorth(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.startRuntime()
	mustRun(t, n, burstable("web"), lsr("recorded", 2000), bestEffort("low"), lse("db", 2000))
	ended := lsr("ended", 2000)
	n.pods["sb-ended"] = ended.sandbox("sb-ended")
	r := recovery{
		reader: n.kernel, topo: n.topo, known: func(string) bool { return false },
		saved: map[string]state.Pod{"uid-recorded": {UID: "uid-recorded", CPUs: cpuset.Range(0, 1)}},
	}
	pods, ctrs := n.lists()
	taken := newTaking(r, inventoryOf(pods, ctrs, "", time.Time{}), false, nil)
	at := func(path string, kind queryKind) int {
		for i, q := range taken.queries {
			if q == (query{path, kind}) {
				return i
			}
		}
		t.Fatalf("%s is not read (kind %d): %v", path, kind, taken.queries)
		return 0
	}
	if a, b := at("kubepods/poduid-db", readAll), at("kubepods/poduid-ended", readAll); a > 1 || b > 1 {
		t.Errorf("owners without a record come at %d and %d", a, b)
	}
	if a, b := at("kubepods/burstable", readCPUs), at("kubepods", readList); a > 3 || b > 3 || taken.urgent != 4 {
		t.Errorf("slices come at %d and %d, %d are urgent", a, b, taken.urgent)
	}
	if at("kubepods/poduid-recorded", readAll) != 4 || at("kubepods/besteffort/poduid-low/low-main", readAll) < 7 {
		t.Errorf("the rest is out of order: %v", taken.queries)
	}
	if _, err := (seenReader{}).CPUs("kubepods"); !errors.Is(err, errUnread) {
		t.Errorf("what was not read is %v", err)
	}
	out := taken.answer(nil)
	for _, p := range out.event.Pods {
		if want := p.UID == "uid-db" || p.UID == "uid-ended"; p.Unread != want {
			t.Errorf("%s is unread: %t", p.UID, p.Unread)
		}
	}
	seen := map[query]reading{}
	for _, q := range taken.queries {
		seen[q] = q.read(n.kernel)
	}
	c := taken.correct(seen)
	if len(c.corrected.Pods) != 1 || c.corrected.Pods[0] != (policy.Correction{UID: "uid-db"}) {
		t.Errorf("corrected: %+v", c.corrected.Pods)
	}
	if again := taken.correct(seen); len(again.corrected.Pods)+len(again.corrected.Containers)+len(again.observed) > 0 {
		t.Errorf("the same reads correct a second time: %+v", again)
	}
}
