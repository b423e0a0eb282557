package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/quietcore/quietcore/cpuset"
)

// seat is where the kernel lets a container run.
type seat struct {
	name  string // namespace/pod/container
	cpus  cpuset.Set
	owner string // on whose CPUs it has to run, alone: a claim's or a pod's; empty: nobody's
	best  bool   // best effort, which may run where an owner leaves it
}

// holder is a claim or a pod with CPUs of its own.
type holder struct {
	count   int // of CPUs
	lends   bool
	resized bool       // since the last look
	given   cpuset.Set // as the daemon says; empty: only the kernel tells
}

// umpire judges what is seen of a node, look by look.
type umpire struct {
	had   map[string]cpuset.Set // by owners at the last look
	looks int
	pairs int // of owners and others that were compared
}

// look fails if two owners share a CPU, if somebody else runs on an owner's CPUs, if an owner has more or fewer than it
// asked for, or if one has others than at the last look.
func (u *umpire) look(owners map[string]holder, seats []seat) error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	have := map[string]cpuset.Set{}
	for _, name := range slices.Sorted(maps.Keys(owners)) {
		if o := owners[name]; !o.given.IsEmpty() {
			have[name] = o.given
		}
	}
	for _, s := range seats {
		if s.cpus.IsEmpty() {
			fail("%s may run on no CPU", s.name)
		}
		if s.owner == "" {
			continue
		}
		if set, known := have[s.owner]; known && set != s.cpus {
			fail("%s runs on CPUs %s, those of %s are %s", s.name, s.cpus, s.owner, set)
		} else if !known {
			have[s.owner] = s.cpus
		}
	}
	for name, o := range owners {
		set, seen := have[name]
		if seen && set.Count() != o.count {
			fail("%s has CPUs %s, want %d", name, set, o.count)
		}
		if was, known := u.had[name]; known && seen && was != set && !(o.resized && nested(was, set)) {
			fail("%s had CPUs %s and has %s", name, was, set)
		}
	}
	errs = append(errs, u.shared(have)...)
	for _, s := range seats {
		for name, set := range have {
			if s.owner == name || s.best && owners[name].lends {
				continue
			}
			u.pairs++
			if both := s.cpus.And(set); s.owner == "" && !both.IsEmpty() {
				fail("%s may run on CPUs %s of %s", s.name, both, name)
			}
		}
	}
	u.had = have
	u.looks++
	return errors.Join(errs...)
}

// shared is an error for each two owners that have CPUs in common.
func (u *umpire) shared(have map[string]cpuset.Set) (errs []error) {
	names := slices.Sorted(maps.Keys(have))
	for i, a := range names {
		for _, b := range names[:i] {
			u.pairs++
			if both := have[a].And(have[b]); !both.IsEmpty() {
				errs = append(errs, fmt.Errorf("%s and %s both have CPUs %s", b, a, both))
			}
		}
	}
	return errs
}

// nested: a pod that changed its size keeps CPUs.
func nested(a, b cpuset.Set) bool { return a.SubsetOf(&b) || b.SubsetOf(&a) }
