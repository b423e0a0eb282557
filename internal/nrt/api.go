package nrt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/quietcore/quietcore/internal/kube"
)

// FieldManager owns the fields that Quietcore writes.
const FieldManager = "quietcore"

const (
	group    = "topology.node.k8s.io"
	plural   = "noderesourcetopologies"
	kind     = "NodeResourceTopology"
	groupURL = "/apis/" + group
)

// CRDName is the CustomResourceDefinition that must exist.
const CRDName = plural + "." + group

// Version v1alpha2 is written where it is served, v1alpha1 elsewhere. v1alpha1
// has no attributes of the object.
const (
	V1alpha2 = "v1alpha2"
	V1alpha1 = "v1alpha1"
)

// API is the part of the API server that a Publisher needs.
type API interface {
	// Versions lists the served versions of the object's group; none if the CRD is
	// absent.
	Versions(ctx context.Context) ([]string, error)
	Get(ctx context.Context, version, name string) (*v1alpha2.NodeResourceTopology, error)
	// Apply writes the object by server-side apply and returns the result.
	Apply(ctx context.Context, version string, o Applied) (*v1alpha2.NodeResourceTopology, error)
}

// Applied is one server-side apply; Force takes over fields of other managers.
type Applied struct {
	Name  string
	Body  []byte
	Force bool
}

type client struct{ rest *rest.RESTClient }

// NewAPI makes a client of the API server in config, which it does not change.
func NewAPI(config *rest.Config) (API, error) {
	r, err := kube.NewRaw(config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", CRDName, err)
	}
	return &client{r}, nil
}

func (c *client) Versions(ctx context.Context) ([]string, error) {
	text, err := c.rest.Get().AbsPath(groupURL).DoRaw(ctx)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the versions of %s: %w", group, err)
	}
	var g metav1.APIGroup
	if err := json.Unmarshal(text, &g); err != nil {
		return nil, fmt.Errorf("list the versions of %s: %w", group, err)
	}
	versions := make([]string, 0, len(g.Versions))
	for _, v := range g.Versions {
		versions = append(versions, v.Version)
	}
	return versions, nil
}

func (c *client) Get(ctx context.Context, version, name string) (*v1alpha2.NodeResourceTopology, error) {
	return decode(c.rest.Get().AbsPath(groupURL, version, plural, name).DoRaw(ctx))
}

func (c *client) Apply(ctx context.Context, version string, o Applied) (*v1alpha2.NodeResourceTopology, error) {
	r := c.rest.Patch(types.ApplyPatchType).AbsPath(groupURL, version, plural, o.Name).Param("fieldManager",
		FieldManager).Body(o.Body)
	if o.Force {
		r = r.Param("force", "true")
	}
	// Do decodes the server's Status, which names the conflicting managers; DoRaw
	// keeps only its message.
	result := r.Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	return decode(result.Raw())
}

// decode decodes either version: v1alpha2 has every field of v1alpha1.
func decode(text []byte, err error) (*v1alpha2.NodeResourceTopology, error) {
	if err != nil {
		return nil, err
	}
	var o v1alpha2.NodeResourceTopology
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return &o, nil
}

// encode encodes the object in a version.
func encode(o *v1alpha2.NodeResourceTopology, version string) ([]byte, error) {
	c := *o
	c.TypeMeta = metav1.TypeMeta{APIVersion: group + "/" + version, Kind: kind}
	if version == V1alpha1 {
		c.Attributes = nil
	}
	return json.Marshal(&c)
}

// choose selects the version to write.
func choose(served []string) (string, error) {
	for _, v := range []string{V1alpha2, V1alpha1} {
		if slices.Contains(served, v) {
			return v, nil
		}
	}
	if len(served) == 0 {
		return "", errAbsent
	}
	return "", fmt.Errorf("the CustomResourceDefinition %s serves %v; Quietcore writes %s or %s", CRDName, served,
		V1alpha2, V1alpha1)
}

// undeclared says that the API server cannot merge the object, because another writer
// used a version without one of its fields. There is no error code for that.
func undeclared(err error) bool {
	return err != nil && strings.Contains(err.Error(), "field not declared in schema")
}

var errAbsent = fmt.Errorf("the CustomResourceDefinition %s is not installed", CRDName)

// result is the class of an error, for the metric.
func result(err error) string {
	switch {
	case err == nil:
		return "ok"
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return "forbidden"
	case errors.Is(err, context.DeadlineExceeded), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return "timeout"
	}
	return "error"
}
