package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/quietcore/quietcore/internal/dra"
	"github.com/quietcore/quietcore/internal/kube"
)

// API is the part of the API server that a Driver needs.
type API interface {
	Claim(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error)
	// Slices are those of this driver for a node.
	Slices(ctx context.Context, node string) ([]resourceapi.ResourceSlice, error)
	// Apply creates or changes a slice and returns it as the API server keeps it.
	Apply(ctx context.Context, s *resourceapi.ResourceSlice) (*resourceapi.ResourceSlice, error)
	Delete(ctx context.Context, slice string) error
}

const (
	groupURL     = "/apis/resource.k8s.io/v1"
	slicesPlural = "resourceslices"
	fieldManager = "quietcore"
)

type client struct{ api *kube.Lazy }

// NewAPI makes a client of the API server in config.
func NewAPI(config func() (*rest.Config, error)) API { return &client{kube.NewLazy(config)} }

func (c *client) Claim(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error) {
	r, err := c.api.Connect()
	if err != nil {
		return nil, err
	}
	claim := &resourceapi.ResourceClaim{}
	return claim, read(r.Get().AbsPath(groupURL, "namespaces", namespace, "resourceclaims", name).Do(ctx), claim)
}

func (c *client) Slices(ctx context.Context, node string) ([]resourceapi.ResourceSlice, error) {
	r, err := c.api.Connect()
	if err != nil {
		return nil, err
	}
	var list resourceapi.ResourceSliceList
	err = read(r.Get().AbsPath(groupURL, slicesPlural).Param("fieldSelector",
		resourceapi.ResourceSliceSelectorNodeName+"="+node+","+resourceapi.ResourceSliceSelectorDriver+"="+
			dra.DriverName).Do(ctx), &list)
	return list.Items, err
}

func (c *client) Apply(ctx context.Context, s *resourceapi.ResourceSlice) (*resourceapi.ResourceSlice, error) {
	r, err := c.api.Connect()
	if err != nil {
		return nil, err
	}
	sent := *s
	sent.TypeMeta = metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceSlice"}
	body, err := json.Marshal(&sent)
	if err != nil {
		return nil, fmt.Errorf("encode the slice: %w", err)
	}
	kept := &resourceapi.ResourceSlice{}
	return kept, read(r.Patch(types.ApplyPatchType).AbsPath(groupURL, slicesPlural, s.Name).Param("fieldManager",
		fieldManager).Param("force", "true").Body(body).Do(ctx), kept)
}

func (c *client) Delete(ctx context.Context, slice string) error {
	r, err := c.api.Connect()
	if err != nil {
		return err
	}
	err = r.Delete().AbsPath(groupURL, slicesPlural, slice).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func read(r rest.Result, into any) error {
	text, err := r.Raw()
	if err = errors.Join(r.Error(), err); r.Error() != nil {
		return r.Error() // it has the server's Status
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return nil
}
