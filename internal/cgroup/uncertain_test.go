package cgroup_test

import (
	"errors"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
)

func (n *node) mayUse(path, want string) {
	n.t.Helper()
	if got := n.tree.MayUse(path); got.String() != want {
		n.t.Errorf("%s may use %s, want %s", path, got, want)
	}
}

func (n *node) held(want string) {
	n.t.Helper()
	if got := n.tree.Held(); got.String() != want {
		n.t.Errorf("%s is held, want %s", got, want)
	}
}

// What a cgroup may use is what its mask and those above it leave; one that is not in the
// tree may use what the nearest above it may, and one in nothing that is known, everything.
func TestWhatACgroupMayUse(t *testing.T) {
	n := newNode(t, "0-15")
	n.pod(burstable, "web", cgroup.InPool("shared"))
	n.pool("shared", "0-3,6-15")
	n.pod("kubepods", "db", n.on("4-5"))
	n.mayUse(burstable, "0-15")
	n.apply()
	for path, want := range map[string]string{
		burstable: "0-3,6-15", burstable + "/web/main": "0-3,6-15", "/kubepods/db/": "4-5",
		burstable + "/new": "0-3,6-15", burstable + "/new/main": "0-3,6-15", besteffort + "/new": "0-15",
		"kubepods/db/main": "4-5", "kubepods/db/new": "4-5", "kubepods/new": "0-15", "kubepods": "0-15",
	} {
		n.mayUse(path, want)
	}
	// A cgroup that is gone is made anew without a mask.
	n.tree.Gone("kubepods/db")
	n.mayUse("kubepods/db", "0-15")
	n.tree.Gone(burstable + "/web")
	n.mayUse(burstable+"/web", "0-3,6-15")
	// What was read on it counts until it is read again.
	n.tree.MayAllow(burstable, set(t, "4"))
	n.mayUse(burstable+"/new", "0-4,6-15")
}

// From its beginning a write counts with the mask that was there before: for what is in the
// cgroup, for what comes into it, and for owners that wait for what it takes away.
func TestAWriteUnderWayCountsWithBothMasks(t *testing.T) {
	n := newNode(t, "0-15")
	n.pod(burstable, "web", cgroup.InPool("shared"))
	n.pool("shared", "0-3")
	n.apply()
	step := func(pool, during, held, after string) {
		t.Helper()
		n.pool("shared", pool)
		n.held(held)
		begun := false
		n.must(n.tree.Execute(n.tree.Plan(), func(w cgroup.Write) error {
			begun = true
			n.mayUse(burstable, during)
			n.mayUse(burstable+"/new/main", during)
			// Whatever of it becomes an owner's meanwhile is not free.
			n.pool("shared", "9")
			n.held(set(t, during).Minus(set(t, "9")).String())
			n.pool("shared", pool)
			n.held(held)
			return n.write(w)
		}))
		if !begun {
			t.Fatalf("pool %s: there is nothing to write, the test shows nothing", pool)
		}
		n.mayUse(burstable, after)
		n.held("")
	}
	step("0-9", "0-9", "", "0-9")
	step("4-9", "0-9", "0-3", "4-9")
	step("0-15", "0-15", "", "0-15") // without a mask
}

