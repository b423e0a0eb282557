package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
	"github.com/quietcore/quietcore/internal/soak"
)

// soakConfig has the daemon follow pods in every part of it: their usage each second, and their counters in windows so
// short that pods of seconds have some, with a series of metrics for each.
var soakConfig = map[string]any{
	"authority": map[string]any{"wholeCores": map[string]any{"namespaces": []string{namespace}}},
	"reclaim": map[string]any{"mode": "enforce", "idle": map[string]any{"window": "4m", "sample": "10s"},
		"raise": map[string]any{"hold": "5s"}},
	"suppression": map[string]any{"mode": "enforce", "threshold": suppressAt, "hold": "2s", "grow": 25},
	"cpi": map[string]any{"interval": "3s", "window": "1s", "budget": map[string]any{"node": 0, "cpu": 0},
		"jobLabel": "app", "containerSeries": 600,
		"standIns": map[string]any{"cycles": "on-cpu-nanoseconds", "instructions": "page-faults"}},
}

// Limits of what is waited for; on a free host each takes seconds.
const (
	soakStart = 8 * time.Minute // until all pods of a wave run or have ended
	soakRest  = 5 * time.Minute // until nothing is left of them
)

// soaking is the proof at work.
type soaking struct {
	*bench
	out    []figure
	pid    string         // of the daemon, which has to live through all of it
	became map[string]int // pods, by what became of them
	kinds  map[string]int // pods that ran
	lives  map[string]int // the same
	pods   []float64      // how many had been, by rest
	series []*soak.Series
	looks  [2]int // at waves, and those of them in which the daemon held more than at rest
	mapped int    // of these, how many times its BPF maps did
}

// soakPods: pods come and go in waves, of every kind and by every end. Whenever the node is empty the daemon holds as
// much as before: memory, descriptors, goroutines, entries of BPF maps and of its status, series of metrics, bytes of
// state.
func soakPods(ctx context.Context, b *bench) ([]figure, error) {
	seed := b.options.seed
	if seed == 0 {
		seed = 1 + rand.Uint64N(1e6)
	}
	s := &soaking{bench: b, became: map[string]int{}, kinds: map[string]int{}, lives: map[string]int{},
		series: newHoldings()}
	s.say("soak: seed %d", seed)
	began := time.Now()
	err := s.prepare(ctx)
	if err == nil {
		err = s.play(ctx, newSoakPlan(seed, b.options.soak), began)
	}
	if err == nil {
		s.note("random pods", "%d, seed %d, in %s, %.1f s each", b.options.soak, seed, seconds(time.Since(began)),
			time.Since(began).Seconds()/float64(b.options.soak))
		err = s.judge(b.options.soak)
	}
	if err != nil {
		err = fmt.Errorf("seed %d, pods %v: %w", seed, s.became, err)
	}
	return s.out, errors.Join(err, s.end(context.WithoutCancel(ctx)))
}

func (s *soaking) note(name string, format string, args ...any) {
	s.out = append(s.out, figure{Name: name, Value: fmt.Sprintf(format, args...)})
}

func (s *soaking) prepare(ctx context.Context) error {
	if _, err := s.Kubectl(ctx, "", "apply", "-f", topologyCRD); err != nil {
		return err
	}
	if err := s.grantLending(ctx); err != nil {
		return err
	}
	if err := s.restartDaemon(ctx, soakConfig); err != nil {
		return err
	}
	// Windows begin some time after the daemon.
	return cluster.Until(ctx, daemonLimit, func(ctx context.Context) error {
		status, err := s.settle(ctx)
		if err != nil {
			return err
		}
		if !status.CPI.Counting {
			return fmt.Errorf("nothing is counted, so that no map would have entries: %s", status.CPI.Why)
		}
		s.pid, err = s.daemonPID(ctx)
		return err
	})
}

// end leaves a daemon that lends nothing.
func (s *soaking) end(ctx context.Context) error {
	lent := &lent{bench: s.bench}
	return errors.Join(s.DeletePods(ctx, namespace), s.restartDaemon(ctx, nil), lent.untilSays(ctx, -1))
}

func (s *soaking) play(ctx context.Context, plan *soakPlan, began time.Time) error {
	asked, err := s.sandboxes(ctx)
	if err != nil {
		return err
	}
	rest, err := s.measure(ctx)
	if err != nil {
		return err
	}
	for w := plan.next(); w != nil; w = plan.next() {
		if err := s.come(ctx, w); err != nil {
			return err
		}
		if err := s.look(ctx, rest); err != nil {
			return err
		}
		if err := s.leave(ctx); err != nil {
			return err
		}
		if rest, err = s.measure(ctx); err != nil {
			return err
		}
		s.keep(plan.made, rest)
		took := time.Since(began)
		s.say("  soak: %d of %d pods, %s, %.1f s each: %v", plan.made, plan.pods, took.Round(time.Second),
			took.Seconds()/float64(plan.made), s.series)
	}
	all, err := s.sandboxes(ctx)
	if lived := s.lived(); err == nil && all-asked < float64(lived) {
		err = fmt.Errorf("the daemon was asked for %.0f sandboxes and %d pods ran", all-asked, lived)
	}
	return err
}

