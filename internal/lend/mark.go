package lend

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quietcore/quietcore/internal/kube"
)

// EvictionRequested is the pod condition by which a node's daemon asks for the eviction
// of a pod of its node: its mark. It is True as long as the daemon wants the pod away.
const EvictionRequested corev1.PodConditionType = "quietcore.dev/EvictionRequested"

// Reasons of the condition. The evictor writes ReasonBudget into a standing mark, and the
// daemon the others.
const (
	ReasonLending      = "LentCPUsWanted"
	ReasonInterference = "Interference"
	ReasonWithdrawn    = "Withdrawn"
	ReasonBudget       = "DisruptionBudget" // it is not evicted; the message names the budget
)

const (
	// MarkFor is how long a daemon lets a mark stand.
	MarkFor = time.Minute
	// MarkMaxAge is from when on the evictor ignores a mark: its daemon is gone. It is less
	// than the time for which a daemon that was restarted counts a chosen pod as gone.
	MarkMaxAge = 2 * time.Minute
	// maxMessage bounds a condition's message, in bytes.
	maxMessage = 1000
)

// Mark is the condition EvictionRequested.
type Mark struct {
	On              bool
	Since           time.Time // its last transition
	Reason, Message string
}

// MarkIn finds the mark among a pod's conditions; the zero value: there is none.
func MarkIn(conditions []corev1.PodCondition) Mark {
	for i := range conditions {
		if c := &conditions[i]; c.Type == EvictionRequested {
			return Mark{On: c.Status == corev1.ConditionTrue, Since: c.LastTransitionTime.Time, Reason: c.Reason,
				Message: c.Message}
		}
	}
	return Mark{}
}

// Stale says that nobody stands behind a mark any more. One of the far future is stale, too:
// the clock that made it is of no use.
func (m *Mark) Stale(now time.Time) bool { return now.Sub(m.Since).Abs() > MarkMaxAge }

// Marked is a pod as the API server has it.
type Marked struct {
	Gone   bool // there is no pod with that UID
	Ending bool // it is terminating
	Over   bool // its containers have ended for good
	Mark   Mark
}

// PodMarker reads pods and writes the mark of exactly one: one with another UID is not
// marked.
type PodMarker interface {
	Look(ctx context.Context, pod Pod) (Marked, error)
	Mark(ctx context.Context, pod Pod, m Mark) error
}

// Look implements PodMarker. It takes the right to list pods, which the daemon has.
func (s *Server) Look(ctx context.Context, pod Pod) (Marked, error) {
	c, err := s.api.Connect()
	if err != nil {
		return Marked{}, err
	}
	raw, err := c.Get().AbsPath("/api/v1/namespaces", pod.Namespace, "pods").
		Param("fieldSelector", "metadata.name="+pod.Name).MaxRetries(0).Do(ctx).Raw()
	if err != nil {
		return Marked{}, err
	}
	var list struct {
		Kind  string `json:"kind"`
		Items []struct {
			Metadata struct {
				UID               types.UID    `json:"uid"`
				DeletionTimestamp *metav1.Time `json:"deletionTimestamp"`
			} `json:"metadata"`
			Status struct {
				Phase      corev1.PodPhase       `json:"phase"`
				Conditions []corev1.PodCondition `json:"conditions"`
			} `json:"status"`
		} `json:"items"`
	}
	if err = json.Unmarshal(raw, &list); err == nil && list.Kind != "PodList" {
		err = fmt.Errorf("its kind is %q", list.Kind)
	}
	if err != nil {
		return Marked{}, fmt.Errorf("look at pod %s: the answer is no PodList: %w", pod, err)
	}
	for i := range list.Items {
		p := &list.Items[i]
		if string(p.Metadata.UID) == pod.UID {
			return Marked{Ending: p.Metadata.DeletionTimestamp != nil, Mark: MarkIn(p.Status.Conditions),
				Over: p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed}, nil
		}
	}
	return Marked{Gone: true}, nil
}

// Mark implements PodMarker. It changes no other condition.
func (s *Server) Mark(ctx context.Context, pod Pod, m Mark) error {
	c, err := s.api.Connect()
	if err != nil {
		return err
	}
	patch, err := PatchOf(pod.UID, map[string]any{"type": EvictionRequested, "status": statusOf(m.On),
		"reason": m.Reason, "message": Clip(m.Message, maxMessage), "lastTransitionTime": metav1.NewTime(m.Since)})
	if err != nil {
		return err
	}
	err = c.Patch(types.StrategicMergePatchType).AbsPath("/api/v1/namespaces", pod.Namespace, "pods", pod.Name,
		"status").Param("fieldManager", FieldManager).MaxRetries(0).Body(patch).Do(ctx).Error()
	if kube.AnotherUID(err) {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, pod.Name, err)
	}
	return err
}

// PatchOf is a strategic merge patch of one condition. The API server refuses it for a
// pod with another UID.
func PatchOf(uid string, condition map[string]any) ([]byte, error) {
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid},
		"status": map[string]any{"conditions": []any{condition}}})
}

func statusOf(on bool) corev1.ConditionStatus {
	if on {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}

// Clip shortens a text to so many bytes, not within a character.
func Clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	end := limit - len("…")
	for end > 0 && text[end]&0xc0 == 0x80 {
		end--
	}
	return text[:end] + "…"
}
