package kube

import (
	"context"
	"reflect"
	"sync"

	"github.com/quietcore/quietcore/policy"
)

// pods holds the facts of this node's pods. Only the goroutine that follows them
// writes; reads are safe from any goroutine.
type pods struct {
	node string
	take func(context.Context, policy.PodFacts)

	byUID sync.Map // UID or alias -> *policy.PodFacts

	held    map[string]podInfo // by the API server's UID
	aliases map[string]string  // alias -> the API server's UID of its pod
	batch   batchPods
}

func newPods(node string, take func(context.Context, policy.PodFacts)) *pods {
	if take == nil {
		take = func(context.Context, policy.PodFacts) {}
	}
	return &pods{node: node, take: take, held: map[string]podInfo{}, aliases: map[string]string{}}
}

func (p *pods) facts(uid string) (policy.PodFacts, bool) {
	f, ok := p.byUID.Load(uid)
	if !ok {
		return policy.PodFacts{}, false
	}
	return *f.(*policy.PodFacts), true
}

// put stores a pod and reports it if anything is new.
func (p *pods) put(ctx context.Context, o *object) {
	if o.pod == nil {
		return
	}
	uid, info := string(o.UID), *o.pod
	if info.over {
		p.drop(uid)
		return
	}
	old, was := p.held[uid]
	if was && reflect.DeepEqual(old, info) {
		return
	}
	if was && old.alias != info.alias {
		p.unalias(old.alias, uid)
	}
	p.unalias(uid, p.aliases[uid]) // a real UID takes precedence over an alias
	p.held[uid] = info
	p.batch.put(uid, &info)
	p.publish(info.facts)
	if info.alias == "" || !p.claim(info.alias, uid) {
		p.take(ctx, info.facts)
		return
	}
	f := info.facts
	f.UID = info.alias
	p.publish(f)
	p.take(ctx, f)
}

func (p *pods) publish(f policy.PodFacts) { p.byUID.Store(f.UID, &f) }

// claim reserves an alias for a pod, unless a pod has it as its UID or claimed it
// earlier.
func (p *pods) claim(alias, uid string) bool {
	if _, real := p.held[alias]; real {
		return false
	}
	if holder, taken := p.aliases[alias]; taken && holder != uid {
		return false
	}
	p.aliases[alias] = uid
	return true
}

func (p *pods) unalias(alias, uid string) {
	if alias != "" && p.aliases[alias] == uid && uid != "" {
		delete(p.aliases, alias)
		p.byUID.Delete(alias)
	}
}

func (p *pods) drop(uid string) {
	info, ok := p.held[uid]
	if !ok {
		return
	}
	delete(p.held, uid)
	p.batch.drop(uid)
	p.byUID.Delete(uid)
	if info.alias == "" || p.aliases[info.alias] != uid {
		return
	}
	p.unalias(info.alias, uid)
	for other, i := range p.held {
		if i.alias == info.alias && p.claim(i.alias, other) {
			i.facts.UID = i.alias
			p.publish(i.facts)
			return
		}
	}
}

// podStore is the reflector's store.
type podStore struct {
	*pods
	ctx context.Context // Run's: the reflector's calls bring none
}

func (s *podStore) Add(o any) error    { s.put(s.ctx, o.(*object)); return nil }
func (s *podStore) Update(o any) error { s.put(s.ctx, o.(*object)); return nil }
func (s *podStore) Delete(o any) error { s.drop(string(o.(*object).UID)); return nil }
func (s *podStore) Resync() error      { return nil }

// Replace stores a whole list. It removes missing pods first, so that their aliases are
// free.
func (s *podStore) Replace(list []any, _ string) error {
	there := make(map[string]bool, len(list))
	for _, o := range list {
		there[string(o.(*object).UID)] = true
	}
	for uid := range s.held {
		if !there[uid] {
			s.drop(uid)
		}
	}
	for _, o := range list {
		s.put(s.ctx, o.(*object))
	}
	s.batch.all()
	return nil
}
