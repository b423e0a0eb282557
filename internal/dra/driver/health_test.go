package driver

import (
	"strings"
	"testing"
	"time"

	health "k8s.io/kubelet/pkg/apis/dra-health/v1"
	oldhealth "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"github.com/quietcore/quietcore/cpuset"
)

// Kubelets of either version hear at once which device has CPUs offline, over a real socket.
func TestHealth(t *testing.T) {
	w := newWorld(t)
	var err error
	if w.topo, err = w.topo.WithOnline(w.topo.Online().Minus(cpuset.Of(3))); err != nil {
		t.Fatal(err)
	}
	w.run(t)
	eventually(t, "sockets", func() bool { return strings.Contains(w.driver.State(), "not taken the driver in") })
	conn := dial(t, w.driver.claimsSocket())
	for name, client := range map[string]health.DRAResourceHealthClient{
		"v1":       health.NewDRAResourceHealthClient(conn),
		"v1alpha1": health.V1Alpha1ClientWrapper{Client: oldhealth.NewDRAResourceHealthClient(conn)},
	} {
		stream, err := client.NodeWatchResources(t.Context(), &health.NodeWatchResourcesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := stream.Recv()
		if err != nil || len(r.GetDevices()) != 2 {
			t.Fatalf("%s: %v, %v", name, r, err)
		}
		first, second := r.Devices[0], r.Devices[1]
		if first.GetDevice().GetPoolName() != "n1" || first.GetDevice().GetDeviceName() != "numa-0" ||
			first.GetHealth() != health.HealthStatus_UNHEALTHY || first.GetMessage() != "CPUs 3 are offline" ||
			first.GetLastUpdatedTime() == 0 {
			t.Errorf("%s: %v", name, first)
		}
		if second.GetDevice().GetDeviceName() != "numa-1" || second.GetHealth() != health.HealthStatus_HEALTHY ||
			second.GetMessage() != "" {
			t.Errorf("%s: %v", name, second)
		}
	}
}

// Nothing is said of a node that is not known yet: kubelet would take its devices for gone.
func TestNoHealthOfAnUnknownNode(t *testing.T) {
	w := newWorld(t)
	w.unknown = true
	if r := w.driver.health(time.Unix(1, 0)); r != nil {
		t.Errorf("said %v", r)
	}
}
