package evictor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quietcore/quietcore/internal/lend"
)

// asked is an API server that answers as it is told.
type asked struct {
	mu      sync.Mutex
	evicted []string // pod@second
	blocked []string
	began   time.Time
	answer  func(pod lend.Pod) error
	ends    func(pod lend.Pod) // what an eviction leads to
}

func (a *asked) Evict(ctx context.Context, pod lend.Pod) error {
	a.mu.Lock()
	a.evicted = append(a.evicted, fmt.Sprintf("%s@%d", pod.Name, int(time.Since(a.began).Seconds())))
	answer, ends := a.answer, a.ends
	a.mu.Unlock()
	if answer != nil {
		if err := answer(pod); err != nil {
			return err
		}
	}
	ends(pod)
	return ctx.Err()
}

func (a *asked) Blocked(_ context.Context, pod lend.Pod, why string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.blocked = append(a.blocked, pod.Name+": "+why)
	return nil
}

func (a *asked) list() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(a.evicted, " ")
}

// play runs an evictor in fake time.
func play(t *testing.T, story func(t *testing.T, e *evictor, a *asked, told *[]string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := &asked{began: time.Now()}
		var told []string
		var mu sync.Mutex
		e := (&evictor{api: a, every: 10 * time.Second, burst: 2, now: time.Now, counts: newCounters(),
			log: slog.New(slog.DiscardHandler), tell: func(pod lend.Pod, reason, text string) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, reason+" "+pod.Name+": "+text)
			}}).ready()
		a.ends = func(pod lend.Pod) { e.marks.drop(types.UID(pod.UID)) }
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { e.run(ctx); close(ended) }()
		story(t, e, a, &told)
		stop()
		<-ended
	})
}

func after(d time.Duration) {
	time.Sleep(d) // fake time
	synctest.Wait()
}

// marked is a best-effort pod that its node's daemon wants away since d ago.
func marked(node, name string, d time.Duration) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "jobs", Name: name, UID: types.UID("uid-" + name)}}
	p.Spec.NodeName = node
	p.Spec.Containers = []v1.Container{{Name: "main"}}
	p.Status.QOSClass, p.Status.Phase = v1.PodQOSBestEffort, v1.PodRunning
	p.Status.Conditions = []v1.PodCondition{{Type: lend.EvictionRequested, Status: v1.ConditionTrue,
		Reason: lend.ReasonLending, Message: "batch pods need 8.00 CPUs", LastTransitionTime: metav1.NewTime(
			time.Now().Add(-d))}}
	return p
}

func TestRateOfANode(t *testing.T) {
	play(t, func(t *testing.T, e *evictor, a *asked, told *[]string) {
		for i, name := range []string{"c", "a", "b", "d"} {
			_ = e.marks.Add(marked("n1", name, time.Duration(50-10*i)*time.Second))
		}
		_ = e.marks.Add(marked("n2", "other", 0))
		after(time.Minute)
		got := strings.Fields(a.list())
		slices.Sort(got)
		if want := "a@0 b@10 c@0 d@20 other@0"; strings.Join(got, " ") != want {
			t.Errorf("evicted %s, want %s", got, want)
		}
		if len(*told) != 5 || !slices.Contains(*told, "BatchEvicted c: evicted, as the daemon of node n1 asked: batch "+
			"pods need 8.00 CPUs") {
			t.Errorf("Events %q", *told)
		}
		after(time.Hour)
		if len(e.paces) > 0 {
			t.Errorf("%d nodes are remembered that have no marks", len(e.paces))
		}
	})
}

