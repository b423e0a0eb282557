package topology_test

import (
	"fmt"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

// A Grid builds a regular machine, for tests and simulations.
func ExampleGrid() {
	machine, err := topology.Grid{Sockets: 2, CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("CPUs", machine.Online(), "cores", len(machine.Cores()), "NUMA nodes", len(machine.Nodes()))
	fmt.Println("core of CPU 0:", machine.Siblings(cpuset.Of(0)))
	cpu, _ := machine.CPU(5)
	fmt.Println("CPU 5: node", cpu.Node, "socket", cpu.Socket)
	// Output:
	// CPUs 0-15 cores 8 NUMA nodes 2
	// core of CPU 0: 0-1
	// CPU 5: node 0 socket 0
}

// New builds a machine of any shape from its CPUs. Two CPUs share a core, an L3, a
// node or a socket exactly when the numbers are equal.
func ExampleNew() {
	machine, err := topology.New([]topology.CPU{
		{ID: 0, Core: 0}, {ID: 1, Core: 1}, {ID: 2, Core: 0}, {ID: 3, Core: 1},
	}, topology.Options{Isolated: cpuset.Of(3)})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, core := range machine.Cores() {
		fmt.Println(core.CPUs)
	}
	fmt.Println("isolated", machine.Isolated())
	// Output:
	// [0 2]
	// [1 3]
	// isolated 3
}
