package faults

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/quietcore/quietcore/internal/failpoint"
)

// KillAt reads POINT or POINT:N and returns a plugin.Options.At that calls die at the
// N-th passing of the point.
func KillAt(text string, die func()) (func(failpoint.Point), error) {
	name, times, counted := strings.Cut(text, ":")
	point, n := failpoint.Point(name), 1
	if !slices.Contains(failpoint.Points(), point) {
		return nil, fmt.Errorf("there is no point %q; there are %v", name, failpoint.Points())
	}
	if counted {
		var err error
		if n, err = strconv.Atoi(times); err != nil || n < 1 {
			return nil, fmt.Errorf("%q: what follows the colon counts passings, from 1 on", text)
		}
	}
	count := make(chan int, 1) // several goroutines pass
	count <- 0
	return func(p failpoint.Point) {
		if p != point {
			return
		}
		passed := <-count + 1
		if passed == n {
			die()
		}
		count <- passed
	}, nil
}
