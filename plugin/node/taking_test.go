package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// forThe is how long a runtime waits for a Synchronize in these tests.
const forThe = 2 * time.Second

// populated is a node whose daemon has ended, with owners and others, and a hole so that a
// new allocation would not be the same as the old one.
func populated(t *testing.T) *stepped {
	t.Helper()
	s := newStepped(t)
	isolated := lsr("isolated", 1000)
	isolated.Annotations = map[string]string{policy.AnnSMT: "isolate"}
	s.up(lsr("gone", 2000), lsr("a", 2000), lsr("b", 4000), isolated, lse("lse", 2000), burstable("web"),
		bestEffort("batch"))
	s.remove(lsr("gone", 2000))
	s.settle()
	return s
}

// restart is a new daemon, with or without its state file.
func (s *stepped) restart(keep bool, change ...func(*Options)) {
	s.t.Helper()
	if !keep {
		s.saved = state.Snapshot{}
	}
	s.start(change...)
}

// isPods are reads of pods and what is in them: the reads of slices hold up the writer, too.
func isPods(e *Effect) bool { return isRead(e) && strings.Contains(e.Path, "/pod") }

// A Synchronize is answered when half of its time has passed, whatever hangs; what hangs
// then keeps owners from starting and masks from being written until it is read.
func TestSynchronizeIsAnsweredAtHalfItsTime(t *testing.T) {
	s := populated(t)
	before, grants := s.places(), fmt.Sprint(s.core.Grants())
	s.restart(false)
	s.hangs = at(ReadAll, "kubepods/poduid-a")
	r := s.synchronizeBy(s.now.Add(forThe))
	s.wantHanging(1, "the read of one owner")
	if at, want := s.core.Next(), s.now.Add(forThe/2); !at.Equal(want) {
		t.Errorf("the core wants to be woken at %s, want %s", at, want)
	}
	s.pass(forThe/2 - 1)
	if _, answered := s.replies[r]; answered || s.core.Status().Synchronized {
		t.Fatal("it is answered although more could be read")
	}
	s.done = nil
	s.pass(1)
	if answer, answered := s.replies[r]; !answered || answer.Err != nil {
		t.Fatalf("at half its time: answered %t, error %v", answered, answer.Err)
	}
	s.pass(time.Minute)
	if st := s.core.Status(); st.Unread == 0 || !st.Synchronized || s.core.Settled() {
		t.Errorf("unread %d, synchronized %t, settled %t", st.Unread, st.Synchronized, s.core.Settled())
	}
	run := &Request{Event: policy.PodRun{Pod: lsr("new", 2000)}, Pod: "uid-new"}
	s.step(run)
	var refusal *policy.Refusal
	if err := s.replies[run].Err; !errors.As(err, &refusal) || refusal.Code != policy.Busy {
		t.Errorf("an owner that comes meanwhile is answered %v, want Busy", err)
	}
	if w := s.writes(); len(w) > 0 {
		t.Errorf("written before it is known who owns what: %v", w)
	}
	s.hangs = nil
	s.resume()
	s.settle()
	if got := fmt.Sprint(s.core.Grants()); got != grants {
		t.Errorf("owned are %s, want %s", got, grants)
	}
	s.wantPlaces(before)
	s.up(lsr("new", 2000))
	s.want("new-main", "0-1")
}

// Where everything is read the answer comes at once.
func TestSynchronizeIsAnsweredWhenAllIsRead(t *testing.T) {
	for _, keep := range []bool{true, false} {
		s := populated(t)
		before := s.places()
		s.restart(keep)
		r := s.synchronizeBy(s.now.Add(forThe))
		if answer, answered := s.replies[r]; !answered || answer.Err != nil {
			t.Errorf("state kept %t: answered %t, %v", keep, answered, answer.Err)
		}
		s.settle()
		s.wantPlaces(before)
	}
}

