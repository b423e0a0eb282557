package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	kjson "sigs.k8s.io/json"

	"github.com/quietcore/quietcore/policy"
)

// object is what is decoded of a Pod or a Node; it lives as long as its event.
type object struct {
	metav1.TypeMeta
	metav1.ObjectMeta // name, UID, version; of a Node also the labels that are read
	pod               *podInfo
	lent              LentNode          // of a Node
	allLabels         map[string]string // of a Node
	taints            []Taint           // of a Node, StartupTaint alone
	custom            CustomObject
}

// podInfo is what is known of a pod.
type podInfo struct {
	facts policy.PodFacts
	// alias is the UID of a static pod in the runtime; empty: the pod's own.
	alias string
	// over says that the pod has ended for good.
	over bool
	// batch is its request of lent CPUs.
	batch batchRequest
}

// DeepCopyObject implements runtime.Object.
func (o *object) DeepCopyObject() runtime.Object {
	c := *o
	o.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	if o.pod != nil {
		info := *o.pod
		c.pod = &info
	}
	return &c
}

// objectList is a list of objects.
type objectList struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []object
}

// DeepCopyObject implements runtime.Object.
func (l *objectList) DeepCopyObject() runtime.Object {
	c := *l
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	c.Items = make([]object, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*object)
	}
	return &c
}

// labelPrefix is the prefix of the labels that matter.
const labelPrefix = "node.koordinator.sh/"

func slimNode(raw []byte) (object, error) {
	var n struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     struct {
			Taints []json.RawMessage `json:"taints"`
		} `json:"spec"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &n); err != nil {
		return object{}, err
	}
	o := object{ObjectMeta: identity(&n.Metadata)}
	if mode, ok := n.Metadata.Annotations[AnnMode]; ok {
		o.Annotations = map[string]string{AnnMode: mode}
	}
	o.Labels, o.allLabels = map[string]string{}, n.Metadata.Labels
	if o.allLabels == nil {
		o.allLabels = map[string]string{}
	}
	for k, v := range n.Metadata.Labels {
		if strings.HasPrefix(k, labelPrefix) {
			o.Labels[k] = v
		}
	}
	var err error
	if o.taints, err = startupTaints(n.Spec.Taints); err != nil {
		return object{}, err
	}
	o.lent, err = lentOf(raw, &n.Metadata)
	return o, err
}

func slimPod(raw []byte) (object, error) {
	var pod corev1.Pod
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &pod); err != nil {
		return object{}, err
	}
	o := object{ObjectMeta: identity(&pod.ObjectMeta)}
	if pod.UID != "" { // a bookmark has none
		info := infoOf(&pod)
		o.pod = &info
	}
	return o, nil
}

func identity(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}
}

// errMalformed is an answer that violates the API: a proxy's error page, or a damaged
// stream.
var errMalformed = errors.New("not what an API server answers")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errMalformed, fmt.Errorf(format, args...))
}

// decodeList decodes a list item by item, so that only one is in memory at a time.
func decodeList(r io.Reader, f feed) (*objectList, error) {
	d := json.NewDecoder(r)
	list := &objectList{}
	var kind string
	err := eachField(d, func(key string) error {
		switch key {
		case "kind":
			return d.Decode(&kind)
		case "metadata":
			return d.Decode(&list.ListMeta)
		case "items":
			return list.decodeItems(d, f)
		}
		var skipped json.RawMessage
		return d.Decode(&skipped)
	})
	switch {
	case err != nil && bodyEnded(err):
		return nil, err
	case err != nil:
		return nil, malformed("list %s: %w", f.resource, err)
	case kind != f.kind+"List":
		return nil, malformed("list %s: the answer's kind is %q, want %sList", f.resource, kind, f.kind)
	case list.ResourceVersion == "":
		return nil, malformed("list %s: the answer has no resourceVersion", f.resource)
	}
	return list, nil
}

// bodyEnded distinguishes a broken or slow connection from a bad answer.
func bodyEnded(err error) bool {
	return classify(err) == resultTimeout || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.Canceled)
}

func eachField(d *json.Decoder, do func(key string) error) error {
	if err := delim(d, '{'); err != nil {
		return err
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		key, ok := t.(string)
		if !ok {
			return fmt.Errorf("found %v, want a key", t)
		}
		if err := do(key); err != nil {
			return err
		}
	}
	return delim(d, '}')
}

func delim(d *json.Decoder, want json.Delim) error {
	t, err := d.Token()
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	if got, ok := t.(json.Delim); !ok || got != want {
		return fmt.Errorf("found %v, want %v", t, want)
	}
	return nil
}

func (l *objectList) decodeItems(d *json.Decoder, f feed) error {
	t, err := d.Token()
	if err != nil || t == nil { // a list without items may say null
		return err
	}
	if t != json.Delim('[') {
		return fmt.Errorf("found %v, want a list of items", t)
	}
	var raw json.RawMessage // one buffer for all
	for d.More() {
		if err := d.Decode(&raw); err != nil {
			return err
		}
		o, err := f.slim(raw)
		if err != nil {
			return fmt.Errorf("item %d: %w", len(l.Items), err)
		}
		l.Items = append(l.Items, o)
	}
	return delim(d, ']')
}

// frames decodes the events of a watch.
type frames struct {
	feed    feed
	body    io.Closer
	d       *json.Decoder
	frame   frame
	observe func(error)
	cancel  func()
}

type frame struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

func newFrames(body io.ReadCloser, f feed) *frames {
	return &frames{feed: f, body: body, d: json.NewDecoder(body), observe: func(error) {}, cancel: func() {}}
}

func (f *frames) next() (watch.EventType, runtime.Object, error) {
	f.frame.Type, f.frame.Object = "", f.frame.Object[:0]
	if err := f.d.Decode(&f.frame); err != nil {
		var syntax *json.SyntaxError
		var kind *json.UnmarshalTypeError
		if errors.As(err, &syntax) || errors.As(err, &kind) {
			err = malformed("watch %s: %w", f.feed.resource, err)
		}
		return "", nil, err
	}
	switch kind := watch.EventType(f.frame.Type); kind {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark:
		o, err := f.feed.slim(f.frame.Object)
		if err != nil {
			return "", nil, malformed("watch %s: %w", f.feed.resource, err)
		}
		return kind, &o, nil
	case watch.Error:
		status := &metav1.Status{}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(f.frame.Object, status); err != nil {
			return "", nil, malformed("watch %s: %w", f.feed.resource, err)
		}
		return kind, status, nil
	default:
		return "", nil, malformed("watch %s: event of type %q", f.feed.resource, clip(f.frame.Type, 40))
	}
}
