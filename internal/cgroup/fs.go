package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/cpuset"
)

// FS is the Driver and Reader over cgroup files, v2 or v1. It must not write where systemd manages
// the cgroups: systemd restores its own values.
type FS struct {
	v1       bool
	cpusets  root // on v2 the one hierarchy, also used for cpu
	cpu      root
	hasCPU   bool // false where v1 has no cpu hierarchy
	last     atomic.Pointer[parsedSet]
	mu       sync.Mutex
	refused  bool // this kernel refuses to empty a populated cgroup's mask
	refusals int
}

// Open detects which cgroup version is mounted at dir (usually /sys/fs/cgroup).
func Open(dir string) (*FS, error) {
	if _, err := os.Stat(filepath.Join(dir, "cgroup.controllers")); err == nil {
		r, err := openRoot(dir)
		if err != nil {
			return nil, err
		}
		return &FS{cpusets: r, cpu: r, hasCPU: true}, nil
	}
	if _, err := os.Stat(filepath.Join(dir, "cpuset", "cpuset.cpus")); err == nil {
		return openV1(dir)
	}
	return nil,
		fmt.Errorf(
			"cgroup root %s: neither cgroup v2 (cgroup.controllers) nor v1 (cpuset/cpuset.cpus) is mounted there", dir)
}

func openV1(dir string) (*FS, error) {
	cpusets, err := openRoot(filepath.Join(dir, "cpuset"))
	if err != nil {
		return nil, err
	}
	fs := &FS{v1: true, cpusets: cpusets}
	for _, name := range []string{"cpu", "cpu,cpuacct"} {
		if fs.cpu, err = openRoot(filepath.Join(dir, name)); err == nil {
			fs.hasCPU = true
			break
		}
	}
	return fs, nil
}

// V1 reports whether this is cgroup v1, which has no inheritance (Options.Flat).
func (fs *FS) V1() bool { return fs.v1 }

// ClearRefused counts masks that the kernel refused to empty; they hold the widest set instead.
func (fs *FS) ClearRefused() int {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.refusals
}

// Close releases the hierarchies.
func (fs *FS) Close() error {
	err := fs.cpusets.close()
	if fs.v1 && fs.hasCPU {
		err = errors.Join(err, fs.cpu.close())
	}
	return err
}

// Apply writes the values to files.
func (fs *FS) Apply(ctx context.Context, path string, v Values) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("write cgroup %s: %w", path, err)
	}
	if err := fs.applySets(path, v); err != nil {
		return err
	}
	if v.Quota == nil && v.Weight == 0 && v.Idle == nil {
		return nil
	}
	if err := v.idleError(); err != nil {
		return fmt.Errorf("write cgroup %s: %w", path, err)
	}
	if fs.v1 && !fs.hasCPU {
		return &NoControllerError{Path: path, Controller: "cpu", File: "cpu.cfs_quota_us"}
	}
	g, err := fs.cpu.group(path)
	if err != nil {
		return err
	}
	defer g.close()
	if v.Quota != nil {
		if err := fs.writeQuota(g, *v.Quota); err != nil {
			return err
		}
	}
	if err := fs.writeIdle(g, v.Idle); err != nil {
		return err
	}
	return fs.writeWeight(g, v.Weight)
}

func (fs *FS) writeIdle(g group, idle *bool) error {
	if idle == nil {
		return nil
	}
	var missing *NoControllerError
	if fs.v1 {
		return fmt.Errorf("write cgroup %s: %w", g.path, ErrNoIdle)
	}
	text := "0"
	if *idle {
		text = "1"
	}
	err := g.write("cpu.idle", text)
	if errors.As(err, &missing) {
		return fmt.Errorf("write cgroup %s: %w", g.path, ErrNoIdle)
	}
	return err
}

