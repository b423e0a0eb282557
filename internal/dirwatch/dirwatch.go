// Package dirwatch looks again whenever something in a directory changes. It watches directories, since files are
// replaced, and polls as well, for changes without an event and for directories that appear later.
package dirwatch

import (
	"context"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Every is the interval of polling.
const Every = 10 * time.Second

// Watch calls look now, at every change in one of the directories and every so often, until ctx ends. Where the kernel
// gives no watch, unwatched gets the reason, and polling is all there is.
func Watch(ctx context.Context, dirs []string, look func(context.Context), unwatched func(error)) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		unwatched(err)
	} else {
		defer w.Close()
	}
	watch(ctx, w, dirs, look)
}

// watch only polls where w is nil.
func watch(ctx context.Context, w *fsnotify.Watcher, dirs []string, look func(context.Context)) {
	var events chan fsnotify.Event
	var lost chan error
	if w != nil {
		events, lost = w.Events, w.Errors
	}
	poll := time.NewTicker(Every)
	defer poll.Stop()
	for {
		for _, dir := range dirs {
			if w != nil {
				_ = w.Add(dir) // it may not exist yet; one that was replaced is watched anew
			}
		}
		look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-events:
		case <-lost: // the kernel's queue overflowed: the files show the changes
		case <-poll.C:
		}
	}
}
