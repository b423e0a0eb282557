package evictor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/quietcore/quietcore/internal/kube/planetest"
	"github.com/quietcore/quietcore/internal/lend"
)

// rights are the policies and roles of the chart, as hack/chart renders them.
const rights = "../../hack/chart/testdata/evictions.yaml"

const pods = "/api/v1/namespaces/default/pods/"

// plane is a real API server with the chart's rights.
type plane struct {
	*planetest.Plane
	t *testing.T
}

func (p plane) as(account string, extra map[string][]string) *rest.Config {
	p.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig("system:serviceaccount:quietcore:"+account,
		[]string{"system:serviceaccounts", "system:authenticated"}, extra))
	if err != nil {
		p.t.Fatal(err)
	}
	return config
}

// daemon speaks with the token of a node's daemon.
func (p plane) daemon(nodes ...string) *rest.Config {
	return p.as("quietcore", map[string][]string{"authentication.kubernetes.io/node-name": nodes})
}

// run makes a pod that runs on a node, without requests.
func (p plane) run(node, name string) lend.Pod {
	p.t.Helper()
	p.Create(pods, fmt.Sprintf(`{metadata: {name: %s, labels: {app: %s}}, spec: {nodeName: %s,
  terminationGracePeriodSeconds: 30, containers: [{name: a, image: a}]}}`, name, name, node))
	p.Merge(pods+name+"/status", `{status: {phase: Running, conditions: [{type: Ready, status: "True"}]}}`)
	return lend.Pod{UID: p.Get(pods+name, "metadata", "uid"), Namespace: "default", Name: name}
}

func (p plane) ends(pod lend.Pod) bool {
	return p.Get(pods+pod.Name, "metadata", "deletionTimestamp") != ""
}

func serverOf(config *rest.Config) *lend.Server {
	return lend.NewServer(func() (*rest.Config, error) { return config, nil })
}

func on(why string) lend.Mark {
	return lend.Mark{On: true, Since: time.Now(), Reason: lend.ReasonLending, Message: why}
}

// start runs an evictor until stop, and returns how it ended.
func (p plane) start(o Options) (stop func(), ended chan error) {
	ctx, cancel := context.WithCancel(p.t.Context())
	ended = make(chan error, 1)
	go func() { ended <- Run(ctx, o) }()
	return cancel, ended
}

func (p plane) holder() string {
	code, text := p.Try(http.MethodGet, "/apis/coordination.k8s.io/v1/namespaces/quietcore/leases/quietcore-evictor",
		"application/json", nil)
	if code != http.StatusOK {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), `"holderIdentity":"`)
	who, _, _ := strings.Cut(rest, `"`)
	return who
}

