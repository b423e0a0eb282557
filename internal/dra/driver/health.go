package driver

import (
	"time"

	"google.golang.org/grpc"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1"
	oldhealth "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
)

// healthEvery is how often kubelet is told how devices are. What it does not hear of for half a minute is unknown.
const healthEvery = 10 * time.Second

// healths is the service by which kubelet learns how devices are, for the status of the pods that have them.
type healths struct {
	health.UnimplementedDRAResourceHealthServer
	d *Driver
}

// registerHealth serves kubelets since 1.37, and older ones.
func registerHealth(s *grpc.Server, d *Driver) {
	health.RegisterDRAResourceHealthServer(s, healths{d: d})
	oldhealth.RegisterDRAResourceHealthServer(s, health.V1ServerWrapper{Server: healths{d: d}})
}

func (h healths) NodeWatchResources(_ *health.NodeWatchResourcesRequest,
	stream health.DRAResourceHealth_NodeWatchResourcesServer) error {
	for ctx := stream.Context(); ctx.Err() == nil; pause(ctx, healthEvery) {
		if r := h.d.health(time.Now()); r != nil {
			if err := stream.Send(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// health is how the devices are at a time; nil while that is not known.
func (d *Driver) health(now time.Time) *health.NodeWatchResourcesResponse {
	node := d.o.Node()
	if node == nil {
		return nil
	}
	r := &health.NodeWatchResourcesResponse{}
	for i := range node.Devices {
		device := &node.Devices[i]
		one := &health.DeviceHealth{
			Device: &health.DeviceIdentifier{PoolName: node.Name, DeviceName: device.Name},
			Health: health.HealthStatus_HEALTHY, LastUpdatedTime: now.Unix(),
		}
		if !device.Offline.IsEmpty() {
			one.Health = health.HealthStatus_UNHEALTHY
			one.Message = "CPUs " + device.Offline.String() + " are offline"
		}
		r.Devices = append(r.Devices, one)
	}
	return r
}
