package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// feed describes a kind of followed object.
type feed struct {
	part     string
	resource string
	path     string // of a kind outside of the core group
	selector fields.Selector
	kind     string
	slim     func([]byte) (object, error)
}

func (c *Client) podFeed() feed {
	return feed{part: partPods, resource: "pods", kind: "Pod",
		selector: fields.OneTermEqualSelector("spec.nodeName", c.o.Node), slim: slimPod}
}

func (c *Client) nodeFeed() feed {
	return feed{part: partNode, resource: "nodes", kind: "Node",
		selector: fields.OneTermEqualSelector("metadata.name", c.o.Node), slim: slimNode}
}

// listWatch is a feed for client-go's reflector. It decodes lists as they arrive, so
// the server need not stream them as a watch.
type listWatch struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported tells the reflector not to list by watching.
func (listWatch) IsWatchListSemanticsUnSupported() bool { return true }

// follow keeps store in sync with the API server until ctx ends.
func (c *Client) follow(ctx context.Context, f feed, store cache.ReflectorStore) {
	silent := logr.Discard()
	lw := listWatch{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return c.list(ctx, f, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return c.watch(ctx, f, o)
		},
	}}
	r := cache.NewReflectorWithOptions(lw, &object{}, store, cache.ReflectorOptions{
		Name: f.part, TypeDescription: f.kind, Backoff: &c.backoff, Logger: &silent,
	})
	r.RunWithContext(ctx)
}

func (c *Client) request(f feed, o metav1.ListOptions) (*rest.Request, error) {
	l, err := c.connect()
	if err != nil {
		return nil, err
	}
	r := l.core.Get().MaxRetries(0).SetHeader("Accept", runtime.ContentTypeJSON)
	if f.path != "" {
		r = r.AbsPath(f.path)
	} else {
		r = r.Resource(f.resource).Param("fieldSelector", f.selector.String())
	}
	for name, value := range map[string]string{
		"resourceVersion": o.ResourceVersion, "resourceVersionMatch": string(o.ResourceVersionMatch),
		"continue": o.Continue,
	} {
		if value != "" {
			r = r.Param(name, value)
		}
	}
	if o.Limit > 0 {
		r = r.Param("limit", fmt.Sprint(o.Limit))
	}
	return r, nil
}

func (c *Client) list(ctx context.Context, f feed, o metav1.ListOptions) (_ *objectList, err error) {
	defer func() { c.health.observe(f.part, err) }()
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	r, err := c.request(f, o)
	if err != nil {
		return nil, err
	}
	body, err := r.Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return decodeList(body, f)
}

func (c *Client) watch(ctx context.Context, f feed, o metav1.ListOptions) (_ watch.Interface, err error) {
	defer func() { c.health.observe(f.part, err) }()
	r, err := c.request(f, o)
	if err != nil {
		return nil, err
	}
	term := 5*time.Minute + rand.N(5*time.Minute)
	if o.TimeoutSeconds != nil {
		term = time.Duration(*o.TimeoutSeconds) * time.Second
	}
	r = r.Param("watch", "true").Param("allowWatchBookmarks", "true").Param("timeoutSeconds",
		fmt.Sprint(int64(term.Seconds())))
	ctx, cancel := context.WithTimeout(ctx, term+watchSlack)
	opening := time.AfterFunc(watchOpening, cancel)
	body, err := r.Stream(ctx)
	if !opening.Stop() && err != nil {
		err = fmt.Errorf("open a watch of %s within %s: %w", f.resource, watchOpening, context.DeadlineExceeded)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	frames := newFrames(body, f)
	frames.observe = func(err error) { c.health.observe(f.part, err) }
	frames.cancel = cancel
	return watch.NewStreamWatcherWithLogger(logr.Discard(), frames,
		apierrors.NewClientErrorReporter(http.StatusInternalServerError, "watch", "ClientWatchDecoding")), nil
}

// Close ends the watch.
func (f *frames) Close() {
	f.cancel()
	f.body.Close()
}

// Decode returns the next event.
func (f *frames) Decode() (watch.EventType, runtime.Object, error) {
	kind, o, err := f.next()
	switch {
	case err == nil && kind == watch.Error:
		// An expired version is how every long-lived watch ends sooner or later.
		if status := apierrors.FromObject(o); !apierrors.IsGone(status) && !apierrors.IsResourceExpired(status) {
			f.observe(status)
		}
	case errors.Is(err, errMalformed):
		f.observe(err)
	case err != nil && !errors.Is(err, io.EOF):
		// A connection that broke: whether the server is away, the next attempt shows.
		err = io.EOF
	}
	return kind, o, err
}