// crowded is a node of 512 CPUs on which so many pods run, 30 of them owners.
func crowded(t *testing.T, pods int) *stepped {
	s := newNode(t, topology.Grid{Sockets: 2, NodesPerSocket: 4, L3PerNode: 4, CoresPerL3: 8, ThreadsPerCore: 2})
	for i := range pods {
		var p policy.Pod
		switch {
		case i < 30:
			p = lsr(fmt.Sprint("db", i), 4000)
		case i%2 == 0:
			p = burstable(fmt.Sprint("web", i))
		default:
			p = bestEffort(fmt.Sprint("batch", i))
		}
		c := mainOf(p)
		c.CreatedAt = time.Unix(1e8+int64(i), 0)
		s.kernel.Mkdir(c.CgroupPath, 1)
		s.pods[p.UID], s.ctrs[c.ID] = p, c
	}
	return s
}

// A disk that answers nothing holds up no takeover, whatever its size, and all of it is one save or two.
func TestTakingOverFiveThousandPodsBesideASlowDisk(t *testing.T) {
	s := crowded(t, 5000)
	s.start()
	s.synchronize()
	s.settle()
	before, grants := s.places(), fmt.Sprint(s.core.Grants())
	s.restart(false)
	s.done, s.hangs = nil, isSave
	r := s.synchronizeBy(s.now.Add(forThe))
	s.pass(forThe / 2)
	if answer, answered := s.replies[r]; !answered || answer.Err != nil {
		t.Fatalf("answered %t, %v", answered, answer.Err)
	}
	s.pass(time.Minute)
	if got := fmt.Sprint(s.core.Grants()); got != grants {
		t.Errorf("owned are %s, want %s", got, grants)
	}
	s.wantPlaces(before)
	s.hangs = nil
	s.resume()
	s.settle()
	if n := s.saves(); n < 1 || n > 2 {
		t.Errorf("%d saves, want one or two", n)
	}
	s.wantPlaces(before)
}

// A thousand pods, 30 of them owners, the state file lost: whatever part of the reads
// comes in time, nothing is written and no owner starts before it is known who owns what,
// and nothing moves.
func TestTakingOverAThousandPods(t *testing.T) {
	for _, c := range []struct {
		name    string
		pass    int // reads of pods that come in time
		hangs   string
		unknown bool // who owns what stays unknown while it hangs
	}{
		{"none is read", 0, "", true},
		{"a container's read hangs", 400, "kubepods/burstable/poduid-web500/web500-main", false},
		{"the read of an owner hangs", 400, "kubepods/poduid-db7", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := crowded(t, 1000)
			s.start()
			s.synchronize()
			s.settle()
			before, grants := s.places(), fmt.Sprint(s.core.Grants())
			s.restart(false)
			left := c.pass
			s.hangs = func(e *Effect) bool {
				if !isPods(e) {
					return false
				}
				left--
				return left < 0 || e.Path == c.hangs
			}
			r := s.synchronizeBy(s.now.Add(forThe))
			s.pass(forThe / 2)
			if answer, answered := s.replies[r]; !answered || answer.Err != nil {
				t.Fatalf("answered %t, %v", answered, answer.Err)
			}
			if unknown := s.core.Status().Unread > 0; unknown != c.unknown {
				t.Fatalf("unread are %d pods", s.core.Status().Unread)
			}
			if c.unknown {
				if w := s.writes(); len(w) > 0 {
					t.Errorf("%d writes before it is known who owns what, the first to %s", len(w), w[0])
				}
				run := &Request{Event: policy.PodRun{Pod: lsr("new", 2000)}, Pod: "uid-new"}
				s.step(run)
				if err := s.replies[run].Err; err == nil {
					t.Error("an owner starts")
				}
			}
			s.hangs = func(e *Effect) bool { return c.hangs != "" && e.Path == c.hangs }
			s.resume(func(e *Effect) bool { return e.Path != c.hangs })
			s.pass(time.Minute)
			if unknown := c.unknown && c.hangs != ""; unknown != (s.core.Status().Unread > 0) {
				t.Errorf("when all others are read, unread are %d pods", s.core.Status().Unread)
			}
			s.hangs = nil
			s.resume()
			s.settle()
			if got := fmt.Sprint(s.core.Grants()); got != grants {
				t.Errorf("owned are %s, want %s", got, grants)
			}
			s.wantPlaces(before)
		})
	}
}

