package main

import (
	"context"
	"net/url"

	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
)

// event is the part of an Event that users read.
type event struct {
	Type, Reason, Message, ReportingComponent string
	Count                                     int
	Source                                    struct{ Component string }
	InvolvedObject                            struct{ Kind, Name, UID string }
}

func (b *bench) eventsOf(ctx context.Context, p *cluster.Pod) ([]event, error) {
	var list struct{ Items []event }
	selector := url.QueryEscape("involvedObject.name=" + p.Metadata.Name + ",involvedObject.uid=" + p.Metadata.UID)
	err := b.Get(ctx, "/api/v1/namespaces/"+p.Metadata.Namespace+"/events?fieldSelector="+selector, &list)
	return list.Items, err
}
