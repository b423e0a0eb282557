package plugin

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

// wire is between a scheduler and its API server, and can hold a Binding back, or the answer to it.
type wire struct {
	*httptest.Server
	mu     sync.Mutex
	hold   string        // the pod
	passes bool          // its Binding comes to the API server, which is then not heard
	held   chan struct{} // closed once it is held
	over   chan struct{} // closed when nothing is held any more
}

func newWire(t *testing.T, s *server) *wire {
	t.Helper()
	to, err := url.Parse(s.theirs.Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	proxy.FlushInterval = -1 // watches
	w := &wire{held: make(chan struct{}), over: make(chan struct{})}
	w.Server = httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		held := w.hold != "" && strings.HasSuffix(r.URL.Path, "/pods/"+w.hold+"/binding")
		passes := w.passes
		w.mu.Unlock()
		if !held {
			proxy.ServeHTTP(rw, r)
			return
		}
		if passes {
			proxy.ServeHTTP(httptest.NewRecorder(), r)
		}
		close(w.held)
		<-w.over
		panic(http.ErrAbortHandler)
	}))
	w.Config.ErrorLog = nil
	t.Cleanup(func() { close(w.over); w.CloseClientConnections(); w.Close() })
	return w
}

func forProgram(p *v1.Pod) { p.Spec.SchedulerName = schedulerUser }

// TestKilled is scenario 5: the scheduler's process is killed (SIGKILL) after it has reserved CPUs for a pod, before
// the API server has the Binding, and just after it has, while the node publishes nothing. The next one places
// the pod, or knows where it is; no CPUs are given twice, and none are lost.
func TestKilled(t *testing.T) {
	if realServer(t) == nil {
		return // there is no process where there is no API server to reach
	}
	for name, passes := range map[string]bool{"between Reserve and Bind": false, "just after Bind": true} {
		t.Run(name, func(t *testing.T) { killed(t, passes) })
	}
}

func killed(t *testing.T, passes bool) {
	w := newWorld(t, options{noScheduler: true})
	w.node("a", 0, &small, trusting()) // 16 CPUs, of which 2 are for the shared pool
	between := newWire(t, w.server)
	first := w.server.startProgram(t, between.URL)
	w.create("before", "LSR", "4", forProgram)
	w.lands("before", "a")
	w.until("the node has the pod", func() bool { return w.owned("before") != "" })

	w.mu.Lock()
	w.hold = true
	w.mu.Unlock()
	between.mu.Lock()
	between.hold, between.passes = "cut", passes
	between.mu.Unlock()
	w.create("cut", "LSR", "6", forProgram)
	w.until("the Binding is on its way", func() bool {
		select {
		case <-between.held:
			return true
		default:
			return false
		}
	})
	first.kill()
	if pod, err := w.client.CoreV1().Pods("default").Get(w.ctx, "cut", metav1.GetOptions{}); err != nil ||
		(pod.Spec.NodeName != "") != passes || (pod.Annotations[policy.AnnStatus] != "") != passes {
		t.Fatalf("after the kill the pod is on %q with %v (%v)\n%s", pod.Spec.NodeName, pod.Annotations, err,
			first.log())
	}
	w.server.startProgram(t, w.server.theirs.Host)
	w.lands("cut", "a")
	w.create("rest", "LSR", "4", forProgram) // all that is left
	w.lands("rest", "a")
	w.create("late", "LSR", "1", forProgram, annotated(policy.AnnSMT, "none"))
	w.says("late", "CPU")
	w.mu.Lock()
	w.hold = false
	w.mu.Unlock()
	w.publish("a")
	w.check()
	var all cpuset.Set
	for _, name := range []string{"before", "cut", "rest"} {
		told, _ := policy.OfferIn(w.told(name))
		if told.CPUs.IsEmpty() || told.CPUs.Intersects(&all) || told.CPUs.String() != w.owned(name) {
			t.Errorf("%s was told CPUs %s and has %s; pods before it have %s", name, told.CPUs, w.owned(name), all)
		}
		all.AddSet(&told.CPUs)
	}
	w.remove("cut")
	w.lands("late", "a") // what is given back is there for the next
	w.check()
}