func (fs *FS) applySets(path string, v Values) error {
	if v.CPUs.IsZero() && v.Mems.IsZero() {
		return nil
	}
	g, err := fs.cpusets.group(path)
	if err != nil {
		return err
	}
	defer g.close()
	if err := fs.writeMask(g, "cpuset.cpus", v.CPUs); err != nil {
		return err
	}
	return fs.writeMask(g, "cpuset.mems", v.Mems)
}

func (fs *FS) writeMask(g group, file string, m Mask) error {
	if m.IsZero() {
		return nil
	}
	set := m.Set()
	if set.IsEmpty() {
		return fmt.Errorf("write %s of cgroup %s: %w", file, g.path, ErrEmptySet)
	}
	if fs.v1 {
		return fs.writeV1Set(g, file, set)
	}
	if err := g.write(file, set.String()); err != nil || !m.Inherits() {
		return err
	}
	return fs.clearMask(g, file)
}

// clearMask empties a mask that already is the widest. Once a kernel has refused that for a
// populated cgroup it is not tried again: it would cost a system call for each of hundreds of pods.
func (fs *FS) clearMask(g group, file string) error {
	fs.mu.Lock()
	skip := fs.refused
	if skip {
		fs.refusals++
	}
	fs.mu.Unlock()
	if skip {
		return nil
	}
	// A write of zero bytes never reaches the kernel, hence the newline.
	err := g.write(file, "\n")
	if !errors.Is(err, unix.ENOSPC) {
		return err
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.refused = true
	fs.refusals++
	return nil
}

// writeV1Set writes a set on v1, where a child's set must lie inside its parent's. Unknown cgroups
// below (the pod's pause container, nested ones) are created with the parent's set and would make
// the kernel answer EBUSY, so they are narrowed first.
func (fs *FS) writeV1Set(g group, file string, set cpuset.Set) error {
	err := g.write(file, set.String())
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	names, listErr := g.children()
	if listErr != nil {
		return errors.Join(err, listErr)
	}
	widened := false
	for _, name := range names {
		err := fs.narrowV1(g.path+"/"+name, file, set)
		if errors.Is(err, unix.EACCES) && !widened {
			// It shares nothing with the new set, which the parent does not contain yet.
			if err = fs.widenV1(g, file, set); err == nil {
				widened, err = true, fs.narrowV1(g.path+"/"+name, file, set)
			}
		}
		if err != nil && !errors.Is(err, ErrGone) {
			return err
		}
	}
	return g.write(file, set.String())
}

func (fs *FS) widenV1(g group, file string, by cpuset.Set) error {
	own, err := readSet(g, file)
	if err != nil {
		return err
	}
	return g.write(file, own.Or(by).String())
}

func (fs *FS) narrowV1(path, file string, within cpuset.Set) error {
	g, err := fs.cpusets.group(path)
	if err != nil {
		return err
	}
	defer g.close()
	own, err := readSet(g, file)
	if err != nil || own.SubsetOf(&within) {
		return err
	}
	if common := own.And(within); !common.IsEmpty() {
		within = common
	}
	return fs.writeV1Set(g, file, within)
}

func (fs *FS) writeQuota(g group, q Quota) error {
	if !fs.v1 {
		return g.write("cpu.max", q.String())
	}
	quota := max(q.Micros, -1)
	if quota >= 0 && q.Period > 0 {
		// The period first: the quota is checked against it and the parent's.
		if err := g.write("cpu.cfs_period_us", strconv.FormatInt(q.Period, 10)); err != nil {
			return err
		}
	}
	return g.write("cpu.cfs_quota_us", strconv.FormatInt(quota, 10))
}

func (fs *FS) writeWeight(g group, weight uint64) error {
	switch {
	case weight == 0:
		return nil
	case weight > 10000:
		return fmt.Errorf("write cpu.weight of cgroup %s: %d is over 10000", g.path, weight)
	case fs.v1:
		return g.write("cpu.shares", strconv.FormatUint(weightToShares(weight), 10))
	}
	return g.write("cpu.weight", strconv.FormatUint(weight, 10))
}
