package reclaim

import (
	"fmt"
	"time"
)

// Brake ends the growth of what a node lends where lending does harm there: where pods have to be
// evicted again and again, or where best effort is at its floor most of the time. So a change of
// the configuration that is wrong for a fleet ends on each of its nodes by itself.
//
// Its zero value is a brake that does not hold.
type Brake struct {
	evictions float64       // beyond those that time has made good
	floor     time.Duration // at the floor, less the time above it
	left      time.Duration // for which it still holds
	why       string
}

// The bounds of a brake. A disruption of six pods at once, or a burst of half an hour, is what
// lending is made for.
const (
	brakeEvictions = 6.0 // at once, and in any hour on the long run
	brakeFloor     = 30 * time.Minute
	brakeFor       = 24 * time.Hour
)

// Step takes the time that has passed, how many pods were evicted in it, and whether best effort
// was at its floor. It returns why nothing more may be lent; empty: it may.
func (b *Brake) Step(span time.Duration, evicted int, atFloor bool) string {
	span = max(span, 0)
	b.evictions = max(b.evictions-brakeEvictions*span.Hours(), 0) + float64(evicted)
	if atFloor {
		b.floor = min(b.floor+span, 2*brakeFloor)
	} else {
		b.floor = max(b.floor-span, 0)
	}
	b.left = max(b.left-span, 0)
	switch {
	case b.evictions > brakeEvictions:
		b.left, b.why = brakeFor, fmt.Sprintf("pods had to be evicted faster than %v an hour", brakeEvictions)
	case b.floor > brakeFloor:
		b.left, b.why = brakeFor, fmt.Sprintf("best effort was at its floor for %v longer than above it",
			brakeFloor)
	case b.left == 0:
		b.why = ""
	}
	return b.why
}
