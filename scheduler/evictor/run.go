package evictor

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/quietcore/quietcore/internal/lend"
)

const (
	name = "quietcore-evictor"
	// maxText bounds a text that the API server is told, in bytes.
	maxText = 1000
	// The defaults of a node's rate leave time to notice a mistake before it empties a node.
	defaultEvery = lend.DefaultEvictEvery
	defaultBurst = lend.DefaultEvictBurst
)

// Options of an evictor; all but Log have to be said.
type Options struct {
	Config           *rest.Config
	Namespace, Lease string // the lease of the leader
	Every            time.Duration
	Burst            int
	// Term is how long a leader that is not heard of keeps the lease.
	Term time.Duration
	// Health is the address of /livez and /readyz, Metrics that of /metrics; empty: none.
	Health, Metrics string
	Log             *slog.Logger
}

// errLost ends a process that led and does no longer: what it knows is of no use.
var errLost = errors.New("the lease is lost")

// Run evicts as long as it leads, until ctx ends.
func Run(ctx context.Context, o Options) error {
	client, err := kubernetes.NewForConfig(o.Config)
	if err != nil {
		return fmt.Errorf("client of the API server: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name of this host: %w", err)
	}
	health := &health{watch: leaderelection.NewLeaderHealthzAdaptor(o.Term)}
	led, ended, counts := atomic.Bool{}, make(chan struct{}), newCounters()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: o.Lease, WatchDog: health.watch, ReleaseOnCancel: true,
		LeaseDuration: o.Term, RenewDeadline: o.Term * 2 / 3, RetryPeriod: o.Term * 2 / 15,
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Lease},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
		},
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				led.Store(true)
				defer close(ended)
				lead(ctx, client, o, counts)
			},
			OnStoppedLeading: func() {},
			OnNewLeader: func(who string) {
				health.leader.Store(true)
				o.Log.Info("the leader is known", "leader", who)
			},
		},
	})
	if err != nil {
		return err
	}
	stop, err := health.serve(o.Health)
	if err != nil {
		return err
	}
	defer stop()
	serving, stopMetrics := context.WithCancel(ctx)
	defer stopMetrics()
	if err := counts.serve(serving, o.Metrics, o.Log); err != nil {
		return err
	}
	elector.Run(ctx)
	if ctx.Err() == nil {
		err = errLost
	}
	if led.Load() {
		<-ended
	}
	return err
}

// lead evicts until ctx ends.
func lead(ctx context.Context, client kubernetes.Interface, o Options, counts *counters) {
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		o.Log.Warn("no Events are written", "err", err)
	}
	defer broadcaster.Shutdown()
	recorder := broadcaster.NewRecorder(scheme.Scheme, "quietcore.dev/evictor")
	e := (&evictor{api: server{client}, every: o.Every, burst: o.Burst, now: time.Now, log: o.Log, counts: counts,
		tell: func(pod lend.Pod, reason, text string) {
			about := &v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name,
				UID: types.UID(pod.UID)}
			recorder.Eventf(about, nil, v1.EventTypeWarning, reason, "Reclaim", "%s", lend.Clip(text, maxText))
		}}).ready()
	counts.leads(e.marks)
	defer counts.leads(nil)
	o.Log.Info("this evictor leads", "every", o.Every, "burst", o.Burst)
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { follow(ctx, client, e.marks) })
	e.run(ctx)
}

// health answers probes.
type health struct {
	watch  *leaderelection.HealthzAdaptor
	leader atomic.Bool // somebody has the lease: the API server was reached
}

func (h *health) serve(address string) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for probes: %w", err)
	}
	mux := http.NewServeMux()
	answer := func(path string, well func(*http.Request) error) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if err := well(r); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			_, _ = io.WriteString(w, "ok\n")
		})
	}
	answer("/livez", h.watch.Check)
	answer("/readyz", func(r *http.Request) error {
		if !h.leader.Load() {
			return errors.New("no leader is known yet")
		}
		return h.watch.Check(r)
	})
	s := &http.Server{Handler: mux, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second,
		IdleTimeout: 30 * time.Second, MaxHeaderBytes: 8 << 10}
	go func() { _ = s.Serve(l) }()
	return func() { _ = s.Close() }, nil
}

// Main is the command evictor.
func Main(args []string, out, errs io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return command(ctx, args, out, errs)
}

func command(ctx context.Context, args []string, out, errs io.Writer) int {
	o := Options{Log: slog.New(slog.NewJSONHandler(errs, nil))}
	f := flag.NewFlagSet("quietcore-scheduler evictor", flag.ContinueOnError)
	f.SetOutput(errs)
	f.Usage = func() {
		fmt.Fprintln(out, "Evicts the pods that nodes' daemons have marked, as the leader of several.")
		f.SetOutput(out)
		f.PrintDefaults()
	}
	kubeconfig := f.String("kubeconfig", "", "credentials; empty: the pod's service account")
	f.StringVar(&o.Namespace, "namespace", "", "namespace of the lease; empty: the pod's")
	f.StringVar(&o.Lease, "lease", name, "name of the lease")
	f.DurationVar(&o.Every, "every", defaultEvery, "one eviction of a node's pods in this time, 1s to 1h")
	f.IntVar(&o.Burst, "burst", defaultBurst, "so many of them at once, 1 to 100")
	f.StringVar(&o.Health, "health", ":9467", "address of /livez and /readyz; empty: none")
	f.StringVar(&o.Metrics, "metrics", ":9468", "address of /metrics, which name neither nodes nor pods; empty: none")
	f.DurationVar(&o.Term, "lease-duration", 15*time.Second, "how long a leader that is not heard of leads, 3s to 5m")
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	if err := o.check(f.Args()); err != nil {
		fmt.Fprintln(errs, "quietcore-scheduler evictor:", err)
		return 2
	}
	err := o.connect(*kubeconfig)
	if err == nil {
		err = Run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(errs, "quietcore-scheduler evictor:", err)
		return 1
	}
	return 0
}

func (o *Options) check(rest []string) error {
	within := func(name string, d, least, most time.Duration) error {
		if d < least || d > most {
			return fmt.Errorf("--%s is %s, must be %s to %s", name, d, least, most)
		}
		return nil
	}
	if len(rest) > 0 {
		return fmt.Errorf("unknown argument %q", rest[0])
	}
	if o.Burst < 1 || o.Burst > 100 {
		return fmt.Errorf("--burst is %d, must be 1 to 100", o.Burst)
	}
	return errors.Join(within("every", o.Every, time.Second, time.Hour),
		within("lease-duration", o.Term, 3*time.Second, 5*time.Minute))
}

// ownNamespace is where kubelet tells a pod its namespace.
const ownNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

func (o *Options) connect(kubeconfig string) (err error) {
	if kubeconfig == "" {
		o.Config, err = rest.InClusterConfig()
	} else {
		o.Config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return fmt.Errorf("credentials: %w", err)
	}
	o.Config.UserAgent = name
	o.Config.QPS, o.Config.Burst = 50, 100
	if o.Namespace != "" {
		return nil
	}
	text, err := os.ReadFile(ownNamespace)
	if err != nil {
		return fmt.Errorf("namespace of the lease, --namespace: %w", err)
	}
	o.Namespace = strings.TrimSpace(string(text))
	return nil
}
