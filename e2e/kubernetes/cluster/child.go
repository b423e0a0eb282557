package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// child is a process of this host that ends with the program.
type child struct {
	name   string
	argv   []string
	log    string
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // why it ended; read after exited
}

func newChild(dir, name string, argv ...string) *child {
	return &child{name: name, argv: argv, log: filepath.Join(dir, name+".log")}
}

// start dedicates a thread to the process, since the kernel kills it when the thread
// that started it ends: it never outlives a killed program.
func (c *child) start() error {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	cmd := exec.Command(c.argv[0], c.argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	exited, started := make(chan struct{}), make(chan error)
	go func() {
		runtime.LockOSThread()
		defer close(exited)
		defer log.Close()
		err := cmd.Start()
		started <- err
		if err == nil {
			c.err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	c.cmd, c.exited = cmd, exited
	return nil
}

// stop terminates the process, and kills it after the limit. One that never ran is no
// error.
func (c *child) stop(limit time.Duration) error {
	if c.cmd == nil {
		return nil
	}
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", c.name, err)
	}
	select {
	case <-c.exited:
	case <-time.After(limit):
		if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("kill %s: %w", c.name, err)
		}
		<-c.exited
	}
	return nil
}

// tail is the end of its output.
func (c *child) tail() string {
	text, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("--- %s\n%s\n", c.name, lastOf(text))
}

// ready polls until ask succeeds, the process has ended or the context has.
func (c *child) ready(ctx context.Context, ask func(context.Context) error) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-c.exited:
			return fmt.Errorf("%s has ended: %w\n%s", c.name, c.err, c.tail())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w (%w)\n%s", c.name, err, ctx.Err(), c.tail())
		case <-tick.C:
		}
	}
}
