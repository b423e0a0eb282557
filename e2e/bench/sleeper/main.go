// Command sleeper is a container's process for measurements: as many threads as
// it is asked for, all asleep, or with "work" before the number all but one, which touches a
// few fresh pages a second once its standard input ends. It is small because a guest runs hundreds of it.
package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"

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

// work lets the kernel count time and page faults.
func work() {
	const pages = 8
	size := pages * os.Getpagesize()
	for {
		fresh, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			fmt.Fprintln(os.Stderr, "sleeper:", err)
			os.Exit(1)
		}
		for i := 0; i < size; i += size / pages {
			fresh[i] = 1
		}
		_ = unix.Munmap(fresh) // what stays mapped is the process's own loss
		_, _ = unix.Poll(nil, 1000)
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
