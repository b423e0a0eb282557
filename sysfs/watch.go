package sysfs

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// pollEvery finds what no event reported. A cpuset emptied by an offline CPU is to be
// repaired within a second, and the poll is one small file.
const pollEvery = 500 * time.Millisecond

// Watch calls onChange whenever CPUs go on or off, until ctx ends. root is the
// directory that stands for /sys. It listens to the kernel's events and polls
// the list of online CPUs as well: events can be lost, and a container without
// the right to listen has none. The error, which says why there are no events,
// comes at once through onError and is for information; polling goes on.
func Watch(ctx context.Context, root string, onChange func(), onError func(error)) {
	events, err := listenCPUEvents(ctx)
	if err != nil {
		onError(err)
	}
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	watch(ctx, onlineFile(root), events, ticker.C, onChange)
}

// onlineFile reads the text of the list of online CPUs; "" where it cannot.
func onlineFile(root string) func() string {
	name := filepath.Join(root, cpuDir, "online")
	return func() string {
		text, err := os.ReadFile(name)
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(text))
	}
}

// watch calls onChange once for an event, and for a poll that finds another
// list than the last look did. A nil or closed channel of events leaves polling.
func watch(ctx context.Context, online func() string, events <-chan struct{}, poll <-chan time.Time, onChange func()) {
	last := online()
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-events:
			if !open {
				events = nil
				continue
			}
			last = online()
			onChange()
		case <-poll:
			if now := online(); now != "" && now != last {
				last = now
				onChange()
			}
		}
	}
}

// parseUevent reports whether a kernel event says that a CPU went on, off, came
// or left. The message is a header and then KEY=value, each ended by a zero:
//
//	offline@/devices/system/cpu/cpu3 ACTION=offline DEVPATH=… SUBSYSTEM=cpu SEQNUM=1234
func parseUevent(message []byte) bool {
	cpu, change := false, false
	for field := range bytes.SplitSeq(message, []byte{0}) {
		key, value, ok := bytes.Cut(field, []byte("="))
		if !ok {
			continue
		}
		switch string(key) {
		case "SUBSYSTEM":
			cpu = string(value) == "cpu"
		case "ACTION":
			switch string(value) {
			case "online", "offline", "add", "remove":
				change = true
			}
		}
	}
	return cpu && change
}
