package plugin

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/policy"
)

// server stands for whoever follows the API server.
type server struct {
	mu      sync.Mutex
	facts   map[string]policy.PodFacts
	notices []policy.Notice
	changes int
}

func (s *server) options(o *Options) {
	o.Facts = func(uid string) (policy.PodFacts, bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		f, ok := s.facts[uid]
		return f, ok
	}
	o.Notify = func(n policy.Notice) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.notices = append(s.notices, n)
	}
	o.Changed = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changes++
	}
}

func (s *server) reasons() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, n := range s.notices {
		all = append(all, n.Pod.Name+" "+n.Reason)
	}
	return strings.Join(all, ", ")
}

// A container without a limit hides in the runtime's sum: only the API server
// knows that the pod may not own CPUs before its container comes.
func TestTheAPIServersWordGoesBeforeTheRuntimes(t *testing.T) {
	s := &server{facts: map[string]policy.PodFacts{
		"uid-hidden": {UID: "uid-hidden", Owner: "Deployment/hidden",
			Resources: policy.Resources{RequestMilli: 2000, LimitMilli: policy.NoLimit}},
		"uid-known": {UID: "uid-known", Owner: "StatefulSet/known",
			Resources: policy.Resources{RequestMilli: 2000, LimitMilli: 2000}},
	}}
	n := newNode(t, grid(t, testGrid))
	n.up(s.options)
	hidden := spec{name: "hidden", class: policy.LSR, qos: policy.Burstable, ctrs: []ctr{{name: "main", request: 2000}}}
	err := n.nri.RunPodSandbox(short(t), &api.RunPodSandboxRequest{Pod: hidden.sandbox("sb-hidden")})
	if err == nil || !strings.Contains(err.Error(), "requests 2000m and is limited to nothing") {
		t.Errorf("the sandbox of a pod without a limit: %v", err)
	}
	mustRun(t, n, lsr("known", 2000))
	n.want("known-main", "0-1")
	if c := n.plugin.Snapshot().Containers; len(c) != 1 || c[0].Owner != "StatefulSet/known" {
		t.Errorf("the containers are %+v", c)
	}
}

func TestFactsThatComeLateTellTheOwnerAndMoveNobody(t *testing.T) {
	s := &server{facts: map[string]policy.PodFacts{}}
	n := newNode(t, grid(t, testGrid))
	n.up(s.options)
	mustRun(t, n, lsr("db", 2000), burstable("web"))
	before := n.on("db-main")
	late := policy.PodFacts{UID: "uid-db", Owner: "Deployment/db",
		Resources: policy.Resources{RequestMilli: 4000, LimitMilli: 4000}}
	for range 2 {
		if err := n.plugin.Submit(short(t), late); err != nil {
			t.Fatal(err)
		}
	}
	n.settle()
	if got := n.on("db-main"); got != before {
		t.Errorf("the pod moved from %s to %s by a wish that kubelet has not granted", before, got)
	}
	for _, c := range n.plugin.Snapshot().Containers {
		if want := map[string]string{"db": "Deployment/db"}[c.Pod]; c.Owner != want {
			t.Errorf("pod %s has the owner %q, want %q", c.Pod, c.Owner, want)
		}
	}
}

// Where no API server says which controller made a pod its label does, to a daemon that saw it
// come and to one that found it.
func TestALabelNamesTheJob(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	labelled := func(o *Options) { o.Config.JobLabel = "job" }
	n.up(labelled)
	web, hostile, plain := burstable("web"), burstable("hostile"), burstable("plain")
	web.job, hostile.job = "index", strings.Repeat("x", 1<<20)
	mustRun(t, n, web, hostile, plain)
	for _, life := range []string{"first", "second"} {
		for _, c := range n.plugin.Snapshot().Containers {
			if want := map[string]string{"web": "index"}[c.Pod]; c.Owner != want {
				t.Errorf("%s daemon: pod %s is of job %.80q, want %q", life, c.Pod, c.Owner, want)
			}
		}
		if life == "first" {
			n.up(labelled)
		}
	}
}

