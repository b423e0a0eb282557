package kube

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/policy"
)

func notice(uid, reason, message string) policy.Notice {
	return policy.Notice{Pod: policy.PodRef{UID: uid, Namespace: "shop", Name: "pod-" + uid}, Reason: reason,
		Message: message}
}

// queued is a queue, its clock and what it dropped.
func queued() (*queue, *clock, *int) {
	c, lost := newClock(), new(int)
	return newQueue(nodeName, c.now, func() { *lost++ }), c, lost
}

func TestRepeatsAreCounted(t *testing.T) {
	q, c, lost := queued()
	n := notice("a", "InsufficientCPUs", "4 CPUs are asked for, 2 are free")
	q.put(n)
	q.put(n)
	i, _, ok := q.next()
	if !ok || !i.create || i.count != 2 {
		t.Fatalf("got %+v, %v, want one new Event of two", i, ok)
	}
	q.put(n) // while it is being written
	q.done(i, written)
	if _, in, ok := q.next(); ok || in != repeatEvery {
		t.Fatalf("the count is written again after %v, want %v", in, repeatEvery)
	}
	c.pass(repeatEvery)
	i, _, ok = q.next()
	if !ok || i.create || i.count != 3 {
		t.Fatalf("got %+v, %v, want a count of three", i, ok)
	}
	q.done(i, vanished)
	if i, _, ok = q.next(); !ok || !i.create || i.count != 1 {
		t.Fatalf("got %+v, %v, want a new Event for one that the API server has forgotten", i, ok)
	}
	q.done(i, written)
	if _, in, ok := q.next(); ok || in != 0 {
		t.Fatalf("something waits: in %v", in)
	}
	c.pass(repeatWithin + time.Second)
	q.put(n)
	if i, _, ok = q.next(); !ok || !i.create || i.count != 1 {
		t.Fatalf("got %+v, %v, want a new Event for one of long ago", i, ok)
	}
	if *lost != 0 {
		t.Errorf("%d were dropped", *lost)
	}
}

func TestARefusedEventIsNotTriedAtOnce(t *testing.T) {
	q, c, lost := queued()
	n := notice("a", "R", "m")
	q.put(n)
	i, _, _ := q.next()
	q.done(i, refused)
	q.put(n)
	if _, in, ok := q.next(); ok || in != repeatEvery {
		t.Fatalf("tried again after %v, want %v", in, repeatEvery)
	}
	c.pass(repeatEvery)
	if i, _, ok := q.next(); !ok || !i.create || i.count != 2 {
		t.Errorf("got %+v, %v", i, ok)
	}
	if *lost != 1 {
		t.Errorf("%d were dropped, want 1", *lost)
	}
}

func TestAFailedEventStaysFirst(t *testing.T) {
	q, c, _ := queued()
	q.put(notice("a", "R", "m"))
	q.put(notice("b", "R", "m"))
	i, _, _ := q.next()
	q.done(i, failed)
	if i, _, _ = q.next(); i.key.uid != "a" || i.attempts != 0 {
		t.Errorf("got %+v, want the same, which has no answer yet", i)
	}
	q.done(i, denied)
	if _, in, ok := q.next(); ok || in < firstPause || in > 2*firstPause {
		t.Errorf("the next of a namespace that denied one comes in %v", in)
	}
	c.pass(2 * firstPause)
	if i, _, _ = q.next(); i.key.uid != "a" || i.attempts != 1 {
		t.Errorf("got %+v, want the same, which was denied once", i)
	}
}

func TestLatestWins(t *testing.T) {
	q, c, lost := queued()
	const all = 3 * maxPending
	for n := range all {
		q.put(notice(strconv.Itoa(n), "R", "m"))
	}
	if *lost != all-maxPending {
		t.Errorf("%d were dropped, want %d", *lost, all-maxPending)
	}
	first := true
	for n := 0; ; {
		i, in, ok := q.next()
		if !ok && in == 0 {
			if n != maxPending {
				t.Errorf("%d waited, want %d", n, maxPending)
			}
			break
		}
		if !ok {
			c.pass(in)
			continue
		}
		if first && i.key.uid != strconv.Itoa(all-maxPending) {
			t.Errorf("the first that is left is %s, want %d", i.key.uid, all-maxPending)
		}
		first = false
		q.done(i, written)
		n++
	}
}

func TestEventsOfOnePodAreLimited(t *testing.T) {
	q, c, lost := queued()
	for n := range 100 {
		q.put(notice("a", "R", strconv.Itoa(n)))
	}
	if *lost != 100-podBurst {
		t.Errorf("%d were dropped, want %d", *lost, 100-podBurst)
	}
	q.put(notice("b", "R", "m"))
	if *lost != 100-podBurst {
		t.Error("one pod's Events cost another's")
	}
	c.pass(podRefill)
	q.put(notice("a", "R", "later"))
	q.put(notice("a", "R", "too many"))
	if *lost != 101-podBurst {
		t.Errorf("%d were dropped, want %d", *lost, 101-podBurst)
	}
}

