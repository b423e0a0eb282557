// Command sleeper is a container's process for measurements: as many threads as
// it is asked for, all asleep. It is small because a guest runs hundreds of it.
package main

import (
	"fmt"
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
	sleep()
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
