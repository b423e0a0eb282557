package plugin

import (
	"flag"
	"fmt"
	"log/slog"
	"math"
	"os"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	sim "github.com/quietcore/quietcore/internal/world"
)

var (
	soakHours = flag.Float64("soak.hours", 0, "how long pods come and go at least")
	soakPods  = flag.Int("soak.pods", 300, "how many pods come and go at least")
	soakSeed  = flag.Uint64("soak.seed", 0, "of the long life; 0: a new one")
)

// soaked is what a daemon has while nothing runs on its node.
type soaked struct {
	what string
	more float64 // by which it may grow over the whole run: what is bounded comes and goes
	of   []float64
}

// TestSoak: pods come and go with every feature on while everything goes wrong. Whenever the node is empty the daemon
// has as much as before: entries of what it remembers, bytes on disk and in memory, goroutines and descriptors.
func TestSoak(t *testing.T) {
	seed := *soakSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-soak.seed=%d", seed)
	cfg := worldConfig(t)
	cfg.Seed, cfg.Claims, cfg.Every = seed, true, 1500
	// It is one daemon's life. A leak would end with it.
	cfg.Faults = slices.DeleteFunc(cfg.Faults, func(f sim.Fault) bool { return f == sim.Kills })
	var shell *simulated
	var pods []float64
	entries, saved := soaked{what: "entries", more: 1000}, soaked{what: "bytes of state", more: 64}
	routines, files := soaked{what: "goroutines", more: 2}, soaked{what: "descriptors", more: 2}
	heap := soaked{what: "bytes in use", more: 1 << 20}
	begun, told := time.Now(), time.Now()
	cfg.Rest = func(r sim.Rest) bool {
		pods = append(pods, float64(r.Pods))
		entries.add(entriesOf(shell.life.core))
		saved.add(r.Saved)
		routines.add(runtime.NumGoroutine())
		files.add(descriptors(t))
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		heap.add(int(m.HeapAlloc))
		if time.Since(told) > time.Minute {
			told = time.Now()
			fmt.Printf("%d pods after %s: %s, %s, %s\n", r.Pods, time.Since(begun).Round(time.Second), entries.now(),
				saved.now(), heap.now())
		}
		return r.Pods < *soakPods || time.Since(begun).Hours() < *soakHours || len(pods) < leastRests
	}
	r := sim.Play(cfg, func(w *sim.World) sim.Shell {
		shell = &simulated{w: w, now: sim.Begin()}
		return shell
	})
	if r.Violation != nil {
		for _, line := range r.Log[max(len(r.Log)-200, 0):] {
			t.Log(line)
		}
		t.Fatal(r.Violation)
	}
	t.Logf("%.0f pods, %d times empty", pods[len(pods)-1], len(pods))
	for _, s := range []*soaked{&entries, &saved, &routines, &files, &heap} {
		slope, first := s.slope(pods)
		rise := slope * (pods[len(pods)-1] - pods[0])
		t.Logf("%s: %.0f at first, %.0f in the end, slope %.3g a pod", s.what, first, s.of[len(s.of)-1], slope)
		if rise > s.more {
			t.Errorf("%s grow by %.0f in all, %.0f at first", s.what, rise, first)
		}
	}
}

// leastRests tell a slope.
const leastRests = 24

func (s *soaked) add(n int) { s.of = append(s.of, float64(n)) }

func (s *soaked) now() string { return fmt.Sprintf("%.0f %s", s.of[len(s.of)-1], s.what) }

// slope is the median of the slopes between any two of at most 200 rests (Theil, Sen), without the first fifth, in
// which caches fill; first is what was there then.
func (s *soaked) slope(x []float64) (slope, first float64) {
	from := len(x) / 5
	step := max((len(x)-from)/200, 1)
	var all []float64
	for i := from; i < len(x); i += step {
		for j := i + step; j < len(x); j += step {
			all = append(all, (s.of[j]-s.of[i])/(x[j]-x[i]))
		}
	}
	slices.Sort(all)
	return all[len(all)/2], s.of[from]
}

func TestSlope(t *testing.T) {
	var x, flat, leaks []float64
	for i := range 40 {
		x, flat, leaks = append(x, float64(10*i)), append(flat, 5+float64(i%3)), append(leaks, 7+float64(i/2))
	}
	if slope, first := (&soaked{of: flat}).slope(x); math.Abs(slope) > 0.005 || first != 7 {
		t.Errorf("flat: %v from %v on", slope, first)
	}
	if slope, _ := (&soaked{of: leaks}).slope(x); math.Abs(slope-0.05) > 0.005 {
		t.Errorf("one in twenty: %v", slope)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// entriesOf a value are those of all maps and slices that are reached from it, but for its log.
func entriesOf(v any) int {
	seen := map[uintptr]bool{}
	n := 0
	todo := []reflect.Value{reflect.ValueOf(v)}
	for len(todo) > 0 {
		v := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		switch v.Kind() {
		case reflect.Pointer:
			if v.IsNil() || seen[v.Pointer()] || v.Type() == reflect.TypeFor[*slog.Logger]() {
				continue
			}
			seen[v.Pointer()] = true
			todo = append(todo, v.Elem())
		case reflect.Interface:
			if !v.IsNil() {
				todo = append(todo, v.Elem())
			}
		case reflect.Struct:
			for i := range v.NumField() {
				todo = append(todo, v.Field(i))
			}
		case reflect.Array, reflect.Slice:
			if v.Kind() == reflect.Slice {
				n += v.Len()
			}
			for i := range v.Len() {
				todo = append(todo, v.Index(i))
			}
		case reflect.Map:
			n += v.Len()
			for at := v.MapRange(); at.Next(); {
				todo = append(todo, at.Key(), at.Value())
			}
		default:
		}
	}
	return n
}

func TestEntriesOf(t *testing.T) {
	type deep struct {
		list  []string
		names map[string]*deep
		self  *deep
	}
	d := &deep{list: []string{"a", "b"}, names: map[string]*deep{"x": {list: []string{"c"}}}}
	d.self = d
	if got := entriesOf(d); got != 4 {
		t.Errorf("%d entries", got)
	}
}
