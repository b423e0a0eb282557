package node

import (
	"errors"
	"iter"
)

// routine is code that waits for effects one after the other. It runs in the goroutine of its
// caller and is suspended during an effect (a coroutine of package iter), so that a sequence of
// reads and writes is a function and not a table of states.
type routine struct {
	next   func() (*Effect, bool)
	stop   func()
	result *Result
}

// errStopped unwinds a routine that is stopped.
var errStopped = errors.New("the routine is stopped")

func newRoutine(body func(do)) *routine {
	r := &routine{}
	r.next, r.stop = iter.Pull(func(yield func(*Effect) bool) {
		defer func() {
			if p := recover(); p != nil && p != errStopped {
				panic(p)
			}
		}()
		body(func(e Effect) *Result {
			r.result = nil
			if !yield(&e) {
				panic(errStopped)
			}
			return r.result
		})
	})
	return r
}

// resume runs the routine to its next effect; false: it has ended. result is the result of the
// previous effect. A panic of the routine passes through and ends it.
func (r *routine) resume(result *Result) (*Effect, bool) {
	r.result = result
	return r.next()
}
