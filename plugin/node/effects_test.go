package node

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/cgroup"
)

// A read that does not return times out after readLimit. Its late result is dropped; in
// particular the read in flight at that time does not get it.
func TestAReadThatHangsTimesOut(t *testing.T) {
	s := newStepped(t)
	s.hangs = isRead
	var got []*Result
	ended := false
	s.begin(func(do do) {
		got = append(got, do(Effect{Kind: ReadCPUs, Path: "first"}))
		got = append(got, do(Effect{Kind: List, Path: "second"}))
	}, func(any) { ended = true })
	s.wantHanging(1, "a read hangs")
	first := s.hanging[0]
	if at, want := s.core.effects.next(), s.now.Add(readLimit); !at.Equal(want) {
		t.Errorf("it is given up at %s, want %s", at, want)
	}
	s.pass(readLimit - 1)
	if len(got) > 0 {
		t.Fatalf("after less than %s it has %+v", readLimit, got[0])
	}
	s.pass(1)
	if len(got) != 1 || !errors.Is(got[0].Err, errReadTimeout) {
		t.Fatalf("after %s it has %+v", readLimit, got)
	}
	s.wantHanging(2, "the next read begins")
	if s.core.effects.hung != 1 {
		t.Errorf("%d reads are counted as hanging, want 1", s.core.effects.hung)
	}
	late := Done{Op: first.Op, Result: &Result{Err: errors.New("late")}}
	s.step(late)
	s.step(late) // no effect ends twice
	if len(got) != 1 {
		t.Fatalf("a late result was handed on: %+v", got[1])
	}
	if s.core.effects.hung != 0 {
		t.Errorf("%d reads are counted as hanging after it came back", s.core.effects.hung)
	}
	s.step(Done{Op: s.hanging[1].Op, Result: &Result{Names: []string{"x"}}})
	if !ended || len(got) != 2 || !slices.Equal(got[1].Names, []string{"x"}) {
		t.Errorf("ended %t, with %+v", ended, got)
	}
}

// While many reads hang no other read starts: each holds a thread. Writes start, and reads start
// again when one has returned.
func TestNoReadStartsWhileManyHang(t *testing.T) {
	s := newStepped(t)
	s.hangs = isRead
	for i := range maxHung {
		s.begin(func(do do) { do(Effect{Kind: ReadAll, Path: fmt.Sprint("hangs", i)}) }, func(any) {})
	}
	one := func(kind EffectKind) (result *Result) {
		s.begin(func(do do) { result = do(Effect{Kind: kind, Path: slice}) }, func(any) {})
		s.run()
		return result
	}
	s.pass(readLimit)
	for _, kind := range []EffectKind{ReadCPUs, ReadAll, ReadAllowed, List, ReadRecord} {
		r := one(kind)
		if r == nil || r.Err == nil || !strings.Contains(r.Err.Error(), "not started") {
			t.Errorf("%s: the result is %+v", kind, r)
		}
	}
	s.wantHanging(maxHung, "those that hang")
	if r := one(Write); r == nil || r.Err != nil {
		t.Errorf("a write: the result is %+v", r)
	}
	s.hangs = nil
	first := s.hanging[0]
	s.resume(func(e *Effect) bool { return e == first })
	if r := one(ReadCPUs); r == nil || r.Err != nil {
		t.Errorf("after one came back the result is %+v", r)
	}
}

// A read that hangs is not repeated: the repetition would hang too, until no other read could start.
func TestAReadThatHangsIsNotRepeated(t *testing.T) {
	s := newStepped(t)
	s.hangs = at(ReadCPUs, slice)
	read := func(path string) (result *Result) {
		s.begin(func(do do) { result = do(Effect{Kind: ReadCPUs, Path: path}) }, func(any) {})
		s.run()
		return result
	}
	read(slice)
	s.pass(readLimit)
	for range maxHung {
		if r := read(slice); r == nil || r.Err == nil || !strings.Contains(r.Err.Error(), "not started") {
			t.Fatalf("the result is %+v", r)
		}
	}
	s.wantHanging(1, "the first")
	if r := read("kubepods/besteffort"); r == nil || r.Err != nil {
		t.Errorf("of another cgroup the result is %+v", r)
	}
	s.hangs = nil
	s.resume(isRead)
	if r := read(slice); r == nil || r.Err != nil {
		t.Errorf("after it came back the result is %+v", r)
	}
}

