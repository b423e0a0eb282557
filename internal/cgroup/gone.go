package cgroup

import (
	"path"
	"slices"
	"strings"
)

// Gone reports whether the cgroup at path is known not to exist: its parent can be listed and does
// not contain it. A read that fails with ErrGone is not enough: a reader with a wrong root, or in
// another cgroup namespace, finds no cgroup at all. An error means that it is unknown.
func Gone(r Reader, cgroupPath string) (bool, error) {
	clean, err := CleanPath(cgroupPath)
	if err != nil {
		return false, err
	}
	above := Parent(clean)
	if above == "" {
		above = rootPath
	}
	names, err := r.Children(above)
	if err != nil {
		return false, err
	}
	_, there := slices.BinarySearch(names, path.Base(clean))
	return !there, nil
}

// PodUID is the UID of the pod whose cgroup has this name, by kubelet's naming with either driver;
// false for a cgroup that is not a pod's.
//
//	pod8a3e...                             cgroupfs
//	kubepods-burstable-pod8a3e_....slice   systemd
func PodUID(name string) (string, bool) {
	if stem, unit := strings.CutSuffix(name, ".slice"); unit {
		at := strings.LastIndex(stem, "-pod")
		if at < 0 || Classify(stem[:at]+".slice") == OutsideKubepods {
			return "", false
		}
		uid := strings.ReplaceAll(stem[at+len("-pod"):], "_", "-")
		return uid, uid != ""
	}
	uid, ok := strings.CutPrefix(name, "pod")
	return uid, ok && uid != ""
}