// A write that Execute was in when its caller panicked may have had its effect.
func TestAnInterruptedWriteIsUncertain(t *testing.T) {
	for _, c := range []struct {
		name, from, to, may, held string
	}{
		{"it grows", "0-3", "0-5", "0-5", ""},
		{"it shrinks", "0-5", "0-3", "0-5", "4-5"},
		{"it drops the mask", "0-3", "0-15", "0-15", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t, "0-15")
			n.pod(burstable, "web", cgroup.InPool("shared"))
			n.pool("shared", c.from)
			n.apply()
			n.pool("shared", c.to)
			func() {
				defer func() { _ = recover() }()
				_ = n.tree.Execute(n.tree.Plan(), func(cgroup.Write) error { panic("a defect") })
			}()
			n.tree.Interrupted()
			n.tree.Interrupted() // has nothing more to say
			n.mayUse(burstable, c.may)
			n.held(c.held)
			if got := n.tree.Uncertain(); len(got) != 1 || got[0] != burstable {
				t.Errorf("%v have to be read back, want %s", got, burstable)
			}
			n.pool("shared", "0-2") // of what may be there nothing is free
			n.held(set(t, c.may).Minus(set(t, "0-2")).String())
			read := cgroup.Effective{CPUs: set(t, c.from), OwnCPUs: set(t, c.from)}
			n.tree.ReadBack(burstable, read, time.Unix(0, 0))
			n.mayUse(burstable, c.may) // it may come yet
			n.tree.ReadBack(burstable, read, time.Unix(0, 0).Add(cgroup.InFlightFor))
			n.mayUse(burstable, c.from)
		})
	}
}

// After a write that drops the mask nothing is left that keeps a cgroup off CPUs that come
// online later: whether it had its effect is not known, so both count.
func TestAnInterruptedInheritCountsWithCPUsThatComeOnline(t *testing.T) {
	n := newNode(t, "0-7")
	n.pod(burstable, "web", cgroup.InPool("shared"))
	n.pool("shared", "0-3")
	n.apply()
	n.pool("shared", "0-7")
	func() {
		defer func() { _ = recover() }()
		_ = n.tree.Execute(n.tree.Plan(), func(w cgroup.Write) error {
			if !w.CPUs.Inherits() {
				t.Errorf("the mask becomes %s, want none", w.CPUs)
			}
			panic("a defect")
		})
	}()
	n.tree.Interrupted()
	n.tree.SetOnline(cpuset.Range(0, 15))
	n.mayUse(burstable, "0-15")
}

// A write that failed and one that succeeded are no longer under way.
func TestAWriteThatHasEndedIsNotUnderWay(t *testing.T) {
	n := newNode(t, "0-15")
	n.pod(burstable, "web", cgroup.InPool("shared"))
	n.pool("shared", "0-3")
	n.apply()
	n.pool("shared", "0-5")
	broken := errors.New("broken")
	if err := n.tree.Execute(n.tree.Plan(), func(cgroup.Write) error { return broken }); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	n.mayUse(burstable, "0-5")
	n.tree.ReadBack(burstable, cgroup.Effective{CPUs: set(t, "0-3"), OwnCPUs: set(t, "0-3")}, time.Unix(0, 0))
	n.mayUse(burstable, "0-3")
	if err := n.tree.Execute(n.tree.Plan(), func(cgroup.Write) error { return cgroup.ErrSkipRest }); err != nil {
		t.Fatal(err)
	}
	n.mayUse(burstable, "0-3")
	n.tree.Interrupted()
	n.mayUse(burstable, "0-3")
}

// After a write that gave up a mask the kernel may hold none: where CPUs come online before
// the mask was read, the cgroup may have got them, and an owner of them waits.
func TestAMaskThatWasGivenUpCountsWithCPUsThatComeOnline(t *testing.T) {
	for _, clears := range []bool{false, true} {
		n := newNode(t, "0-7")
		n.kern.ClearPopulated = clears
		n.pod(burstable, "web", cgroup.InPool("shared"))
		n.pool("shared", "0-3")
		n.apply()
		n.pool("shared", "0-7")
		n.must(n.tree.Execute(n.tree.Plan(), n.write))
		all := cpuset.Range(0, 15)
		n.kern.SetOnline(all)
		n.tree.SetOnline(all)
		n.pool("shared", "0-7,10-15")
		n.pool("be", "0-15")
		n.mayUse(burstable+"/web/main", "0-15")
		n.held("8-9")
		n.must(n.readBack(burstable))
		if clears {
			n.held("8-9")
		} else {
			n.mayUse(burstable+"/web/main", "0-7")
			n.held("")
		}
		n.apply()
		n.held("")
	}
}

