package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	reportingController  = "quietcore"
	maxReportingInstance = 128
	maxName              = 253
	// maxAttempts bounds the attempts for an Event that the API server keeps rejecting,
	// because of a webhook or missing rights in its namespace. Other Events must not
	// wait for it forever.
	maxAttempts = 5
)

// sendEvents writes queued Events one at a time until ctx ends. An API server that does not answer is left alone for a
// while; where it denies an Event, only the namespace of that one waits.
func (c *Client) sendEvents(ctx context.Context) {
	pause := firstPause
	for ctx.Err() == nil {
		i, in, ok := c.queue.next()
		if !ok {
			var later <-chan time.Time
			if in > 0 {
				later = c.after(in)
			}
			select {
			case <-ctx.Done():
			case <-c.queue.wake:
			case <-later:
			}
			continue
		}
		err := c.write(ctx, i)
		if ctx.Err() != nil {
			return
		}
		f := fateOf(i, err)
		c.observeWrite(f, err)
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
			i.least = time.Duration(seconds) * time.Second
		}
		c.queue.done(i, f)
		if f != failed {
			pause = firstPause
			continue
		}
		select {
		case <-ctx.Done():
		case <-c.after(min(max(pause+rand.N(pause), i.least), 2*mostPause)):
		}
		pause = min(2*pause, mostPause)
	}
}

// observeWrite records the result of a write. An error that concerns one Event alone,
// such as a namespace that is being deleted, says nothing about others.
func (c *Client) observeWrite(f fate, err error) {
	if f == vanished || f == refused && aboutOneEvent(err) {
		c.o.Report(partEvents, classify(err))
		return
	}
	c.health.observe(partEvents, err)
}

func aboutOneEvent(err error) bool {
	return errors.Is(err, errUnwritable) || apierrors.IsInvalid(err) || apierrors.IsInternalError(err) ||
		inNoNamespace(err)
}

// errUnwritable is a pod whose name is invalid in Kubernetes: it was created through
// the runtime alone.
var errUnwritable = errors.New("not a pod of Kubernetes: its name or namespace is invalid")

// write creates a new Event or raises the count of an existing one. A new Event may
// exist already, from an attempt whose answer was lost.
func (c *Client) write(ctx context.Context, i item) error {
	event := c.eventOf(i)
	if len(validation.IsDNS1123Label(event.Namespace)) > 0 ||
		len(validation.IsDNS1123Subdomain(event.Regarding.Name)) > 0 {
		return errUnwritable
	}
	l, err := c.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if i.create {
		body, err := json.Marshal(event)
		if err != nil {
			return err
		}
		err = l.events.Post().Namespace(event.Namespace).Resource("events").MaxRetries(0).
			SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Error()
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}
	body, err := json.Marshal(map[string]any{"series": event.Series})
	if err != nil {
		return err
	}
	return l.events.Patch(types.MergePatchType).Namespace(event.Namespace).Resource("events").Name(
		event.Name).MaxRetries(0).
		Body(body).Do(ctx).Error()
}

// fateOf classifies an answer. A server that has just started refuses everything until
// it has loaded its rules, so missing rights are retried.
func fateOf(i item, err error) fate {
	again := apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) ||
		apierrors.IsInternalError(err) || apierrors.IsConflict(err) // as a contended quota answers
	switch {
	case err == nil:
		return written
	case apierrors.IsNotFound(err) && !i.create:
		return vanished
	case again && !inNoNamespace(err):
		if i.attempts+1 < maxAttempts {
			return denied
		}
		return refused
	case again, errors.Is(err, errUnwritable), apierrors.IsInvalid(err), apierrors.IsBadRequest(err),
		apierrors.IsMethodNotSupported(err), apierrors.IsRequestEntityTooLargeError(err):
		return refused
	}
	return failed
}

// inNoNamespace says that the namespace is gone or terminating.
func inNoNamespace(err error) bool {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return true
	}
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil &&
		status.Status().Details.Kind == "namespaces"
}

// eventOf converts an item. The Event's name is derived from its content alone, so that
// an attempt can be repeated.
func (c *Client) eventOf(i item) *eventsv1.Event {
	k := kindOf(i.key.reason)
	about := c.regarding(i.key)
	namespace := about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault // where kubectl looks for a Node's
	}
	e := &eventsv1.Event{
		TypeMeta:            metav1.TypeMeta{APIVersion: eventsv1.SchemeGroupVersion.String(), Kind: "Event"},
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: eventName(about.Name, i)},
		EventTime:           metav1.NewMicroTime(i.first),
		ReportingController: reportingController,
		ReportingInstance:   clipASCII(reportingController+"-"+c.o.Node, maxReportingInstance),
		Action:              k.action,
		Type:                k.eventType,
		Reason:              i.key.reason,
		Regarding:           about,
		Note:                i.key.note,
	}
	if i.count > 1 {
		e.Series = &eventsv1.EventSeries{Count: int32(min(i.count, 1<<30)),
			LastObservedTime: metav1.NewMicroTime(i.last)}
	}
	return e
}

// regarding is the pod, or the Node. A Node's Events carry its name as UID, like
// kubelet's: kubectl describe looks for both.
func (c *Client) regarding(k noticeKey) corev1.ObjectReference {
	if k.name == "" || k.namespace == "" {
		return corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: c.o.Node, UID: types.UID(c.o.Node)}
	}
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: k.namespace, Name: k.name,
		UID: types.UID(k.uid)}
}

func eventName(about string, i item) string {
	h := fnv.New64a()
	for _, s := range []string{i.key.uid, i.key.namespace, i.key.name, i.key.reason, i.key.note} {
		fmt.Fprintf(h, "%d %s ", len(s), s)
	}
	fmt.Fprintf(h, "%d", i.first.UnixNano())
	suffix := fmt.Sprintf(".%016x", h.Sum64())
	return clipASCII(about, maxName-len(suffix)) + suffix
}

// clipASCII shortens a name so that it stays valid.
func clipASCII(name string, limit int) string {
	if len(name) <= limit {
		return name
	}
	return strings.TrimRight(name[:limit], ".-")
}
