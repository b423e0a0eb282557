package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// hierarchy is where the cgroups of the loads are made: cgroup v2, or v1's of the cpu controller.
type hierarchy struct {
	root string
	v1   bool
}

// hierarchyAt finds it below the directory where cgroups are mounted.
func hierarchyAt(root string) (hierarchy, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(root, &stat); err != nil {
		return hierarchy{}, fmt.Errorf("%s: %w", root, err)
	}
	if stat.Type == unix.CGROUP2_SUPER_MAGIC {
		return hierarchy{root: root}, nil
	}
	for _, name := range []string{"cpu", "cpu,cpuacct"} {
		dir := filepath.Join(root, name)
		if err := unix.Statfs(dir, &stat); err == nil && stat.Type == unix.CGROUP_SUPER_MAGIC {
			return hierarchy{root: dir, v1: true}, nil
		}
	}
	return hierarchy{}, fmt.Errorf("%s is neither cgroup v2 nor has it v1's controller cpu; name the directory where "+
		"one of them is mounted by -root", root)
}

// make makes the parent of the loads' cgroups.
func (h *hierarchy) make(folder string) error {
	if err := os.Mkdir(filepath.Join(h.root, folder), 0o755); err != nil || h.v1 {
		return err
	}
	for _, parent := range []string{h.root, filepath.Join(h.root, folder)} {
		if err := os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+cpu"), 0); err != nil {
			return fmt.Errorf("the cpu controller is needed below %s: %w", parent, err)
		}
	}
	return nil
}

// start starts a command in a cgroup. On v1 it enters after its beginning, before it has done
// anything that counts.
func (h *hierarchy) start(cmd *exec.Cmd, dir string) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if h.v1 {
		if err := cmd.Start(); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0)
	}
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer folder.Close()
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(folder.Fd())
	return cmd.Start()
}

// limit sets a quota in thousandths of a CPU; 0: none.
func (h *hierarchy) limit(dir string, milli int64) error {
	const period, least = 100_000, 1000 // microseconds
	quota := max(milli*period/1000, least)
	file, text := "cpu.max", fmt.Sprintf("%d %d", quota, period)
	switch {
	case h.v1 && milli == 0:
		file, text = "cpu.cfs_quota_us", "-1"
	case h.v1:
		file, text = "cpu.cfs_quota_us", strconv.FormatInt(quota, 10) // the period is 100 ms unless it was changed
	case milli == 0:
		text = fmt.Sprintf("max %d", period)
	}
	return os.WriteFile(filepath.Join(dir, file), []byte(text), 0)
}
