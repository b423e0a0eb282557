package kube

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// NewRaw makes a client of the API server in config, which it does not change, for
// requests by path whose JSON the caller decodes.
func NewRaw(config *rest.Config) (*rest.RESTClient, error) {
	c := rest.CopyConfig(config)
	scheme := runtime.NewScheme() // for the Status of a refusal
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	client, err := rest.UnversionedRESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("client of the API server at %s: %w", c.Host, err)
	}
	return client, nil
}

// Lazy is a raw client that connects at its first request, since credentials may not
// exist before.
type Lazy struct {
	config func() (*rest.Config, error)

	mu     sync.Mutex // not held during a request
	client *rest.RESTClient
}

// NewLazy makes one. config is Client.REST.
func NewLazy(config func() (*rest.Config, error)) *Lazy { return &Lazy{config: config} }

// Connect returns the client.
func (l *Lazy) Connect() (*rest.RESTClient, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client != nil {
		return l.client, nil
	}
	config, err := l.config()
	if err != nil {
		return nil, err
	}
	l.client, err = NewRaw(config)
	return l.client, err
}

// AnotherUID is the API server's refusal of a patch that names another UID than the object's: it is a later object of
// the same name.
func AnotherUID(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == "metadata.uid"
	})
}
