package sysfs

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func uevent(fields ...string) []byte { return []byte(strings.Join(fields, "\x00") + "\x00") }

func TestParseUevent(t *testing.T) {
	for _, c := range []struct {
		name string
		text []byte
		want bool
	}{
		{"offline", uevent("offline@/devices/system/cpu/cpu3", "ACTION=offline", "DEVPATH=/devices/system/cpu/cpu3",
			"SUBSYSTEM=cpu", "SEQNUM=7"), true},
		{"online", uevent("online@/devices/system/cpu/cpu3", "ACTION=online", "SUBSYSTEM=cpu"), true},
		{"hot-plugged", uevent("add@/devices/system/cpu/cpu9", "ACTION=add", "SUBSYSTEM=cpu"), true},
		{"a disk", uevent("add@/devices/virtual/block/loop0", "ACTION=add", "SUBSYSTEM=block"), false},
		{"a path that only looks like it", uevent("add@/devices/system/cpu/x", "ACTION=add", "SUBSYSTEM=cpuid"), false},
		{"frequency", uevent("change@/devices/system/cpu/cpu3", "ACTION=change", "SUBSYSTEM=cpu"), false},
		{"empty", nil, false},
		{"udev's own format", []byte("libudev\x00\xfe\xed\xca\xfe"), false},
	} {
		if got := parseUevent(c.text); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func FuzzParseUevent(f *testing.F) {
	f.Add(uevent("online@/devices/system/cpu/cpu3", "ACTION=online", "SUBSYSTEM=cpu"))
	f.Fuzz(func(t *testing.T, message []byte) {
		if parseUevent(message) && !strings.Contains(string(message), "SUBSYSTEM=cpu") {
			t.Fatalf("%q taken for an event of a CPU", message)
		}
	})
}

// TestWatch drives the loop step by step: its channels have no room, so a send
// that is taken means that the step before is finished.
func TestWatch(t *testing.T) {
	events, poll, looks := make(chan struct{}), make(chan time.Time), make(chan string)
	ctx, cancel := context.WithCancel(t.Context())
	changes := make(chan struct{}, 10)
	done := make(chan struct{})
	go func() {
		watch(ctx, func() string { return <-looks }, events, poll, func() { changes <- struct{}{} })
		close(done)
	}()
	list := "0-3"
	looks <- list
	pollNow := func() { poll <- time.Time{}; looks <- list }
	expect := func(what string, want int) {
		t.Helper()
		poll <- time.Time{}
		got := len(changes)
		looks <- list
		if got != want {
			t.Fatalf("%s: %d changes so far, want %d", what, got, want)
		}
	}
	pollNow()
	expect("nothing happened", 0)
	list = "0-2"
	pollNow()
	expect("a poll found a CPU off", 1)
	list = "0-3"
	events <- struct{}{}
	looks <- list
	expect("an event", 2)
	expect("the poll did not report again", 2)
	list = ""
	pollNow()
	expect("a list that cannot be read is no change", 2)
	list = "0-1"
	close(events)
	pollNow()
	expect("polling goes on when events end", 3)
	cancel()
	<-done
}

func TestWatchEndsAndLeavesNothing(t *testing.T) {
	defer goleak.VerifyNone(t)
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, cpuDir), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		Watch(ctx, root, func() {}, func(err error) { t.Log(err) })
		close(done)
	}()
	cancel()
	<-done
}
