package cgroup

import (
	"fmt"
	"path"
	"strings"
)

const (
	maxPathBytes = 4095
	maxNameBytes = 255
)

// CleanPath checks a cgroup path from outside and returns it without leading and trailing slashes.
// It repairs nothing else: a runtime does not write a path that needs repair.
func CleanPath(p string) (string, error) {
	if len(p) > maxPathBytes {
		return "", fmt.Errorf("cgroup path of %d bytes is longer than %d", len(p), maxPathBytes)
	}
	q := strings.TrimSuffix(strings.TrimPrefix(p, "/"), "/")
	if q == "" {
		return "", fmt.Errorf("cgroup path %q names the root, which is never touched", p)
	}
	for name := range strings.SplitSeq(q, "/") {
		switch {
		case name == "" || name == "." || name == "..":
			return "", fmt.Errorf("cgroup path %q: component %q is not a name", p, name)
		case len(name) > maxNameBytes:
			return "", fmt.Errorf("cgroup path: component of %d bytes is longer than %d", len(name), maxNameBytes)
		case strings.ContainsAny(name, "\x00\n"):
			return "", fmt.Errorf("cgroup path %q: component %q has a control character", p, name)
		}
	}
	return q, nil
}

// PodPath turns the cgroup parent that the runtime reports for a pod into a
// path below the cgroup root. With the systemd driver that is a slice's name,
// whose dashes spell out its place:
//
//	/kubepods/burstable/pod1        kubepods/burstable/pod1
//	kubepods-burstable-pod1.slice   kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice
func PodPath(cgroupParent string) (string, error) {
	p, err := CleanPath(cgroupParent)
	if err != nil {
		return "", err
	}
	dir, name := path.Split(p)
	if !strings.HasSuffix(name, ".slice") {
		return p, nil
	}
	if dir != "" { // already spelt out
		return p, nil
	}
	return expandSlice(name)
}

// expandSlice is systemd.slice(5): a-b-c.slice lies in a-b.slice in a.slice.
func expandSlice(name string) (string, error) {
	stem := strings.TrimSuffix(name, ".slice")
	if stem == "" || strings.HasPrefix(stem, "-") || strings.HasSuffix(stem, "-") || strings.Contains(stem, "--") {
		return "", fmt.Errorf("systemd slice %q: dashes must stand between names", name)
	}
	var b strings.Builder
	for i := range len(stem) {
		if stem[i] == '-' {
			b.WriteString(stem[:i] + ".slice/")
		}
	}
	b.WriteString(name)
	return CleanPath(b.String())
}

// ContainerPath turns the cgroups path that the runtime reports for a
// container into a path below the cgroup root: a path, or with the systemd
// driver "slice:prefix:id".
func ContainerPath(cgroupsPath string) (string, error) {
	slice, rest, isUnit := strings.Cut(cgroupsPath, ":")
	if !isUnit {
		return CleanPath(cgroupsPath)
	}
	prefix, id, ok := strings.Cut(rest, ":")
	if !ok || id == "" || strings.ContainsAny(prefix+id, "/:") {
		return "", fmt.Errorf("cgroups path %q: want slice:prefix:id", cgroupsPath)
	}
	if slice == "" {
		slice = "system.slice"
	}
	parent, err := PodPath(slice)
	if err != nil {
		return "", err
	}
	name := id
	if !strings.HasSuffix(id, ".slice") {
		if prefix != "" {
			name = prefix + "-" + id
		}
		name += ".scope"
	}
	return CleanPath(parent + "/" + name)
}

// Parent returns the path of the cgroup above, "" at the top.
func Parent(p string) string {
	dir, _ := path.Split(strings.Trim(p, "/"))
	return strings.TrimSuffix(dir, "/")
}

// QoS is the place of a pod's cgroup in kubelet's hierarchy.
type QoS int

const (
	OutsideKubepods QoS = iota
	Guaranteed          // directly under kubepods
	Burstable
	BestEffort
)

func (q QoS) String() string {
	return [...]string{"outside kubepods", "Guaranteed", "Burstable", "BestEffort"}[q]
}

// Top returns the cgroup of all of kubelet's pods, given a cgroup in which pods' cgroups lie;
// empty: parent is not kubelet's.
func Top(parent string) string {
	switch Classify(parent) {
	case Guaranteed:
		return parent
	case Burstable, BestEffort:
		return Parent(parent)
	}
	return ""
}

// QoSSlices returns the burstable and the best-effort slice in the cgroup of all of kubelet's pods.
func QoSSlices(top string) (burstable, bestEffort string) {
	sub, ending := top+"/", ""
	if stem, unit := strings.CutSuffix(path.Base(top), ".slice"); unit {
		sub, ending = sub+stem+"-", ".slice"
	}
	return sub + "burstable" + ending, sub + "besteffort" + ending
}

// Classify derives a pod's QoS class from the path of the cgroup in which the pod's cgroup lies,
// for both drivers' naming and below any --cgroup-root. Only Burstable and BestEffort parents have
// a mask.
func Classify(parent string) QoS {
	name := strings.TrimSuffix(path.Base(strings.Trim(parent, "/")), ".slice")
	if name == "burstable" || name == "besteffort" {
		if path.Base(Parent(parent)) != "kubepods" {
			return OutsideKubepods
		}
	}
	switch {
	case name == "burstable" || strings.HasSuffix(name, "kubepods-burstable"):
		return Burstable
	case name == "besteffort" || strings.HasSuffix(name, "kubepods-besteffort"):
		return BestEffort
	case name == "kubepods" || strings.HasSuffix(name, "-kubepods"):
		return Guaranteed
	}
	return OutsideKubepods
}
