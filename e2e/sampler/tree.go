package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/e2e/sampler/sweep"
)

const cgroupRoot = "/sys/fs/cgroup"

// podSlices are where kubelet's pods are, with either driver.
var podSlices = [...]string{
	"kubepods", "kubepods/burstable", "kubepods/besteffort",
	"kubepods.slice", "kubepods.slice/kubepods-burstable.slice", "kubepods.slice/kubepods-besteffort.slice",
}

// podCgroup is a pod of a test and where it is.
type podCgroup struct {
	dir string
	pod sweep.Pod
}

// findPods lists the pods whose names sweep can read. What vanishes meanwhile is
// not there.
func findPods(root string) ([]podCgroup, error) {
	var out []podCgroup
	for _, s := range podSlices {
		entries, err := readDir(filepath.Join(root, s))
		if err != nil {
			return nil, err
		}
		for _, name := range entries {
			if p, ok := sweep.ParseDir(name); ok {
				out = append(out, podCgroup{dir: filepath.Join(root, s, name), pod: p})
			}
		}
	}
	return out, nil
}

// readDir lists the directories in one; none where it is not there.
func readDir(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if vanished(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// vanished covers both ends of a cgroup's life: the directory is gone, or it is
// open and dead.
func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoDevice) || errors.Is(err, errNoProcess)
}

// readOwner reports whether the pod owns its CPUs by now: besides its sandbox a
// container has a process.
func readOwner(p podCgroup) (sweep.Owner, bool, error) {
	names, err := readDir(p.dir)
	if err != nil {
		return sweep.Owner{}, false, err
	}
	o, alive := sweep.Owner{Pod: p.pod}, 0
	for _, n := range names {
		dir := filepath.Join(p.dir, n)
		procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil || len(procs) == 0 {
			if err == nil || vanished(err) {
				continue
			}
			return o, false, err
		}
		cpus, err := readCPUs(dir)
		if vanished(err) {
			continue
		}
		if err != nil {
			return o, false, err
		}
		alive++
		// The sandbox may still be where the pod's cgroup lets it, the container is
		// where the runtime put it.
		if cpus.Count() == p.pod.Size || o.CPUs.Count() != p.pod.Size {
			o.CPUs = cpus
		}
	}
	return o, alive > 1, nil
}

func readCPUs(dir string) (cpuset.Set, error) {
	text, err := os.ReadFile(filepath.Join(dir, "cpuset.cpus.effective"))
	if err != nil {
		return cpuset.Set{}, err
	}
	return cpuset.Parse(strings.TrimSpace(string(text)))
}

// threadsBelow lists the threads of a pod, those of nested cgroups too.
func threadsBelow(dir string) ([]int, error) {
	var out []int
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if vanished(err) {
			return fs.SkipDir
		}
		if err != nil || !d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(path, "cgroup.threads"))
		if vanished(err) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, line := range strings.Fields(string(text)) {
			tid, err := strconv.Atoi(line)
			if err != nil {
				return err
			}
			out = append(out, tid)
		}
		return nil
	})
	return out, err
}

// pictured are the files of a cgroup that make up a picture.
var pictured = [...]string{"cpuset.cpus.effective", "cpu.max"}

// takePicture is what the kernel has in effect, by file below the root.
func takePicture(root string) (map[string]string, error) {
	p := map[string]string{}
	for _, top := range []string{"kubepods", "kubepods.slice"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if vanished(err) {
				return nil
			}
			if err != nil || !d.IsDir() {
				return err
			}
			for _, name := range pictured {
				text, err := os.ReadFile(filepath.Join(path, name))
				if vanished(err) {
					continue
				}
				if err != nil {
					return err
				}
				p[strings.TrimPrefix(filepath.Join(path, name), root+"/")] = strings.TrimSpace(string(text))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return p, nil
}
