package machine

import (
	"context"
	"fmt"
	"io"
	"net"
)

// Shell connects in and out to the guest's serial console. It returns when in
// ends, the context ends, or the guest does.
func (m *Machine) Shell(ctx context.Context, in io.Reader, out io.Writer) error {
	conn, err := net.Dial("unix", m.ConsoleSocket())
	if err != nil {
		return fmt.Errorf("console: %w", err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "\n"); err != nil { // askfirst wants Enter
		return fmt.Errorf("console: %w", err)
	}
	done := make(chan struct{}, 2)
	go func() {
		_, _ = io.Copy(conn, in)
		done <- struct{}{}
	}()
	go func() {
		_, _ = io.Copy(out, conn)
		done <- struct{}{}
	}()
	select {
	case <-done:
	case <-ctx.Done():
	case <-m.exited:
	}
	return nil
}