func TestRefusalsAndNoticesAreToldOnce(t *testing.T) {
	s := &server{}
	n := newNode(t, grid(t, testGrid))
	n.up(s.options)
	for i := range 20 {
		sandbox := lsr("odd", 1500).sandbox(fmt.Sprint("try-", i))
		if n.nri.RunPodSandbox(short(t), &api.RunPodSandboxRequest{Pod: sandbox}) == nil {
			t.Fatal("the pod was admitted")
		}
		n.removeSandbox(sandbox)
	}
	if got := s.reasons(); got != "odd InvalidRequest" {
		t.Errorf("people were told %q", got)
	}
	if err := n.plugin.Submit(short(t), policy.NodeLabels{
		Labels: map[string]string{policy.LabelBind: "Sideways"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node's notice is told", func() bool {
		return s.reasons() == "odd InvalidRequest,  UnknownNodeLabel"
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes == 0 {
		t.Error("nobody was told of a change")
	}
}

// A pod of class BE that requests lent CPUs and no others gets a weight and a quota from
// them, which kubelet does not know: with its first decision or when the API server
// speaks, again after another process changed it, and no longer after an uninstall. It weighs a
// fortieth of a requested CPU for each.
func TestLentCPUsBecomeWeightAndQuota(t *testing.T) {
	for _, qos := range []policy.QoS{policy.BestEffort, policy.Burstable} {
		t.Run(string(qos), func(t *testing.T) { lentCPUs(t, qos) })
	}
}

func lentCPUs(t *testing.T, qos policy.QoS) {
	const weight = 6
	batch := func(name string) spec {
		return spec{name: name, class: policy.BE, qos: qos, ctrs: []ctr{{name: "main"}}}
	}
	promise := func(name string) policy.PodFacts {
		return policy.PodFacts{UID: "uid-" + name, Resources: policy.Resources{LimitMilli: policy.NoLimit},
			BatchMilli: 6000}
	}
	s := &server{facts: map[string]policy.PodFacts{"uid-early": promise("early")}}
	n := newNode(t, grid(t, testGrid))
	n.up(s.options)
	mustRun(t, n, batch("early"), batch("late"), batch("plain"))
	least := cgroup.Values{Weight: 1}
	want := func(when, name string, weight uint64, milli int64) {
		t.Helper()
		n.settle()
		e, err := n.kernel.Effective(batch(name).parent())
		if err != nil || e.Weight != weight || e.QuotaMilli != milli {
			t.Errorf("%s: %s has weight %d and quota %dm, want %d and %dm (%v)", when, name, e.Weight, e.QuotaMilli,
				weight, milli, err)
		}
	}
	for _, name := range []string{"late", "plain"} {
		if err := n.kernel.Apply(short(t), batch(name).parent(), least); err != nil {
			t.Fatal(err)
		}
	}
	want("at first", "early", weight, 6000)
	want("at first", "late", 1, policy.NoLimit)
	if err := n.plugin.Submit(short(t), promise("late")); err != nil {
		t.Fatal(err)
	}
	want("told late", "late", weight, 6000)
	if err := n.kernel.Apply(short(t), batch("late").parent(),
		cgroup.Values{Weight: 1, Quota: cgroup.NoQuota()}); err != nil {
		t.Fatal(err)
	}
	n.plugin.Audit()
	eventually(t, "the audit has put them back", func() bool {
		e, err := n.kernel.Effective(batch("late").parent())
		return err == nil && e.Weight == weight && e.QuotaMilli == 6000
	})
	n.kill()
	n.up()
	want("found by a daemon without an API server", "late", weight, 6000)
	n.restore(policy.KubeletState{PolicyName: "none"})
	for _, name := range []string{"early", "late", "plain"} {
		e, err := n.kernel.Effective(batch(name).parent())
		if err != nil || e.Weight != 1 || e.QuotaMilli != policy.NoLimit {
			t.Errorf("uninstalled: %s has weight %d and quota %dm (%v)", name, e.Weight, e.QuotaMilli, err)
		}
	}
}
