package sysfs

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// kernelGroup is the multicast group that the kernel itself sends to; udev's is 2.
const kernelGroup = 1

// listenCPUEvents opens the kernel's event socket. The channel has room for one event: several at
// once are coalesced.
func listenCPUEvents(ctx context.Context) (<-chan struct{}, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("listen for CPU events: open the kernel's event socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernelGroup}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("listen for CPU events: join the kernel's event group: %w", err)
	}
	socket := os.NewFile(uintptr(fd), "kobject-uevent")
	events := make(chan struct{}, 1)
	stop := context.AfterFunc(ctx, func() { socket.Close() })
	go func() {
		defer close(events)
		defer stop()
		defer socket.Close()
		receive(socket.Read, events)
	}()
	return events, nil
}

// receive forwards CPU events until reading ends. ENOBUFS means that events were lost, perhaps one
// about a CPU.
func receive(read func([]byte) (int, error), events chan<- struct{}) {
	message := make([]byte, 64<<10) // the kernel's own bound of one event is 2 KiB
	for {
		n, err := read(message)
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
		if err == nil && !parseUevent(message[:n]) {
			continue
		}
		select {
		case events <- struct{}{}:
		default:
		}
	}
}
