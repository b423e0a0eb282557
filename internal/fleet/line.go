package fleet

import (
	"context"
	"net/url"
	"time"
)

// Line asks the daemons of all nodes again and again, with one connection, and with tokens that are had anew only
// when they are half as old as they get. It is for one goroutine.
type Line struct {
	a     *asking
	now   func() time.Time
	renew time.Time
}

// Node is one that is asked.
type Node struct {
	Name, Pod string
	// Get has the answer to a path below control.RemotePrefix; an error, too, where no daemon can be asked.
	Get func(ctx context.Context, path string, query url.Values, into any) error
}

// maxLine bounds a daemon's answer to who asks again and again: whoever holds a node must not fill its memory.
const maxLine = 4 << 20

// Open connects for a program that is called so.
func (c *Cluster) Open(agent string, now func() time.Time) (*Line, error) {
	own := *c
	own.agent = agent
	s, err := own.connect()
	if err != nil {
		return nil, err
	}
	return &Line{a: &asking{Cluster: &own, server: s, tokens: map[string]string{}, most: maxLine}, now: now}, nil
}

// Round finds the daemons, and visits every node, several at a time, until all have been.
func (l *Line) Round(ctx context.Context, visit func(context.Context, Node)) error {
	daemons, err := l.a.Cluster.daemons(ctx, l.a.server)
	if err != nil {
		return err
	}
	if now := l.now(); !now.Before(l.renew) {
		clear(l.a.tokens)
		l.renew = now.Add(tokenSeconds / 2 * time.Second)
	}
	_, err = each(ctx, l.a, daemons, func(ctx context.Context, d daemon) (struct{}, error) {
		visit(ctx, Node{Name: d.node, Pod: d.pod, Get: func(ctx context.Context, path string, query url.Values,
			to any) error {
			return l.a.one(ctx, d, question{path, query}, into(to))
		}})
		return struct{}{}, nil
	})
	return err
}
