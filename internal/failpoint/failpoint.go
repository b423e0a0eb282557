// Package failpoint names the moments at which a kill of the daemon leaves something
// half done. A production binary only passes them: internal/faults is what kills.
package failpoint

import (
	"github.com/quietcore/quietcore/internal/state"
)

// Point names a moment at which a kill of the daemon leaves something half done.
// Between two neighbouring points nothing outside the process changes, so a
// daemon that survives a kill at each of them survives a kill at any time.
type Point string

// The life of one event, from its arrival to the reply.
const (
	EventTaken   Point = "event.taken"   // the loop has it, the machine has not stepped
	EventStepped Point = "event.stepped" // decided, and not yet handed on
	EventHanded  Point = "event.handed"  // the enforcer and the saver have it, the caller has no answer

	StateBegun   Point = "state." + Point(state.Begun)   // nothing on disk yet
	StateWritten Point = "state." + Point(state.Written) // a temporary file beside the old one
	StateRenamed Point = "state." + Point(state.Renamed) // in place, the folder not yet synced
	StateSynced  Point = "state." + Point(state.Synced)  // durable

	CapSaved Point = "cap.saved" // a cap is on disk and not in the kernel

	ShrinkWriting Point = "shrink.writing" // before and after each write that takes CPUs away
	ShrinkWritten Point = "shrink.written"
	GrowWriting   Point = "grow.writing" // and each that gives CPUs
	GrowWritten   Point = "grow.written"
	QuotaWriting  Point = "quota.writing"
	QuotaWritten  Point = "quota.written"

	CreateVacated Point = "create.vacated" // every other pod has left the new owner's CPUs
	UpdateVacated Point = "update.vacated"

	RunReply    Point = "run.reply" // the answer is known and not sent
	CreateReply Point = "create.reply"
	UpdateReply Point = "update.reply"
	ResizeReply Point = "resize.reply" // of UpdatePodSandbox
	StopReply   Point = "stop.reply"   // of StopContainer and RemoveContainer
	RemoveReply Point = "remove.reply" // of RemovePodSandbox

	SyncBegun Point = "sync.begun" // nothing has been read
	SyncRead  Point = "sync.read"  // the kernel has been asked, the policy not
	SyncTaken Point = "sync.taken" // the policy knows every pod
	SyncReply Point = "sync.reply"

	VanishFound Point = "vanish.found" // a pod's end was found and not entered
)

// Points lists them all.
func Points() []Point {
	return []Point{
		EventTaken, EventStepped, EventHanded,
		StateBegun, StateWritten, StateRenamed, StateSynced, CapSaved,
		ShrinkWriting, ShrinkWritten, GrowWriting, GrowWritten, QuotaWriting, QuotaWritten,
		CreateVacated, UpdateVacated,
		RunReply, CreateReply, UpdateReply, ResizeReply, StopReply, RemoveReply,
		SyncBegun, SyncRead, SyncTaken, SyncReply, VanishFound,
	}
}

// AtStage is f for a state.Store.
func AtStage(f func(Point)) func(state.Stage) {
	if f == nil {
		return nil
	}
	return func(s state.Stage) { f("state." + Point(s)) }
}
