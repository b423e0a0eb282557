// Package probe asks what runs for doctor: the runtime, the counters, the daemon and the
// API server.
package probe

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/quietcore/quietcore/cpi/counter"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/daemon"
	"github.com/quietcore/quietcore/internal/doctor"
)

// limit bounds an examination: what has not answered by then is silent.
const limit = 30 * time.Second

// Examine examines this machine, or the files of another one below o.Root: what runs is
// asked on this machine only. version is of this program.
func Examine(ctx context.Context, o doctor.Options, version string) doctor.Report {
	return examine(ctx, o, version, openCounters)
}

// Within is Examine by the daemon itself. It has the counters open already, and a second time takes memory that it
// was not given; what it says of them is among the findings about the daemon.
func Within(ctx context.Context, o doctor.Options, version string) doctor.Report {
	return examine(ctx, o, version, nil)
}

func examine(ctx context.Context, o doctor.Options, version string,
	counters func(*config.Config) doctor.CounterFacts) doctor.Report {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	o.Now = time.Now()
	ask := askDaemon
	if o.Profile != "" {
		ask = askPowers
	}
	o.Probes = doctor.Probes{Daemon: ask, API: func(ctx context.Context, c *config.Config) doctor.APIFacts {
		return askAPI(ctx, c, version)
	}}
	if o.Root == "/" {
		o.Probes.RuntimeVersion, o.Probes.Counters = askRuntime, counters
	}
	return doctor.Check(doctor.Gather(ctx, o))
}

func askRuntime(ctx context.Context, socket string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	answer, err := cri.NewRuntimeServiceClient(conn).Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return "", err
	}
	return answer.RuntimeVersion, nil
}

// openCounters opens what the daemon opens, and closes it.
func openCounters(c *config.Config) doctor.CounterFacts {
	v1 := !exists(filepath.Join(c.Cgroup.Root, "cgroup.controllers"))
	o := daemon.CounterOptions(c, v1)
	o.MaxGroups, o.Waits = 1, counter.WaitsOff
	opened, err := counter.Open(o)
	if err != nil {
		return doctor.CounterFacts{Err: err.Error()}
	}
	defer opened.Close()
	f := doctor.CounterFacts{Absent: map[string]string{}}
	status := opened.Status()
	for _, e := range counter.Events() {
		if s := status.Sources[e]; s.Kind == counter.Absent {
			f.Absent[e.String()] = s.Reason
		}
	}
	return f
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