// What is not evicted, and what is.
func TestWhoIsEvicted(t *testing.T) {
	for _, c := range []struct {
		name   string
		want   bool
		change func(p *v1.Pod)
	}{
		{"marked", true, func(*v1.Pod) {}},
		{"not marked", false, func(p *v1.Pod) { p.Status.Conditions = nil }},
		{"another condition", false, func(p *v1.Pod) { p.Status.Conditions[0].Type = v1.PodReady }},
		{"withdrawn", false, func(p *v1.Pod) { p.Status.Conditions[0].Status = v1.ConditionFalse }},
		{"unknown", false, func(p *v1.Pod) { p.Status.Conditions[0].Status = v1.ConditionUnknown }},
		{"old", false, func(p *v1.Pod) {
			p.Status.Conditions[0].LastTransitionTime.Time = time.Now().Add(-lend.MarkMaxAge - time.Second)
		}},
		{"of a clock that is wrong", false, func(p *v1.Pod) {
			p.Status.Conditions[0].LastTransitionTime.Time = time.Now().Add(lend.MarkMaxAge + 2*time.Second)
		}},
		{"without a time", false, func(p *v1.Pod) { p.Status.Conditions[0].LastTransitionTime = metav1.Time{} }},
		{"terminating", false, func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }},
		{"over", false, func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }},
		{"failed", false, func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }},
		{"of no node", false, func(p *v1.Pod) { p.Spec.NodeName = "" }},
		{"production", false, func(p *v1.Pod) { p.Status.QOSClass = v1.PodQOSBurstable }},
		{"guaranteed", false, func(p *v1.Pod) { p.Status.QOSClass = v1.PodQOSGuaranteed }},
		{"BE by its label", true, func(p *v1.Pod) {
			p.Status.QOSClass, p.Labels = v1.PodQOSBurstable, map[string]string{"koordinator.sh/qosClass": "BE"}
		}},
		{"LSE by its label", false, func(p *v1.Pod) {
			p.Labels = map[string]string{"koordinator.sh/qosClass": "LSE"}
		}},
		{"production that may be capped", true, func(p *v1.Pod) {
			p.Status.QOSClass, p.Annotations = v1.PodQOSBurstable, map[string]string{"quietcore.dev/cap": "allow"}
		}},
		{"nobody knows what", false, func(p *v1.Pod) {
			p.Status.QOSClass, p.Labels = v1.PodQOSBurstable, map[string]string{"koordinator.sh/qosClass": "X"}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			play(t, func(t *testing.T, e *evictor, a *asked, _ *[]string) {
				p := marked("n1", "a", time.Second)
				c.change(p)
				_ = e.marks.Add(p)
				after(time.Minute)
				if got := a.list() == "a@0"; got != c.want || !c.want && a.list() != "" {
					t.Errorf("evicted %q, want %t", a.list(), c.want)
				}
			})
		})
	}
}

func tooMany(seconds int) *apierrors.StatusError {
	return apierrors.NewTooManyRequests("no", seconds)
}

func budget(why string, seconds int) error {
	err := tooMany(seconds)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes,
		metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: why})
	return err
}

// A pod that a budget keeps is tried again as long as its mark stands, its daemon hears of it
// once, and other pods of the node have their turn before.
func TestBudgets(t *testing.T) {
	play(t, func(t *testing.T, e *evictor, a *asked, told *[]string) {
		a.answer = func(pod lend.Pod) error {
			if pod.Name == "kept" {
				return budget("budget sort needs 2", 0)
			}
			return nil
		}
		kept := marked("n1", "kept", 30*time.Second)
		_ = e.marks.Add(kept)
		synctest.Wait()
		answered := kept.DeepCopy() // as the evictor's own answer comes back
		answered.Status.Conditions[0].Reason = lend.ReasonBudget
		_ = e.marks.Update(answered)
		for i := range 2 {
			_ = e.marks.Add(marked("n1", fmt.Sprint("next", i), 0))
		}
		after(5 * time.Minute)
		if got := a.list(); !strings.HasPrefix(got, "kept@0 next0@0 next1@10 kept@20 kept@30 kept@40") ||
			!strings.HasSuffix(got, "kept@90") {
			t.Errorf("evicted %s", got)
		}
		if len(a.blocked) != 1 || a.blocked[0] != "kept: budget sort needs 2" || len(*told) != 3 ||
			!strings.HasPrefix((*told)[0], "BatchEvictionBlocked kept: the daemon of node n1 wants it away") {
			t.Errorf("the daemon was told %q, and people %q", a.blocked, *told)
		}
	})
}

