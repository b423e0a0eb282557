package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1"
	oldhealth "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/quietcore/quietcore/internal/dra"
)

// claims is the service by which kubelet prepares claims.
type claims struct {
	drapb.UnimplementedDRAPluginServer
	d *Driver
}

func (s claims) NodePrepareResources(ctx context.Context, r *drapb.NodePrepareResourcesRequest) (
	*drapb.NodePrepareResourcesResponse, error) {
	all := map[string]*drapb.NodePrepareResourceResponse{}
	for _, c := range r.GetClaims() {
		answer := &drapb.NodePrepareResourceResponse{}
		devices, err := s.d.prepare(ctx, c)
		if answer.Devices = devices; err != nil {
			answer.Error = s.d.failed("prepared", c, err)
		}
		all[c.GetUid()] = answer
	}
	return &drapb.NodePrepareResourcesResponse{Claims: all}, nil
}

func (s claims) NodeUnprepareResources(ctx context.Context, r *drapb.NodeUnprepareResourcesRequest) (
	*drapb.NodeUnprepareResourcesResponse, error) {
	all := map[string]*drapb.NodeUnprepareResourceResponse{}
	for _, c := range r.GetClaims() {
		answer := &drapb.NodeUnprepareResourceResponse{}
		if err := s.d.unprepare(ctx, c); err != nil {
			answer.Error = s.d.failed("unprepared", c, err)
		}
		all[c.GetUid()] = answer
	}
	return &drapb.NodeUnprepareResourcesResponse{Claims: all}, nil
}

// failed logs why something was not done for a claim, and returns what kubelet shows.
func (d *Driver) failed(what string, c *drapb.Claim, err error) string {
	name := c.GetNamespace() + "/" + c.GetName()
	d.o.Log.Warn("a claim is not "+what, "claim", name, "err", err)
	return fmt.Sprintf("claim %s is not %s: %v", name, what, err)
}

// registrar is the service by which kubelet finds the driver.
type registrar struct {
	registration.UnimplementedRegistrationServer
	d *Driver
	// wiped is called when kubelet has taken the driver in: it may have deleted the slices before.
	wiped func()
}

func (r registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.DRAPlugin, Name: dra.DriverName, Endpoint: r.d.claimsSocket(),
		SupportedVersions: []string{drapb.DRAPluginService, health.DRAResourceHealthService,
			oldhealth.DRAResourceHealthService},
	}, nil
}

func (r registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (
	*registration.RegistrationStatusResponse, error) {
	if !s.GetPluginRegistered() {
		r.d.set(&r.d.state, "kubelet refuses the driver: "+s.GetError())
		return &registration.RegistrationStatusResponse{}, nil
	}
	r.d.set(&r.d.state, "")
	r.wiped()
	return &registration.RegistrationStatusResponse{}, nil
}

func (d *Driver) claimsSocket() string { return filepath.Join(d.o.PluginDir, "dra.sock") }
func (d *Driver) registrySocket() string {
	return filepath.Join(d.o.RegistryDir, dra.DriverName+"-reg.sock")
}

// serve answers kubelet and publishes slices until ctx ends, or a server does.
func (d *Driver) serve(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	p := newPublisher(d)
	own := grpc.NewServer()
	drapb.RegisterDRAPluginServer(own, claims{d: d})
	registerHealth(own, d)
	register := grpc.NewServer()
	registration.RegisterRegistrationServer(register, registrar{d: d, wiped: p.look})
	if err := os.MkdirAll(d.o.PluginDir, 0o750); err != nil {
		return fmt.Errorf("directory of the driver's socket: %w", err)
	}
	listener, err := listen(d.claimsSocket())
	if err != nil {
		return err
	}
	registry, err := listen(d.registrySocket())
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	d.set(&d.state, "kubelet has not taken the driver in yet")
	var all sync.WaitGroup
	run := func(s *grpc.Server, l net.Listener) {
		all.Go(func() { stop(s.Serve(l)) })
		context.AfterFunc(ctx, s.Stop)
	}
	run(own, listener)
	run(register, registry)
	p.run(ctx)
	all.Wait()
	return context.Cause(ctx)
}

// listen listens on a Unix socket, in place of one that an earlier daemon left.
func listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the driver's socket: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("the driver's socket: %w", err)
	}
	return l, nil
}
