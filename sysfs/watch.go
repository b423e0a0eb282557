package sysfs

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// pollEvery is the poll interval, for changes without an event. A cpuset emptied by an
// offline CPU must be repaired within a second, and a poll reads one small file.
const pollEvery = 500 * time.Millisecond

// Watch calls onChange whenever CPUs go online or offline, until ctx ends. root is the
// directory that stands for /sys. It listens to the kernel's events and also polls the
// list of online CPUs, since events can be lost, and a container may lack the right to
// listen. onError is called at once with the reason if there are no events; polling
// continues.
func Watch(ctx context.Context, root string, onChange func(), onError func(error)) {
	events, err := listenCPUEvents(ctx)
	if err != nil {
		onError(err)
	}
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	watch(ctx, onlineFile(root), events, ticker.C, onChange)
}

// onlineFile returns a function that reads the list of online CPUs; "" on an error.
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

// watch calls onChange once per event, and for a poll that finds another list than
// before. With a nil or closed channel of events it only polls.
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

// parseUevent reports whether a kernel event is about a CPU that went online or offline, was added
// or removed. The message is a header and then KEY=value, each ended by a zero:
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
