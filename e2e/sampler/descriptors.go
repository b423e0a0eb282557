package main

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// starve leaves a process no file descriptor but those that it has open, and returns the soft limit that it had.
func starve(pid string) (uint64, error) {
	number, err := strconv.Atoi(pid)
	if err != nil {
		return 0, err
	}
	entries, err := os.ReadDir("/proc/" + pid + "/fd")
	if err != nil {
		return 0, err
	}
	open := map[string]bool{}
	for _, e := range entries {
		open[e.Name()] = true
	}
	free := 0
	for open[strconv.Itoa(free)] {
		free++
	}
	var was unix.Rlimit
	if err := unix.Prlimit(number, unix.RLIMIT_NOFILE, nil, &was); err != nil {
		return 0, err
	}
	return was.Cur, unix.Prlimit(number, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(free), Max: was.Max}, nil)
}

// feed gives a process this soft limit of file descriptors.
func feed(pid, limit string) error {
	number, err := strconv.Atoi(pid)
	if err != nil {
		return err
	}
	var is unix.Rlimit
	if err := unix.Prlimit(number, unix.RLIMIT_NOFILE, nil, &is); err != nil {
		return err
	}
	if is.Cur, err = strconv.ParseUint(limit, 10, 64); err != nil {
		return fmt.Errorf("the limit: %w", err)
	}
	return unix.Prlimit(number, unix.RLIMIT_NOFILE, &is, nil)
}