// With the state file there nothing is open to question, however little is read.
func TestARestartWithItsStateWithholdsNothing(t *testing.T) {
	s := populated(t)
	before := s.places()
	s.restart(true)
	s.hangs = isPods
	s.synchronizeBy(s.now.Add(forThe))
	s.pass(forThe / 2)
	if st := s.core.Status(); !st.Synchronized || st.Unread > 0 {
		t.Errorf("synchronized %t, unread %d", st.Synchronized, st.Unread)
	}
	s.hangs = nil
	s.resume()
	s.settle()
	s.wantPlaces(before)
	s.up(lsr("new", 2000))
	s.want("new-main", "0-1")
}

// A runtime that gives up and asks again finds what was read already.
func TestWhatWasReadIsKeptOverAReconnectUntilItIsReadAgain(t *testing.T) {
	s := populated(t)
	before := s.places()
	s.restart(false)
	left := 6
	s.hangs = func(e *Effect) bool {
		left--
		return left < 0
	}
	first := s.synchronizeBy(s.now.Add(forThe))
	s.wantHanging(lanes, "some are read and others wait")
	second := s.synchronizeBy(s.now.Add(forThe))
	s.wantHanging(lanes, "those that have not come back are not begun again")
	if err := s.replies[first].Err; !errors.Is(err, context.Canceled) {
		t.Errorf("the first attempt is answered %v", err)
	}
	s.hangs = nil
	s.resume()
	if answer, answered := s.replies[second]; !answered || answer.Err != nil {
		t.Fatalf("the second attempt: answered %t, %v", answered, answer.Err)
	}
	read, again := map[query]int{}, 0
	for _, e := range s.done[:s.before[second]] {
		q := query{cleanOf(e.Path), e.Kind}
		read[q]++
		switch {
		case read[q] > 2:
			t.Errorf("%s of %q is done %d times", q.kind, q.path, read[q])
		case read[q] == 2:
			again++
		case again > 0:
			t.Errorf("%s of %q comes after what was read before is read again", q.kind, q.path)
		}
	}
	if again == 0 {
		t.Error("what was read for the first attempt is not read again, and kubelet may have written it")
	}
	if len(read) < 10 {
		t.Errorf("only %d cgroups are read: the test shows nothing", len(read))
	}
	s.settle()
	s.wantPlaces(before)
}

// A Synchronize that is answered and not finished may come again: what is still unread
// stays so until it is read.
func TestASecondSynchronizeLeavesUnreadWhatIs(t *testing.T) {
	s := populated(t)
	before := s.places()
	s.restart(false)
	s.hangs = at(ReadAll, "kubepods/poduid-a")
	for range 2 {
		s.synchronizeBy(s.now.Add(forThe))
		s.pass(forThe)
		if s.core.Status().Unread == 0 {
			t.Fatal("nothing is unread while a read hangs")
		}
	}
	s.hangs = nil
	s.resume()
	s.settle()
	s.wantPlaces(before)
}

// What a panic of the policy kept from being corrected is corrected later.
func TestACorrectionThatPanicsIsTriedAgain(t *testing.T) {
	s, panics := populated(t), 0
	s.panicked = true
	before := s.places()
	s.restart(false, func(o *Options) {
		o.Step = func(m *policy.Machine, now time.Time, e policy.Event) ([]policy.Decision, error) {
			if _, is := e.(policy.Corrected); is && panics == 0 {
				panics++
				panic("a defect")
			}
			return m.Step(now, e)
		}
	})
	s.hangs = at(ReadAll, "kubepods/poduid-a")
	s.synchronizeBy(s.now.Add(forThe))
	s.pass(forThe)
	s.hangs = nil
	s.resume()
	s.pass(2 * readAgainAfter)
	if panics == 0 {
		t.Fatal("nothing panicked: the test shows nothing")
	}
	s.settle()
	s.wantPlaces(before)
}