// A cgroup that is left no CPU it has a right to has those of its parent, whatever is written
// on it: an owner of one of them does not start, also when there is nothing left to write.
func TestCPUsOfOwnersAreHeldWhereACgroupIsLeftNothingElse(t *testing.T) {
	for _, limited := range []bool{false, true} {
		n := newNode(t, "0-15")
		n.pod(burstable, "web", cgroup.InPool("shared"))
		n.pod("kubepods", "db", n.on("0-3"))
		n.pod("kubepods", "queue", n.on("4-13"))
		n.pool("be", "0-13")
		n.pool("shared", "14-15")
		n.apply()
		n.held("")
		if limited {
			n.kern.Tamper("kubepods", "0-13")
			n.tree.LookAbove(n.kern.CPUs)
		} else {
			n.kern.SetOnline(cpuset.Range(0, 13))
			n.tree.SetOnline(cpuset.Range(0, 13))
		}
		for range 2 {
			n.held("0-13")
			n.must(n.tree.Execute(n.tree.Plan(), n.write))
		}
		n.pool("shared", "12-13")
		n.must(n.tree.PutPod(cgroup.Pod{ID: "queue", Path: "kubepods/queue", Need: n.on("4-11")}))
		n.apply()
		n.runsOn(burstable+"/web/main", "12-13")
		n.held("")
	}
}

// A limit from outside may disappear at any time: what it hides of a mask that is not right yet is held, and CPUs
// that are hidden of right masks are not.
func TestCPUsThatALimitHidesAreHeld(t *testing.T) {
	n := newNode(t, "0-15")
	n.pool("shared", "0-7,12-15")
	n.pod("kubepods", "web", cgroup.InPool("shared"))
	n.pod("kubepods", "db", n.on("8-11"))
	n.apply()
	n.limit("0-9")
	n.held("")
	n.pool("shared", "0-3,8-11")
	n.must(n.tree.PutPod(cgroup.Pod{ID: "db", Path: "kubepods/db", Need: n.on("4-5,12-13")}))
	n.held("4-15") // the limit hides 12-15 of web, and 10-11 of db
	n.must(n.tree.Execute(n.tree.Plan(), n.write))
	n.held("")
	n.limit("")
	n.held("")
}

func (n *node) readBack(path string) error {
	e, err := n.kern.CPUs(path)
	n.tree.ReadBack(path, e, time.Unix(0, 0))
	return err
}

// What a cgroup is read to allow counts, also where no mask that is known explains it: the
// limit of a cgroup above that is not ours, and that cannot be read.
func TestCPUsThatNoKnownMaskExplainsAreHeld(t *testing.T) {
	for _, how := range []string{"observed", "checked", "read back"} {
		n := newNode(t, "0-15")
		n.pod(burstable, "web", cgroup.InPool("shared"))
		n.pod("kubepods", "db", n.on("0-13"))
		n.pool("shared", "14-15")
		n.apply()
		n.kern.Tamper("kubepods", "0-13")
		switch e, err := n.kern.CPUs(burstable); how {
		case "observed":
			n.must(err)
			n.tree.Observe(burstable, e)
		case "checked":
			n.tree.CheckOne(burstable, func(path string) (cgroup.Effective, error) {
				if path != burstable {
					return cgroup.Effective{}, errors.New("cannot be read")
				}
				return e, err
			})
		case "read back":
			n.must(n.readBack(burstable))
		}
		n.held("0-13")
		n.mayUse(burstable+"/web/main", "0-15")
		if got := n.tree.Uncertain(); len(got) != 1 || got[0] != burstable {
			t.Errorf("%s: %v have to be read back, want %s", how, got, burstable)
		}
		n.kern.Tamper("kubepods", "")
		n.must(n.readBack(burstable))
		n.held("")
	}
}
