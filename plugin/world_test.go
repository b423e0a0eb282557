package plugin

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	sim "github.com/quietcore/quietcore/internal/world"
)

var (
	worldSeed   = flag.Uint64("world.seed", 0, "play this seed alone and show everything that happens")
	worldFrom   = flag.Uint64("world.from", 1, "the first of the world's seeds")
	worldSeeds  = flag.Int("world.seeds", 60, "how many seeds of the world to play")
	worldStep   = flag.Uint64("world.step", 1, "how far apart they are; 2 from an even one: all have claims")
	worldNew    = flag.Int("world.new", 12, "how many seeds that no run has played before")
	worldSteps  = flag.Int("world.steps", 300, "choices in a seed's life")
	worldFaults = flag.String("world.faults", "all", "what goes wrong, with commas")
	worldClaims = flag.Bool("world.claims", true, "in even seeds pods with claims are among those that come")
	worldAll    = flag.Bool("world.plain", false, "every seed has all of these faults, and only writes and saves wait")
	worldTrace  = flag.String("world.trace", "", "play the choices in this file, and show everything that happens")
	worldShort  = flag.Bool("world.shorten", true, "leave out the choices that a failure does not need")
	worldSame   = flag.Int("world.same", 5, "how many seeds of the world to replay")
	worldAgain  = flag.Int("world.again", 2, "how often to replay each, on one processor and on two")
)

// play plays one run.
func play(t *testing.T, cfg sim.Config) *sim.Report {
	t.Helper()
	report := sim.Play(cfg, newSimulated)
	return report
}

func TestDefectsThatTheWorldFound(t *testing.T) {
	for _, d := range defects {
		t.Run(d.name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", "world", d.name+".trace"))
			if err != nil {
				t.Fatal(err)
			}
			trace := sim.ParseTrace(string(text))
			r := play(t, sim.Config{Seed: d.seed, Faults: d.faults, Gates: gatesOf(trace), Trace: trace})
			switch v := r.Violation; {
			case d.open && (v == nil || v.Property != d.breaks):
				t.Errorf("%s (%s) is not seen any more: if it is mended, it is no longer open\n%s", d.name, d.what, r)
			case !d.open && v != nil:
				t.Errorf("%s (%s): %s", d.name, d.what, r)
			}
		})
	}
}

// gatesOf is what waited for the world where a trace was made.
func gatesOf(trace []sim.Choice) sim.Gates {
	return sim.Gates{Reads: slices.ContainsFunc(trace, func(c sim.Choice) bool { return c.Do == string(sim.Read) })}
}

// known says whether a run may have failed by a defect that is still open.
func known(r *sim.Report) bool {
	for _, d := range defects {
		lacks := func(f sim.Fault) bool { return !slices.Contains(r.Config.Faults, f) }
		if d.open && d.breaks == r.Violation.Property && !slices.ContainsFunc(d.faults, lacks) {
			return true
		}
	}
	return false
}

func worldConfig(t *testing.T) sim.Config {
	t.Helper()
	faults, err := sim.ParseFaults(*worldFaults)
	if err != nil {
		t.Fatal(err)
	}
	cfg := sim.Config{Faults: faults, Gates: sim.Gates{Reads: true}, Steps: *worldSteps, Swarm: true}
	if *worldAll {
		cfg.Gates, cfg.Swarm = sim.Gates{}, false
	}
	return cfg
}

