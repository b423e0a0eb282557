package daemon

import (
	"context"
	"sync"
)

// together runs all of them until each has ended. No other file of the daemon starts
// a goroutine.
func together(ctx context.Context, runs ...func(context.Context)) {
	var all sync.WaitGroup
	for _, run := range runs {
		all.Go(func() { run(ctx) })
	}
	all.Wait()
}

// silent is a part of which nothing is to be said.
type silent struct{ run func(context.Context) }

func (s silent) Run(ctx context.Context)   { s.run(ctx) }
func (s silent) Health() map[string]string { return nil }

// begun is whether something has begun that others wait for.
type begun struct {
	once sync.Once
	is   chan struct{}
}

func newBegun() *begun { return &begun{is: make(chan struct{})} }

func (b *begun) now() { b.once.Do(func() { close(b.is) }) }

// run has something run from then on.
func (b *begun) run(f func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-b.is:
			f(ctx)
		}
	}
}

func (b *begun) has() bool {
	select {
	case <-b.is:
		return true
	default:
		return false
	}
}