// TestRealAPIServer: with the chart's rights and policies a daemon's token marks pods of its own
// node and does nothing else to any pod; the evictor evicts what is marked, within its rate and
// disruption budgets; another takes over from one that is gone.
func TestRealAPIServer(t *testing.T) {
	p := plane{planetest.Start(t), t}
	p.Create("/api/v1/namespaces", "{metadata: {name: quietcore}}")
	p.Apply(rights)
	for _, node := range []string{"n1", "n2"} {
		p.Create("/api/v1/nodes", "{metadata: {name: "+node+"}}")
	}
	own, other := p.run("n1", "own"), p.run("n2", "other")
	daemon := serverOf(p.daemon("n1"))
	p.Within("policies are in force", func() bool {
		return daemon.Mark(t.Context(), other, on("x")) != nil
	})
	t.Run("a stolen token", func(t *testing.T) { p.stolen(t, own, other) })
	t.Run("the evictor's token", func(t *testing.T) { p.evictors(t, own) })

	o := Options{Config: p.as("quietcore-evictor", nil), Namespace: "quietcore", Lease: "quietcore-evictor",
		Every: 8 * time.Second, Burst: 2, Term: 3 * time.Second, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	stop, ended := p.start(o)
	p.Within("one leads", func() bool { return p.holder() != "" })
	t.Run("evicted", func(t *testing.T) { p.evicts(t, daemon, own) })
	t.Run("rate", func(t *testing.T) { p.rate(t, daemon, o) })
	t.Run("budgets", func(t *testing.T) { p.budgets(t) })
	t.Run("another takes over", func(t *testing.T) { p.takesOver(t, o, stop, ended) })
}

// stolen tries what a daemon's token must not do.
func (p plane) stolen(t *testing.T, own, other lend.Pod) {
	client := kubernetes.NewForConfigOrDie(p.daemon("n1"))
	patch := func(pod lend.Pod, kind types.PatchType, text string, sub ...string) error {
		_, err := client.CoreV1().Pods("default").Patch(t.Context(), pod.Name, kind, []byte(text),
			metav1.PatchOptions{}, sub...)
		return err
	}
	const merge, strategic = types.MergePatchType, types.StrategicMergePatchType
	no := func(what string, err error, want string) {
		t.Helper()
		if err == nil || !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
			return
		}
		t.Logf("%s: %v", what, err)
	}
	wrong := own
	wrong.UID = "00000000-0000-0000-0000-000000000000"
	if err := serverOf(p.daemon("n1")).Mark(t.Context(), wrong, on("x")); !apierrors.IsConflict(err) {
		t.Errorf("a pod with another UID: %v", err)
	}
	no("mark a pod of another node", serverOf(p.daemon("n1")).Mark(t.Context(), other, on("x")),
		"the daemon of node n1 may not mark a pod of node n2")
	no("with a token of no node", serverOf(p.as("quietcore", nil)).Mark(t.Context(), own, on("x")), "names no node")
	no("make it unready", patch(own, strategic, `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`,
		"status"), "EvictionRequested only")
	no("take its conditions", patch(own, merge, `{"status":{"conditions":[]}}`, "status"), "EvictionRequested only")
	no("end it", patch(own, merge, `{"status":{"phase":"Failed"}}`, "status"), "a condition only")
	no("give it an address", patch(own, merge, `{"status":{"podIP":"10.0.0.9","podIPs":[{"ip":"10.0.0.9"}]}}`,
		"status"), "a condition only")
	no("label it", patch(own, merge, `{"metadata":{"labels":{"app":"shop"}}}`, "status"), "writes nothing")
	no("annotate it", patch(own, merge, `{"metadata":{"annotations":{"a":"b"}}}`, "status"), "writes nothing")
	no("change its spec", patch(own, merge, `{"spec":{"activeDeadlineSeconds":1}}`), "cannot patch resource \"pods\"")
	for _, pod := range []lend.Pod{own, other} {
		no("evict "+pod.Name, client.PolicyV1().Evictions("default").Evict(t.Context(), &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: "default"}}), "pods/eviction")
		no("delete "+pod.Name, client.CoreV1().Pods("default").Delete(t.Context(), pod.Name, metav1.DeleteOptions{}),
			"cannot delete")
	}
	// What it may: the mark comes and goes, and nothing else of the pod changes.
	daemon := serverOf(p.daemon("n1"))
	before := p.Get(pods+own.Name, "status", "phase")
	m := on("batch pods need 8.00 CPUs")
	if err := daemon.Mark(t.Context(), own, m); err != nil {
		t.Fatal(err)
	}
	got, err := daemon.Look(t.Context(), own)
	if err != nil || !got.Mark.On || got.Mark.Message != m.Message || got.Mark.Since.Unix() != m.Since.Unix() ||
		got.Ending {
		t.Errorf("it is marked %+v, %v", got, err)
	}
	m.On, m.Reason = false, lend.ReasonWithdrawn
	if err := daemon.Mark(t.Context(), own, m); err != nil {
		t.Fatal(err)
	}
	others := p.Get(pods+own.Name, "status", "conditions")
	if got, err := daemon.Look(t.Context(), own); err != nil || got.Mark.On ||
		p.Get(pods+own.Name, "status", "phase") != before || !strings.Contains(others, "type:Ready") {
		t.Errorf("withdrawn it is %+v, %v", got, err)
	}
}

