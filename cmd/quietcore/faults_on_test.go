//go:build quietcore_faults

package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/quietcore/quietcore/internal/cli"
)

// A daemon that is to fail at a point is gone there as by kill -9: no
// answer, no deferred function, no last save.
func TestFailAtKillsTheDaemonAtItsPoint(t *testing.T) {
	p := newPlace(t, "")
	socket := filepath.Join(p.dir, "test.sock")
	var errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Args = []string{"quietcore", "run", "--config", p.config, "--test-socket", socket, "--fail-at",
		"event.handed:2"}
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context,
		string, string) (net.Conn, error) {
		return net.Dial("unix", socket)
	}}}
	label := func() error {
		resp, err := client.Post("http://daemon/event", "application/json",
			strings.NewReader(`{"nodeLabels":{"x":"y"}}`))
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var err error
	waitUntil(t, "the daemon has ended", func() bool {
		_ = label() // until it listens, and after the second event, it does not answer
		select {
		case err = <-ended:
			return true
		default:
			return false
		}
	})
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v, want a kill\n%s", err, &errs)
	}
	if err := label(); err == nil {
		t.Error("it still answers")
	}
}

func TestFailAtIsForTests(t *testing.T) {
	p := newPlace(t, "")
	for want, args := range map[string][]string{
		"--fail-at is for tests":      {"--fail-at", "event.taken"},
		"--test-late is for tests":    {"--test-late", "1s"},
		`there is no point "nowhere"`: {"--test-socket", filepath.Join(p.dir, "t.sock"), "--fail-at", "nowhere"},
	} {
		code, _, errs := call(append([]string{"run", "--config", p.config}, args...)...)
		if code != cli.Wrong || !strings.Contains(errs, want) {
			t.Errorf("%v: exit %d, %s", args, code, errs)
		}
	}
}
