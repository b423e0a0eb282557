package node

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/quietcore/quietcore/policy"
)

// defectiveLog panics where the writer logs a pool.
type defectiveLog struct {
	slog.Handler
	defective *bool
}

func (l defectiveLog) Handle(ctx context.Context, r slog.Record) error {
	if *l.defective && r.Message == "pool" {
		panic("a defect")
	}
	return l.Handler.Handle(ctx, r)
}

// While the writer lacks what was decided, because no machine can be rebuilt that says it,
// no owner starts; it does when there is one.
func TestNoOwnerStartsWhileTheWriterLacksDecisions(t *testing.T) {
	var writer, machine bool // have a defect
	s := newStepped(t, func(o *Options) {
		o.Log = slog.New(defectiveLog{o.Log.Handler(), &writer})
		o.Step = func(m *policy.Machine, now time.Time, e policy.Event) ([]policy.Decision, error) {
			if machine {
				panic("a defect")
			}
			return m.Step(now, e)
		}
	})
	s.panicked = true
	s.up(burstable("web"))
	s.hangs = at(ReadCPUs, "kubepods/burstable/poduid-web/web-main")
	s.step(Verify{Container: "web-main"})
	s.wantHanging(1, "the writer is busy")
	s.sandbox(lse("db", 4000))
	db := s.create(lse("db", 4000))
	writer, machine, s.hangs = true, true, nil
	s.resume()
	s.pass(retryWrites)
	if s.core.Status().Frozen == "" {
		t.Fatal("the machine was rebuilt: the test shows nothing")
	}
	writer = false
	s.pass(3 * retryWrites)
	if s.started(db) {
		t.Error("the owner starts although the writer was never told to clear its CPUs")
	}
	machine = false
	s.step(Tick{})
	s.pass(retryWrites)
	if !s.started(db) {
		t.Error("the owner does not start")
	}
	s.settle()
	s.want("web-main", "4-15")
}

// What a takeover observed is old when a panic follows later: the writer has written since.
func TestAPanicBringsBackNoOldObservation(t *testing.T) {
	defect := false
	s := newStepped(t)
	s.panicked = true
	fixed := podOf("fixed", "", policy.Guaranteed, 100)
	s.up(fixed, lse("gone", 4000))
	s.settle()
	s.start(func(o *Options) {
		o.Step = func(m *policy.Machine, now time.Time, e policy.Event) ([]policy.Decision, error) {
			if defect {
				defect = false
				panic("a defect")
			}
			return m.Step(now, e)
		}
	})
	s.synchronize() // which finds its cgroup on 4-15
	s.settle()
	s.remove(lse("gone", 4000))
	s.settle()
	s.want("fixed-main", "0-15")
	s.hangs = at(ReadCPUs, "kubepods/poduid-fixed/fixed-main")
	s.step(Verify{Container: "fixed-main"})
	s.wantHanging(1, "the writer is busy")
	defect = true
	s.step(&Request{Event: policy.BESuppressed{}})
	if defect {
		t.Fatal("nothing panicked: the test shows nothing")
	}
	s.sandbox(lse("db", 4000))
	s.hangs = nil
	s.resume()
	s.settle()
	s.want("fixed-main", "4-15")
}