// evictors tries what the evictor's token must not do.
func (p plane) evictors(t *testing.T, own lend.Pod) {
	client := kubernetes.NewForConfigOrDie(p.as("quietcore-evictor", nil))
	for what, text := range map[string]string{
		"make a mark": fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"True"}]}}`, lend.EvictionRequested),
		"unready":     `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`,
		"label":       `{"metadata":{"labels":{"app":"shop"}}}`,
	} {
		if _, err := client.CoreV1().Pods("default").Patch(t.Context(), own.Name, types.StrategicMergePatchType,
			[]byte(text), metav1.PatchOptions{}, "status"); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := (server{client}).Blocked(t.Context(), own, "b"); err != nil { // there is a mark, if a withdrawn one
		t.Errorf("answer a mark: %v", err)
	}
}

// evicts: the daemon's own evictor has its pod evicted, and an Event says so.
func (p plane) evicts(t *testing.T, daemon *lend.Server, own lend.Pod) {
	e := lend.NewEvictor(lend.EvictorOptions{API: daemon, Reason: lend.ReasonLending})
	began := time.Now()
	if err := e.Evict(t.Context(), own, "to give lent CPUs back: batch pods need 8.00 CPUs"); err != nil {
		t.Fatal(err)
	}
	t.Logf("evicted %s after it was asked for", time.Since(began).Round(time.Millisecond))
	if !p.ends(own) {
		t.Error("an evicted pod does not end")
	}
	if got := p.Get(pods+own.Name, "status", "conditions"); !strings.Contains(got, "EvictionByEvictionAPI") {
		t.Errorf("its conditions are %s", got)
	}
	p.Within("there is an Event", func() bool {
		_, text := p.Try(http.MethodGet, "/apis/events.k8s.io/v1/namespaces/default/events", "application/json", nil)
		return strings.Contains(string(text), `"reason":"BatchEvicted"`) && strings.Contains(string(text),
			"evicted, as the daemon of node n1 asked: to give lent CPUs back: batch pods need 8.00 CPUs")
	})
}

// rate: a stolen token marks all pods of its node at once.
func (p plane) rate(t *testing.T, daemon *lend.Server, o Options) {
	time.Sleep(time.Duration(o.Burst) * o.Every) // a real server has no other time: the rate is as if it were new
	var marked []lend.Pod
	for i := range 5 {
		marked = append(marked, p.run("n1", fmt.Sprint("r", i)))
	}
	began := time.Now()
	for _, pod := range marked {
		if err := daemon.Mark(t.Context(), pod, on("x")); err != nil {
			t.Fatal(err)
		}
	}
	var at []time.Duration
	seen := map[string]bool{}
	p.Within("four of five are evicted", func() bool {
		for _, pod := range marked {
			if !seen[pod.Name] && p.ends(pod) {
				seen[pod.Name] = true
				at = append(at, time.Since(began).Round(10*time.Millisecond))
			}
		}
		return len(seen) >= 4
	})
	t.Logf("evicted after %v, one in %s, %d at once", at, o.Every, o.Burst)
	if at[2] < o.Every-time.Second || at[3] < 2*o.Every-time.Second {
		t.Errorf("the rate was exceeded: %v", at)
	}
	for i, pod := range marked {
		if !seen[pod.Name] {
			marked[0] = marked[i]
		}
	}
	off := lend.Mark{Since: time.Now(), Reason: lend.ReasonWithdrawn}
	if err := daemon.Mark(t.Context(), marked[0], off); err != nil {
		t.Fatal(err)
	}
	time.Sleep(o.Every + time.Second)
	if p.ends(marked[0]) {
		t.Error("a pod was evicted whose mark was withdrawn")
	}
}

// budgets: two kinds of refusals, which the daemon hears of.
func (p plane) budgets(t *testing.T) {
	const path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
	for name, app := range map[string]string{"g": "guarded", "t1": "twice", "t2": "twice"} {
		p.Create(path, fmt.Sprintf("{metadata: {name: %s}, spec: {minAvailable: 1, selector: {matchLabels: "+
			"{app: %s}}}}", name, app))
		p.Merge(path+"/"+name+"/status", `{status: {observedGeneration: 1, currentHealthy: 1, desiredHealthy: 1, `+
			`expectedPods: 1, disruptionsAllowed: 0}}`)
	}
	daemon := serverOf(p.daemon("n2"))
	e := lend.NewEvictor(lend.EvictorOptions{API: daemon, Reason: lend.ReasonInterference})
	for _, name := range []string{"guarded", "twice"} {
		pod := p.run("n2", name)
		var failed *lend.EvictError
		if err := e.Evict(t.Context(), pod, "x"); !errors.As(err, &failed) || failed.Result != lend.Blocked {
			t.Errorf("%s: %v", name, err)
		} else {
			t.Log(err)
		}
		if got, err := daemon.Look(t.Context(), pod); err != nil || got.Mark.On || p.ends(pod) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	// A mark that stands is tried again, once the budget allows it.
	kept := lend.Pod{UID: p.Get(pods+"guarded", "metadata", "uid"), Namespace: "default", Name: "guarded"}
	if err := daemon.Mark(t.Context(), kept, on("again")); err != nil {
		t.Fatal(err)
	}
	p.Within("it is refused again", func() bool {
		return strings.Contains(p.Get(pods+"guarded", "status", "conditions"), lend.ReasonBudget)
	})
	p.Merge(path+"/g/status", `{status: {disruptionsAllowed: 1}}`)
	p.Within("it is evicted after all", func() bool { return p.ends(kept) })
	// Production is not evicted, whoever marks it.
	p.Create(pods, `{metadata: {name: shop}, spec: {nodeName: n2, containers: [{name: a, image: a,
  resources: {requests: {cpu: "1"}}}]}}`)
	shop := lend.Pod{UID: p.Get(pods+"shop", "metadata", "uid"), Namespace: "default", Name: "shop"}
	next := p.run("n2", "next")
	for _, pod := range []lend.Pod{shop, next} {
		if err := daemon.Mark(t.Context(), pod, on("x")); err != nil {
			t.Fatal(err)
		}
	}
	p.Within("the next pod is evicted", func() bool { return p.ends(next) })
	if p.ends(shop) {
		t.Error("a production pod was evicted")
	}
}

// takesOver: the second evictor of two, once the first has lost the API server.
func (p plane) takesOver(t *testing.T, o Options, stop func(), ended chan error) {
	first := p.holder()
	second := o
	second.Config = p.as("quietcore-evictor", nil)
	_, endedSecond := p.start(second)
	pod := p.run("n2", "later")
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the first ended with %v", err)
	}
	began := time.Now()
	p.Within("another leads", func() bool { who := p.holder(); return who != "" && who != first })
	t.Logf("another leads after %s", time.Since(began).Round(time.Millisecond))
	if err := serverOf(p.daemon("n2")).Mark(t.Context(), pod, on("x")); err != nil {
		t.Fatal(err)
	}
	p.Within("it evicts", func() bool { return p.ends(pod) })

	// The one that leads is cut off: it gives up, and a third takes over when its term is over.
	was := p.holder()
	if slices.Contains([]string{"", first}, was) {
		t.Fatalf("%q leads", was)
	}
	third := o
	third.Config = p.as("quietcore-evictor", nil)
	stopThird, endedThird := p.start(third)
	cut := p.cut(second)
	p.Within("a third leads", func() bool { who := p.holder(); return who != "" && who != was && who != cut })
	if err := <-endedSecond; !errors.Is(err, errLost) {
		t.Errorf("the second ended with %v", err)
	}
	last := p.run("n1", "last")
	if err := serverOf(p.daemon("n1")).Mark(t.Context(), last, on("x")); err != nil {
		t.Fatal(err)
	}
	p.Within("it evicts, too", func() bool { return p.ends(last) })
	stopThird()
	if err := <-endedThird; err != nil {
		t.Error(err)
	}
}

// cut takes the lease from who has it, as a partition looks to it: another holds it.
func (p plane) cut(o Options) string {
	p.Merge("/apis/coordination.k8s.io/v1/namespaces/"+o.Namespace+"/leases/"+o.Lease,
		`{spec: {holderIdentity: somebody, leaseDurationSeconds: 4}}`)
	return "somebody"
}
