package cgroup

import "testing"

func TestThreadsAreCountedWhereTheControllerIs(t *testing.T) {
	for v1, want := range map[bool]string{false: "/sys/fs/cgroup", true: "/sys/fs/cgroup/pids"} {
		if got := ThreadHierarchy("/sys/fs/cgroup", v1); got != want {
			t.Errorf("v1 %t: threads are counted in %s, want %s", v1, got, want)
		}
	}
}
