package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	kjson "sigs.k8s.io/json"
)

// Names of lent CPUs in the API: the resources, counted in thousandths of a CPU,
// and the Node's annotation of who wrote them when.
const (
	BatchResource       = batchResource
	KoordinatorResource = koordinatorBatch
	AnnLending          = "quietcore.dev/lending"
)

// Absent is the amount of a resource that the Node's status does not have, which
// is not the same as none: kubelet overlooks a request of an extended resource that
// is absent and fails the pod for one of which there is too little.
const Absent = -1

const maxLending = 1 << 10 // bytes of the annotation that are read

// LentNode is what a Node says of lent CPUs. The zero value is a Node that is gone.
type LentNode struct {
	UID types.UID
	// Version is the Node's resource version.
	Version          string
	Own, Koordinator Amount
	// Record is the annotation AnnLending.
	Record string
}

// Amount is one resource in a Node's status, in thousandths of a CPU or Absent.
type Amount struct{ Capacity, Allocatable int64 }

// BatchPod is a pod of this node that requests lent CPUs and is not over.
type BatchPod struct {
	UID, Namespace, Name string
	// Milli is what it is lent, as policy.PodFacts have it.
	Milli int64
	// Own and Koordinator are what scheduler and kubelet count of the two resources.
	Own, Koordinator int64
}

// batchRequest is what a BatchPod has beyond its facts; zero where it is none.
type batchRequest struct {
	namespace, name  string
	own, koordinator int64
}

// requestOf reads the requests with a RuntimeClass's overhead, as scheduler and
// kubelet count them; milli is what the pod is lent.
func requestOf(pod *corev1.Pod, milli int64) batchRequest {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	own, koordinator := requests[batchResource], requests[koordinatorBatch]
	r := batchRequest{own: bounded(&own, 0), koordinator: bounded(&koordinator, 0)}
	if r.own == 0 && r.koordinator == 0 && milli == 0 {
		return batchRequest{}
	}
	r.namespace, r.name = pod.Namespace, pod.Name
	return r
}

func (i *podInfo) batchPod(uid string) BatchPod {
	return BatchPod{
		UID: uid, Namespace: i.batch.namespace, Name: i.batch.name,
		Milli: i.facts.BatchMilli, Own: i.batch.own, Koordinator: i.batch.koordinator,
	}
}

// batchPods are those of this node that request lent CPUs. Its lock is held for a
// map's length, never across a call.
type batchPods struct {
	changed func() // nil: none is called

	mu     sync.Mutex
	byUID  map[string]BatchPod
	listed bool // the API server has sent all of them at least once
}

func (b *batchPods) put(uid string, i *podInfo) {
	b.mu.Lock()
	was, had := b.byUID[uid]
	now, has := BatchPod{}, i.batch != batchRequest{}
	if has {
		now = i.batchPod(uid)
		if b.byUID == nil {
			b.byUID = map[string]BatchPod{}
		}
		b.byUID[uid] = now
	} else {
		delete(b.byUID, uid)
	}
	b.mu.Unlock()
	b.notify(had != has || was != now)
}

func (b *batchPods) drop(uid string) {
	b.mu.Lock()
	_, had := b.byUID[uid]
	delete(b.byUID, uid)
	b.mu.Unlock()
	b.notify(had)
}

func (b *batchPods) all() {
	b.mu.Lock()
	first := !b.listed
	b.listed = true
	b.mu.Unlock()
	b.notify(first)
}

func (b *batchPods) notify(news bool) {
	if news && b.changed != nil {
		b.changed()
	}
}

// Batch are the pods of this node that request lent CPUs, in the order of their
// UIDs; known is false until the API server has sent all of them.
func (c *Client) Batch() (pods []BatchPod, known bool) {
	b := &c.pods.batch
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.listed {
		return nil, false
	}
	for _, p := range b.byUID {
		pods = append(pods, p)
	}
	sortBatch(pods)
	return pods, true
}

func sortBatch(pods []BatchPod) {
	slices.SortFunc(pods, func(a, b BatchPod) int { return cmp.Compare(a.UID, b.UID) })
}

// ListBatch asks the API server for what Batch would say, and ReadNode for the
// Node, without Run.
func (c *Client) ListBatch(ctx context.Context) ([]BatchPod, error) {
	list, err := c.list(ctx, c.podFeed(), metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", c.o.Node, err)
	}
	var pods []BatchPod
	for i := range list.Items {
		o := &list.Items[i]
		if o.pod != nil && !o.pod.over && o.pod.batch != (batchRequest{}) {
			pods = append(pods, o.pod.batchPod(string(o.UID)))
		}
	}
	sortBatch(pods)
	return pods, nil
}

// ReadNode is the Node as it is now; a Node that is not there is an error.
func (c *Client) ReadNode(ctx context.Context) (LentNode, error) {
	list, err := c.list(ctx, c.nodeFeed(), metav1.ListOptions{})
	if err != nil {
		return LentNode{}, fmt.Errorf("read Node %s: %w", c.o.Node, err)
	}
	for i := range list.Items {
		if o := &list.Items[i]; o.Name == c.o.Node {
			return o.lent, nil
		}
	}
	return LentNode{}, fmt.Errorf("read Node %s: %w", c.o.Node, errNoSuchNode)
}

// ParseLentNode reads a Node as the API server answers it.
func ParseLentNode(raw []byte) (LentNode, error) {
	o, err := slimNode(raw)
	if err != nil {
		return LentNode{}, malformed("read a Node: %w", err)
	}
	return o.lent, nil
}

// lentOf reads what a Node says of lent CPUs.
func lentOf(raw []byte, m *metav1.ObjectMeta) (LentNode, error) {
	n := LentNode{UID: m.UID, Version: m.ResourceVersion, Record: m.Annotations[AnnLending]}
	if len(n.Record) > maxLending {
		n.Record = ""
	}
	var s struct {
		Status struct {
			Capacity    map[corev1.ResourceName]resource.Quantity `json:"capacity"`
			Allocatable map[corev1.ResourceName]resource.Quantity `json:"allocatable"`
		} `json:"status"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &s); err != nil {
		return LentNode{}, err
	}
	amount := func(name corev1.ResourceName) Amount {
		of := func(list map[corev1.ResourceName]resource.Quantity) int64 {
			q, ok := list[name]
			if !ok {
				return Absent
			}
			return bounded(&q, 0)
		}
		return Amount{of(s.Status.Capacity), of(s.Status.Allocatable)}
	}
	n.Own, n.Koordinator = amount(batchResource), amount(koordinatorBatch)
	return n, nil
}
