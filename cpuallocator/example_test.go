package cpuallocator_test

import (
	"fmt"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/topology"
)

// An allocator needs a machine and, for each request, the CPUs that are free. The
// caller keeps track of those.
func Example() {
	machine, err := topology.Grid{NodesPerSocket: 2, CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	allocator := cpuallocator.New(machine)
	free := machine.Online()
	for _, n := range []int{4, 6, 8} {
		result, refused := allocator.Allocate(free, nil, cpuallocator.Request{CPUs: n})
		if refused != nil {
			fmt.Println(refused.Code)
			continue
		}
		free = free.Minus(result.CPUs)
		fmt.Printf("%d CPUs: %s, free: %s\n", n, result.CPUs, free)
	}
	// Output:
	// 4 CPUs: 0-3, free: 4-15
	// 6 CPUs: 8-13, free: 4-7,14-15
	// InsufficientCPUs
}

// SMTIsolate gives one thread of each core and withholds its siblings.
func ExampleAllocator_Allocate_isolate() {
	machine, err := topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	allocator := cpuallocator.New(machine)
	result, refused := allocator.Allocate(machine.Online(), nil,
		cpuallocator.Request{CPUs: 2, SMT: cpuallocator.SMTIsolate})
	if refused != nil {
		fmt.Println(refused)
		return
	}
	fmt.Println("runs on", result.CPUs, "and nothing runs on", result.Withheld)
	// Output:
	// runs on 0,2 and nothing runs on 1,3
}

// Shrink finds the CPUs that an owner keeps when it gives some back.
func ExampleAllocator_Shrink() {
	machine, err := topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	allocator := cpuallocator.New(machine)
	result, refused := allocator.Shrink(cpuset.Of(1, 2, 3), cpuallocator.Request{CPUs: 2})
	if refused != nil {
		fmt.Println(refused)
		return
	}
	fmt.Println(result.CPUs)
	// Output:
	// 2-3
}
