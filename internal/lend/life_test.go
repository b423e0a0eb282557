package lend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/internal/kube"
)

// world is a node with its API server, kubelet and scheduler, in one goroutine. The
// publisher sees it late.
type world struct {
	t   *rapid.T
	p   *Publisher
	now time.Time

	node    kube.LentNode
	version int
	watch   []kube.LentNode // not delivered yet
	pods    []kube.BatchPod // bound and not over
	known   []kube.BatchPod // as the informer has them
	failure error           // of the next writes
	lost    bool            // the next write works and its answer is lost

	written amounts // by us, last
	offers  []int64 // since the start
	writes  []time.Time
	raises  []time.Time
	alsoK   bool
}

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func (w *world) daemon() {
	w.p = New(Options{
		API: w, Node: "n1", AlsoKoordinator: w.alsoK, RaiseEvery: time.Minute,
		Bound:  func() ([]kube.BatchPod, bool) { return w.known, true },
		Now:    func() time.Time { return w.now },
		Spread: func(d time.Duration) time.Duration { return d },
	})
	w.offers = nil
	w.raises = nil // each start may rise at once
	w.known = append([]kube.BatchPod(nil), w.pods...)
	w.p.Observe(w.node)
	w.watch = nil
}

func (w *world) set(change func(n *kube.LentNode)) {
	change(&w.node)
	w.version++
	w.node.Version = strconv.Itoa(w.version)
	w.watch = append(w.watch, w.node)
}

func (w *world) bound() demand { return demandOf(w.pods) }

// PatchNode checks every write against what the daemon can know.
func (w *world) PatchNode(_ context.Context, node string, patch []byte) (kube.LentNode, error) {
	if w.failure != nil {
		return kube.LentNode{}, w.failure
	}
	if node != "n1" {
		w.t.Fatalf("Node %q is written", node)
	}
	before, _ := amountsIn(w.node)
	next := applyTo(w.t, w.node, patch)
	after, torn := amountsIn(next)
	known := demandOf(w.known)
	for i := range after {
		if torn[i] {
			w.t.Fatalf("%s is written into one list only: %s", resourceName(i), patch)
		}
		if after[i] == absent {
			if i == koordinator && before[i] != absent && known.bound[i] > 0 {
				w.t.Fatalf("Koordinator's resource is taken away although pods request %d of it", known.bound[i])
			}
			continue
		}
		if after[i] == before[i] {
			continue
		}
		if after[i] < known.bound[i] {
			w.t.Fatalf("%s is written as %d, pods request %d", resourceName(i), after[i], known.bound[i])
		}
		most := max(known.bound[i], w.p.granted[i]) // what an earlier daemon offered
		if len(w.offers) > 0 {
			most = max(known.bound[i], w.offers[len(w.offers)-1])
		}
		if after[i] > most {
			w.t.Fatalf("%s is written as %d, more than was offered (%v) and than pods request (%d)", resourceName(i),
				after[i], w.offers, known.bound[i])
		}
		// What was written before its answer got lost is no rise a second time.
		if after[i] > max(w.written[i], w.p.granted[i], known.bound[i]) {
			w.raises = append(w.raises, w.now)
		}
	}
	w.written = after
	w.writes = append(w.writes, w.now)
	w.set(func(n *kube.LentNode) { *n = next })
	if w.lost {
		w.lost = false
		return kube.LentNode{}, context.DeadlineExceeded
	}
	return w.node, nil
}

// applyTo is a JSON merge patch of what the tests look at.
func applyTo(t interface{ Fatalf(string, ...any) }, n kube.LentNode, patch []byte) kube.LentNode {
	var p struct {
		Metadata struct{ Annotations map[string]*string }
		Status   struct{ Capacity, Allocatable map[string]*string }
	}
	if err := json.Unmarshal(patch, &p); err != nil {
		t.Fatalf("patch %s: %v", patch, err)
	}
	if note, there := p.Metadata.Annotations[kube.AnnLending]; there {
		n.Record = ""
		if note != nil {
			n.Record = *note
		}
	}
	apply := func(list map[string]*string, name string, to *int64) {
		v, there := list[name]
		switch {
		case !there:
		case v == nil:
			*to = absent
		default:
			parsed, err := strconv.ParseInt(*v, 10, 64)
			if err != nil {
				t.Fatalf("patch %s: %v", patch, err)
			}
			*to = parsed
		}
	}
	apply(p.Status.Capacity, kube.BatchResource, &n.Own.Capacity)
	apply(p.Status.Allocatable, kube.BatchResource, &n.Own.Allocatable)
	apply(p.Status.Capacity, kube.KoordinatorResource, &n.Koordinator.Capacity)
	apply(p.Status.Allocatable, kube.KoordinatorResource, &n.Koordinator.Allocatable)
	return n
}

