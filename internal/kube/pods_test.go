package kube

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/policy"
)

func mirror(uid, hash string) corev1.Pod {
	yes := true
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system", Name: "etcd-" + nodeName, UID: types.UID(uid),
			Annotations: map[string]string{annConfigHash: hash, annConfigMirror: hash},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: nodeName,
				Controller: &yes}},
		},
		Spec: corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{Name: "etcd"}}},
	}
}

func TestStaticUID(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*corev1.Pod)
		want string
	}{
		{"a mirror pod", func(*corev1.Pod) {}, "abc"},
		{"no hash", func(p *corev1.Pod) { delete(p.Annotations, annConfigHash) }, ""},
		{"no mirror", func(p *corev1.Pod) { delete(p.Annotations, annConfigMirror) }, ""},
		{"two hashes", func(p *corev1.Pod) { p.Annotations[annConfigMirror] = "abd" }, ""},
		{"owned by nobody", func(p *corev1.Pod) { p.OwnerReferences = nil }, ""},
		{"of another node", func(p *corev1.Pod) { p.OwnerReferences[0].Name = "worker-2" }, ""},
		{"long", func(p *corev1.Pod) {
			long := fmt.Sprintf("%0100d", 1)
			p.Annotations[annConfigHash], p.Annotations[annConfigMirror] = long, long
		}, ""},
	} {
		pod := mirror("uid", "abc")
		c.edit(&pod)
		if got := staticUID(&pod); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func held(uid, alias string, request int64) *object {
	return &object{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)},
		pod: &podInfo{alias: alias, facts: policy.PodFacts{UID: uid,
			Resources: policy.Resources{RequestMilli: request}}}}
}

// TestNobodyTakesAnothersPlace: a tenant may call a pod of theirs the mirror of anything.
func TestNobodyTakesAnothersPlace(t *testing.T) {
	ctx := context.Background()
	request := func(p *pods, uid string) int64 {
		f, ok := p.facts(uid)
		if !ok {
			return -1
		}
		return f.Resources.RequestMilli
	}
	p := newPods(nodeName, nil)
	p.put(ctx, held("real", "", 1))
	p.put(ctx, held("forged", "real", 2))
	if got := request(p, "real"); got != 1 {
		t.Errorf("a claim went before a pod: %d", got)
	}
	p.drop("forged")
	if got := request(p, "real"); got != 1 {
		t.Errorf("the end of a claim took a pod along: %d", got)
	}
	p.put(ctx, held("mirror", "static", 3))
	p.put(ctx, held("forged", "static", 4))
	if got := request(p, "static"); got != 3 {
		t.Errorf("the second claim went before the first: %d", got)
	}
	p.drop("mirror")
	if got := request(p, "static"); got != 4 {
		t.Errorf("the first claim is gone, the second does not hold: %d", got)
	}
	p.put(ctx, held("static", "", 5))
	p.drop("forged")
	if got := request(p, "static"); got != 5 {
		t.Errorf("a pod did not go before an earlier claim: %d", got)
	}
	p.drop("static")
	if got := request(p, "static"); got != -1 {
		t.Errorf("facts of no pod: %d", got)
	}
}

// TestPodsNeverGetLost: what can be read is what was put, and nothing remains.
func TestPodsNeverGetLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		uids := []string{"a", "b", "c", "d"}
		p := newPods(nodeName, nil)
		s := &podStore{pods: p, ctx: context.Background()}
		model := map[string]int64{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			uid := rapid.SampledFrom(uids).Draw(t, "uid")
			o := held(uid, rapid.SampledFrom([]string{"", "a", "b", "x"}).Draw(t, "alias"),
				rapid.Int64Range(1, 9).Draw(t, "request"))
			switch rapid.SampledFrom([]string{"add", "update", "delete", "replace", "over"}).Draw(t, "what") {
			case "add":
				_ = s.Add(o)
				model[uid] = o.pod.facts.Resources.RequestMilli
			case "update":
				_ = s.Update(o)
				model[uid] = o.pod.facts.Resources.RequestMilli
			case "delete":
				_ = s.Delete(o)
				delete(model, uid)
			case "replace":
				_ = s.Replace([]any{o}, "")
				model = map[string]int64{uid: o.pod.facts.Resources.RequestMilli}
			case "over":
				o.pod.over = true
				_ = s.Add(o)
				delete(model, uid)
			}
			got := map[string]int64{}
			for _, uid := range uids {
				if f, ok := p.facts(uid); ok {
					if f.UID != uid {
						t.Fatalf("facts of %s say they are of %s", uid, f.UID)
					}
					if _, real := model[uid]; real {
						got[uid] = f.Resources.RequestMilli
					} else if p.aliases[uid] == "" {
						t.Fatalf("facts of %s, which is gone", uid)
					}
				}
			}
			if diff := cmp.Diff(model, got); diff != "" {
				t.Fatal(diff)
			}
			for alias, holder := range p.aliases {
				if p.held[holder].alias != alias {
					t.Fatalf("%s is held by %s, which does not claim it", alias, holder)
				}
			}
		}
	})
}

func TestOnlyNewsIsReported(t *testing.T) {
	var reported []policy.PodFacts
	p := newPods(nodeName, func(_ context.Context, f policy.PodFacts) { reported = append(reported, f) })
	ctx := context.Background()
	p.put(ctx, held("a", "", 1))
	p.put(ctx, held("a", "", 1))
	p.put(ctx, held("a", "", 2))
	p.put(ctx, &object{}) // a bookmark
	want := []policy.PodFacts{held("a", "", 1).pod.facts, held("a", "", 2).pod.facts}
	if diff := cmp.Diff(want, reported); diff != "" {
		t.Error(diff)
	}
}

func BenchmarkFacts(b *testing.B) {
	p := newPods(nodeName, nil)
	uids := make([]string, 1000)
	for i := range uids {
		uids[i] = fmt.Sprintf("5f0c2c5e-8f0a-4b6c-9a63-%012d", i)
		p.put(context.Background(), held(uids[i], "", int64(i)))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, ok := p.facts(uids[i%1000]); !ok {
			b.Fatal("not there")
		}
	}
}
