package plugin

import (
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/failpoint"
	"github.com/quietcore/quietcore/policy"
)

// A pool move on the machine of the tests: the victim owns CPUs of the first L3 domain,
// so best effort has all of them, and while it is moved the others.
const (
	victimsL3  = "0-7"
	poolBefore = "0-15"
	poolMoved  = "8-15"
	moveTerm   = 30 * time.Minute
)

func doMove(t *testing.T) step {
	return step{name: "move best effort off " + victimsL3, do: func(w *world) {
		if err := w.submit(policy.BEKeptOff{Victim: "victim-main", CPUs: setOf(t, victimsL3),
			For: moveTerm}); err != nil {
			w.t.Errorf("move for the victim: %v", err)
		}
	}}
}

// moved is a world in which best effort left the L3 domain of a victim.
func moved(t *testing.T) *world {
	w := newWorld(t)
	w.begin(newDoom("", 0))
	for _, s := range []step{doRun(lsr("victim", 2000)), doRun(burstable("web")), doRun(bestEffort("low")),
		doRun(noisy("noisy"))} {
		s.do(w)
		w.rest()
	}
	w.pool(poolBefore, "before the move")
	doMove(t).do(w)
	w.rest()
	w.pool(poolMoved, "after the move")
	return w
}

// pool says on what best effort really runs: those of the class's own slice, and the
// batch pod that is burstable to Kubernetes. No other pod is moved.
func (w *world) pool(want, when string) {
	w.t.Helper()
	for id, cpus := range map[string]string{"low-main": want, "noisy-main": want, "victim-main": "0-1"} {
		if got := w.on(id); got != cpus {
			w.t.Errorf("%s %s runs on %s, want %s", when, id, got, cpus)
		}
	}
	if got := w.on("web-main"); got != "2-15" {
		w.t.Errorf("%s web, which is no best effort, runs on %s, want 2-15", when, got)
	}
}

// murder is kill -9 from outside.
func (w *world) murder() {
	w.t.Helper()
	w.doom.mu.Lock()
	close(w.doom.dead)
	w.doom.mu.Unlock()
	w.doom.kill()
	w.plugin = nil
}

func TestAPoolMoveEndsWithItsTerm(t *testing.T) {
	w := moved(t)
	doWait(moveTerm - time.Minute).do(w)
	w.rest()
	w.pool(poolMoved, "a minute before its end")
	doWait(time.Minute).do(w)
	w.rest()
	w.pool(poolBefore, "at its end")
	w.sound()
}

func TestAPoolMoveEndsWhenItIsTakenBack(t *testing.T) {
	w := moved(t)
	if err := w.submit(policy.BEKeptOff{Victim: "victim-main"}); err != nil {
		t.Fatal(err)
	}
	w.rest()
	w.pool(poolBefore, "when it is taken back")
	w.sound()
}

// A move is memory only: a daemon that is killed leaves best effort where it is, which
// does no harm, and its successor, which knows of no move, lets it back at once.
func TestAPoolMoveDoesNotOutliveItsDaemon(t *testing.T) {
	w := moved(t)
	w.murder()
	w.pool(poolMoved, "while the daemon is dead")
	w.begin(newDoom("", 0))
	w.collect()
	w.rest()
	w.pool(poolBefore, "with the next daemon")
	w.sound()
}

// A daemon that is killed between the writes of a move leaves a pool that its successor
// puts right.
func TestAPoolMoveThatIsCutShort(t *testing.T) {
	for _, at := range []failpoint.Point{failpoint.EventStepped, failpoint.EventHanded, failpoint.ShrinkWriting,
		failpoint.ShrinkWritten} {
		w := newWorld(t)
		d := newDoom(at, 0)
		w.begin(d)
		for _, s := range []step{doRun(lsr("victim", 2000)), doRun(burstable("web")), doRun(bestEffort("low")),
			doRun(noisy("noisy"))} {
			s.do(w)
			w.rest()
		}
		d.mu.Lock()
		d.n = d.passed[at] + 1
		d.mu.Unlock()
		doMove(t).do(w)
		w.rest()
		if w.plugin != nil {
			t.Fatalf("the move does not pass %s", at)
		}
		w.begin(newDoom("", 0))
		w.collect()
		w.rest()
		w.pool(poolBefore, "with the next daemon")
		w.sound()
	}
}

// `quietcore restore` after a kill gives back what the kernel would have given.
func TestRestoreUndoesAPoolMove(t *testing.T) {
	w := moved(t)
	w.murder()
	if _, err := Restore(short(t), w.options(), policy.KubeletState{PolicyName: "none"}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"low-main", "noisy-main", "web-main", "victim-main"} {
		if got := w.on(id); got != poolBefore {
			t.Errorf("%s runs on %s after the undoing, want %s", id, got, poolBefore)
		}
	}
	if e, err := w.kernel.Effective("kubepods/besteffort"); err != nil || e.CPUs != setOf(t, poolBefore) {
		t.Errorf("best effort's slice has %s, %v", e.CPUs, err)
	}
}

// One pod leaves, and no other: also where its daemon is killed, the next one lets it back, and so does the undoing.
func TestAMoveOfOnePod(t *testing.T) {
	begin := func() *world {
		w := newWorld(t)
		w.begin(newDoom("", 0))
		for _, s := range []step{doRun(lsr("victim", 2000)), doRun(burstable("web")), doRun(bestEffort("low")),
			doRun(noisy("noisy"))} {
			s.do(w)
			w.rest()
		}
		for _, pod := range []spec{bestEffort("low"), noisy("noisy")} {
			if err := w.submit(policy.BEKeptOff{Victim: "victim-main", CPUs: setOf(t, "0-7"), For: moveTerm,
				Pod: pod.uid(), Least: 2}); err != nil {
				t.Fatal(err)
			}
			w.rest()
			if got := w.on(pod.name + "-main"); got != "8-15" {
				t.Errorf("%s runs on %s, want 8-15", pod.name, got)
			}
			if pod.name == "low" && w.on("noisy-main") != poolBefore {
				t.Errorf("noisy runs on %s, and was not moved", w.on("noisy-main"))
			}
		}
		return w
	}
	w := begin()
	if err := w.submit(policy.BEKeptOff{Victim: "victim-main", Pod: noisy("noisy").uid()}); err != nil {
		t.Fatal(err)
	}
	w.rest()
	if got := w.on("noisy-main"); got != poolBefore {
		t.Errorf("taken back, noisy runs on %s, want %s", got, poolBefore)
	}
	w.murder()
	w.begin(newDoom("", 0))
	w.collect()
	w.rest()
	w.pool(poolBefore, "with the next daemon")
	w.sound()
	w = begin()
	doWait(moveTerm).do(w)
	w.rest()
	w.pool(poolBefore, "at its end")
	w = begin()
	w.murder()
	if _, err := Restore(short(t), w.options(), policy.KubeletState{PolicyName: "none"}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"low-main", "noisy-main"} {
		if got := w.on(id); got != poolBefore {
			t.Errorf("%s runs on %s after the undoing, want %s", id, got, poolBefore)
		}
	}
}
