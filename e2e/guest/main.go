// Command guest is the agent that a test machine runs as its only service. It
// does what the host asks over a virtio-serial port (package wire) and decides
// nothing itself, so that every test is readable on the host.
//
// Invariant: one request is answered exactly once, also when it fails; a program
// started by name is waited for, so its end is always known.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/e2e/tracepoints"
	"github.com/quietcore/quietcore/e2e/wire"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "forward" {
		fmt.Fprintln(os.Stderr, "guest:", forward(os.Args[2:]))
		os.Exit(1)
	}
	port, err := openPort()
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		os.Exit(1)
	}
	runc, err := sealRunc()
	if err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		os.Exit(1)
	}
	defer runc.Close()
	if err := tracepoints.Hold(); err != nil {
		fmt.Fprintln(os.Stderr, "guest: it may hang when context switches are counted:", err)
	}
	a := &agent{processes: map[string]*process{}, conns: newConns(), bus: &bus{}}
	fmt.Fprintln(os.Stderr, "guest:", a.serve(port))
	os.Exit(1)
}

// openPort finds the port by its name: the number depends on the order in which
// the buses were probed.
func openPort() (*os.File, error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		data, err := os.ReadFile(n)
		if err == nil && strings.TrimSpace(string(data)) == wire.PortName {
			return os.OpenFile("/dev/"+filepath.Base(filepath.Dir(n)), os.O_RDWR, 0)
		}
	}
	return nil, fmt.Errorf("no virtio port is named %q among %v", wire.PortName, names)
}

type agent struct {
	conns *conns
	bus   *bus

	mu        sync.Mutex
	processes map[string]*process
}

func (a *agent) serve(port io.ReadWriter) error {
	var out sync.Mutex
	in := bufio.NewReaderSize(port, 1<<16)
	for {
		var req wire.Request
		if err := wire.Read(in, &req); err != nil {
			return err
		}
		go func() {
			resp := a.answer(&req)
			resp.ID = req.ID
			out.Lock()
			defer out.Unlock()
			if err := wire.Write(port, resp); err != nil {
				fmt.Fprintln(os.Stderr, "guest: answer:", err)
			}
		}()
	}
}

func (a *agent) answer(req *wire.Request) (resp *wire.Response) {
	defer func() {
		if p := recover(); p != nil {
			resp = &wire.Response{Error: fmt.Sprintf("the agent panicked in %s: %v", req.Op, p)}
		}
	}()
	var err error
	switch req.Op {
	case wire.OpHello:
		resp, err = hello()
	case wire.OpExec:
		resp, err = execute(req)
	case wire.OpStart:
		resp, err = a.start(req)
	case wire.OpSignal:
		resp, err = a.signal(req)
	case wire.OpProcess:
		resp, err = a.process(req)
	case wire.OpFiles:
		resp, err = files(req.Files)
	case wire.OpGRPC:
		resp, err = a.conns.call(req)
	case wire.OpHTTP:
		resp, err = httpCall(req)
	case wire.OpUnits:
		resp, err = a.bus.units(req)
	case wire.OpDial:
		resp, err = waitSocket(req)
	default:
		err = fmt.Errorf("unknown operation %q", req.Op)
	}
	if resp == nil {
		resp = &wire.Response{}
	}
	if err != nil {
		resp.Error = err.Error()
	}
	return resp
}

// hello counts the machine's CPUs, of which the agent itself may have only a few.
func hello() (*wire.Response, error) {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return nil, err
	}
	online, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return nil, err
	}
	cpus, err := cpuset.Parse(strings.TrimSpace(string(online)))
	if err != nil {
		return nil, err
	}
	return &wire.Response{CPUs: cpus.Count(), Kernel: strings.TrimSpace(string(release))}, nil
}