// What the kernel says over the record is found also when it is read after the answer.
func TestALateReadCorrectsTheRecord(t *testing.T) {
	s := newStepped(t)
	s.up(lsr("db", 2000), lsr("other", 2000), burstable("web"))
	// The daemon was killed after a resize and before it was saved; of the other owner
	// there is no record, so that nothing is written before it is read.
	s.saved.Pods = slices.DeleteFunc(slices.Clone(s.saved.Pods), func(p state.Pod) bool { return p.UID == "uid-other" })
	c := s.ctrs["db-main"]
	c.Resources = policy.Resources{RequestMilli: 4000, LimitMilli: 4000}
	s.ctrs["db-main"] = c
	for _, path := range []string{"kubepods/poduid-db", "kubepods/poduid-db/db-main"} {
		s.kernel.Tamper(path, "0-1,4-5")
	}
	s.restart(true)
	s.hangs = isPods
	s.synchronizeBy(s.now.Add(forThe))
	s.pass(forThe / 2)
	if got := s.owns(lsr("db", 0)).String(); got != "0-1" {
		t.Errorf("it owns %s by the record, want 0-1", got)
	}
	s.hangs = nil
	s.resume()
	s.settle()
	if got := s.owns(lsr("db", 0)).String(); got != "0-1,4-5" {
		t.Errorf("it owns %s by the kernel, want 0-1,4-5", got)
	}
	s.want("db-main", "0-1,4-5")
	s.want("other-main", "2-3")
	s.want("web-main", "6-15")
	s.apart("at the end")
}

// What a takeover has read of a cgroup counts for nothing once the cgroup is written: not
// where the writer has not taken it in yet, nor where it was read while the write was under
// way.
func TestAReadFromBeforeAWriteIsForgotten(t *testing.T) {
	path := fractionPath("web")
	for _, c := range []struct {
		name string
		read func(*stepped)
	}{
		{"it waits for the writer", func(s *stepped) {
			s.core.writer.put(batch{observed: observations{"/" + path + "/": {OwnCPUs: cpuset.Range(2, 15)}}})
		}},
		{"it is under way", func(s *stepped) { s.synchronize() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStepped(t)
			s.up(lsr("first", 2000), fraction("web"))
			s.hangs = at(Write, path)
			s.sandbox(lsr("db", 4000))
			s.wantHanging(1, "the mask is written")
			if old, err := s.kernel.Effective(path); err != nil || old.OwnCPUs.String() != "2-15" {
				t.Fatalf("it has %s, %v: the test shows nothing", old.OwnCPUs, err)
			}
			c.read(s)
			s.remove(lsr("db", 4000)) // and what was read is what it should have
			s.hangs = nil
			s.resume()
			s.settle()
			if got := s.allows(path); got != "2-15" {
				t.Errorf("it runs on %s, want 2-15", got)
			}
		})
	}
}

// What the runtime or kubelet has written since it was read is read again.
func TestWhatOthersWriteIsReadAgain(t *testing.T) {
	r := newReads()
	q, other := query{"pod/ctr", ReadAll}, query{"pod", ReadAll}
	limit := func(milli int64) reading { return reading{e: cgroup.Effective{QuotaMilli: milli}} }
	r.ask([]query{q, other}, 0)
	r.take()
	r.put(q, limit(2000))
	r.outdate("pod/ctr")
	if _, done := r.seen[q]; done {
		t.Error("what was read before the runtime wrote it still counts")
	}
	r.take()
	r.put(other, limit(4000))
	if next, ok := r.take(); !ok || next != q {
		t.Fatalf("next is read %v, %t; want the container", next, ok)
	}
	r.outdate("pod/ctr") // while it is under way
	r.put(q, limit(1000))
	if next, ok := r.take(); !ok || next != q {
		t.Fatalf("next is read %v, %t; want the container once more", next, ok)
	}
	r.put(q, limit(600))
	if got := r.seen[q].e.QuotaMilli; got != 600 || len(r.wanted) > 0 || !r.news {
		t.Errorf("seen is %d, wanted are %v, news %t", got, r.wanted, r.news)
	}
	r.outdate("pod/never")
	if _, more := r.take(); more {
		t.Error("something is read that nobody asked for")
	}
}

