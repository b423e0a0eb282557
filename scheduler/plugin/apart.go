package plugin

import (
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/quietcore/quietcore/internal/kube"
	"github.com/quietcore/quietcore/internal/ledger"
)

const apartKey = fwk.StateKey(Name + "/apart")

// apart are jobs that daemons have proven to be better apart, wherever they run.
type apart struct {
	mu    sync.RWMutex
	texts map[string]string // of each node
	pairs map[string][]ledger.Pair
}

func newApart() *apart { return &apart{texts: map[string]string{}, pairs: map[string][]ledger.Pair{}} }

// said takes over what a node has proven.
func (a *apart) said(node, text string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.texts[node] == text {
		return
	}
	a.texts[node], a.pairs[node] = text, ledger.DecodePairs(text, now)
	if len(a.pairs[node]) == 0 {
		delete(a.texts, node)
		delete(a.pairs, node)
	}
}

// jobOf names the pods of a controller, as daemons do.
func jobOf(pod *v1.Pod) string { return pod.Namespace + "/" + kube.OwnerOf(pod) }

// jobs are those that a pod is better apart from.
type jobs []string

// Clone implements fwk.StateData; jobs are never changed.
func (j jobs) Clone() fwk.StateData { return j }

// from are the jobs that a pod is better apart from: those that slow it down, and those that it does
// slow down. nil: there are none.
func (a *apart) from(pod *v1.Pod, now time.Time) (list jobs) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if len(a.pairs) == 0 {
		return nil
	}
	job := jobOf(pod)
	for _, pairs := range a.pairs {
		for _, p := range pairs {
			switch {
			case !p.Until.After(now):
			case p.Victim == job:
				list = append(list, p.Antagonist)
			case p.Antagonist == job:
				list = append(list, p.Victim)
			}
		}
	}
	return list
}

// on counts the pods of such jobs on a node.
func (j jobs) on(n fwk.NodeInfo) (count int) {
	for _, info := range n.GetPods() {
		if slices.Contains(j, jobOf(info.GetPod())) {
			count++
		}
	}
	return count
}
