package nrt

import (
	"context"
	"sync"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	"k8s.io/client-go/rest"
)

// lateAPI connects when it is first needed.
type lateAPI struct {
	config func() (*rest.Config, error)

	mu  sync.Mutex
	api API // nil: not connected yet
}

// LateAPI speaks with the API server of a configuration that is asked for when it is
// first needed: the credentials may not be there before.
func LateAPI(config func() (*rest.Config, error)) API { return &lateAPI{config: config} }

func (l *lateAPI) connected() (API, error) {
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

func (l *lateAPI) Versions(ctx context.Context) ([]string, error) {
	api, err := l.connected()
	if err != nil {
		return nil, err
	}
	return api.Versions(ctx)
}

func (l *lateAPI) Get(ctx context.Context, version, name string) (*v1alpha2.NodeResourceTopology, error) {
	api, err := l.connected()
	if err != nil {
		return nil, err
	}
	return api.Get(ctx, version, name)
}

func (l *lateAPI) Apply(ctx context.Context, version string, o Applied) (*v1alpha2.NodeResourceTopology, error) {
	api, err := l.connected()
	if err != nil {
		return nil, err
	}
	return api.Apply(ctx, version, o)
}
