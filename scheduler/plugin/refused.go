package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/quietcore/quietcore/internal/ledger"
	"github.com/quietcore/quietcore/policy"
)

// ConditionRefused is true for a pod that its node refuses.
const ConditionRefused v1.PodConditionType = "quietcore.dev/RefusedByNode"

// counters are those of all profiles.
var counters = sync.OnceValue(func() *metrics.CounterVec {
	c := metrics.NewCounterVec(&metrics.CounterOpts{Name: "quietcore_scheduler_refusals_total",
		StabilityLevel: metrics.ALPHA,
		Help: "Pods that their node refused, by the ledger that their place was chosen by: behind the node's, " +
			"the same, or unknown for those that were sent there without one"}, []string{"ledger"})
	legacyregistry.MustRegister(c)
	for _, ledger := range []string{"behind", "same", "unknown"} {
		c.WithLabelValues(ledger) // from the start: an increase is one from 0, and alerts know us by it
	}
	return c
})

// refused are pods that nodes say to have refused.
type refused struct {
	mu    sync.RWMutex
	nodes map[string]map[string]*refusal // by name, by UID of the pod
	over  []refusal                      // that the API server is to be told of
	led   bool                           // this is the scheduler that schedules
}

// refusal is one pod's.
type refusal struct {
	policy.RefusedPod
	node       string
	generation uint64  // of the node's ledger as it refused
	pod        *v1.Pod // nil: it was not seen yet
	told       string  // the sentence that the API server was told
}

func newRefused() *refused { return &refused{nodes: map[string]map[string]*refusal{}} }

// leads says that this scheduler is no stand-by.
func (r *refused) leads() {
	r.mu.RLock()
	led := r.led
	r.mu.RUnlock()
	if !led {
		r.mu.Lock()
		r.led = true
		r.mu.Unlock()
	}
}

// said takes over whom a node refuses.
func (r *refused) said(node, text string, generation func() uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.nodes[node]
	if text == "" && before == nil {
		return
	}
	next := map[string]*refusal{}
	for _, pod := range ledger.DecodeRefused(text) {
		known := before[pod.UID]
		if known == nil {
			known = &refusal{node: node, generation: generation()}
		}
		if known.Message != pod.Message {
			known.generation = generation()
		}
		known.RefusedPod = pod
		next[pod.UID] = known
	}
	for uid, known := range before {
		if next[uid] == nil && known.told != "" {
			r.over = append(r.over, *known)
		}
	}
	if r.nodes[node] = next; len(next) == 0 {
		delete(r.nodes, node)
	}
}

// workload is what replaces a pod, or the pod.
func workload(pod *v1.Pod) string {
	if c := metav1.GetControllerOf(pod); c != nil {
		return string(c.UID)
	}
	return pod.Namespace + "/" + pod.Name
}

// keepOff are the nodes that refused such a pod; nil: none did.
func (r *refused) keepOff(pod *v1.Pod) (off map[string]refusal) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if len(r.nodes) == 0 {
		return nil
	}
	key := workload(pod)
	for node, pods := range r.nodes {
		for _, p := range pods {
			if p.pod != nil && workload(p.pod) == key {
				if off == nil {
					off = map[string]refusal{}
				}
				off[node] = *p
			}
		}
	}
	return off
}

// untold are refusals that the API server does not know, and those that it knows and that are
// over.
func (r *refused) untold(find func(namespace, name string) (*v1.Pod, error)) (now, over []refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, pods := range r.nodes {
		for uid, p := range pods {
			if pod, err := find(p.Namespace, p.Pod); err == nil && string(pod.UID) == uid {
				p.pod = pod
			}
			if p.pod != nil && p.told != p.Message && r.led {
				now = append(now, *p)
			}
		}
	}
	over, r.over = r.over, nil
	return now, over
}

// tell notes that the API server knows of a refusal; was is what it knew before.
func (r *refused) tell(of refusal) (was string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.nodes[of.node][of.UID]; p != nil {
		p.told = of.Message
	}
	return of.told
}

// requestTimeout bounds a request.
const requestTimeout = 10 * time.Second

// tellOfRefusals says of pods that their nodes refuse them, or do so no longer: by a condition
// and an Event with the node's sentence.
func (p *Plugin) tellOfRefusals(ctx context.Context) {
	find := p.handle.SharedInformerFactory().Core().V1().Pods().Lister()
	get := func(namespace, name string) (*v1.Pod, error) { return find.Pods(namespace).Get(name) }
	now, over := p.refused.untold(get)
	for _, r := range now {
		said := "node " + r.node + ": " + r.Message
		if err := p.condition(ctx, r, v1.ConditionTrue, string(r.Code), said); err != nil {
			klog.Background().Error(err, "A pod's condition was not written", "pod", klog.KObj(r.pod))
			continue // with the next tick
		}
		if p.refused.tell(r) != "" {
			continue // it was told of another reason before
		}
		counters().WithLabelValues(r.chosenBy()).Inc()
		p.handle.EventRecorder().Eventf(r.pod, nil, v1.EventTypeWarning, "RefusedByNode", "Scheduling", "%s", said)
		p.replace(ctx, r)
	}
	for _, r := range over {
		if pod, err := get(r.Namespace, r.Pod); err == nil && string(pod.UID) == r.UID {
			r.pod = pod
			_ = p.condition(ctx, r, v1.ConditionFalse, "NotRefused", "node "+r.node+" no longer refuses the pod")
		}
		p.moreFits(r.node)
	}
}

// chosenBy says whether the ledger that the pod's place was chosen by was behind the node's.
func (r refusal) chosenBy() string {
	switch generation, err := strconv.ParseUint(r.pod.Annotations[ledger.AnnGeneration], 10, 64); {
	case err != nil:
		return "unknown"
	case generation == r.generation:
		return "same"
	}
	return "behind"
}

func (p *Plugin) condition(ctx context.Context, r refusal, is v1.ConditionStatus, reason, said string) error {
	if slices.ContainsFunc(r.pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == ConditionRefused && c.Status == is && c.Message == said
	}) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": r.UID},
		"status": map[string]any{"conditions": []v1.PodCondition{{Type: ConditionRefused, Status: is, Reason: reason,
			Message: said, LastTransitionTime: metav1.Now()}}}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err = p.handle.ClientSet().CoreV1().Pods(r.Namespace).Patch(ctx, r.Pod, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	return err
}

// replace deletes a pod that never ran, where its controller makes another one.
func (p *Plugin) replace(ctx context.Context, r refusal) {
	if p.args.RefusedPods != RefusedDelete || metav1.GetControllerOf(r.pod) == nil || started(r.pod) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := p.handle.ClientSet().CoreV1().Pods(r.Namespace).Delete(ctx, r.Pod,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(r.UID)})
	if err != nil {
		klog.Background().Error(fmt.Errorf("delete: %w", err), "A refused pod stays", "pod", klog.KObj(r.pod))
	}
}

// started says that anything of a pod ever ran.
func started(pod *v1.Pod) bool {
	all := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	return pod.Status.Phase != v1.PodPending || slices.ContainsFunc(all, func(c v1.ContainerStatus) bool {
		return c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil
	})
}
