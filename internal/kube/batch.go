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

// Names of lent CPUs in the API: the resources, in thousandths of a CPU, and the Node's
// annotation with their writer and time.
const (
	BatchResource       = batchResource
	KoordinatorResource = koordinatorBatch
	AnnLending          = "quietcore.dev/lending"
)

// Absent is the amount of a resource that the Node's status lacks, which differs from
// 0: kubelet ignores a request of an absent extended resource, and fails a pod if there
// is too little of it.
const Absent = -1

const maxLending = 1 << 10 // bytes of the annotation that are read

// LentNode is a Node's lent CPUs. The zero value is a deleted Node.
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

// BatchPod is a pod of this node that requests lent CPUs and has not ended.
type BatchPod struct {
	UID, Namespace, Name string
	// Milli is what it is lent, as in policy.PodFacts.
	Milli int64
	// Own and Koordinator are what scheduler and kubelet count of the two resources.
	Own, Koordinator int64
}

// batchRequest is what a BatchPod has beyond its facts; zero for other pods.
type batchRequest struct {
	namespace, name  string
	own, koordinator int64
}

// requestOf returns the requests including a RuntimeClass's overhead, as scheduler and
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

// batchPods are the pods of this node that request lent CPUs. Its lock is only held for
// map accesses, never across a call.
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

// Batch returns the pods of this node that request lent CPUs, in the order of their
// UIDs; known is false until the API server has sent all.
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

// ListBatch requests what Batch would return, and ReadNode the Node, without Run.
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

// ReadNode returns the present Node; a missing Node is an error.
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

// ParseLentNode parses a Node in the API server's encoding.
func ParseLentNode(raw []byte) (LentNode, error) {
	o, err := slimNode(raw)
	if err != nil {
		return LentNode{}, malformed("read a Node: %w", err)
	}
	return o.lent, nil
}

// lentOf extracts a Node's lent CPUs.
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
