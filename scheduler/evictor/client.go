package evictor

import (
	"context"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/quietcore/quietcore/internal/lend"
)

// server is the API server as an API.
type server struct{ client kubernetes.Interface }

// Evict implements API. The pod keeps its own grace period.
func (s server) Evict(ctx context.Context, pod lend.Pod) error {
	uid := types.UID(pod.UID)
	// A refusal by a budget must return at once, without client-go's retries. Get inspects
	// the body: for a pod with two budgets the server answers 201 Created with a Status that
	// refuses.
	_, err := s.client.PolicyV1().RESTClient().Post().AbsPath("/api/v1").Namespace(pod.Namespace).
		Resource("pods").Name(pod.Name).SubResource("eviction").MaxRetries(0).
		Body(&policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
		}).Do(ctx).Get()
	return err
}

// Blocked implements API. It leaves the mark's status as it is, which the daemon may have
// withdrawn meanwhile.
func (s server) Blocked(ctx context.Context, pod lend.Pod, why string) error {
	patch, err := lend.PatchOf(pod.UID, map[string]any{"type": lend.EvictionRequested, "reason": lend.ReasonBudget,
		"message": lend.Clip(why, maxText)})
	if err != nil {
		return err
	}
	_, err = s.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{FieldManager: name}, "status")
	return err
}

// follow keeps the marks of the cluster's pods until ctx ends.
func follow(ctx context.Context, client kubernetes.Interface, s *marks) {
	running := fields.AndSelectors(fields.OneTermNotEqualSelector("spec.nodeName", ""),
		fields.OneTermNotEqualSelector("status.phase", string(v1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(v1.PodFailed)))
	lw := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, running)
	cache.NewReflectorWithOptions(lw, &v1.Pod{}, s, cache.ReflectorOptions{Name: "marked pods"}).RunWithContext(ctx)
}