func TestOtherAnswers(t *testing.T) {
	gr := schema.GroupResource{Resource: "pods"}
	broken := apierrors.NewForbidden(schema.GroupResource{Group: "policy", Resource: "poddisruptionbudgets"}, "sort",
		errors.New("disruptions allowed is negative"))
	broken.ErrStatus.Details.Kind = "poddisruptionbudgets"
	two := apierrors.NewInternalError(errors.New(
		"This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."))
	for _, c := range []struct {
		name    string
		err     error
		want    string
		blocked bool
	}{
		{"a budget that asks for time", budget("b", 40), "a@0 a@40", true},
		{"a budget that asks for too much", budget("b", 600), "a@0 a@60", true},
		{"a broken budget", broken, "a@0 a@10", true},
		{"two budgets", two, "a@0 a@10", true},
		{"too many requests", tooMany(45), "a@0 a@45", false},
		{"forbidden", apierrors.NewForbidden(gr, "a", errors.New("RBAC")), "a@0 a@30", false},
		{"no server", errors.New("connection refused"), "a@0 a@30", false},
		{"another pod", apierrors.NewConflict(gr, "a", errors.New("UID")), "a@0 a@30", false},
		{"no pod", apierrors.NewNotFound(gr, "a"), "a@0 a@30", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			play(t, func(t *testing.T, e *evictor, a *asked, told *[]string) {
				first := true
				a.answer = func(lend.Pod) error {
					defer func() { first = false }()
					if first {
						return c.err
					}
					return nil
				}
				_ = e.marks.Add(marked("n1", "a", 0))
				after(lend.MarkMaxAge)
				if got := a.list(); got != c.want || (len(a.blocked) > 0) != c.blocked {
					t.Errorf("evicted %s, want %s; blocked %q", got, c.want, a.blocked)
				}
				if last := (*told)[len(*told)-1]; !strings.HasPrefix(last, "BatchEvicted a") {
					t.Errorf("Events %q", *told)
				}
			})
		})
	}
}

// A mark that is withdrawn while its node's rate keeps it waiting is not carried out.
func TestWithdrawnMarks(t *testing.T) {
	play(t, func(t *testing.T, e *evictor, a *asked, _ *[]string) {
		for _, name := range []string{"a", "b", "c"} {
			_ = e.marks.Add(marked("n1", name, 0))
		}
		synctest.Wait()
		before := a.list()
		for _, name := range []string{"a", "b", "c"} {
			p := marked("n1", name, 0)
			p.Status.Conditions[0].Status = v1.ConditionFalse
			_ = e.marks.Update(p)
		}
		after(time.Hour)
		if got := a.list(); got != before || len(strings.Fields(got)) != 2 {
			t.Errorf("evicted %s, %s before they were withdrawn", got, before)
		}
	})
}

// Nor is one that is withdrawn while another pod of its node is being evicted.
func TestWithdrawnMeanwhile(t *testing.T) {
	play(t, func(t *testing.T, e *evictor, a *asked, _ *[]string) {
		a.answer = func(lend.Pod) error {
			time.Sleep(time.Second) // fake time
			return nil
		}
		_ = e.marks.Replace([]any{marked("n1", "a", time.Minute), marked("n1", "b", 0)}, "7")
		synctest.Wait()
		e.marks.drop("uid-b")
		after(time.Hour)
		if got := a.list(); got != "a@0" {
			t.Errorf("evicted %s", got)
		}
	})
}

