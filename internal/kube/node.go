package kube

import (
	"context"
	"maps"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
)

// node is the followed Node.
type node struct {
	name   string
	take   func(context.Context, map[string]string)
	health *health
	labels map[string]string // last reported; nil: never seen
	lent   func(LentNode)    // nil: not used
	mode   func(context.Context, string)
	all    func(map[string]string) // takes all labels; nil: not used
	had    map[string]string       // all labels, last reported; nil: never seen
	said   *string                 // the mode last reported; nil: never seen
	taints func([]Taint)           // nil: not used
	uid    atomic.Pointer[types.UID]
}

func (n *node) put(ctx context.Context, o *object) {
	if o.Name != n.name {
		return
	}
	n.health.set(n.key(), nil)
	n.uid.Store(&o.UID)
	if n.lent != nil {
		n.lent(o.lent)
	}
	if n.taints != nil {
		n.taints(o.taints)
	}
	if said := o.Annotations[AnnMode]; n.mode != nil && (n.said == nil || *n.said != said) {
		n.said = &said
		n.mode(ctx, said)
	}
	if n.all != nil && (n.had == nil || !maps.Equal(n.had, o.allLabels)) {
		n.had = o.allLabels
		n.all(o.allLabels)
	}
	if n.take == nil {
		return
	}
	if n.labels != nil && maps.Equal(n.labels, o.Labels) {
		return
	}
	n.labels = o.Labels
	n.take(ctx, maps.Clone(o.Labels))
}

// gone handles a deleted Node: what was known stays, since nothing is known of its
// successor.
func (n *node) gone() {
	n.health.report(partNode, resultNotFound)
	n.health.set(n.key(), errNoSuchNode)
	if n.lent != nil {
		n.lent(LentNode{})
	}
	if n.taints != nil {
		n.taints(nil)
	}
}

// key distinguishes "the Node exists" from "it can be requested".
func (n *node) key() string { return "Node " + n.name }

// nodeStore is the reflector's store.
type nodeStore struct {
	*node
	ctx context.Context // Run's: the reflector's calls bring none
}

func (s *nodeStore) Add(o any) error    { s.put(s.ctx, o.(*object)); return nil }
func (s *nodeStore) Update(o any) error { s.put(s.ctx, o.(*object)); return nil }
func (s *nodeStore) Delete(any) error   { s.gone(); return nil }
func (s *nodeStore) Resync() error      { return nil }

func (s *nodeStore) Replace(list []any, _ string) error {
	found := false
	for _, o := range list {
		found = found || o.(*object).Name == s.name
		s.put(s.ctx, o.(*object))
	}
	if !found {
		s.gone()
	}
	return nil
}