// The order of reads, and what is asked of a pod that is gone.
func TestReadsAreOrderedByWorth(t *testing.T) {
	s := newNode(t, testGrid)
	var listed Inventory
	for _, p := range []policy.Pod{burstable("web"), lsr("recorded", 2000), bestEffort("low"), lse("db", 2000)} {
		s.kernel.Mkdir(mainOf(p).CgroupPath, 1)
		listed.Pods, listed.Containers = append(listed.Pods, p), append(listed.Containers, mainOf(p))
	}
	listed.Pods = append(listed.Pods, lsr("ended", 2000))
	r := recovery{
		reader: s.kernel, topo: s.topo,
		saved: map[string]state.Pod{"uid-recorded": {UID: "uid-recorded", CPUs: cpuset.Range(0, 1)}},
	}
	taken := newTaking(r, listed, false, nil)
	at := func(path string, kind EffectKind) int {
		t.Helper()
		i := slices.Index(taken.queries, query{path, kind})
		if i < 0 {
			t.Fatalf("%s is not read (%s): %v", path, kind, taken.queries)
		}
		return i
	}
	if a, b := at("kubepods/poduid-db", ReadAll), at("kubepods/poduid-ended", ReadAll); a > 1 || b > 1 {
		t.Errorf("owners without a record come at %d and %d", a, b)
	}
	if a, b := at(slice, ReadCPUs), at("kubepods", List); a > 3 || b > 3 || taken.urgent != 4 {
		t.Errorf("slices come at %d and %d, %d are urgent", a, b, taken.urgent)
	}
	if at("kubepods/poduid-recorded", ReadAll) != 4 || at("kubepods/besteffort/poduid-low/low-main", ReadAll) < 7 {
		t.Errorf("the rest is out of order: %v", taken.queries)
	}
	if _, err := (seenReader{}).CPUs("kubepods"); !errors.Is(err, errUnread) {
		t.Errorf("what was not read is %v", err)
	}
	unread := func(uid string) bool { return uid == "uid-db" || uid == "uid-ended" }
	out := taken.answer(nil, unread)
	for _, p := range out.event.Pods {
		if want := p.UID == "uid-db" || p.UID == "uid-ended"; p.Unread != want {
			t.Errorf("%s is unread: %t", p.UID, p.Unread)
		}
	}
	seen := map[query]reading{}
	for _, q := range taken.queries {
		seen[q] = q.reading(s.perform(q.effect()))
	}
	c := taken.correct(seen, unread)
	taken.note(&c.now)
	if len(c.corrected.Pods) != 1 || c.corrected.Pods[0] != (policy.Correction{UID: "uid-db"}) {
		t.Errorf("corrected: %+v", c.corrected.Pods)
	}
	again := taken.correct(seen, unread)
	if len(again.corrected.Pods)+len(again.corrected.Containers)+len(again.observed) > 0 {
		t.Errorf("the same reads correct a second time: %+v", again)
	}
}

