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
