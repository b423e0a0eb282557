package world

import (
	"fmt"
	"slices"
	"strings"
)

// Fault is a kind of fault that the world injects.
type Fault string

const (
	Errors     Fault = "error"      // a write fails and changes nothing
	Lies       Fault = "lie"        // a write takes effect and returns an error
	LateEffect Fault = "late"       // a write times out and takes effect later, or never
	Hangs      Fault = "hang"       // a write, read or save does not return for a while
	Blind      Fault = "blind"      // cgroups look as if they were gone
	Unreadable Fault = "unreadable" // cgroups cannot be read
	Panics     Fault = "panic"      // a step of the policy panics
	Defects    Fault = "defect"     // the daemon panics outside a step of the policy
	Disk       Fault = "disk"       // a save fails, with or without effect
	Kills      Fault = "kill"       // the daemon is killed and started again
	Reconnects Fault = "reconnect"  // the runtime's connection is lost
	Clock      Fault = "clock"      // the clock is set while the daemon is dead
	Unsaid     Fault = "unsaid"     // the end of a pod is not announced
	Unplugs    Fault = "hotplug"    // CPUs go offline and come back
)

// AllFaults lists them.
var AllFaults = []Fault{
	Errors, Lies, LateEffect, Hangs, Blind, Unreadable, Panics, Defects, Disk, Kills, Reconnects, Clock, Unsaid,
	Unplugs,
}

// ParseFaults reads a comma-separated list, or "all".
func ParseFaults(text string) ([]Fault, error) {
	if text == "all" {
		return AllFaults, nil
	}
	var faults []Fault
	for name := range strings.SplitSeq(text, ",") {
		f := Fault(strings.TrimSpace(name))
		if f == "" {
			continue
		}
		if !slices.Contains(AllFaults, f) {
			return nil, fmt.Errorf("fault %q is not known; use all, or some of %v", f, AllFaults)
		}
		faults = append(faults, f)
	}
	return faults, nil
}

// Gates are the kinds of ops that wait until the world chooses them. Other reads and points end at
// once, and no choice makes one fail.
type Gates struct {
	Reads, Points bool
}
