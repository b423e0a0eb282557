package plugin

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/ttrpc"
)

// A coroutine's body is on the stacks of all goroutines once for each coroutine.
func coroutines() int {
	text := make([]byte, 4<<20)
	return strings.Count(string(text[:runtime.Stack(text, true)]), "plugin.newStack.func1(")
}

func TestHandlersRunOnStacksThatAreKept(t *testing.T) {
	var s stacks
	before := coroutines()
	echo := func(_ context.Context, unmarshal func(any) error) (any, error) {
		var n int
		err := unmarshal(&n)
		return n, err
	}
	request := func(n int, err error) ttrpc.Unmarshaler {
		return func(to any) error { *to.(*int) = n; return err }
	}
	for i := range 10 {
		var want error
		if i%3 == 0 {
			want = fmt.Errorf("request %d", i)
		}
		got, err := s.serve(t.Context(), request(i, want), nil, echo)
		if got != i || !errors.Is(err, want) {
			t.Errorf("request %d was answered %v, %v", i, got, err)
		}
	}
	if n := coroutines() - before; n != 1 {
		t.Errorf("%d coroutines after ten requests one after the other, want 1", n)
	}

	// Requests that come at once each have one, and no more are kept than maxSpare.
	begun, end := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	wait := func(context.Context, func(any) error) (any, error) { begun <- struct{}{}; <-end; return nil, nil }
	start := func(n int) {
		for range n {
			all.Go(func() { _, _ = s.serve(t.Context(), nil, nil, wait) })
		}
		for range n {
			<-begun
		}
	}
	start(5)
	close(end)
	all.Wait()
	if n := coroutines() - before; n != maxSpare {
		t.Errorf("%d coroutines are kept, want %d", n, maxSpare)
	}

	end = make(chan struct{})
	start(maxSpare + 1)
	s.close()
	close(end)
	all.Wait()
	if n := coroutines() - before; n != 0 {
		t.Errorf("%d coroutines are left after the end of the connection", n)
	}
}

func TestAPanicOfAHandlerComesOut(t *testing.T) {
	var s stacks
	defer s.close()
	defer func() {
		if p := recover(); p != "a defect" {
			t.Errorf("recovered %v", p)
		}
	}()
	_, _ = s.serve(t.Context(), nil, nil, func(context.Context, func(any) error) (any, error) { panic("a defect") })
	t.Error("the panic was swallowed")
}
