package nrt

import (
	"context"
	"sync"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	"k8s.io/client-go/rest"
)

// lazyAPI connects on first use.
type lazyAPI struct {
	config func() (*rest.Config, error)

	mu  sync.Mutex
	api API // nil: not connected yet
}

// NewLazyAPI returns an API that connects on first use, since credentials may not exist
// before.
func NewLazyAPI(config func() (*rest.Config, error)) API { return &lazyAPI{config: config} }

func (l *lazyAPI) connected() (API, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.api != nil {
		return l.api, nil
	}
	cfg, err := l.config()
	if err == nil {
		l.api, err = NewAPI(cfg)
	}
	return l.api, err
}

func (l *lazyAPI) Versions(ctx context.Context) ([]string, error) {
	api, err := l.connected()
	if err != nil {
		return nil, err
	}
	return api.Versions(ctx)
}

func (l *lazyAPI) Get(ctx context.Context, version, name string) (*v1alpha2.NodeResourceTopology, error) {
	api, err := l.connected()
	if err != nil {
		return nil, err
	}
	return api.Get(ctx, version, name)
}

func (l *lazyAPI) Apply(ctx context.Context, version string, o Applied) (*v1alpha2.NodeResourceTopology, error) {
	api, err := l.connected()
	if err != nil {
		return nil, err
	}
	return api.Apply(ctx, version, o)
}
