package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Loads of the interference proof. They enter a container's cgroup themselves, so
// that nothing of them ever ran elsewhere.

func enter(cgroup string) error {
	return os.WriteFile(filepath.Join(cgroupRoot, cgroup, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0o644)
}

// areaPages are given back at once: each time interrupts the other CPUs.
const areaPages = 1024

// turnLength is how often a load looks at the clock. A turn of work has to be longer
// than what the scheduler of the host gives a waking task before it runs others.
const turnLength = 500 * time.Millisecond

// area is memory of which each page that is touched is a page fault.
type area struct {
	memory        []byte
	page, touched int
}

func newArea() (*area, error) {
	a := &area{page: os.Getpagesize()}
	var err error
	if a.memory, err = unix.Mmap(-1, 0, areaPages*a.page, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_ANON|unix.MAP_PRIVATE); err != nil {
		return nil, err
	}
	return a, unix.Madvise(a.memory, unix.MADV_NOHUGEPAGE)
}

func (a *area) touch(n int) error {
	for range n {
		i := a.touched % areaPages
		a.touched++
		if i == 0 {
			if err := unix.Madvise(a.memory, unix.MADV_DONTNEED); err != nil {
				return err
			}
		}
		a.memory[i*a.page] = 1
	}
	return nil
}

// fault touches pages that the kernel has to bring, so many a second that it is
// busy for the given share of a CPU while it is undisturbed. The work is fixed:
// when it becomes slower, it takes more CPU.
func fault(ctx context.Context, cgroup, duty string) error {
	share, err := strconv.ParseFloat(duty, 64)
	if err != nil || share <= 0 || share > 1 {
		return fmt.Errorf("duty %q: want a share of a CPU", duty)
	}
	if err := enter(cgroup); err != nil {
		return err
	}
	runtime.GOMAXPROCS(1)
	runtime.LockOSThread()
	a, err := newArea()
	if err != nil {
		return err
	}
	// How long a page takes here, undisturbed: the best of a few tries.
	best := time.Hour
	for range 10 {
		began := time.Now()
		if err := a.touch(areaPages); err != nil {
			return err
		}
		best = min(best, time.Since(began)/areaPages)
	}
	fmt.Fprintf(os.Stderr, "a page takes %v\n", best)
	pages := max(int(share*float64(turnLength)/float64(best)), 1)
	for next := time.Now(); ctx.Err() == nil; {
		if err := a.touch(pages); err != nil {
			return err
		}
		if next = next.Add(turnLength); time.Until(next) < -turnLength {
			next = time.Now() // what is lost is lost
		}
		time.Sleep(time.Until(next))
	}
	return nil
}

// workPerPage is how many turns of its loop spin does between two pages. A page's
// fault stands in for instructions; without any it would be busy and do nothing.
const workPerPage = 1 << 18

// spin keeps so many threads busy, for a while and then not for a while: "3 8s 8s". Without a
// second time it never rests; a third says how far in that it begins: "3 8s 8s 8s" rests first.
func spin(ctx context.Context, cgroup, how string) error {
	words := strings.Fields(how)
	if len(words) < 2 || len(words) > 4 {
		return fmt.Errorf("load %q: want THREADS ON [OFF [FROM]]", how)
	}
	threads, err := strconv.Atoi(words[0])
	if err != nil {
		return err
	}
	var times [3]time.Duration
	for i, word := range words[1:] {
		if times[i], err = time.ParseDuration(word); err != nil {
			return err
		}
	}
	on, off := times[0], times[1]
	if err := enter(cgroup); err != nil {
		return err
	}
	runtime.GOMAXPROCS(threads + 1)
	began := time.Now().Add(-times[2])
	failed := make(chan error, threads)
	for range threads {
		a, err := newArea()
		if err != nil {
			return err
		}
		go func() {
			runtime.LockOSThread()
			for n := uint64(1); ; n++ {
				if n%workPerPage != 0 {
					continue
				}
				if err := a.touch(1); err != nil {
					failed <- err
					return
				}
				if since := time.Since(began) % (on + off); since >= on {
					time.Sleep(on + off - since)
				}
			}
		}()
	}
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}