// admits is kubelet's decision on one pod next to others: a resource that the Node
// does not have is overlooked where it is an extended one, which Koordinator's name
// is not.
func (w *world) admits(p kube.BatchPod, others []kube.BatchPod) bool {
	have, _ := amountsIn(w.node)
	d := demandOf(others)
	if p.Own > 0 && have[own] != absent && d.bound[own]+p.Own > have[own] {
		return false
	}
	return p.Koordinator == 0 || d.bound[koordinator]+p.Koordinator <= max(have[koordinator], 0)
}

// settle delivers everything to the publisher and lets it work until nothing is left to do.
func (w *world) settle(d time.Duration) {
	end := w.now.Add(d)
	for n := 0; ; n++ {
		if n > 5000 {
			w.t.Fatalf("still working after %s: %s", d-end.Sub(w.now), w.p.State())
		}
		w.deliver(len(w.watch))
		w.known = append([]kube.BatchPod(nil), w.pods...)
		wait := max(w.p.turn(context.Background()), time.Millisecond)
		if w.now.Add(wait).After(end) {
			w.now = end
			return
		}
		w.now = w.now.Add(wait)
	}
}

func (w *world) deliver(n int) {
	for _, node := range w.watch[:n] {
		w.p.Observe(node)
	}
	w.watch = w.watch[n:]
}

// check is what holds after every step.
func (w *world) check() {
	for i := 1; i < len(w.raises); i++ {
		if d := w.raises[i].Sub(w.raises[i-1]); d < time.Minute && d > 0 {
			w.t.Fatalf("two rises within %s", d)
		}
	}
	const within = time.Minute
	n := 0
	for _, at := range w.writes {
		if w.now.Sub(at) < within {
			n++
		}
	}
	if most := 60 + repairBurst + int(within/repairEvery) + 2; n > most {
		w.t.Fatalf("%d writes within %s, want at most %d", n, within, most)
	}
}

