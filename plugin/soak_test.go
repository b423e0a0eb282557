package plugin

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/soak"
	sim "github.com/quietcore/quietcore/internal/world"
)

var (
	soakHours = flag.Float64("soak.hours", 0, "how long pods come and go at least")
	soakPods  = flag.Int("soak.pods", 300, "how many pods come and go at least")
	soakSeed  = flag.Uint64("soak.seed", 0, "of the long life; 0: a new one")
)

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
	entries, saved := soak.Series{What: "entries", More: 1000}, soak.Series{What: "bytes of state", More: 64}
	routines, files := soak.Series{What: "goroutines", More: 2}, soak.Series{What: "descriptors", More: 2}
	heap := soak.Series{What: "bytes in use", More: 1 << 20}
	begun, told := time.Now(), time.Now()
	cfg.Rest = func(r sim.Rest) bool {
		pods = append(pods, float64(r.Pods))
		entries.Add(float64(entriesOf(shell.life.core)))
		saved.Add(float64(r.Saved))
		routines.Add(float64(runtime.NumGoroutine()))
		files.Add(float64(descriptors(t)))
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		heap.Add(float64(m.HeapAlloc))
		if time.Since(told) > time.Minute {
			told = time.Now()
			fmt.Printf("%d pods after %s: %s, %s, %s\n", r.Pods, time.Since(begun).Round(time.Second), &entries,
				&saved, &heap)
		}
		return r.Pods < *soakPods || time.Since(begun).Hours() < *soakHours || len(pods) < soak.Least
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
	for _, s := range []*soak.Series{&entries, &saved, &routines, &files, &heap} {
		trend, err := s.Judge(pods)
		if trend != nil {
			t.Logf("%s: %s", s.What, trend)
		}
		if err != nil {
			t.Error(err)
		}
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
