package plugin

import (
	"context"
	"fmt"
	"time"

	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/policy"
)

// synchronize gives the policy what the node holds. It waits for reads no longer than
// wait: then it answers from what was read, from the state file and from the runtime's
// lists, and what is read later corrects that.
func (p *Plugin) synchronize(ctx context.Context, listed inventory, wait time.Duration) error {
	p.at.at(failpoint.SyncBegun)
	var known map[string]bool
	unread := map[string]bool{}
	if err := p.loop.ask(ctx, func(m *policy.Machine) {
		known = podsOf(m)
		for uid := range known {
			if m.IsUnread(uid) {
				unread[uid] = true
			}
		}
	}); err != nil {
		return fmt.Errorf("synchronize: %w", err)
	}
	r := recovery{
		reader: p.o.Reader, topo: p.Snapshot().Topology, now: p.o.Clock.Now(),
		known: func(uid string) bool { return known[uid] && !unread[uid] },
		saved: p.o.Saved.Places(), caps: p.o.Saved.Caps,
	}
	again := p.once.Load()
	if again {
		r.saved, r.caps = nil, nil // older than what we know ourselves
	}
	t := newTaking(r, listed, again, unread)
	p.reads.ask(t.queries, t.urgent)
	p.awaitReads(ctx, wait)
	out := t.answer(p.reads.found())
	p.at.at(failpoint.SyncRead)
	err := p.loop.submit(ctx, out.event, out.observed).err
	p.at.at(failpoint.SyncTaken)
	if err != nil {
		return err
	}
	for _, pod := range out.event.Pods {
		if f, ok := p.o.Facts(pod.UID); ok {
			if err := p.Submit(ctx, f); err != nil {
				return err
			}
		}
	}
	p.followResizes(ctx, out.resized)
	if left, _ := p.reads.left(); left == 0 && len(unread) == 0 {
		p.reads.forget()
		return nil
	}
	p.readLater(t)
	return nil
}

// awaitReads returns when everything is read, or after d.
func (p *Plugin) awaitReads(ctx context.Context, d time.Duration) {
	var enough <-chan time.Time
	for {
		left, news := p.reads.left()
		if left == 0 {
			return
		}
		if enough == nil {
			enough = p.o.Clock.After(d)
		}
		select {
		case <-news:
		case <-enough:
			return
		case <-ctx.Done():
			return
		}
	}
}

// readLater hands a taking with reads left to the part that finishes it, in place of an
// earlier one.
func (p *Plugin) readLater(t *taking) {
	p.reads.busy.Store(true)
	for {
		select {
		case p.reads.unfinished <- t:
			return
		case <-p.reads.unfinished:
		}
	}
}

// finishTakings corrects what was answered to the last Synchronize by what is read
// after it.
func (p *Plugin) finishTakings(ctx context.Context) {
	defer p.reads.stop()
	var t *taking
	for {
		if t == nil {
			select {
			case <-ctx.Done():
				return
			case t = <-p.reads.unfinished:
			}
		}
		left, news := p.reads.left()
		p.correct(ctx, t)
		if left == 0 {
			t = nil
			p.reads.forget()
			p.reads.busy.Store(len(p.reads.unfinished) > 0)
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-news:
		case t = <-p.reads.unfinished:
		}
	}
}

// correct gives the policy what was read since the answer.
func (p *Plugin) correct(ctx context.Context, t *taking) {
	c := t.correct(p.reads.found())
	if len(c.corrected.Pods)+len(c.corrected.Containers)+len(c.observed) > 0 {
		if err := p.loop.submit(ctx, c.corrected, c.observed).err; err != nil {
			p.o.Log.Error("what was read after the Synchronize is not taken over", "err", err)
		}
	}
	p.followResizes(ctx, c.resized)
}

func (p *Plugin) followResizes(ctx context.Context, resized []policy.PodResized) {
	for _, e := range resized {
		if err := p.Submit(ctx, e); err != nil {
			p.o.Log.Warn("a resize that was missed cannot be followed; the pod keeps what it has",
				"sandbox", e.Sandbox, "to", e.Resources.RequestMilli, "err", err)
		}
	}
}
