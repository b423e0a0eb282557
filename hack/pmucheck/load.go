package main

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
)

// Names of the loads, which are also those of their cgroups and containers.
const (
	victim     = "victim"
	antagonist = "antagonist"
	innocent   = "innocent"
)

const mebibyte = 1 << 20

// sizes are those of the loads in bytes. The victim's memory is well inside of the last cache, and
// the antagonist's streams are far beyond it: what it brings in throws the victim's out, so that
// the victim waits for the memory where it had the cache.
type sizes struct{ walk, stream int }

// sizesFor reads how large the last cache is from a tree of /sys.
func sizesFor(sys fs.FS) sizes {
	s := sizes{walk: 4 * mebibyte, stream: 128 * mebibyte}
	const biggest = 1 << 20 // KiB: what says more is no cache
	text, err := fs.ReadFile(sys, "devices/system/cpu/cpu0/cache/index3/size")
	if kib, parsed := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(string(text)), "K")); err == nil &&
		parsed == nil && kib > 0 && kib <= biggest {
		s.walk = min(s.walk, kib<<10/2)
		s.stream = max(s.stream, 4*kib<<10)
	}
	return s
}

const wordBytes = 8

// runLoad runs one of the loads; it returns only on an error.
func runLoad(name string, threads int) error {
	size := sizesFor(os.DirFS("/sys"))
	switch name {
	case victim:
		for w := newWalk(size.walk / wordBytes); ; {
			w.step(1 << 20)
		}
	case antagonist:
		for range threads - 1 {
			go stream(size.stream / vectors / wordBytes)
		}
		stream(size.stream / vectors / wordBytes)
	case innocent:
		for x := uint64(1); ; x = spin(x, 1<<20) {
		}
	}
	return fmt.Errorf("load %q is not known; there are %s, %s and %s", name, victim, antagonist, innocent)
}

// walk follows pointers through memory in an order that defeats the prefetcher, with a
// little arithmetic at each step: memory latency bounds its speed.
type walk struct {
	next []uint64
	at   uint64
	sum  uint64
}

func newWalk(words int) *walk {
	w := &walk{next: make([]uint64, words)}
	order := rand.New(rand.NewPCG(1, 1)).Perm(words)
	for i, from := range order {
		w.next[from] = uint64(order[(i+1)%words])
	}
	return w
}

func (w *walk) step(n int) {
	for range n {
		w.at = w.next[w.at]
		w.sum = w.sum*31 + w.at
	}
}

// vectors are those of a stream.
const vectors = 3

// stream adds vectors that exceed any cache, like the triad of STREAM: it uses as much
// memory bandwidth as one thread can.
func stream(words int) {
	a, b, c := make([]float64, words), make([]float64, words), make([]float64, words)
	for {
		triad(a, b, c)
		a, b, c = b, c, a
	}
}

func triad(a, b, c []float64) {
	for i := range a {
		a[i] = b[i] + 0.5*c[i] + 1
	}
}

// spin computes without touching memory.
func spin(x uint64, n int) uint64 {
	for range n {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}
