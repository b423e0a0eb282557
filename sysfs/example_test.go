package sysfs_test

import (
	"fmt"
	"testing/fstest"

	"github.com/quietcore/quietcore/sysfs"
)

// Read takes any fs.FS. On a machine that is sysfs.Open("/sys").
func ExampleRead() {
	tree := fstest.MapFS{}
	for name, text := range map[string]string{
		"devices/system/cpu/online":                             "0-3\n",
		"devices/system/cpu/cpu0/topology/thread_siblings_list": "0,2\n",
		"devices/system/cpu/cpu1/topology/thread_siblings_list": "1,3\n",
		"devices/system/cpu/cpu2/topology/thread_siblings_list": "0,2\n",
		"devices/system/cpu/cpu3/topology/thread_siblings_list": "1,3\n",
	} {
		tree[name] = &fstest.MapFile{Data: []byte(text)}
	}
	machine, warnings, err := sysfs.Read(tree)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, core := range machine.Cores() {
		fmt.Println(core.CPUs)
	}
	fmt.Println("assumptions were made:", len(warnings) > 0)
	// Output:
	// [0 2]
	// [1 3]
	// assumptions were made: true
}