func TestAllEventsAreLimited(t *testing.T) {
	q, c, _ := queued()
	start := c.now()
	for n := range 200 {
		q.put(notice(strconv.Itoa(n), "R", "m"))
	}
	sent := 0
	for {
		i, in, ok := q.next()
		if !ok && in == 0 {
			break
		}
		if !ok {
			c.pass(in)
			continue
		}
		q.done(i, written)
		sent++
	}
	if took, want := c.now().Sub(start), (200-nodeBurst)*nodeRefill; sent != 200 || took < want-time.Second ||
		took > want+time.Second {
		t.Errorf("%d Events took %v, want 200 in %v", sent, took, want)
	}
}

// TestQueueIsBounded: whatever comes in whatever order, memory stays within
// bounds and what waits is written sooner or later.
func TestQueueIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q, c, _ := queued()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"put", "flood", "write", "pass"}).Draw(t, "what") {
			case "put":
				q.put(notice(strconv.Itoa(rapid.IntRange(0, 5).Draw(t, "uid")), "R",
					strconv.Itoa(rapid.IntRange(0, 3).Draw(t, "m"))))
			case "flood":
				from := rapid.IntRange(0, 5000).Draw(t, "from")
				for n := range 300 {
					q.put(notice(strconv.Itoa(from+n), "R", "m"))
				}
			case "write":
				if i, _, ok := q.next(); ok {
					q.put(notice(i.key.uid, i.key.reason, i.key.note))
					q.done(i, rapid.SampledFrom([]fate{written, vanished, refused, failed, denied}).Draw(t, "fate"))
				}
			case "pass":
				c.pass(time.Duration(rapid.IntRange(0, 3600).Draw(t, "seconds")) * time.Second)
			}
			var pending []*entry
			for _, at := range q.pending.turns {
				pending = append(pending, at.waiting...)
			}
			if len(pending) > maxPending || len(pending) != q.pending.all || len(q.known) > maxKnown+1 ||
				len(q.pods) > maxBuckets || len(q.pending.turns) != len(q.pending.of) {
				t.Fatalf("%d wait, %d are known, %d buckets", len(pending), len(q.known), len(q.pods))
			}
			for _, e := range pending {
				if !e.waiting || q.known[e.key] != e || e.count <= e.written {
					t.Fatalf("%+v waits for nothing", e)
				}
			}
			for k, e := range q.known {
				if e.key != k || e.waiting && !contains(pending, e) {
					t.Fatalf("%+v is lost", e)
				}
			}
		}
		for range 10_000 {
			i, in, ok := q.next()
			switch {
			case ok:
				q.done(i, written)
			case in == 0:
				return
			default:
				c.pass(in)
			}
		}
		t.Fatal("the queue never runs dry")
	})
}

func contains(list []*entry, e *entry) bool {
	for _, x := range list {
		if x == e {
			return true
		}
	}
	return false
}

// TestEveryReasonIsListed reads the reasons of notices out of the policy, so that
// a new one gets a type on purpose.
func TestEveryReasonIsListed(t *testing.T) {
	source, err := os.ReadFile("reasons.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	files, err := filepath.Glob(filepath.Join("..", "..", "policy", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	word := regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 3 {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "notice" {
				return true
			}
			lit, ok := call.Args[1].(*ast.BasicLit)
			if !ok {
				return true // a refusal's code, see below
			}
			reason, _ := strconv.Unquote(lit.Value)
			found++
			if !word.MatchString(reason) || len(reason) > maxReason {
				t.Errorf("%s: the reason %q is not one CamelCase word", path, reason)
			}
			if !strings.Contains(string(source), `"`+reason+`"`) {
				t.Errorf("%s: the reason %q is not in kindOf", path, reason)
			}
			return true
		})
	}
	if found < 5 {
		t.Errorf("only %d reasons were found", found)
	}
	if kindOf("CPUsOnline").eventType != "Normal" || kindOf("InsufficientCPUs").eventType != "Warning" ||
		kindOf("Unheard").eventType != "Warning" {
		t.Error("the table is wrong")
	}
}

func BenchmarkNotify(b *testing.B) {
	q := newQueue(nodeName, time.Now, func() {})
	list := make([]policy.Notice, 1000)
	for i := range list {
		list[i] = notice(strconv.Itoa(i), "InsufficientCPUs", fmt.Sprintf("%d CPUs are asked for, 2 are free", i))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		q.put(list[i%1000])
	}
}
