package plugin

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
)

// Whatever became of the state file while no daemon ran, no pod moves.
func TestWhateverBecameOfTheStateFile(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, w *world, file string, early []byte)
	}{
		{"nothing", func(*testing.T, *world, string, []byte) {}},
		{"deleted", func(t *testing.T, _ *world, file string, _ []byte) { must(t, os.Remove(file)) }},
		{"the folder deleted", func(t *testing.T, w *world, _ string, _ []byte) { must(t, os.RemoveAll(w.dir)) }},
		{"an older one", func(t *testing.T, _ *world, file string, early []byte) {
			must(t, os.WriteFile(file, early, 0o600))
		}},
		{"of another node", func(_ *testing.T, w *world, _ string, _ []byte) { w.name = "other" }},
		{"cut off", func(t *testing.T, _ *world, file string, _ []byte) { must(t, os.Truncate(file, 100)) }},
		{"changed by a hand", func(t *testing.T, _ *world, file string, _ []byte) {
			text, err := os.ReadFile(file)
			must(t, err)
			must(t, os.WriteFile(file, bytes.ReplaceAll(text, []byte(`"0-3"`), []byte(`"8-11"`)), 0o600))
		}},
		{"of a later format", func(t *testing.T, _ *world, file string, _ []byte) {
			must(t, os.WriteFile(file, []byte(`{"version":99}`), 0o600))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.begin(newDoom("", 0))
			for _, s := range []step{doRun(lse("gone", 2000)), doRun(burstable("web")), doRun(lse("db", 2000))} {
				s.do(w)
				w.rest()
			}
			file := filepath.Join(w.dir, "state.json")
			early, err := os.ReadFile(file)
			must(t, err)
			for _, s := range []step{doResize(lse("db", 2000), 2000, 4000), doRemove(lse("gone", 2000)),
				doRun(lsr("b", 4000)), doRun(widened("wide", 2000)), doRun(bestEffort("low"))} {
				s.do(w)
				w.rest()
			}
			before, owners := w.picture(nil), w.owners()
			w.kill()
			c.spoil(t, w, file, early)
			w.begin(newDoom("", 0))
			w.stayed(owners, step{}, "after the restart")
			w.sound()
			for key, v := range w.picture(nil) {
				if before[key] != v {
					t.Errorf("%s: %s, was %s", key, v, before[key])
				}
			}
			doRun(lsr("new", 2000)).do(w)
			w.rest()
			w.sound()
			if got := w.stateFile(newDoom("", 0)).Load(); got.Reason != "" || len(got.Snapshot.Pods) != 5 {
				t.Errorf("what is saved now: %+v", got)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// After a reboot every container is gone and the file with them; caps included.
func TestTheStateOfAnotherBootBindsNobody(t *testing.T) {
	w := newWorld(t)
	s := w.stateFile(newDoom("", 0))
	s.BootID = "before"
	must(t, state.Prepare(w.dir))
	must(t, s.Save(state.Snapshot{
		Pods: []state.Pod{{UID: "uid-db", Sandbox: "sb-db", CPUs: grid(t, testGrid).Online()}},
		Caps: []state.Cap{{PodUID: "uid-noisy", Container: "main", CapMilli: 10, Until: time.Now().Add(time.Hour)}},
	}))
	w.begin(newDoom("", 0))
	for _, s := range []step{doRun(noisy("noisy")), doRun(lse("db", 2000))} {
		s.do(w)
		w.rest()
	}
	w.want("db-main", "0-1")
	w.sound()
}

// fullStore fails as a full disk does until there is room.
type fullStore struct {
	memoryStore
	full atomic.Bool
}

func (s *fullStore) Save(next state.Snapshot) error {
	if s.full.Load() {
		s.memoryStore.mu.Lock()
		s.memoryStore.tries++
		s.memoryStore.mu.Unlock()
		return fmt.Errorf("save state: write /x/.state.json1: %w", unix.ENOSPC)
	}
	return s.memoryStore.Save(next)
}

// A disk that is full or read-only: pinning goes on, the reason is in the log, the
// metric counts, and it is tried again until it works.
func TestPinningGoesOnWhileNothingCanBeSaved(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	store := &fullStore{}
	store.full.Store(true)
	meter := metrics.New("test", func() (metrics.Stats, bool) { return metrics.Stats{}, false })
	saves := func(result string) string {
		page := httptest.NewRecorder()
		health := metrics.NewHealth(time.Now, time.Now)
		metrics.Handler(meter, health).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
		for line := range strings.Lines(page.Body.String()) {
			if rest, ok := strings.CutPrefix(line, `quietcore_state_save_total{result="`+result+`"} `); ok {
				return strings.TrimSpace(rest)
			}
		}
		return ""
	}
	n.startRuntime()
	n.start(func(o *Options) { o.Store, o.Metrics = store, meter })
	eventually(t, "the plugin is synchronised", n.plugin.Synchronised)
	n.admitted()
	mustRun(t, n, burstable("web"), lse("db", 4000), lsr("a", 2000))
	eventually(t, "a save has failed", func() bool { return store.attempts() > 0 })
	for id, want := range map[string]string{"db-main": "0-3", "a-main": "4-5", "web-main": "6-15"} {
		eventually(t, id+" runs on "+want, func() bool { return n.on(id) == want })
	}
	n.checkOwners()
	for range 3 {
		tried := store.attempts()
		n.advance(5 * time.Second)
		eventually(t, "it is tried again", func() bool { return store.attempts() > tried })
	}
	if log := n.log.String(); !strings.Contains(log, "no space left on device") ||
		!strings.Contains(log, "a restart would find an older one") {
		t.Error("the log does not say why nothing is saved")
	}
	if got := saves("error"); got == "" || got == "0" {
		t.Errorf("%q failed saves are counted", got)
	}
	if n.plugin.Settled() {
		t.Error("settled, although nothing is saved")
	}
	store.full.Store(false)
	n.advance(5 * time.Second)
	n.settle()
	if got := saves("ok"); got == "" || got == "0" {
		t.Errorf("%q saves are counted", got)
	}
	if got := len(store.load().Pods); got != 3 {
		t.Errorf("%d pods are saved, want 3", got)
	}
}

// The clock is set while the daemon is dead: a cap runs as long as it was to.
func TestTheClockJumpsWhileTheDaemonIsDead(t *testing.T) {
	for _, jump := range []time.Duration{24 * time.Hour, -24 * time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			w := newWorld(t)
			w.begin(newDoom("", 0))
			for _, s := range []step{doRun(noisy("noisy")), doRun(lse("db", 2000)), doRun(burstable("web")),
				doCap("noisy-main", 100, 5*time.Minute)} {
				s.do(w)
				w.rest()
			}
			owners := w.owners()
			w.kill()
			w.ahead.Add(int64(jump))
			w.begin(newDoom("", 0))
			path := noisy("noisy").parent() + "/noisy-main"
			if got := w.quota(path); got != 100 {
				t.Errorf("the quota is %dm; the cap has five minutes", got)
			}
			w.stayed(owners, step{}, "after the jump")
			w.sound()
			doWait(6 * time.Minute).do(w)
			w.rest()
			if got := w.quota(path); got != 2000 {
				t.Errorf("the quota is %dm; the cap is over", got)
			}
			// New containers are older, or much younger, than what runs.
			for _, s := range []step{
				doRestart(lse("db", 2000), true), doRun(lsr("a", 2000)), doRun(lsr("b", 2000)),
				doRestart(lsr("a", 2000), false),
				doResize(lsr("b", 2000), 2000, 4000), doRemove(lsr("a", 2000)), doCap("noisy-main", 100, time.Minute),
				doWait(2 * time.Minute),
			} {
				s.do(w)
				w.rest()
				w.sound()
			}
			w.kill()
			w.begin(newDoom("", 0))
			w.sound()
		})
	}
}

// While the daemon lives its deadlines run by the monotonic clock, which cannot
// be set: no time on the way from the clock to a cap may lose that reading.
func TestACapsDeadlineIsMonotonic(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	n.up()
	mustRun(t, n, noisy("noisy"))
	if err := n.plugin.Submit(short(t), policy.CapVerdict{ID: "noisy-main", Milli: 100, For: time.Minute}); err != nil {
		t.Fatal(err)
	}
	caps := n.checkpoint().Caps
	if len(caps) != 1 || !strings.Contains(caps[0].Until.String(), " m=") {
		t.Errorf("caps %+v: the deadline has no monotonic reading", caps)
	}
	if beat := n.plugin.Beat(); !strings.Contains(beat.String(), " m=") {
		t.Errorf("the heartbeat %s has no monotonic reading: a clock that is set looks like a loop that hangs", beat)
	}
}

// While the machine sleeps that clock stands still. The time counts all the same, on the clock that people read, too.
func TestADeadlinePassesWhileTheMachineSleeps(t *testing.T) {
	n := newNode(t, grid(t, testGrid))
	tick := make(chan time.Time)
	var asleep atomic.Int64
	asleep.Store(int64(time.Hour)) // before the daemon began
	n.up(func(o *Options) {
		o.Clock.Tick, o.Clock.Slept = tick, func() time.Duration { return time.Duration(asleep.Load()) }
	})
	mustRun(t, n, noisy("short"), noisy("long"))
	for id, d := range map[string]time.Duration{"short-main": time.Minute, "long-main": time.Hour} {
		if err := n.plugin.Submit(short(t), policy.CapVerdict{ID: id, Milli: 100, For: d}); err != nil {
			t.Fatal(err)
		}
	}
	tick <- time.Time{}
	n.settle()
	before := n.untils()
	asleep.Add(int64(10 * time.Minute))
	tick <- time.Time{}
	n.settle()
	after := n.untils()
	if before["uid-short"].IsZero() || !after["uid-short"].IsZero() {
		t.Errorf("a cap for a minute is until %v, after ten minutes of sleep until %v", before["uid-short"],
			after["uid-short"])
	}
	if nearer := before["uid-long"].Sub(after["uid-long"]); nearer != 10*time.Minute {
		t.Errorf("the other deadline came nearer by %v, want ten minutes", nearer.Round(time.Second))
	}
}

// untils are the deadlines of caps by pod; an ended one has none.
func (n *rig) untils() map[string]time.Time {
	all := map[string]time.Time{}
	for _, c := range n.checkpoint().Caps {
		all[c.PodUID] = c.Until
	}
	return all
}
