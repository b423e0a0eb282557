package plugin

import (
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/containerd/ttrpc"
)

// stacks are those on which handlers run. The server begins a goroutine for each request, whose
// stack decoding has to grow several times: 6 of 50 µs of a container's creation. A coroutine
// keeps the stack that it grew for the request before, and the way there and back is not the
// scheduler's.
type stacks struct {
	mu     sync.Mutex
	spare  []*stack
	closed bool
}

// maxSpare is how many are kept: the runtime calls one handler at a time, but one that it gave
// up may still be at work.
const maxSpare = 2

// stack is a coroutine that carries out what is put into call, again and again.
type stack struct {
	next   func() (struct{}, bool)
	stop   func()
	call   func() (any, error)
	answer any
	err    error
}

func newStack() *stack {
	s := &stack{}
	s.next, s.stop = iter.Pull(func(yield func(struct{}) bool) {
		for more := true; more; more = yield(struct{}{}) {
			s.answer, s.err = s.call()
		}
	})
	return s
}

// serve is a ttrpc.UnaryServerInterceptor.
func (s *stacks) serve(ctx context.Context, unmarshal ttrpc.Unmarshaler, _ *ttrpc.UnaryServerInfo,
	method ttrpc.Method) (any, error) {
	on := s.take()
	on.call = func() (any, error) { return method(ctx, unmarshal) }
	on.next() // a panic of the handler comes out here
	answer, err := on.answer, on.err
	on.call, on.answer, on.err = nil, nil, nil
	s.putBack(on)
	return answer, err
}

func (s *stacks) take() *stack {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.spare); n > 0 {
		last := s.spare[n-1]
		s.spare = slices.Delete(s.spare, n-1, n)
		return last
	}
	return newStack()
}

func (s *stacks) putBack(on *stack) {
	s.mu.Lock()
	keep := !s.closed && len(s.spare) < maxSpare
	if keep {
		s.spare = append(s.spare, on)
	}
	s.mu.Unlock()
	if !keep {
		on.stop()
	}
}

// close ends those that are idle, and those at work when they have ended.
func (s *stacks) close() {
	s.mu.Lock()
	spare := s.spare
	s.spare, s.closed = nil, true
	s.mu.Unlock()
	for _, on := range spare {
		on.stop()
	}
}