// TestLives runs nodes through random lives: what is written is never below what
// bound pods request nor above what was offered, and everything comes right again
// once the faults are over.
func TestLives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, now: start, version: 100, alsoK: rapid.Bool().Draw(t, "also Koordinator")}
		w.node = kube.LentNode{UID: "u1", Version: "100", Own: kube.Amount{Capacity: absent, Allocatable: absent},
			Koordinator: kube.Amount{Capacity: absent, Allocatable: absent}}
		w.daemon()
		made, nodes, withdrawn := 0, 1, false
		turn := func() { w.now = w.now.Add(min(max(w.p.turn(context.Background()), time.Millisecond), time.Minute)) }
		t.Repeat(map[string]func(*rapid.T){
			"offer": func(t *rapid.T) {
				o := rapid.Int64Range(-1, 16).Draw(t, "CPUs") * 1000
				w.offers, withdrawn = append(w.offers, o), false
				w.p.Offer(o)
			},
			"withdraw": func(*rapid.T) { withdrawn = true; w.p.Withdraw() },
			"turn":     func(*rapid.T) { turn() },
			"time": func(t *rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.IntRange(0, 900).Draw(t, "s")) * time.Second)
			},
			"watch":    func(t *rapid.T) { w.deliver(rapid.IntRange(0, len(w.watch)).Draw(t, "events")) },
			"informer": func(*rapid.T) { w.known = append([]kube.BatchPod(nil), w.pods...); w.p.Changed() },
			"bind": func(t *rapid.T) {
				// The scheduler and kubelet go by the Node: only what fits is bound for long.
				made++
				p := kube.BatchPod{UID: fmt.Sprint("pod-", made), Namespace: "jobs", Name: fmt.Sprint("j-", made)}
				p.Milli = rapid.Int64Range(1, 8).Draw(t, "CPUs") * 500
				switch rapid.IntRange(0, 3).Draw(t, "by") {
				case 0:
					p.Koordinator = p.Milli
				case 1: // the annotation alone
				default:
					p.Own = p.Milli
				}
				if have, _ := amountsIn(w.node); p.Own > 0 && have[own] == absent {
					return // it is not scheduled here
				}
				if w.admits(p, w.pods) {
					w.pods = append(w.pods, p)
				}
			},
			"end": func(t *rapid.T) {
				if len(w.pods) > 0 {
					i := rapid.IntRange(0, len(w.pods)-1).Draw(t, "pod")
					w.pods = append(w.pods[:i:i], w.pods[i+1:]...)
				}
			},
			"kubelet restarts": func(t *rapid.T) {
				if rapid.Bool().Draw(t, "with an empty folder of device plugins") {
					w.set(func(n *kube.LentNode) {
						for _, a := range []*kube.Amount{&n.Own} { // Koordinator's is no extended resource
							if a.Capacity != absent {
								*a = kube.Amount{}
							}
						}
					})
					if rapid.Bool().Draw(t, "repaired first") && w.failure == nil {
						w.settle(time.Minute)
					}
				}
				var kept []kube.BatchPod
				for _, p := range w.pods {
					if w.admits(p, kept) {
						kept = append(kept, p)
					}
				}
				w.pods = kept
			},
			"kubelet writes status": func(*rapid.T) {
				w.set(func(n *kube.LentNode) {
					n.Own.Allocatable, n.Koordinator.Allocatable = n.Own.Capacity, n.Koordinator.Capacity
				})
			},
			"another writer": func(t *rapid.T) {
				v := rapid.Int64Range(-1, 20).Draw(t, "CPUs")
				if v > 0 {
					v *= 1000
				}
				w.set(func(n *kube.LentNode) {
					n.Own.Capacity = v
					if rapid.Bool().Draw(t, "both lists") {
						n.Own.Allocatable = v
					}
					if rapid.Bool().Draw(t, "the annotation") {
						n.Record = rapid.SampledFrom([]string{"", "{", `{"at":"2099-01-01T00:00:00Z"}`}).Draw(t,
							"record")
					}
				})
			},
			"Node made anew": func(*rapid.T) {
				nodes++
				w.raises = nil
				w.set(func(n *kube.LentNode) {
					*n = kube.LentNode{UID: types.UID(fmt.Sprint("u", nodes)),
						Own:         kube.Amount{Capacity: absent, Allocatable: absent},
						Koordinator: kube.Amount{Capacity: absent, Allocatable: absent}}
				})
			},
			"server fails": func(*rapid.T) { w.failure = errors.New("connection refused") },
			"server works": func(*rapid.T) { w.failure = nil },
			"answer lost":  func(*rapid.T) { w.lost = true },
			"daemon restarts": func(*rapid.T) {
				w.daemon()
				withdrawn = false
			},
			"": func(*rapid.T) { w.check() },
		})
		// The faults are over: it comes right.
		w.failure, w.lost = nil, false
		w.settle(20 * time.Minute)
		last := rapid.Int64Range(0, 16).Draw(t, "last offer") * 1000
		if withdrawn {
			w.p.Withdraw()
		} else {
			w.offers = append(w.offers, last)
			w.p.Offer(last)
		}
		w.settle(2 * time.Minute)
		d := w.bound()
		have, torn := amountsIn(w.node)
		want := amounts{d.bound[own] + d.free(last), absent}
		if d.bound[koordinator] > 0 && (w.alsoK || ours(w.node)[koordinator]) {
			want[koordinator] = d.bound[koordinator]
		}
		switch {
		case withdrawn:
			want[own] = absent
		case w.alsoK:
			want[koordinator] = d.bound[koordinator] + d.free(last)
		}
		if have != want || torn != [resources]bool{} {
			t.Fatalf("in the end the Node says %s (torn %v), want %s: offer %d withdrawn %t, pods %+v, state %q", have,
				torn, want, last, withdrawn, w.pods, w.p.State())
		}
		if s := w.p.State(); s != "" {
			t.Fatalf("the state is %q in the end", s)
		}
		if (w.node.Record == "") != (have == none()) {
			t.Fatalf("the Node says %s with the annotation %q", have, w.node.Record)
		}
		writes := len(w.writes)
		w.p.Offer(last)
		if withdrawn {
			w.p.Withdraw()
		}
		w.settle(OfferFor - time.Second)
		if got := len(w.writes) - writes; got > 1 { // one for the annotation's time
			t.Fatalf("%d writes although nothing changed", got)
		}
	})
}
