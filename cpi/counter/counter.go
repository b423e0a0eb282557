package counter

import "errors"

// Counter counts. Its methods may be called from several goroutines.
type Counter struct{}

var errNotYet = errors.New("counting is not built into this binary")

// Open loads the program and opens the events; nothing is counted before
// Enable. The error is an *UnsupportedError where counting cannot work at all.
// Events that the machine lacks are no error: see Status.
func Open(o Options) (*Counter, error) {
	return nil, &UnsupportedError{Feature: "the program", Err: errNotYet}
}

// Follow counts the cgroup at cgroupPath (below Options.Root) from now on, with
// those below it that are not followed themselves. An id that is followed
// already is moved: its totals go on. The error is a *FullError when MaxGroups
// are followed.
func (c *Counter) Follow(id string, cgroupPath string) error { return errNotYet }

// Forget ends Follow. What the group did since the last Read becomes Other's,
// as its totals do, so that nothing of the machine's is lost.
func (c *Counter) Forget(id string) {}

// Read hands over what all CPUs have counted, running tasks included. It
// reuses dst's memory. The totals only grow.
func (c *Counter) Read(dst *Reading) error { return errNotYet }

// Enable starts a window: everything from now on is counted.
func (c *Counter) Enable() error { return errNotYet }

// Disable ends a window: what happened until now stays counted, and nothing is
// charged and nothing costs anything until Enable.
func (c *Counter) Disable() error { return errNotYet }

// Status says how it counts.
func (c *Counter) Status() Status { return Status{} }

// Close ends counting and releases everything.
func (c *Counter) Close() error { return nil }
