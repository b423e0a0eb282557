package machine

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The names of the supervised programs.
const (
	Containerd = "containerd"
	Daemon     = "quietcore"
)

// socketLimit bounds how long a server that was started may take to listen.
const socketLimit = 2 * time.Minute

// StartContainerd starts the runtime and returns when it serves CRI. The image is
// imported at the first start.
func (m *Machine) StartContainerd(ctx context.Context) error {
	if err := m.Start(ctx, Containerd, "env", "GOMAXPROCS=2", "GOGC=800", "/usr/bin/containerd"); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, socketLimit)
	defer cancel()
	if err := m.WaitSocket(wait, ContainerdSocket); err != nil {
		return fmt.Errorf("%w\n%s", err, m.LogTail(ctx, Containerd, 2000))
	}
	for {
		_, err := m.CRI().Status(wait, &cri.StatusRequest{})
		// It accepts before it has looked at what runs. Each question is a round trip.
		if early := status.Code(err) == codes.Unavailable && wait.Err() == nil; err == nil || !early {
			if err != nil {
				err = fmt.Errorf("CRI Status: %w\n%s", err, m.LogTail(ctx, Containerd, 2000))
			}
			return err
		}
	}
}

// ImportImage gives the runtime its only image. --local, because containerd 2.4
// otherwise finds no platform to unpack for with this snapshotter.
func (m *Machine) ImportImage(ctx context.Context) error {
	_, err := m.Exec(ctx, "ctr", "-n", "k8s.io", "images", "import", "--local", "--snapshotter", "native", "/usr/share/image.tar")
	return err
}

// KillContainerd ends the runtime without a chance to say goodbye.
func (m *Machine) KillContainerd(ctx context.Context) error {
	return m.Signal(ctx, Containerd, int(syscall.SIGKILL))
}

// Offline and Online switch one CPU; the kernel has moved its tasks on return.
func (m *Machine) Offline(ctx context.Context, cpu int) error { return m.online(ctx, cpu, "0") }

// Online brings a CPU back.
func (m *Machine) Online(ctx context.Context, cpu int) error { return m.online(ctx, cpu, "1") }

func (m *Machine) online(ctx context.Context, cpu int, value string) error {
	return m.WriteFile(ctx, fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", cpu), value)
}
