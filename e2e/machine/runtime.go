package machine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/quietcore/quietcore/e2e/kubelet"
)

// Runtime is what runs the containers of a guest.
type Runtime string

// The runtimes.
const (
	Containerd   Runtime = "containerd"
	Containerd17 Runtime = "containerd-1.7" // the oldest that has NRI
	CRIO         Runtime = "crio"
)

// Runtimes are all that there are.
func Runtimes() []Runtime { return []Runtime{Containerd, Containerd17, CRIO} }

// RuntimeNames lists them for people.
func RuntimeNames() string {
	var names []string
	for _, r := range Runtimes() {
		names = append(names, string(r))
	}
	return strings.Join(names, ", ")
}

// Check says what is wrong with a name that somebody typed.
func (r Runtime) Check() error {
	if !slices.Contains(Runtimes(), r) {
		return fmt.Errorf("-runtime %s: must be one of %s", r, RuntimeNames())
	}
	return nil
}

// Socket is where the runtime serves CRI.
func (r Runtime) Socket() string { return r.kit().socket }

// Data is its folder for images and containers.
func (r Runtime) Data() string { return r.kit().data }

// containerdSocket is where containerd serves CRI.
const containerdSocket = "/run/containerd/containerd.sock"

// kit is how a runtime gets into a guest and what it is there.
type kit struct {
	// programs makes what the guest needs: path there -> path here.
	programs func(context.Context, *builder, kubelet.Driver) (map[string]string, error)
	etc      func(kubelet.Driver) map[string]string
	server   string
	socket   string
	data     string
	// load gives the server that runs its only image.
	load []string
	// scope is what the names of the containers' cgroups begin with.
	scope func(kubelet.Driver) string
}

func (r Runtime) kit() kit {
	switch r {
	case CRIO:
		return crioKit()
	case Containerd17:
		return containerd17Kit()
	default:
		return containerdKit()
	}
}

// Daemon is the name of our supervised program; the runtime's is its own.
const Daemon = "quietcore"

// socketLimit bounds how long a server that was started may take to listen.
const socketLimit = 2 * time.Minute

// StartRuntime starts the runtime and returns when it serves CRI.
func (m *Machine) StartRuntime(ctx context.Context) error {
	kit := m.Runtime.kit()
	if err := m.Start(ctx, string(m.Runtime), "env", "GOMAXPROCS=2", "GOGC=800", kit.server); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, socketLimit)
	defer cancel()
	if err := m.WaitSocket(wait, kit.socket); err != nil {
		return fmt.Errorf("%w\n%s", err, m.RuntimeLog(ctx, 2000))
	}
	for {
		_, err := m.CRI().Status(wait, &cri.StatusRequest{})
		// It accepts before it has looked at what runs. Each question is a round trip.
		if early := status.Code(err) == codes.Unavailable && wait.Err() == nil; err == nil || !early {
			if err != nil {
				err = fmt.Errorf("CRI Status: %w\n%s", err, m.RuntimeLog(ctx, 2000))
			}
			return err
		}
	}
}

// ImportImage gives the runtime its only image, once.
func (m *Machine) ImportImage(ctx context.Context) error {
	_, err := m.Exec(ctx, m.Runtime.kit().load...)
	return err
}

// KillRuntime ends the runtime without a chance to say goodbye.
func (m *Machine) KillRuntime(ctx context.Context) error {
	return m.Signal(ctx, string(m.Runtime), int(syscall.SIGKILL))
}

// nextDir holds the programs of Options.Next until they are in use.
const nextDir = "opt/next/"

func addNext(ctx context.Context, o *Options) error {
	from, err := locked(o.Cache, o.Progress, func(b *builder) (map[string]string, error) {
		return o.Next.kit().programs(ctx, b, o.Driver)
	})
	files := maps.Clone(o.Files)
	if files == nil {
		files = map[string]string{}
	}
	for to, name := range from {
		files[nextDir+to] = name
	}
	o.Files = files
	return err
}

// ChangeRuntime stops the runtime as a service is stopped, gives the machine the programs and the configuration of
// another one, and starts that on what the first one has left. Containers go on meanwhile.
func (m *Machine) ChangeRuntime(ctx context.Context, to Runtime) error {
	if err := m.Signal(ctx, string(m.Runtime), int(syscall.SIGTERM)); err != nil {
		return err
	}
	if _, err := m.Exec(ctx, "sh", "-c", "cd /"+nextDir+"usr/bin && mv -f * /usr/bin/"); err != nil {
		return err
	}
	for name, text := range to.kit().etc(m.Driver) {
		if err := m.WriteFile(ctx, "/"+name, text); err != nil {
			return err
		}
	}
	m.Runtime = to
	return m.StartRuntime(ctx)
}

// RuntimeLog is the end of what the runtime said.
func (m *Machine) RuntimeLog(ctx context.Context, n int) string {
	return m.LogTail(ctx, string(m.Runtime), n)
}

// CRI is the runtime's service.
func (m *Machine) CRI() cri.RuntimeServiceClient {
	return m.runtimeService(m.Runtime.kit().socket)
}

// ContainerPath is where the runtime puts a container of the pod, below the cgroup
// root.
func (m *Machine) ContainerPath(p *kubelet.Pod, id string) string {
	name := m.Runtime.kit().scope(m.Driver) + id
	if m.Driver == kubelet.Systemd {
		name += ".scope"
	}
	return m.Driver.Path(p.CgroupName()) + "/" + name
}

// OfContainers says whether a unit of systemd is a container's, whichever runtime
// made it, or the process's that watches one.
func OfContainers(unit string) bool {
	for _, r := range Runtimes() {
		if strings.HasPrefix(unit, r.kit().scope(kubelet.Systemd)) {
			return true
		}
	}
	return false
}

// Offline and Online switch one CPU; the kernel has moved its tasks on return.
func (m *Machine) Offline(ctx context.Context, cpu int) error { return m.online(ctx, cpu, "0") }

// Online brings a CPU back.
func (m *Machine) Online(ctx context.Context, cpu int) error { return m.online(ctx, cpu, "1") }

func (m *Machine) online(ctx context.Context, cpu int, value string) error {
	return m.WriteFile(ctx, fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", cpu), value)
}
