package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"
)

// monitorSocket is where QEMU takes commands.
func (m *Machine) monitorSocket() string { return filepath.Join(m.Dir, "monitor.sock") }

// Present are how many of the grid's CPUs are in the machine: the first ones.
func (m *Machine) Present() int { return m.present }

// Plug puts the next absent CPU into the running machine and returns its number. It is offline, as on every machine
// whose distribution has no rule for it.
func (m *Machine) Plug(ctx context.Context) (int, error) {
	cpu := m.present
	if cpu == m.Grid.CPUs() {
		return 0, errors.New("no CPU is absent")
	}
	g := m.Grid
	core, die := cpu/g.ThreadsPerCore, cpu/g.ThreadsPerCore/g.CoresPerL3
	dies := g.NodesPerSocket * g.L3PerNode
	q, err := m.dialMonitor(ctx)
	if err != nil {
		return 0, err
	}
	defer q.close()
	err = q.run("device_add", map[string]any{
		"driver": "max-x86_64-cpu", "id": fmt.Sprintf("cpu%d", cpu), "socket-id": die / dies, "die-id": die % dies,
		"core-id": core % g.CoresPerL3, "thread-id": cpu % g.ThreadsPerCore,
	})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, socketLimit)
	defer cancel()
	for m.present++; ; { // the kernel hears of it by an interrupt
		_, err := m.ReadFile(ctx, fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", cpu))
		if err == nil || ctx.Err() != nil {
			return cpu, err
		}
	}
}

// Sleep suspends the machine to memory, as closing a lid does, and wakes it after a while.
func (m *Machine) Sleep(ctx context.Context, d time.Duration) error {
	q, err := m.dialMonitor(ctx)
	if err != nil {
		return err
	}
	defer q.close()
	asleep := make(chan error, 1)
	go func() { // answered when the machine has woken
		_, err := m.Exec(ctx, "sh", "-c", "echo mem > /sys/power/state")
		asleep <- err
	}()
	if err := q.await("SUSPEND"); err != nil {
		return fmt.Errorf("the machine does not fall asleep: %w", err)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
	}
	if err := q.run("system_wakeup", map[string]any{}); err != nil {
		return err
	}
	return <-asleep
}

// monitor is a connection to QEMU's own control. It hears the events since it was made.
type monitor struct {
	conn net.Conn
	in   *json.Decoder
	stop func() bool
}

func (m *Machine) dialMonitor(ctx context.Context) (*monitor, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", m.monitorSocket())
	if err != nil {
		return nil, fmt.Errorf("QEMU's monitor: %w", err)
	}
	q := &monitor{conn: conn, in: json.NewDecoder(conn), stop: context.AfterFunc(ctx, func() { conn.Close() })}
	if err := q.run("qmp_capabilities", map[string]any{}); err != nil {
		q.close()
		return nil, err
	}
	return q, nil
}

func (q *monitor) close() {
	q.stop()
	q.conn.Close()
}

// run has QEMU do something.
func (q *monitor) run(name string, arguments map[string]any) error {
	err := json.NewEncoder(q.conn).Encode(map[string]any{"execute": name, "arguments": arguments})
	if err == nil {
		err = q.until(func(a *said) bool { return a.Return != nil })
	}
	if err != nil {
		err = fmt.Errorf("QEMU's monitor: %s: %w", name, err)
	}
	return err
}

// await waits for an event.
func (q *monitor) await(event string) error {
	return q.until(func(a *said) bool { return a.Event == event })
}

// said is a message of QEMU's: a greeting, an answer or an event.
type said struct {
	Return json.RawMessage
	Event  string
	Error  *struct{ Desc string }
}

func (q *monitor) until(done func(*said) bool) error {
	for {
		var a said
		if err := q.in.Decode(&a); err != nil {
			return err
		}
		if a.Error != nil {
			return errors.New(a.Error.Desc)
		}
		if done(&a) {
			return nil
		}
	}
}
