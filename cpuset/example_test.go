package cpuset_test

import (
	"fmt"

	"github.com/quietcore/quietcore/cpuset"
)

// Sets are values: an operation returns a new set and changes neither operand.
func Example() {
	online := cpuset.Range(0, 15)
	exclusive := cpuset.Of(4, 5, 6, 7)
	shared := online.Minus(exclusive)
	fmt.Println(shared, shared.Count())
	fmt.Println(shared.Has(3), shared.Intersects(&exclusive))
	fmt.Println(shared == online.Minus(cpuset.Range(4, 7)))
	// Output:
	// 0-3,8-15 12
	// true false
	// true
}

// Parse reads the kernel's list format, and bounds what it reads.
func ExampleParse() {
	s, err := cpuset.Parse("0-3,8,10-11")
	fmt.Println(s, err)
	_, err = cpuset.Parse("0-2000000000")
	fmt.Println(err)
	// Output:
	// 0-3,8,10-11 <nil>
	// CPU list "0-2000000000": "0-2000000000": CPU numbers end at 8191
}

func ExampleSet_All() {
	s := cpuset.Of(9, 1, 5)
	for cpu := range s.All() {
		fmt.Println(cpu)
	}
	// Output:
	// 1
	// 5
	// 9
}
