package main

import (
	"fmt"
	"math/rand/v2"
)

// Names of the loads, which are also those of their cgroups and containers.
const (
	victim     = "victim"
	antagonist = "antagonist"
	innocent   = "innocent"
)

// runLoad runs one of the loads; it returns only on an error.
func runLoad(name string, threads int) error {
	const megabyte = 1 << 20
	switch name {
	case victim:
		for w := newWalk(64 * megabyte / 8); ; {
			w.step(1 << 20)
		}
	case antagonist:
		for range threads - 1 {
			go stream(64 * megabyte / 8)
		}
		stream(64 * megabyte / 8)
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
