package node

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

func TestResultsReachTheRoutine(t *testing.T) {
	var got []string
	r := newRoutine(func(do do) {
		for _, path := range []string{"a", "b", "c"} {
			result := do(Effect{Kind: ReadCPUs, Path: path})
			got = append(got, fmt.Sprint(path, " ", result.Err))
		}
	})
	var result *Result
	for i, path := range []string{"a", "b", "c"} {
		e, more := r.resume(result)
		if !more || e.Kind != ReadCPUs || e.Path != path {
			t.Fatalf("effect %d is %+v, more %t", i, e, more)
		}
		if len(got) != i {
			t.Fatalf("at effect %d it has come to %q", i, got)
		}
		result = &Result{Err: errors.New("of " + path)}
	}
	if e, more := r.resume(result); more || e != nil {
		t.Errorf("after its end it asks for %+v", e)
	}
	if want := []string{"a of a", "b of b", "c of c"}; !slices.Equal(got, want) {
		t.Errorf("it got %q, want %q", got, want)
	}
	if _, more := r.resume(&Result{}); more {
		t.Error("it goes on after its end")
	}
}

func TestAPanicInARoutineEndsIt(t *testing.T) {
	r := newRoutine(func(do do) {
		do(Effect{})
		panic("a defect")
	})
	if _, more := r.resume(nil); !more {
		t.Fatal("it has ended before its effect")
	}
	func() {
		defer func() {
			if p := recover(); p != "a defect" {
				t.Errorf("it panicked with %v", p)
			}
		}()
		r.resume(&Result{})
		t.Error("the panic does not come out")
	}()
	if _, more := r.resume(nil); more {
		t.Error("it goes on after a panic")
	}
}

// One that is stopped runs its deferred calls and nothing else, even where these want
// effects, too.
func TestStopUnwindsARoutine(t *testing.T) {
	var passed []string
	r := newRoutine(func(do do) {
		defer func() { passed = append(passed, "outer") }()
		defer func() {
			passed = append(passed, "inner")
			do(Effect{})
			passed = append(passed, "an effect after it was stopped")
		}()
		do(Effect{})
		passed = append(passed, "its code")
	})
	if _, more := r.resume(nil); !more {
		t.Fatal("it has ended before its effect")
	}
	r.stop()
	r.stop()
	if want := []string{"inner", "outer"}; !slices.Equal(passed, want) {
		t.Errorf("passed are %q, want %q", passed, want)
	}
	never := newRoutine(func(do) { t.Error("one that was stopped before its start runs") })
	never.stop()
	if _, more := never.resume(nil); more {
		t.Error("one that was stopped before its start has an effect")
	}
}

// A part that panics is reported and ends, and its end is called with the panic; the core goes on.
func TestThePanicOfAPartIsItsEnd(t *testing.T) {
	s := newStepped(t)
	s.panicked = true
	var ended []any
	s.begin(func(do do) {
		do(Effect{Kind: ReadCPUs, Path: slice})
		panic("a defect")
	}, func(p any) { ended = append(ended, p) })
	s.begin(func(do do) { do(Effect{Kind: ReadCPUs, Path: slice}) }, func(p any) { ended = append(ended, p) })
	s.run()
	if want := []any{"a defect", nil}; !slices.Equal(ended, want) {
		t.Errorf("they ended with %v, want %v", ended, want)
	}
	if n := len(s.core.effects.routines); n > 0 {
		t.Errorf("%d routines are kept", n)
	}
	s.up(lsr("db", 2000))
	s.want("db-main", "0-1")
}

func TestStopEndsEveryRoutine(t *testing.T) {
	s := newStepped(t)
	unwound := 0
	s.hangs = isRead
	for range 3 {
		s.begin(func(do do) {
			defer func() { unwound++ }()
			do(Effect{Kind: ReadCPUs, Path: slice})
			t.Error("its code goes on")
		}, func(any) { t.Error("it is said to have ended by itself") })
	}
	s.core.Stop()
	if unwound != 3 {
		t.Errorf("%d of 3 are unwound", unwound)
	}
}

// begin starts a routine in a step of its own.
func (s *stepped) begin(body func(do), ended func(any)) {
	s.t.Helper()
	s.core.now = s.now
	s.core.run("test", body, ended)
	out := s.core.out
	s.core.out = Out{}
	s.take(out)
}
