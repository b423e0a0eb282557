package world

import (
	"fmt"
	"slices"
	"strings"
)

// Fault is one way in which the world goes wrong.
type Fault string

const (
	Errors     Fault = "error"      // a write fails and changes nothing
	Lies       Fault = "lie"        // a write works and fails
	LateEffect Fault = "late"       // a write times out and takes effect later, or never
	Hangs      Fault = "hang"       // a write, read or save does not come back for a while
	Blind      Fault = "blind"      // cgroups look as if they were gone
	Unreadable Fault = "unreadable" // cgroups cannot be read
	Panics     Fault = "panic"      // a step of the policy panics
	Defects    Fault = "defect"     // the daemon panics outside a step of the policy
	Disk       Fault = "disk"       // a save fails, or works and fails
	Kills      Fault = "kill"       // the daemon dies and comes back
	Reconnects Fault = "reconnect"  // the runtime's connection ends
	Clock      Fault = "clock"      // the clock is set while the daemon is dead
	Unsaid     Fault = "unsaid"     // the end of a pod is not announced
	Unplugs    Fault = "hotplug"    // CPUs go offline and come back
)

// AllFaults lists them.
var AllFaults = []Fault{
	Errors, Lies, LateEffect, Hangs, Blind, Unreadable, Panics, Defects, Disk, Kills, Reconnects, Clock, Unsaid,
	Unplugs,
}

// ParseFaults reads a list with commas, or "all".
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
			return nil, fmt.Errorf("there is no fault %q; there are %v", f, AllFaults)
		}
		faults = append(faults, f)
	}
	return faults, nil
}

// Gates are the ops that wait for the world to choose them. Other ops are done at once
// and never fail by a choice of their own.
type Gates struct {
	Reads, Points bool
}
