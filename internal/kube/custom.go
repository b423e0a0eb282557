package kube

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// Custom describes a cluster-scoped kind of object outside of the core group that is followed, all objects of it.
type Custom struct {
	Part string // in Report
	Path string // /apis/GROUP/VERSION/RESOURCE
	Kind string
	// Max is the most bytes that are kept of one's spec; of a larger one TooLarge is set.
	Max int
	// On is called with all objects, sorted by name, once they are known and at every change. It must not block, and
	// keeps nothing of the slice.
	On func([]CustomObject)
}

// CustomObject is what is kept of one.
type CustomObject struct {
	Name, UID  string
	Generation int64
	Spec       json.RawMessage
	TooLarge   bool
}

func (c *Client) customFeed(k *Custom) feed {
	return feed{part: k.Part, resource: k.Path[strings.LastIndexByte(k.Path, '/')+1:], path: k.Path, kind: k.Kind,
		slim: k.slim}
}

func (k *Custom) slim(raw []byte) (object, error) {
	var o struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     json.RawMessage   `json:"spec"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &o); err != nil {
		return object{}, err
	}
	slim := object{ObjectMeta: identity(&o.Metadata)}
	slim.Generation = o.Metadata.Generation
	if slim.custom.TooLarge = len(o.Spec) > k.Max; !slim.custom.TooLarge {
		slim.custom.Spec = slices.Clone(o.Spec)
	}
	return slim, nil
}

// customStore is the reflector's store. Only the reflector's goroutine uses it.
type customStore struct {
	on  func([]CustomObject)
	all map[string]CustomObject
}

func (s *customStore) put(o *object) {
	c := o.custom
	c.Name, c.UID, c.Generation = o.Name, string(o.UID), o.Generation
	s.all[o.Name] = c
}

func (s *customStore) tell() {
	list := make([]CustomObject, 0, len(s.all))
	for _, c := range s.all {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b CustomObject) int { return strings.Compare(a.Name, b.Name) })
	s.on(list)
}

func (s *customStore) Add(o any) error { s.put(o.(*object)); s.tell(); return nil }
func (s *customStore) Update(o any) error {
	return s.Add(o)
}

func (s *customStore) Delete(o any) error {
	if gone, ok := o.(*object); ok {
		delete(s.all, gone.Name)
		s.tell()
	}
	return nil
}
func (s *customStore) Resync() error { return nil }

func (s *customStore) Replace(list []any, _ string) error {
	s.all = map[string]CustomObject{}
	for _, o := range list {
		s.put(o.(*object))
	}
	s.tell()
	return nil
}

func (c *Client) followCustom(ctx context.Context, k *Custom) {
	c.follow(ctx, c.customFeed(k), &customStore{on: k.On})
}
