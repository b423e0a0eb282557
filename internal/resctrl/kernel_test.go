package resctrl

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// kernel is resctrl on a tree of files: what the kernel does when one is written. It has the threads of cgroups, too.
type kernel struct {
	Dir
	t       *testing.T
	group   map[int]string // of each thread: ".", "mon_groups/x" or a group's name
	cgroup  map[int]string
	classes int // groups that can be made
	// wrote are the writes, in order; on is called before one, and fails it with an error that is not nil.
	wrote []string
	on    func(name, text string) error
}

// Machines, as files below the folder of resctrl.
var machines = map[string]map[string]string{
	"intel": {"schemata": "    MB:0=100;1=100\n    L3:0=fff;1=fff\n",
		"info/MB/min_bandwidth": "10\n", "info/MB/bandwidth_gran": "10\n", "info/L3/min_cbm_bits": "1\n",
		"info/L3/cbm_mask": "fff\n"},
	// Two bits at least, and the default group keeps off what others have.
	"partitioned": {"schemata": "MB:0=40;1=100\nL3:0=f0;1=5\nL2:0=ff\n", "info/MB/min_bandwidth": "10\n",
		"info/L3/min_cbm_bits": "2\n"},
	"amd": {"schemata": "    MB:0=2048;1=   4;2=2048\n  SMBA:0=2048;1=2048;2=2048\n    L3:0=ffff;1=ffff;2=ffff\n",
		"info/MB/min_bandwidth": "0\n", "info/L3/min_cbm_bits": "0\n"},
	"cdp": {"schemata": "MB:0=100\nL3DATA:0=fffff\nL3CODE:0=ff0\n", "info/MB/min_bandwidth": "20\n",
		"info/L3DATA/min_cbm_bits": "1\n", "info/L3CODE/min_cbm_bits": "1\n"},
	"mba_MBps": {"schemata": "MB:0=4294967295\n", "info/MB/min_bandwidth": "10\n"},
	"mba_MBps, and little": {"schemata": "MB:0=90\n", "info/MB/min_bandwidth": "10\n",
		"mba_MBps_event": "mbm_local_bytes\n"},
	"caches alone": {"schemata": "L3:0=fff\n", "info/L3/min_cbm_bits": "1\n"},
	"not mounted":  {},
	"no number":    {"schemata": "MB:0=many\n", "info/MB/min_bandwidth": "10\n"},
}

func boot(t *testing.T, machine string) *kernel {
	t.Helper()
	k := &kernel{Dir: Dir(t.TempDir()), t: t, group: map[int]string{}, cgroup: map[int]string{}, classes: 15}
	for name, text := range machines[machine] {
		k.put(name, text)
	}
	if len(machines[machine]) > 0 {
		k.put("mon_groups/.keep", "")
		k.put("info/last_cmd_status", "ok\n")
		k.show()
	}
	return k
}

func (k *kernel) put(name, text string) {
	k.t.Helper()
	name = k.path(name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		k.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		k.t.Fatal(err)
	}
}

// start threads in a cgroup, and in a group.
func (k *kernel) start(cgroup, group string, threads ...int) {
	for _, id := range threads {
		k.group[id], k.cgroup[id] = group, cgroup
	}
	k.show()
}

func (k *kernel) exit(id int) {
	delete(k.group, id)
	delete(k.cgroup, id)
	k.show()
}

// show the threads in the files tasks. A control group shows those of its monitoring groups, too.
func (k *kernel) show() {
	shown := map[string]string{".": ""}
	for _, dir := range []string{".", "mon_groups"} {
		names, err := k.List(dir)
		if err != nil {
			k.t.Fatal(err)
		}
		for _, name := range names {
			if name != "info" && name != "mon_groups" {
				shown[path.Join(dir, name)] = ""
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(k.group)) {
		shown[k.group[id]] += fmt.Sprintln(id)
		if strings.HasPrefix(k.group[id], "mon_groups/") {
			shown["."] += fmt.Sprintln(id)
		}
	}
	for group, text := range shown {
		k.put(path.Join(group, "tasks"), text)
	}
}

// threadsOf is ThreadsIn of this kernel.
func (k *kernel) threadsOf(cgroup string) (list []int, err error) {
	for id, in := range k.cgroup {
		if in == cgroup || strings.HasPrefix(in, cgroup+"/") {
			list = append(list, id)
		}
	}
	slices.Sort(list)
	return list, nil
}

func (k *kernel) Write(name, text string) error {
	k.wrote = append(k.wrote, name+" "+strings.TrimSpace(text))
	if k.on != nil {
		if err := k.on(name, text); err != nil {
			return err
		}
	}
	group, file := path.Split(name)
	group = path.Clean(group)
	if file != "tasks" {
		if err := k.Dir.Write(name, ""); err != nil {
			return err
		}
		k.put(name, text)
		return nil
	}
	id, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || id <= 0 {
		k.t.Errorf("thread %q is moved to %s", text, group)
		return syscall.EINVAL
	}
	if _, is := k.group[id]; !is {
		return syscall.ESRCH
	}
	k.group[id] = group
	k.show()
	return nil
}

func (k *kernel) Make(name string) error {
	if k.classes == 0 {
		return syscall.ENOSPC
	}
	if err := k.Dir.Make(name); err != nil {
		return err
	}
	k.classes--
	k.put(path.Join(name, "schemata"), "MB:0=100\n")
	k.show()
	return nil
}

// Remove returns the threads of a group.
func (k *kernel) Remove(name string) error {
	if _, err := os.Stat(k.path(name)); err != nil {
		return err
	}
	if k.on != nil {
		if err := k.on(name, ""); err != nil {
			return err
		}
	}
	if name != Group {
		k.t.Errorf("group %s is removed", name)
	}
	for id, group := range k.group {
		if group == name {
			k.group[id] = "."
		}
	}
	k.classes++
	if err := os.RemoveAll(k.path(name)); err != nil {
		return err
	}
	k.show()
	return nil
}

// in lists the threads of a group.
func (k *kernel) in(group string) (list []int) {
	for id, in := range k.group {
		if in == group {
			list = append(list, id)
		}
	}
	slices.Sort(list)
	return list
}

func (k *kernel) isMade() bool {
	_, err := fs.Stat(os.DirFS(string(k.Dir)), Group)
	return err == nil
}
