// Package machine makes virtual machines that run a real kernel, a real container
// runtime and the daemon under test, and hands out what one wants to do in them:
// run programs, read files, make CRI calls, kill the daemon.
//
// A machine is a Debian kernel, an initrd made of a cached base (busybox, runc,
// containerd, one image) and a small overlay for this run (agent, daemon), and
// QEMU's own emulation, so it needs neither KVM nor a disk nor a network:
//
//	m, err := machine.Boot(ctx, machine.Options{Grid: machine.Grid{...}, Cache: ".cache/e2e"})
//	defer m.Close()
//	out, err := m.Exec(ctx, "cat", "/proc/cmdline")
//
// Invariant: everything that is waited for is a condition in the guest (an agent
// that answers, a socket that accepts), never a span of time; the time limits
// only bound how long a broken guest is believed in.
package machine
