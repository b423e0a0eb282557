package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/quietcore/quietcore/cpuset"
)

// CPUs reads cpuset.cpus and cpuset.cpus.effective, also of the root ("/"). Without the controller,
// on v2, a cgroup has no set of its own and runs on the CPUs of its nearest ancestor that has one.
func (fs *FS) CPUs(path string) (Effective, error) {
	var e Effective
	err := fs.readPair(path, "cpus", &e.OwnCPUs, &e.CPUs)
	return e, err
}

// Allowed reads cpuset.cpus.effective alone.
func (fs *FS) Allowed(path string) (cpuset.Set, error) {
	var set cpuset.Set
	if clean, err := CleanPath(path); err == nil && fs.peekSet(clean, fs.effectiveCPUs(), &set) {
		return set, nil
	}
	e, err := fs.CPUs(path)
	return e.CPUs, err
}

func (fs *FS) effectiveCPUs() string {
	if fs.v1 {
		return "cpuset.effective_cpus"
	}
	return "cpuset.cpus.effective"
}

// Effective reads everything that a Values can set.
func (fs *FS) Effective(path string) (Effective, error) {
	if _, err := CleanPath(path); err != nil {
		return Effective{}, err
	}
	e, err := fs.CPUs(path)
	if err != nil {
		return Effective{}, err
	}
	if err := fs.readPair(path, "mems", &e.OwnMems, &e.Mems); err != nil {
		return Effective{}, err
	}
	e.Quota, e.QuotaMilli = Quota{Micros: -1}, -1
	if err := fs.readCPU(path, &e); err != nil {
		return Effective{}, err
	}
	return e, nil
}

func (fs *FS) readPair(path, kind string, own, effective *cpuset.Set) error {
	if fs.peekPair(path, kind, own, effective) {
		return nil
	}
	g, err := fs.cpusets.groupOrTop(path)
	if err != nil {
		return err
	}
	defer g.close()
	if fs.v1 {
		if *own, err = readSet(g, "cpuset."+kind); err == nil {
			*effective, err = readSet(g, "cpuset.effective_"+kind)
		}
		return err
	}
	var missing *NoControllerError
	if *own, err = readSet(g, "cpuset."+kind); err != nil && !errors.As(err, &missing) {
		return err
	}
	*effective, err = readSet(g, "cpuset."+kind+".effective")
	if !errors.As(err, &missing) {
		return err
	}
	return fs.readAbove(missing, effective)
}

// peekPair is readPair for the common case; false means that readPair has to take the slow path.
func (fs *FS) peekPair(path, kind string, own, effective *cpuset.Set) bool {
	clean := path
	if path != rootPath {
		var err error
		if clean, err = CleanPath(path); err != nil {
			return false
		}
	}
	ownFile, effectiveFile := "cpuset.cpus", "cpuset.cpus.effective"
	switch {
	case fs.v1:
		ownFile, effectiveFile = "cpuset."+kind, "cpuset.effective_"+kind
	case kind != "cpus":
		ownFile, effectiveFile = "cpuset."+kind, "cpuset."+kind+".effective"
	}
	return fs.peekSet(clean, ownFile, own) && fs.peekSet(clean, effectiveFile, effective)
}

// parsedSet is the last text that peekSet parsed, with its set: hundreds of cgroups in a row have
// the same.
type parsedSet struct {
	text string
	set  cpuset.Set
}

func (fs *FS) peekSet(path, file string, set *cpuset.Set) bool {
	var buf [1024]byte
	text, ok := fs.cpusets.peek(path, file, buf[:])
	if !ok {
		return false
	}
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		*set = cpuset.Set{}
		return true
	}
	if last := fs.last.Load(); last != nil && last.text == string(text) {
		*set = last.set
		return true
	}
	parsed, err := parseSet(string(text))
	if err != nil {
		return false
	}
	fs.last.Store(&parsedSet{text: string(text), set: parsed})
	*set = parsed
	return true
}

// readAbove reads the effective set of the nearest ancestor that has one.
func (fs *FS) readAbove(missing *NoControllerError, effective *cpuset.Set) error {
	var none *NoControllerError
	for p := missing.Path; p != rootPath; {
		if p = Parent(p); p == "" {
			p = rootPath
		}
		g, err := fs.cpusets.groupOrTop(p)
		if err != nil {
			return err
		}
		*effective, err = readSet(g, missing.File)
		g.close()
		if !errors.As(err, &none) {
			return err
		}
	}
	return missing
}

func readSet(g group, file string) (cpuset.Set, error) {
	text, err := g.read(file)
	if err != nil {
		return cpuset.Set{}, err
	}
	set, err := parseSet(text)
	if err != nil {
		return cpuset.Set{}, fmt.Errorf("read %s of cgroup %s: %w", file, g.path, err)
	}
	return set, nil
}

// readCPU fills in quota and weight. A cgroup without the cpu controller has no quota, as in the
// caller's defaults.
func (fs *FS) readCPU(path string, e *Effective) error {
	if !fs.hasCPU {
		return nil
	}
	g, err := fs.cpu.group(path)
	if err != nil {
		return err
	}
	defer g.close()
	quota, weight := fs.readQuotaV2, "cpu.weight"
	if fs.v1 {
		quota, weight = fs.readQuotaV1, "cpu.shares"
	}
	q, err := quota(g)
	var missing *NoControllerError
	if errors.As(err, &missing) {
		return nil
	}
	if err != nil {
		return err
	}
	e.Quota, e.QuotaMilli = q, q.Milli()
	if e.Weight, err = fs.readWeight(g, weight); err != nil || fs.v1 {
		return err
	}
	text, err := g.read("cpu.idle")
	if errors.As(err, &missing) {
		return nil
	}
	e.Idle, e.HasIdle = strings.TrimSpace(text) == "1", err == nil
	return err
}

func (fs *FS) readQuotaV2(g group) (Quota, error) {
	text, err := g.read("cpu.max")
	if err != nil {
		return Quota{}, err
	}
	q, err := parseCPUMax(text)
	if err != nil {
		return Quota{}, fmt.Errorf("read cgroup %s: %w", g.path, err)
	}
	return q, nil
}

func (fs *FS) readQuotaV1(g group) (Quota, error) {
	quota, err := g.read("cpu.cfs_quota_us")
	if err != nil {
		return Quota{}, err
	}
	period, err := g.read("cpu.cfs_period_us")
	if err != nil {
		return Quota{}, err
	}
	q, err := parseCFS(quota, period)
	if err != nil {
		return Quota{}, fmt.Errorf("read cgroup %s: %w", g.path, err)
	}
	return q, nil
}

func (fs *FS) readWeight(g group, file string) (uint64, error) {
	text, err := g.read(file)
	var missing *NoControllerError
	if errors.As(err, &missing) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	w, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read %s of cgroup %s: %s is not a number", file, g.path, quoted(text))
	}
	if fs.v1 {
		return sharesToWeight(w), nil
	}
	return w, nil
}

// Children lists the cgroups directly below path; "/" is the root of the hierarchy.
func (fs *FS) Children(path string) ([]string, error) {
	g, err := fs.cpusets.groupOrTop(path)
	if err != nil {
		return nil, err
	}
	defer g.close()
	return g.children()
}
