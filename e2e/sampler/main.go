// Command sampler runs in a guest and watches what containers really do there,
// since the host's look at a guest is too slow for windows of milliseconds.
//
//	sampler window             on which CPUs the busy threads run, until SIGTERM
//	sampler picture            the effective CPUs of every cgroup of kubelet's
//	sampler watch DIR...       the effective CPUs of these cgroups, a line whenever they change
//	sampler spread             pins the busy threads, each onto a CPU that it may use
//	sampler hotplug FILE       switches CPUs and times the repair
//	sampler refuse             an NRI plugin that refuses containers by annotation
//	sampler starve PID         leaves a process no free file descriptor, and says what its limit was
//	sampler feed PID LIMIT     gives it that many
//	sampler held PID           how many descriptors and entries of BPF maps a process has
//	sampler get URL            what an HTTP server of the guest answers
//	sampler fault CGROUP DUTY  a load: page faults at a fixed rate
//	sampler spin CGROUP LOAD   a load: "THREADS ON [OFF]" busy threads, on and off
//
// Invariant: it never changes a cgroup, it only enters one as a load; what is
// watched is Quietcore's doing.
// Results go to standard output as JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sampler:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("say window, picture, watch, spread, hotplug, refuse, starve, feed, held, get, fault or spin")
	}
	argument := ""
	if len(args) > 1 {
		argument = args[1]
	}
	var result any
	var err error
	switch args[0] {
	case "window":
		result, err = watchWindow(ctx, cgroupRoot)
	case "picture":
		result, err = takePicture(cgroupRoot)
	case "watch":
		return watch(ctx, args[1:], out)
	case "spread":
		result, err = spread(cgroupRoot)
	case "hotplug":
		result, err = switchAndTime(ctx, argument)
	case "refuse":
		return refuse(ctx)
	case "starve":
		result, err = starve(argument)
	case "feed":
		if len(args) != 3 {
			return errors.New("feed wants a process and a limit")
		}
		return feed(argument, args[2])
	case "held":
		result, err = held("/proc/" + argument)
	case "get":
		return get(ctx, argument, out)
	case "fault", "spin":
		if len(args) != 3 {
			return fmt.Errorf("%s wants a cgroup and a load", args[0])
		}
		if args[0] == "spin" {
			return spin(ctx, argument, args[2])
		}
		return fault(ctx, argument, args[2])
	default:
		err = fmt.Errorf("there is no %q", args[0])
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(result)
}

func get(ctx context.Context, url string, out io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	_, err = io.Copy(out, resp.Body)
	return err
}
