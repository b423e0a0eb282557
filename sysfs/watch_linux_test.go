package sysfs

import (
	"errors"
	"os"
	"testing"

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