// A list after a break of the watch replaces what is known.
func TestLists(t *testing.T) {
	var changed []string
	s := newMarks(func(node string) { changed = append(changed, node) })
	_ = s.Add(marked("n1", "a", 0))
	b := marked("n1", "b", time.Minute)
	_ = s.Add(b)
	shrink := s.Transformer()
	var list []any
	plain := marked("n3", "plain", 0)
	plain.Status.Conditions = nil
	for _, p := range []*v1.Pod{b, marked("n2", "c", 0), plain} {
		o, err := shrink(p)
		if err != nil {
			t.Fatal(err)
		}
		_, whole := o.(*v1.Pod)
		m, ok := o.(metav1.Object)
		if !ok || m.GetName() != p.Name || m.GetResourceVersion() != p.ResourceVersion || whole != (p != plain) {
			t.Errorf("%s is kept as %T", p.Name, o)
		}
		list = append(list, o)
	}
	changed = nil
	_ = s.Replace(list, "7")
	names := func(node string) (all []string) {
		for _, m := range s.of(node) {
			all = append(all, m.pod.Name)
		}
		return all
	}
	if n1, n2 := names("n1"), names("n2"); !slices.Equal(n1, []string{"b"}) || !slices.Equal(n2, []string{"c"}) {
		t.Errorf("marked are %v and %v", n1, n2)
	}
	if !slices.Equal(changed, []string{"n2", "n1"}) {
		t.Errorf("changed are %v", changed)
	}
	_ = s.Delete(marked("n1", "b", 0))
	_ = s.Delete(marked("n2", "c", 0))
	if len(s.nodes)+len(s.where) > 0 {
		t.Errorf("%d nodes are left", len(s.nodes))
	}
}

// Whatever is marked, withdrawn and answered: no pod is evicted that is not marked now, and no
// node's rate is exceeded.
func TestRandomMarks(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	play(t, func(t *testing.T, e *evictor, a *asked, _ *[]string) {
		nodes, asks := []string{"n1", "n2", "n3"}, map[string][]time.Time{}
		var mu sync.Mutex
		wanted := map[string]bool{}
		drawn := rand.New(rand.NewPCG(seed, 1))
		a.answer = func(pod lend.Pod) error {
			mu.Lock()
			defer mu.Unlock()
			node, _, _ := strings.Cut(pod.Name, "-")
			asks[node] = append(asks[node], time.Now())
			if !wanted[pod.Name] {
				t.Errorf("%s is evicted, and nobody wants it", pod.Name)
			}
			switch drawn.IntN(4) {
			case 0:
				return budget("b", drawn.IntN(20))
			case 1:
				return io.ErrUnexpectedEOF
			}
			wanted[pod.Name] = false
			return nil
		}
		for range 3000 {
			node := nodes[r.IntN(len(nodes))]
			p := marked(node, fmt.Sprintf("%s-%d", node, r.IntN(5)), time.Duration(r.IntN(200))*time.Second)
			m := lend.MarkIn(p.Status.Conditions)
			on := r.IntN(3) > 0
			mu.Lock()
			wanted[p.Name] = on && !m.Stale(time.Now())
			mu.Unlock()
			if !on {
				p.Status.Conditions[0].Status = v1.ConditionFalse
			}
			_ = e.marks.Update(p)
			after(time.Duration(r.IntN(4000)) * time.Millisecond)
		}
		for node, times := range asks {
			for i := range times {
				for j := i; j < len(times); j++ {
					if most := 2 + int((times[j].Sub(times[i])+time.Millisecond)/(10*time.Second)); j-i+1 > most {
						t.Fatalf("%s: %d evictions within %s", node, j-i+1, times[j].Sub(times[i]))
					}
				}
			}
			if len(times) < 100 {
				t.Errorf("%s: %d evictions show nothing", node, len(times))
			}
		}
	})
}

func TestCommand(t *testing.T) {
	for args, want := range map[string]string{
		"--every 0s": "--every is 0s", "--burst 0": "--burst is 0", "--lease-duration 1s": "--lease-duration is 1s",
		"x": "unknown argument \"x\"", "--none": "not defined",
	} {
		var out, errs strings.Builder
		if code := command(t.Context(), strings.Fields(args), &out, &errs); code != 2 ||
			!strings.Contains(errs.String(), want) {
			t.Errorf("%s: %d, %q", args, code, errs.String())
		}
	}
	var out, errs strings.Builder
	if code := command(t.Context(), []string{"--help"}, &out, &errs); code != 0 ||
		!strings.Contains(out.String(), "burst") {
		t.Errorf("--help: %d, %q, %q", code, out.String(), errs.String())
	}
	errs.Reset()
	if code := command(t.Context(), []string{"--kubeconfig", "/nowhere"}, &out, &errs); code != 1 ||
		!strings.Contains(errs.String(), "/nowhere") {
		t.Errorf("no credentials: %d, %q", code, errs.String())
	}
}