// Of an owner without a place on disk its cgroup tells, and the mask of the slice beside it what that means.
// Until both are read, neither it nor another of which nothing else is known is decided on.
func TestOwnersAreHeldBackUntilTheyAreRead(t *testing.T) {
	cpus, failure := cpuset.Range(0, 1), errors.New("input/output error")
	waiting := state.Pod{UID: "uid-b", Degraded: "InsufficientCPUs", Request: 2}
	for _, c := range []struct {
		name       string
		saved      []state.Pod
		a, pool    error // of reading the other owner, and the slice
		ended      bool  // the other owner
		want       bool  // it is decided on
		repetition []query
	}{
		{"all is read", nil, nil, nil, false, true, nil},
		{"another cannot be read", nil, failure, nil, false, false, []query{{"kubepods/poduid-a", ReadAll}}},
		{"another is gone", nil, cgroup.ErrGone, nil, false, false, []query{{"kubepods/poduid-a", ReadAll}}},
		{"another is gone and has ended", nil, cgroup.ErrGone, nil, true, true, nil},
		{"the slice cannot be read", nil, nil, failure, false, false, []query{{slice, ReadCPUs}}},
		{"it waits by the file, the slice cannot be read", []state.Pod{waiting}, nil, failure, false, false,
			[]query{{slice, ReadCPUs}}},
		{"it waits by the file, another cannot be read", []state.Pod{waiting}, failure, nil, false, false,
			[]query{{"kubepods/poduid-a", ReadAll}}},
		{"it waits by the file", []state.Pod{waiting}, nil, nil, false, true, nil},
		{"there is no slice", nil, nil, cgroup.ErrGone, false, true, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newNode(t, testGrid)
			var listed Inventory
			for _, p := range []policy.Pod{lse("a", 2000), lse("b", 2000)} {
				s.kernel.Mkdir(mainOf(p).CgroupPath, 1)
				listed.Pods, listed.Containers = append(listed.Pods, p), append(listed.Containers, mainOf(p))
			}
			saved := state.Snapshot{Pods: c.saved}
			taken := newTaking(recovery{reader: s.kernel, topo: s.topo, saved: saved.Places()}, listed, false, nil)
			both := func(uid string) bool { return !c.ended || uid != "uid-a" }
			taken.answer(nil, both)
			seen := map[query]reading{}
			for _, q := range taken.queries {
				found := q.reading(s.perform(q.effect()))
				switch q {
				case query{"kubepods/poduid-a", ReadAll}:
					found.err = c.a
				case query{"kubepods/poduid-b", ReadAll}:
					found.e.OwnCPUs = cpus
				case query{slice, ReadCPUs}:
					found.e.OwnCPUs, found.err = cpuset.Range(2, 7), c.pool
				}
				seen[q] = found
			}
			decided := false
			for _, p := range taken.correct(seen, both).corrected.Pods {
				if p.UID == "uid-b" {
					decided = true
					if got := p.Recovered; got == nil || got.CPUs == nil || *got.CPUs != cpus {
						t.Errorf("it has %+v, want CPUs %s", got, cpus)
					}
				}
			}
			if decided != c.want {
				t.Errorf("decided on: %t, want %t", decided, c.want)
			}
			if got := taken.unreadable(seen, both, nil); !slices.Equal(got, c.repetition) {
				t.Errorf("read again are %v, want %v", got, c.repetition)
			}
		})
	}
}

