package replay_test

import (
	"fmt"
	"strings"

	"github.com/quietcore/quietcore/reclaim"
	"github.com/quietcore/quietcore/reclaim/replay"
)

// Run plays recorded usage. On 16 CPUs production requests 6 at first, then 12. It then
// uses 8, more than was left to it when 10 could be lent: a violation.
func ExampleRun() {
	record, err := replay.Read(strings.NewReader(`time,pod,class,request,usage
0,shop,prod,6,2
0,report,batch,4,3
300,shop,prod,12,8
300,report,batch,4,3
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	options := replay.Options{Capacity: 16, Config: reclaim.Default()}
	summary, err := replay.Run(record, options, func(l replay.Line) error {
		fmt.Printf("%.0f s: %.0f CPUs may be lent\n", l.Time, l.Reclaimable)
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(summary.Intervals, "intervals,", summary.Violations, "violations")
	// Output:
	// 0 s: 10 CPUs may be lent
	// 300 s: 4 CPUs may be lent
	// 2 intervals, 1 violations
}