// come makes a wave and returns when each of its pods has run or is gone.
func (s *soaking) come(ctx context.Context, w *wave) error {
	there := map[string]*soakPod{}
	for _, p := range w.pods {
		if err := s.Create(ctx, cluster.PodsPath(namespace), p.object(), nil); err != nil {
			return err
		}
		if p.life != lifeHurried {
			there[p.spec.Name] = p
		}
	}
	if len(there) < len(w.pods) {
		if err := pass(w.hurry)(ctx); err != nil {
			return err
		}
	}
	for _, p := range w.pods {
		if p.life != lifeHurried {
			continue
		}
		if err := s.Delete(ctx, cluster.PodsPath(namespace)+"/"+p.spec.Name); err != nil {
			return err
		}
		s.became[p.life]++
		s.lives[p.life]++
	}
	return cluster.Until(ctx, soakStart, func(ctx context.Context) error { return s.decide(ctx, there) })
}

// decide asks what has become of pods.
func (s *soaking) decide(ctx context.Context, there map[string]*soakPod) error {
	list, err := s.Pods(ctx, namespace)
	if err != nil {
		return err
	}
	return s.sort(there, list)
}

// sort takes out the pods of which something has become, and says which are still waited for.
func (s *soaking) sort(there map[string]*soakPod, list []*cluster.Pod) error {
	at := map[string]*cluster.Pod{}
	for _, p := range list {
		at[p.Metadata.Name] = p
	}
	var waiting []error
	for name, p := range there {
		now := at[name]
		switch {
		case now == nil: // Kubernetes deletes pods of a node that is not heard of for minutes
			s.became["gone by itself"]++
		case now.Status.Phase == "Failed":
			s.became["failed: "+now.Status.Reason]++
		case now.Status.Phase == "Succeeded" || now.Running():
			s.became[p.life]++
			s.lives[p.life]++
			s.kinds[p.kind]++
		default:
			waiting = append(waiting, fmt.Errorf("pod %s (%s, %s) is %s: %+v", name, p.kind, p.life, now.Status.Phase,
				now.Status.Conditions))
			continue
		}
		delete(there, name)
	}
	return errors.Join(waiting...)
}

// leave deletes all pods, and returns when neither the API server, the runtime nor the daemon has anything of them.
func (s *soaking) leave(ctx context.Context) error {
	if err := s.DeletePods(ctx, namespace); err != nil {
		return err
	}
	return cluster.Until(ctx, soakRest, func(ctx context.Context) error {
		list, err := s.node.CRI().ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{
			LabelSelector: map[string]string{"io.kubernetes.pod.namespace": namespace},
			State:         &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY}}})
		if err != nil {
			return err
		}
		if n := len(list.Items); n > 0 {
			return fmt.Errorf("%d pods still run although the API server has none, the first is %s", n,
				list.Items[0].Metadata.Name)
		}
		return s.nothingLeft(ctx)
	})
}

// lived is how many pods ran.
func (s *soaking) lived() (n int) {
	for _, k := range s.kinds {
		n += k
	}
	return n
}

// judge wants no series to grow, and the run to have shown enough.
func (s *soaking) judge(pods int) error {
	s.note("what became of the pods", "%v", s.became)
	s.note("kinds of those that ran", "%v", s.kinds)
	s.note("times that the node was empty", "%d", len(s.pods))
	s.note("waves in which the daemon held more than at rest", "%d of %d, its BPF maps in %d", s.looks[1], s.looks[0],
		s.mapped)
	var errs []error
	for _, one := range s.series {
		trend, err := one.Judge(s.pods)
		if trend != nil {
			s.note(one.What, "%v", trend)
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, s.enough(pods))...)
}

// enough is an error where too little was seen for the series to say much.
func (s *soaking) enough(pods int) error {
	var errs []error
	if n := s.lived(); n < pods*3/4 {
		errs = append(errs, fmt.Errorf("%d of %d pods ran, want three quarters", n, pods))
	}
	for _, kind := range soakKinds {
		if s.kinds[kind] < pods/50 {
			errs = append(errs, fmt.Errorf("%d pods of kind %s ran, want a fiftieth of %d", s.kinds[kind], kind, pods))
		}
	}
	for _, life := range soakLives {
		if s.lives[life] < pods/50 {
			errs = append(errs, fmt.Errorf("%d pods were %s, want a fiftieth of %d", s.lives[life], life, pods))
		}
	}
	if s.looks[1] < s.looks[0]/4 || s.mapped < s.looks[0]/8 {
		errs = append(errs, fmt.Errorf("of %d waves %d were noticed in the daemon's status and %d in its BPF maps, "+
			"want a quarter and an eighth: what is empty while pods run tells nothing", s.looks[0], s.looks[1],
			s.mapped))
	}
	return errors.Join(errs...)
}
