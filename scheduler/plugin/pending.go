package plugin

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/quietcore/quietcore/scheduler/placement"
)

// maxPending bounds the pods that a node's ledger is compared with; the others wait for the
// scheduler's own events.
const maxPending = 5000

// pending are pods that no node has taken yet.
type pending struct {
	mu   sync.Mutex
	pods map[string]waiting
}

type waiting struct {
	pod  *v1.Pod
	wish *placement.Wish
	room bool // on some node, since the last attempt began
}

func newPending() *pending { return &pending{pods: map[string]waiting{}} }

func (p *pending) add(pod *v1.Pod, w *placement.Wish) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.pods[string(pod.UID)]; known || len(p.pods) < maxPending {
		p.pods[string(pod.UID)] = waiting{pod: pod, wish: w}
	}
}

func (p *pending) remove(uid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pods, uid)
}

func (p *pending) list() []waiting {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]waiting, 0, len(p.pods))
	for _, w := range p.pods {
		all = append(all, w)
	}
	return all
}

// moreFits has pods tried again for which a node has room now.
func (p *Plugin) moreFits(node string) {
	s := p.cluster.Node(node)
	if !s.Known() {
		return
	}
	for _, w := range p.pending.list() {
		if _, refusal := s.Ask(w.wish, placement.Load{SharedMilli: s.SharedMilli()}); refusal == nil {
			p.pending.mark(string(w.pod.UID))
		}
	}
	p.activate()
}

// activateEvery is how often pods with room somewhere are asked for again: one that was being
// looked at just then, by what was known before, is not in the queue that Activate searches.
const activateEvery = time.Second

// tend does what time brings, until ctx ends.
func (p *Plugin) tend(ctx context.Context) {
	ticker := time.NewTicker(activateEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			p.nodes.distrust()
			p.tellOfRefusals(ctx)
			p.activate()
		}
	}
}

func (p *Plugin) activate() {
	again := map[string]*v1.Pod{}
	for _, w := range p.pending.list() {
		if w.room {
			again[w.pod.Namespace+"/"+w.pod.Name] = w.pod
		}
	}
	if len(again) > 0 {
		p.handle.Activate(klog.Background(), again)
	}
}

// markAll does what mark does with every pod.
func (p *pending) markAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid, w := range p.pods {
		w.room = true
		p.pods[uid] = w
	}
}

// mark notes that some node has room for a pod; its next attempt takes the note away.
func (p *pending) mark(uid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w, ok := p.pods[uid]; ok {
		w.room = true
		p.pods[uid] = w
	}
}
