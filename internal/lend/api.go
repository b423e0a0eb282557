package lend

import (
	"context"
	"encoding/json"
	"errors"
	"net"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/quietcore/quietcore/internal/kube"
)

// FieldManager owns the fields that are written to the Node.
const FieldManager = "quietcore"

// NodeWriter applies a JSON merge patch to the status (and annotations) of a Node and
// returns the result.
type NodeWriter interface {
	PatchNode(ctx context.Context, node string, patch []byte) (kube.LentNode, error)
}

// PodEvicter evicts exactly one pod: one with another UID is not evicted.
type PodEvicter interface {
	Evict(ctx context.Context, pod Pod) error
}

// Pod identifies a pod; a later pod of the same name has another UID.
type Pod struct{ UID, Namespace, Name string }

func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Server is the API server as a NodeWriter and a PodEvicter.
type Server struct{ api *kube.Lazy }

// NewServer connects lazily, since credentials may not exist yet. config is
// kube.Client's REST.
func NewServer(config func() (*rest.Config, error)) *Server { return &Server{kube.NewLazy(config)} }

// PatchNode implements NodeWriter.
func (s *Server) PatchNode(ctx context.Context, node string, patch []byte) (kube.LentNode, error) {
	c, err := s.api.Connect()
	if err != nil {
		return kube.LentNode{}, err
	}
	result := c.Patch(types.MergePatchType).AbsPath("/api/v1/nodes", node, "status").
		Param("fieldManager", FieldManager).MaxRetries(0).Body(patch).Do(ctx)
	if err := result.Error(); err != nil {
		return kube.LentNode{}, err
	}
	raw, err := result.Raw()
	if err != nil {
		return kube.LentNode{}, err
	}
	return kube.ParseLentNode(raw)
}

// Evict implements PodEvicter. The pod keeps its own grace period.
func (s *Server) Evict(ctx context.Context, pod Pod) error {
	c, err := s.api.Connect()
	if err != nil {
		return err
	}
	uid := types.UID(pod.UID)
	body, err := json.Marshal(&policyv1.Eviction{
		TypeMeta:      metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "Eviction"},
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	})
	if err != nil {
		return err
	}
	// A refusal by a budget must return at once, without client-go's retries: the caller
	// may choose another pod. Get inspects the body: for a pod with two budgets the
	// server answers 201 Created with a Status that refuses.
	_, err = c.Post().AbsPath("/api/v1/namespaces", pod.Namespace, "pods", pod.Name, "eviction").
		MaxRetries(0).Body(body).Do(ctx).Get()
	return err
}

// Results of a request, as metric labels.
const (
	resultOK        = "ok"
	resultConflict  = "conflict"
	resultForbidden = "forbidden"
	resultNotFound  = "notfound"
	resultTimeout   = "timeout"
	resultError     = "error"
)

func result(err error) string {
	var network net.Error
	switch {
	case err == nil:
		return resultOK
	case apierrors.IsConflict(err):
		return resultConflict
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return resultForbidden
	case apierrors.IsNotFound(err):
		return resultNotFound
	case errors.Is(err, context.DeadlineExceeded), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err),
		errors.As(err, &network) && network.Timeout():
		return resultTimeout
	}
	return resultError
}
