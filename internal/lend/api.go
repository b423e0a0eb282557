package lend

import (
	"context"
	"errors"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// Pod identifies a pod; a later pod of the same name has another UID.
type Pod struct{ UID, Namespace, Name string }

func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Server is the API server as a NodeWriter and a PodMarker.
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
