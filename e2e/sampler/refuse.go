package main

import (
	"context"
	"fmt"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

// refuser is a plugin that comes after Quietcore's and refuses what has been
// placed by then.
type refuser struct{}

// Refuse is the pod annotation whose value is the name of the container to refuse.
const Refuse = "test.quietcore.dev/refuse"

// CreateContainer refuses the container that its pod's annotation names.
func (refuser) CreateContainer(_ context.Context, p *api.PodSandbox,
	c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	if p.GetAnnotations()[Refuse] == c.GetName() {
		return nil, nil, fmt.Errorf("container %s is refused for a test", c.GetName())
	}
	return nil, nil, nil
}

func refuse(ctx context.Context) error {
	s, err := stub.New(refuser{}, stub.WithPluginName("refuser"), stub.WithPluginIdx("95"),
		stub.WithSocketPath("/var/run/nri/nri.sock"))
	if err != nil {
		return err
	}
	return s.Run(ctx)
}