// A capped container without a record has its pod's limit, as soon as both are read: in whatever order, and also if the
// pod looked gone first, or if the runtime connected anew meanwhile.
func TestAGuessedLimitIsCorrected(t *testing.T) {
	const granted, resized = 2000, 600
	p := podOf("noisy", policy.BE, policy.Burstable, 300)
	p.Resources.LimitMilli = granted
	c := mainOf(p)
	c.Asked.Quota = policy.QuotaOf(100)
	listed := Inventory{Pods: []policy.Pod{p}, Containers: []policy.Container{c}}
	pod, ctr := query{p.CgroupParent, ReadAll}, query{c.CgroupPath, ReadAll}
	read := map[query]reading{
		pod: {e: cgroup.Effective{QuotaMilli: resized}}, ctr: {e: cgroup.Effective{QuotaMilli: 100}},
	}
	none := func(string) bool { return false }
	all := func(string) bool { return true }
	for _, order := range [][]query{{pod, ctr}, {ctr, pod}} {
		for _, anew := range []bool{false, true} {
			r := recovery{reader: seenReader(nil), topo: newNode(t, testGrid).topo,
				toldLimits: toldLimits{lost: true}}
			taken := newTaking(r, listed, false, nil)
			out := taken.answer(nil, none)
			if got := out.event.Containers[0]; got.Resources.LimitMilli != granted || !got.Asked.OurQuota {
				t.Fatalf("answered unread: %+v", got)
			}
			seen := map[query]reading{pod: {err: cgroup.ErrGone}}
			if got := taken.unreadable(seen, none, all); !slices.Equal(got, []query{pod, ctr}) {
				t.Errorf("read again are %v, want the pod, and the container, which was written", got)
			}
			if got := taken.unreadable(seen, none, none); len(got) > 0 {
				t.Errorf("read again are %v of a container that has ended", got)
			}
			if anew {
				r.placed = map[string]*policy.Recovered{p.UID: nil}
				r.guessed = taken.guesses(seen)
				taken = newTaking(r, listed, true, nil)
				taken.answer(read, none) // the policy knows the container, and takes nothing of this
			}
			var corrected []policy.ContainerCorrection
			for _, q := range order {
				seen[q] = read[q]
				found := taken.correct(seen, none)
				taken.note(&found.now)
				corrected = append(corrected, found.corrected.Containers...)
			}
			if len(corrected) != 1 || corrected[0].Was != policy.QuotaOf(granted) ||
				corrected[0].LimitMilli != resized || len(taken.guesses(seen)) > 0 {
				t.Errorf("%v, connected anew %t: corrected by %+v", order, anew, corrected)
			}
		}
	}
}

// memory: strict taken back gives what it restricted all memory nodes again, also where a daemon
// finds it so. What kubelet's memory manager wrote stays, and so does all where no file tells.
func TestMemoryIsGivenBackAtARestart(t *testing.T) {
	for _, c := range []struct {
		file string
		edit func(saved *state.Snapshot)
		want string
	}{
		{"kept", func(*state.Snapshot) {}, "0-1"},
		{"of before a resize", func(saved *state.Snapshot) {
			at := slices.IndexFunc(saved.Pods, func(p state.Pod) bool { return p.UID == "uid-a" })
			saved.Pods[at].CPUs, saved.Pods[at].Request = cpuset.Range(4, 6), 3
		}, "0-1"},
		{"lost", func(saved *state.Snapshot) { *saved = state.Snapshot{} }, "0"},
	} {
		s := newStepped(t, func(o *Options) { o.Config.Memory = policy.MemoryStrict })
		s.up(lsr("a", 2000), burstable("web"))
		s.settle()
		foreign := cgroup.Values{Mems: cgroup.Only(cpuset.Of(1))}
		if err := s.kernel.Apply(t.Context(), s.ctrs["web-main"].CgroupPath, foreign); err != nil {
			t.Fatal(err)
		}
		mems := func(path string) string {
			e, err := s.kernel.Effective(path)
			if err != nil {
				t.Fatal(err)
			}
			return e.OwnMems.String()
		}
		paths := []string{s.pods["uid-a"].CgroupParent, s.ctrs["a-main"].CgroupPath}
		for _, path := range paths {
			if got := mems(path); got != "0" {
				t.Fatalf("%s has memory %q", path, got)
			}
		}
		c.edit(&s.saved)
		s.restart(true)
		s.synchronize()
		s.settle()
		for _, path := range paths {
			if got := mems(path); got != c.want {
				t.Errorf("file %s: %s has memory %q, want %q", c.file, path, got, c.want)
			}
		}
		if got := mems(s.ctrs["web-main"].CgroupPath); got != "1" {
			t.Errorf("file %s: kubelet's memory nodes became %q", c.file, got)
		}
	}
}