// Whatever the order and whatever goes wrong, the promises of the design are kept.
// The same seeds are played every time, and some that are new.
func TestTheWorldKeepsItsPromises(t *testing.T) {
	cfg := worldConfig(t)
	if *worldSeed != 0 || *worldTrace != "" {
		cfg.Seed, cfg.Claims = *worldSeed, *worldClaims && *worldSeed%2 == 0
		if *worldTrace != "" {
			text, err := os.ReadFile(*worldTrace)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Trace, cfg.Swarm = sim.ParseTrace(string(text)), false
			cfg.Gates = gatesOf(cfg.Trace)
		}
		r := play(t, cfg)
		for _, line := range r.Log {
			t.Log(line)
		}
		complain(t, r)
		return
	}
	var seeds []uint64
	for i := range *worldSeeds {
		seeds = append(seeds, *worldFrom+uint64(i)**worldStep)
	}
	first := uint64(time.Now().UnixNano())
	for i := range *worldNew {
		seeds = append(seeds, first+uint64(i))
	}
	if *worldNew > 0 {
		t.Logf("new seeds: %d to %d", first, first+uint64(*worldNew)-1)
	}
	begun, failed, done := time.Now(), map[sim.Property][]uint64{}, 0
	inOrder(seeds, func(seed uint64) *sim.Report {
		cfg := cfg
		cfg.Seed, cfg.Claims = seed, *worldClaims && seed%2 == 0
		return play(t, cfg)
	}, func(r *sim.Report) {
		if v := r.Violation; v != nil {
			failed[v.Property] = append(failed[v.Property], r.Config.Seed)
			fmt.Printf("seed %d: %v\n", r.Config.Seed, v)
			if len(failed[v.Property]) == 1 || !known(r) && !t.Failed() {
				complain(t, r)
			}
		}
		if done++; done%1000 == 0 {
			fmt.Printf("%d of %d seeds after %s\n", done, len(seeds), time.Since(begun).Round(time.Second))
		}
	})
	for _, p := range slices.Sorted(maps.Keys(failed)) {
		seeds := failed[p]
		t.Logf("%s: %d seeds, among them %v", p, len(seeds), seeds[:min(len(seeds), 20)])
	}
}

// inOrder computes one value for each seed, on all processors, and hands the values over in the order of
// the seeds, in the goroutine of the test. It runs ahead of that by a few seeds only.
func inOrder[T any](seeds []uint64, compute func(seed uint64) T, take func(T)) {
	// A run leaves much garbage and keeps little, and so small a heap is collected all the time.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	type turn struct {
		seed   uint64
		result chan T
	}
	workers := runtime.GOMAXPROCS(0)
	todo, ordered := make(chan turn), make(chan turn, 16*workers)
	go func() {
		defer close(ordered)
		defer close(todo)
		for _, seed := range seeds {
			next := turn{seed, make(chan T, 1)}
			ordered <- next
			todo <- next
		}
	}()
	for range workers {
		go func() {
			for next := range todo {
				next.result <- compute(next.seed)
			}
		}()
	}
	for next := range ordered {
		take(<-next.result)
	}
}

// complain reports a failed run with as few choices as show it.
func complain(t *testing.T, r *sim.Report) {
	t.Helper()
	if r.Violation == nil {
		return
	}
	if known(r) {
		t.Logf("seed %d, a defect that is known: %s", r.Config.Seed, r.Violation)
		return
	}
	if *worldShort {
		r = sim.Shorten(r, func(cfg sim.Config) *sim.Report { return play(t, cfg) })
	}
	t.Error(r)
}

// A seed is the same run whenever it is played, and however many processors there are.
func TestASeedIsOneRun(t *testing.T) {
	cfg := worldConfig(t)
	var seeds []uint64
	for i := range *worldSame {
		seeds = append(seeds, *worldFrom+uint64(i))
	}
	digests, replays := map[uint64]string{}, 0
	for _, processors := range []int{1, 2} {
		before := runtime.GOMAXPROCS(processors)
		inOrder(seeds, func(seed uint64) []*sim.Report {
			cfg := cfg
			cfg.Seed, cfg.Claims = seed, *worldClaims && seed%2 == 0
			var runs []*sim.Report
			for range 1 + *worldAgain {
				runs = append(runs, play(t, cfg))
			}
			return runs
		}, func(runs []*sim.Report) {
			first := runs[0]
			for _, again := range runs[1:] {
				if replays++; again.Digest != first.Digest {
					t.Errorf("seed %d on %d processors: %s", first.Config.Seed, processors, parting(first, again))
				}
			}
			if digest, ok := digests[first.Config.Seed]; ok && digest != first.Digest {
				t.Errorf("seed %d was %s on one processor and is %s on two", first.Config.Seed, digest, first.Digest)
			}
			digests[first.Config.Seed] = first.Digest
		})
		runtime.GOMAXPROCS(before)
	}
	t.Logf("%d seeds are the same run in %d replays", len(digests), replays)
}

// parting is where two runs of a seed differ.
func parting(first, again *sim.Report) string {
	at := 0
	for at < min(len(first.Log), len(again.Log)) && first.Log[at] == again.Log[at] {
		at++
	}
	next := func(log []string) string {
		if at == len(log) {
			return "its end"
		}
		return log[at]
	}
	return fmt.Sprintf("after %q came %q and comes %q", first.Log[max(at-5, 0):at], next(first.Log), next(again.Log))
}
