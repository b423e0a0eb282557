package sysfs

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestReceive(t *testing.T) {
	steps := []struct {
		text []byte
		err  error
	}{
		{uevent("ACTION=add", "SUBSYSTEM=block"), nil},
		{uevent("ACTION=offline", "SUBSYSTEM=cpu"), nil},
		{uevent("ACTION=online", "SUBSYSTEM=cpu"), nil}, // no room: the same event
		{nil, os.ErrClosed},
	}
	count := func() int {
		events := make(chan struct{}, 1)
		i := 0
		receive(func(b []byte) (int, error) {
			s := steps[i]
			i++
			return copy(b, s.text), s.err
		}, events)
		if i != len(steps) {
			t.Fatalf("stopped after %d of %d messages", i, len(steps))
		}
		return len(events)
	}
	if got := count(); got != 1 {
		t.Errorf("%d events, want 1", got)
	}
	steps = steps[:1]
	steps = append(steps, struct {
		text []byte
		err  error
	}{nil, unix.ENOBUFS}, struct {
		text []byte
		err  error
	}{nil, errors.New("end")})
	if got := count(); got != 1 {
		t.Errorf("lost events made %d, want 1", got)
	}
}

// TestKernelEventsArrive has the kernel repeat the event of a CPU, as udevadm
// trigger does; no CPU changes. It needs root and a /sys that can be written.
func TestKernelEventsArrive(t *testing.T) {
	trigger := "/sys/devices/system/cpu/cpu0/uevent"
	f, err := os.OpenFile(trigger, os.O_WRONLY, 0)
	if err != nil {
		skip(t, "cannot ask the kernel for an event (needs root and a writable /sys): %v", err)
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	events, err := listenCPUEvents(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("online"); err != nil {
		skip(t, "the kernel makes no event on request: %v", err)
	}
	select {
	case _, open := <-events:
		if !open {
			t.Fatal("listening ended without an event")
		}
	case <-ctx.Done():
		t.Fatal("no event within 30 s of asking for one")
	}
	cancel()
	for range events { // ends once the socket is closed
	}
}

func skip(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("QUIETCORE_CI") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}
