package kube

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/policy"
)

func noticeIn(namespace string, n int) policy.Notice {
	name := fmt.Sprint(namespace, n)
	return policy.Notice{Pod: policy.PodRef{UID: name, Namespace: namespace, Name: name}, Reason: "R", Message: "m"}
}

// market is a queue with one namespace that floods it and others that keep within their shares.
type market struct {
	q       *queue
	c       *clock
	others  int
	waiting map[string]int // Events of an other namespace that were put and not written
	put     map[string]int
	done    map[string]int
	flood   int // notices of the flood so far
}

// write writes one Event, or says that nothing waits. All of the flood's Events end with fate.
func (m *market) write(t *rapid.T, fate fate) (more bool) {
	i, in, ok := m.q.next()
	if !ok {
		m.c.pass(in)
		return in > 0
	}
	if i.key.namespace == "flood" {
		m.q.done(i, fate)
		return true
	}
	if m.q.done(i, written); i.count != 1 || !i.create {
		t.Fatalf("%s is written %d times, new: %v", i.key.name, i.count, i.create)
	}
	m.done[i.key.namespace]++
	m.waiting[i.key.namespace]--
	return true
}

// TestAFloodPushesNobodyOut: whatever a namespace sends, and whatever becomes of its Events, each Event of the others
// is written, once, as long as they keep within their shares of those that wait.
func TestAFloodPushesNobodyOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q, c, lost := queued()
		m := &market{q: q, c: c, waiting: map[string]int{}, put: map[string]int{}, done: map[string]int{},
			others: rapid.IntRange(1, 12).Draw(t, "others")}
		share := maxPending / (m.others + 1)
		fates := rapid.SampledFrom([]fate{written, vanished, refused, denied})
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"flood", "other", "other", "write"}).Draw(t, "what") {
			case "flood":
				for range rapid.SampledFrom([]int{1, maxPending, 5 * maxKnown}).Draw(t, "notices") {
					q.put(noticeIn("flood", m.flood))
					m.flood++
				}
			case "other":
				of := ""
				if i := rapid.IntRange(0, m.others-1).Draw(t, "whose"); i > 0 { // 0: about the Node
					of = fmt.Sprint("other", i)
				}
				for range rapid.IntRange(1, share).Draw(t, "notices") {
					if m.waiting[of] < share {
						q.put(noticeIn(of, m.put[of]))
						m.put[of]++
						m.waiting[of]++
					}
				}
			case "write":
				for range rapid.IntRange(1, 100).Draw(t, "Events") {
					m.write(t, fates.Draw(t, "fate"))
				}
			}
			if q.pending.all > maxPending {
				t.Fatalf("%d wait", q.pending.all)
			}
		}
		for m.write(t, written) {
		}
		for of, n := range m.put {
			if m.done[of] != n {
				t.Fatalf("%d of %d Events of %q were written, beside %d of a flood, %d dropped", m.done[of], n, of,
					m.flood, *lost)
			}
		}
	})
}

// TestOnesTurnComes: an Event waits for one of each other namespace, however many these have.
func TestOnesTurnComes(t *testing.T) {
	q, c, _ := queued()
	for n := range maxPending {
		q.put(noticeIn(fmt.Sprint("flood", n%3), n))
	}
	q.put(noticeIn("shop", 0))
	var order []string
	for len(order) < 4 {
		i, in, ok := q.next()
		if !ok {
			c.pass(in)
			continue
		}
		order = append(order, i.key.namespace)
		q.done(i, written)
	}
	if got := strings.Join(order, " "); got != "flood0 flood1 flood2 shop" {
		t.Errorf("written in the order %s", got)
	}
}

// TestRepeatsAreCountedBesideAFlood: an Event that was written stays known, so that its repeats are no new ones.
func TestRepeatsAreCountedBesideAFlood(t *testing.T) {
	q, c, _ := queued()
	write := func() (items []item) {
		for {
			i, in, ok := q.next()
			if ok {
				items = append(items, i)
				q.done(i, written)
			} else if in == 0 {
				return items
			}
			c.pass(in)
		}
	}
	q.put(noticeIn("shop", 0))
	write()
	for n := range maxKnown + 300 {
		q.put(noticeIn("flood", n))
		if n%100 == 0 {
			write()
		}
	}
	write()
	c.pass(time.Second)
	q.put(noticeIn("shop", 0))
	if items := write(); len(items) != 1 || items[0].create || items[0].count != 2 {
		t.Errorf("got %+v, want the count of the first Event", items)
	}
}

// TestANamespaceThatDeniesHoldsUpNoOther: neither a quota nor a webhook of a tenant has another's Events wait. No
// pause ends here.
func TestANamespaceThatDeniesHoldsUpNoOther(t *testing.T) {
	for code, reason := range map[int]string{http.StatusForbidden: "Forbidden", http.StatusConflict: "Conflict",
		http.StatusInternalServerError: "InternalError"} {
		s := upServer(t)
		s.mu.Lock()
		s.denies = func(path string, w http.ResponseWriter) bool {
			if !strings.Contains(path, "/namespaces/flood/") {
				return false
			}
			answer(w, code, status(code, reason, "exceeded quota: events"))
			return true
		}
		s.mu.Unlock()
		f := s.client()
		f.after = func(time.Duration) <-chan time.Time { return nil }
		f.start()
		for n := range 20 {
			f.Notify(noticeIn("flood", n))
		}
		for n := range 5 {
			f.Notify(noticeIn("shop", n))
		}
		f.within(reason+": the others' are written", func() bool { return len(s.written()) == 5 })
	}
}
