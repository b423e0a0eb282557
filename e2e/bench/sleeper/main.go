// Command sleeper is a container's process for measurements: as many threads as
// it is asked for, all asleep, or with "work" before the number all but one, which touches a
// fresh page every few seconds once its standard input ends. It is small because a guest runs hundreds of it.
package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	want, err := strconv.Atoi(os.Args[len(os.Args)-1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "usage: sleeper THREADS")
		os.Exit(2)
	}
	for have := threads(); have < want; have = threads() {
		started := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(started)
			sleep()
		}()
		<-started
	}
	fmt.Println("ready")
	if os.Args[1] == "work" {
		_, _ = io.Copy(io.Discard, os.Stdin) // however it ends
		work()
	}
	sleep()
}

// pace of work.
const pace = 5 * time.Second

// work lets the kernel count time and a page fault, not all processes at the same moment. It is as little as that: a
// thousand of them share an emulated machine, and with more they would have all of it. It waits by the Go runtime's
// timer: after a system call that blocks, the runtime's own thread looks every 20 µs for a while.
func work() {
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		fmt.Fprintln(os.Stderr, "sleeper:", err)
		os.Exit(1)
	}
	<-time.After(time.Duration(os.Getpid()) * time.Millisecond % pace)
	for range time.Tick(pace) {
		if err := unix.Madvise(page, unix.MADV_DONTNEED); err != nil {
			fmt.Fprintln(os.Stderr, "sleeper:", err)
			os.Exit(1)
		}
		page[0] = 1
	}
}

// threads counts those that the Go runtime has made for itself as well.
func threads() int {
	list, err := os.ReadDir("/proc/self/task")
	if err != nil {
		fmt.Fprintln(os.Stderr, "sleeper:", err)
		os.Exit(1)
	}
	return len(list)
}

func sleep() {
	for {
		_, _ = unix.Poll(nil, -1) // until a signal
	}
}
