package machine

import (
	"context"
	"fmt"
	"strings"

	"github.com/quietcore/quietcore/e2e/wire"
)

// verify compares what the guest's kernel reports with the grid that was asked
// for. QEMU rounds cache sharing to powers of two, so an odd grid may come out
// with wrong L3 domains: better no answer than one from another machine.
func (m *Machine) verify(ctx context.Context) error {
	g := m.Grid
	type check struct{ path, want, what string }
	var checks []check
	perL3 := g.CoresPerL3 * g.ThreadsPerCore
	for cpu := range m.present {
		dir := fmt.Sprintf("/sys/devices/system/cpu/cpu%d/", cpu)
		socket := cpu / (g.NodesPerSocket * g.cpusPerNode())
		checks = append(checks,
			check{dir + "topology/thread_siblings_list", blockOf(cpu, g.ThreadsPerCore, m.present), "siblings"},
			check{dir + "cache/index3/shared_cpu_list", blockOf(cpu, perL3, m.present), "L3 domain"},
			check{dir + "topology/physical_package_id", fmt.Sprint(socket), "socket"})
	}
	for n := range g.nodes() {
		checks = append(checks, check{fmt.Sprintf("/sys/devices/system/node/node%d/cpulist", n),
			blockOf(n*g.cpusPerNode(), g.cpusPerNode(), m.present), "NUMA node"})
	}
	actions := make([]wire.FileAction, len(checks))
	for i, c := range checks {
		actions[i] = wire.FileAction{Do: wire.FileRead, Path: c.path, Optional: true}
	}
	got, err := m.Files(ctx, actions...)
	if err != nil {
		return fmt.Errorf("verify the guest's topology: %w", err)
	}
	for i, c := range checks {
		if have := strings.TrimSpace(string(got[i].Data)); have != c.want {
			return NotRealisable{fmt.Sprintf("QEMU makes another machine of %s: %s (%s) is %q, want %q", g.Key(),
				c.path, c.what, have, c.want)}
		}
	}
	return nil
}

// blockOf is the aligned block of size CPUs around cpu, in the kernel's notation, without those that are not present.
func blockOf(cpu, size, present int) string {
	first := cpu / size * size
	last := min(first+size, present) - 1
	switch {
	case last < first:
		return ""
	case last == first:
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d-%d", first, last)
}
