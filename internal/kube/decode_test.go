package kube

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/quietcore/quietcore/policy"
)

func testFeeds(t testing.TB) (pods, nodes feed) {
	c, err := New(Options{Node: nodeName})
	if err != nil {
		t.Fatal(err)
	}
	return c.podFeed(), c.nodeFeed()
}

func TestDecodeList(t *testing.T) {
	pods, nodes := testFeeds(t)
	const pod = `{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"5","annotations":{"x":"y"}},` +
		`"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"2"}}}]}}`
	list, err := decodeList(
		strings.NewReader(
			`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"t"},"items":[`+pod+`,`+
				pod+`]}`), pods)
	if err != nil {
		t.Fatal(err)
	}
	if list.ResourceVersion != "7" || list.Continue != "t" || len(list.Items) != 2 {
		t.Errorf("got %+v", list)
	}
	want := policy.PodFacts{UID: "u", Resources: policy.Resources{RequestMilli: 2000, LimitMilli: 2000}, Owner: "Pod/a"}
	if diff := cmp.Diff(want, list.Items[1].pod.facts); diff != "" {
		t.Error(diff)
	}
	if list.Items[0].Annotations != nil {
		t.Error("annotations are kept")
	}
	list, err = decodeList(
		strings.NewReader(
			`{"kind":"NodeList","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"worker-1",`+
				`"labels":{"node.koordinator.sh/cpu-bind-policy":"None","kubernetes.io/os":"linux"}}}]}`), nodes)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"node.koordinator.sh/cpu-bind-policy": "None"},
		list.Items[0].Labels); diff != "" {
		t.Error(diff)
	}
	for _, text := range []string{`{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":null}`,
		`{"kind":"PodList","metadata":{"resourceVersion":"1"}}`} {
		if _, err := decodeList(strings.NewReader(text), pods); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{
		``, `null`, `[]`, `<html>`, `{}`, `{"kind":"NodeList","metadata":{"resourceVersion":"1"}}`,
		`{"kind":"PodList"}`,
		`{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":{}}`,
		`{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[7]}`,
		`{"kind":"PodList","metadata":{"resourceVersion":"1"},` +
			`"items":[{"spec":{"containers":[{"resources":{"limits":{"cpu":"much"}}}]}}]}`,
		`{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[` + pod,
	} {
		if _, err := decodeList(strings.NewReader(text), pods); err == nil {
			t.Errorf("%q is taken for a list", text)
		}
	}
}

func TestDecodeWatch(t *testing.T) {
	pods, _ := testFeeds(t)
	f := newFrames(io.NopCloser(strings.NewReader(`{"type":"ADDED","object":{"metadata":{"uid":"u","name":"a"}}}
{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"9"}}}
{"type":"ERROR","object":{"code":410,"reason":"Expired"}}
{"type":"SHOUT","object":{}}`)), pods)
	for i, want := range []watch.EventType{watch.Added, watch.Bookmark, watch.Error} {
		kind, o, err := f.next()
		if err != nil || kind != want || o == nil {
			t.Errorf("event %d: got %s, %v, %v, want %s", i, kind, o, err, want)
		}
	}
	if _, _, err := f.next(); !errors.Is(err, errMalformed) {
		t.Errorf("an event of an unknown type: %v", err)
	}
	for _, text := range []string{`{"type":"ADDED"}`, `{"type":7}`, `nonsense`, `{"type":"ERROR","object":[]}`,
		`{"type":"ADDED","object":{"metadata":[]}}`} {
		if _, _, err := newFrames(io.NopCloser(strings.NewReader(text)), pods).next(); !errors.Is(err, errMalformed) {
			t.Errorf("%s: got %v, want that it is malformed", text, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"kind":"PodList","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"uid":"u"}}]}`))
	f.Add(
		[]byte(
			`{"type":"ADDED","object":{"metadata":{"uid":"u"},` +
				`"spec":{"containers":[{"resources":{"requests":{"cpu":"1"}}}]}}}`))
	f.Add(
		[]byte(
			`{"type":"MODIFIED","object":{"metadata":{"uid":"u","ownerReferences":[{"kind":"Job","name":"-1",` +
				`"controller":true}]}}}`))
	pods, nodes := testFeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, feed := range []feed{pods, nodes} {
			_, _ = decodeList(strings.NewReader(string(data)), feed)
			frames := newFrames(io.NopCloser(strings.NewReader(string(data))), feed)
			for range 100 {
				_, o, err := frames.next()
				if err != nil {
					break
				}
				if o == nil {
					t.Fatal("an event without an object")
				}
				_ = o.DeepCopyObject()
			}
		}
	})
}

func FuzzExtendedResources(f *testing.F) {
	f.Add(`{"containers":{"a":{"requests":{"kubernetes.io/batch-cpu":"1k"}}}}`)
	f.Add(`{"containers":{"a":{"limits":{"quietcore.dev/batch-cpu":"9E"}}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		pod := corev1.Pod{}
		for name, n := range parseExtendedResources(text) {
			if n < 0 || n > maxMilli {
				t.Fatalf("%s requests %d", name, n)
			}
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name})
		}
		pod.Annotations = map[string]string{annExtendedResources: text}
		if n := batchOf(&pod); n < 0 || n > maxMilli {
			t.Fatalf("the pod requests %d", n)
		}
	})
}

var _ cache.ReflectorStore = (*podStore)(nil)
var _ cache.ReflectorStore = (*nodeStore)(nil)
