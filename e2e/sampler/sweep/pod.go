package sweep

import (
	"fmt"
	"regexp"
	"strconv"
)

// Class is a pod's class as it is spelt in the name of its cgroup.
type Class string

// The classes that a pod of a test can have.
const (
	LSE Class = "lse"
	LSR Class = "lsr"
	LS  Class = "ls"
	BE  Class = "be"
)

// Exclusive reports whether pods of the class own CPUs.
func (c Class) Exclusive() bool { return c == LSE || c == LSR }

// Pod is what the name of a pod's cgroup says about it, so that a sampler need
// not be sent what comes and goes.
type Pod struct {
	Class    Class
	Size     int  // CPUs that an owner owns
	Isolated bool // the siblings of its CPUs have no owner
	Name     string
}

// UID is a pod's UID from which ParseDir reads the pod back: lse_4_isolated_db.
func (p Pod) UID() string {
	smt := "plain"
	if p.Isolated {
		smt = "isolated"
	}
	return fmt.Sprintf("%s_%d_%s_%s", p.Class, p.Size, smt, p.Name)
}

var podDir = regexp.MustCompile(`(?:^|-)pod(lse|lsr|ls|be)_(\d{1,4})_(plain|isolated)_([a-z0-9]+)(?:\.slice)?$`)

// ParseDir reads the directory of a pod with either cgroup driver:
//
//	podlse_4_isolated_db
//	kubepods-burstable-podls_0_plain_web.slice
func ParseDir(name string) (Pod, bool) {
	m := podDir.FindStringSubmatch(name)
	if m == nil {
		return Pod{}, false
	}
	size, err := strconv.Atoi(m[2])
	return Pod{Class: Class(m[1]), Size: size, Isolated: m[3] == "isolated", Name: m[4]}, err == nil
}