// A write may still take effect, so nothing gives it up, nor a save.
func TestAWriteIsNeverGivenUp(t *testing.T) {
	for _, kind := range []EffectKind{Write, Save} {
		s := newStepped(t)
		s.hangs = func(e *Effect) bool { return e.Kind == kind }
		var got *Result
		s.begin(func(do do) { got = do(Effect{Kind: kind, Path: slice}) }, func(any) {})
		s.pass(24 * time.Hour)
		if got != nil {
			t.Fatalf("%s: given up with %+v", kind, got)
		}
		s.step(Done{Op: s.hanging[0].Op, Result: &Result{Err: errDisk}})
		if got == nil || !errors.Is(got.Err, errDisk) {
			t.Errorf("%s: its result is %+v", kind, got)
		}
	}
}

// Reads that are due at the same time are given up in the order of their beginning: a run
// can be repeated.
func TestReadsTimeOutInOrder(t *testing.T) {
	s := newStepped(t)
	s.hangs = isRead
	var order, want []int
	for i := range maxHung {
		want = append(want, i)
		s.begin(func(do do) {
			do(Effect{Kind: ReadAll, Path: "hangs"})
			order = append(order, i)
		}, func(any) {})
	}
	s.pass(readLimit)
	if !slices.Equal(order, want) {
		t.Errorf("they are given up in the order %v", order)
	}
}

// A writer whose reads hang goes on without them, and an owner that needs to know waits.
func TestAReadThatHangsDoesNotHoldUpOtherPods(t *testing.T) {
	s := newStepped(t)
	s.up(burstable("web"))
	s.hangs = at(ReadCPUs, "kubepods/burstable/poduid-web/web-main")
	s.step(Verify{Container: "web-main"})
	s.wantHanging(1, "the writer reads")
	s.hangs = nil
	s.sandbox(lsr("db", 2000))
	db := s.create(lsr("db", 2000))
	if s.started(db) {
		t.Error("an owner is started before the others have left")
	}
	s.pass(readLimit)
	if !s.started(db) {
		t.Error("an owner waits longer than a read may take")
	}
	s.want("web-main", "2-15")
}

func TestEffectKindsHaveNames(t *testing.T) {
	names := map[string]bool{}
	for kind := Write; kind <= Save; kind++ {
		names[kind.String()] = true
	}
	if len(names) != int(Save) || names[""] {
		t.Errorf("the names are %v", names)
	}
}

// Each effect is carried out by its own part of the backend, with its own result.
func TestTheBackendCarriesOutEffects(t *testing.T) {
	s := newStepped(t)
	s.up(lsr("db", 2000))
	for kind := Write; kind <= Save; kind++ {
		if kind == ReadRecord || kind == Save {
			continue
		}
		r := s.perform(&Effect{Kind: kind, Path: "kubepods/poduid-db"})
		switch {
		case r.Err != nil:
			t.Errorf("%s: %v", kind, r.Err)
		case (kind == ReadAll || kind == ReadCPUs) && r.Seen.CPUs.String() != "0-1",
			kind == ReadAllowed && r.CPUs.String() != "0-1",
			kind == List && fmt.Sprint(r.Names) != "[db-main]":
			t.Errorf("%s: %+v", kind, r)
		}
		if r := s.perform(&Effect{Kind: kind, Path: "kubepods/none"}); !errors.Is(r.Err, cgroup.ErrGone) &&
			kind != Write {
			t.Errorf("%s of a cgroup that is not there: %v", kind, r.Err)
		}
	}
	if r := s.perform(&Effect{}); r.Err == nil {
		t.Error("an effect of no kind is carried out")
	}
}
