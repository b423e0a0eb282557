package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/quietcore/quietcore/e2e/wire"
)

const defaultTimeout = 5 * time.Minute

type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once the program was waited for
}

func timeout(req *wire.Request) (context.Context, context.CancelFunc) {
	d := time.Duration(req.TimeoutMillis) * time.Millisecond
	if d <= 0 {
		d = defaultTimeout
	}
	return context.WithTimeout(context.Background(), d)
}

func execute(req *wire.Request) (*wire.Response, error) {
	if len(req.Argv) == 0 {
		return nil, errors.New("exec without argv")
	}
	ctx, cancel := timeout(req)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, req.Argv[0], req.Argv[1:]...)
	cmd.Env = append(os.Environ(), req.Env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(req.Stdin), &stdout, &stderr
	// A child that keeps the pipe open must not hold the answer back for ever; on a
	// busy host the pipe itself has taken over a second to be read to its end.
	cmd.WaitDelay = 20 * time.Second
	err := cmd.Run()
	resp := &wire.Response{Stdout: stdout.Bytes(), Stderr: stderr.Bytes()}
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		resp.Code, err = exit.ExitCode(), nil
	}
	return resp, err
}

// LogPath is where a supervised program's output goes, all its lives appended.
func logPath(name string) string { return "/var/log/" + name + ".log" }

func (a *agent) start(req *wire.Request) (*wire.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.processes[req.Name]; p != nil && p.alive() {
		return nil, fmt.Errorf("start %s: it already runs as process %d", req.Name, p.cmd.Process.Pid)
	}
	log, err := os.OpenFile(logPath(req.Name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(req.Argv[0], req.Argv[1:]...)
	cmd.Env = append(os.Environ(), req.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", req.Name, err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	a.processes[req.Name] = p
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	return &wire.Response{PID: cmd.Process.Pid, Running: true}, nil
}

func (p *process) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (a *agent) find(name string) *process {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.processes[name]
}

// signal returns when the program is gone; signalling one that is gone already
// is no error, so that cleaning up is idempotent.
func (a *agent) signal(req *wire.Request) (*wire.Response, error) {
	p := a.find(req.Name)
	if p == nil || !p.alive() {
		return &wire.Response{}, nil
	}
	ctx, cancel := timeout(req)
	defer cancel()
	if err := p.cmd.Process.Signal(syscall.Signal(req.Signal)); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return nil, err
	}
	select {
	case <-p.done:
		return &wire.Response{PID: p.cmd.Process.Pid, Code: p.cmd.ProcessState.ExitCode()}, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("signal %d to %s (process %d): it still runs after %d ms",
			req.Signal, req.Name, p.cmd.Process.Pid, req.TimeoutMillis)
	}
}

func (a *agent) process(req *wire.Request) (*wire.Response, error) {
	p := a.find(req.Name)
	if p == nil {
		return &wire.Response{}, nil
	}
	resp := &wire.Response{PID: p.cmd.Process.Pid, Running: p.alive()}
	if !resp.Running {
		resp.Code = p.cmd.ProcessState.ExitCode()
	}
	return resp, nil
}
