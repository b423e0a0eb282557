package startuptaint

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/quietcore/quietcore/internal/kube"
	"github.com/quietcore/quietcore/internal/kube/kubetest"
)

// asked is a Patcher that fails so often.
type asked struct {
	fails   int
	err     error
	patches []string
	at      []time.Duration // since the beginning
	begun   time.Time
}

func (a *asked) Patch(_ context.Context, node string, patch []byte) error {
	a.patches = append(a.patches, node+" "+string(patch))
	a.at = append(a.at, time.Since(a.begun))
	if a.fails--; a.fails >= 0 {
		return a.err
	}
	return nil
}

func taint(index int, raw string) kube.Taint {
	return kube.Taint{Index: index, Raw: json.RawMessage(raw)}
}

const (
	noSchedule = `{"key":"quietcore.dev/not-ready","effect":"NoSchedule"}`
	noExecute  = `{"key":"quietcore.dev/not-ready","effect":"NoExecute"}`
)

// running is a Remover in a synctest bubble, until the test ends.
func running(t *testing.T, api *asked, ready *atomic.Bool) (r *Remover, results *[]string) {
	t.Helper()
	results = &[]string{}
	api.begun = time.Now()
	r = New(Options{API: api, Node: "n1", Ready: ready.Load,
		Report: func(result string) { *results = append(*results, result) }})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); r.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	synctest.Wait() // it has looked once
	return r, results
}

// The taint goes when the daemon is ready, within a second, and not before. A Node without it costs nothing.
func TestTheTaintGoesWhenTheDaemonIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, ready := &asked{}, &atomic.Bool{}
		r, results := running(t, api, ready)
		r.Observe(nil)
		time.Sleep(time.Hour)
		r.Observe([]kube.Taint{taint(1, noSchedule), taint(3, noExecute)})
		time.Sleep(time.Hour)
		if synctest.Wait(); len(api.patches) != 0 {
			t.Fatalf("it was asked for before the daemon was ready: %q", api.patches)
		}
		ready.Store(true)
		time.Sleep(time.Second)
		synctest.Wait()
		want := []string{`n1 [{"op":"test","path":"/spec/taints/3","value":` + noExecute + `},` +
			`{"op":"remove","path":"/spec/taints/3"},{"op":"test","path":"/spec/taints/1",` +
			`"value":` + noSchedule + `},{"op":"remove","path":"/spec/taints/1"}]`}
		if diff := cmp.Diff(want, api.patches); diff != "" {
			t.Error(diff)
		}
		r.Observe(nil) // what the API server says of it
		time.Sleep(time.Hour)
		ready.Store(false) // the runtime restarts: nothing is put back
		time.Sleep(time.Hour)
		if synctest.Wait(); len(api.patches) != 1 || r.State() != "" {
			t.Errorf("%d requests, %q", len(api.patches), r.State())
		}
		if diff := cmp.Diff([]string{"ok"}, *results); diff != "" {
			t.Error(diff)
		}
		// A Node that is registered anew has it again.
		ready.Store(true)
		r.Observe([]kube.Taint{taint(0, noSchedule)})
		if synctest.Wait(); len(api.patches) != 2 {
			t.Errorf("%d requests", len(api.patches))
		}
	})
}

// A request that fails is tried again, less and less often, and says why until the taint is gone.
func TestARequestThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n1", errors.New("no right"))
		api, ready := &asked{fails: 9, err: forbidden}, &atomic.Bool{}
		ready.Store(true)
		r, results := running(t, api, ready)
		r.Observe([]kube.Taint{taint(0, noSchedule)})
		for range 90 {
			time.Sleep(time.Second)
			r.Observe([]kube.Taint{taint(0, noSchedule)}) // the Node has changed elsewhere
		}
		synctest.Wait()
		want := `the Node still has the taint quietcore.dev/not-ready: nodes "n1" is forbidden: no right`
		if r.State() != want {
			t.Errorf("%q, want %q", r.State(), want)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		var seconds []float64
		for _, at := range api.at {
			seconds = append(seconds, at.Seconds())
		}
		if diff := cmp.Diff([]float64{0, 1, 3, 7, 15, 31, 63, 123, 183, 243}, seconds); diff != "" {
			t.Error(diff)
		}
		if r.State() != "" || len(*results) != 10 || (*results)[8] != "forbidden" || (*results)[9] != "ok" {
			t.Errorf("%q, %q", r.State(), *results)
		}
		api.fails = 1
		r.Observe(nil)
		synctest.Wait()
		r.Observe([]kube.Taint{taint(0, noSchedule)})
		synctest.Wait()
		r.Observe(nil) // somebody else was faster
		if synctest.Wait(); r.State() != "" || len(api.at) != 11 {
			t.Errorf("%q after %d requests", r.State(), len(api.at))
		}
	})
}

// What is sent is a JSON patch of the Node itself, and each refusal is counted as what it is.
func TestRequests(t *testing.T) {
	for code, want := range map[int]string{200: "ok", 403: "forbidden", 404: "notfound", 422: "error", 504: "timeout"} {
		synctest.Test(t, func(t *testing.T) {
			var path, kind string
			config, stop := kubetest.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				path, kind = r.Method+" "+r.URL.String(), r.Header.Get("Content-Type")
				if code == http.StatusOK {
					kubetest.Answer(w, code, map[string]string{})
					return
				}
				kubetest.Refuse(w, apierrors.NewGenericServerResponse(code, "patch",
					schema.GroupResource{Resource: "nodes"}, "n1", "no", 0, true))
			}))
			defer stop()
			s := NewServer(func() (*rest.Config, error) { return config, nil })
			if got := result(s.Patch(t.Context(), "n1", []byte("[]"))); got != want {
				t.Errorf("%d is %s, want %s", code, got, want)
			}
			if path != "PATCH /api/v1/nodes/n1?fieldManager=quietcore" || kind != "application/json-patch+json" {
				t.Errorf("%s as %s", path, kind)
			}
		})
	}
	if got := result(context.DeadlineExceeded); got != "timeout" {
		t.Error(got)
	}
	s := NewServer(func() (*rest.Config, error) { return nil, errors.New("no credentials") })
	if err := s.Patch(t.Context(), "n1", nil); err == nil {
		t.Error("it asks without credentials")
	}
}
