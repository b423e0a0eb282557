package replay_test

import (
	"fmt"
	"strings"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/detect/replay"
)

// Run plays recorded samples. The normal CPI of the victim's job is given. The batch
// container runs in three minutes of ten, and web is slow in just those. The first cap
// helps more than enough, so the second one is milder.
func ExampleRun() {
	var csv strings.Builder
	csv.WriteString("time,container,job,class,usage,cpi\n")
	for minute := range 20 {
		cpi, usage := 1.0, 0.01
		if minute%10 >= 7 {
			cpi, usage = 2.0, 4
		}
		fmt.Fprintf(&csv, "%d,web-0,web,LS,1,%v\n%d,sort-0,sort,BATCH,%v,1\n", 60*minute, cpi, 60*minute, usage)
	}
	trace, err := replay.Read(strings.NewReader(csv.String()))
	if err != nil {
		fmt.Println(err)
		return
	}
	specs := []replay.GivenSpec{{Job: "web", Mean: 1, StdDev: 0.1}}
	options := replay.Options{Config: detect.DefaultConfig(), Specs: specs}
	summary, err := replay.Run(trace, options, func(l *replay.Line) error {
		if l.Event == "cap" {
			fmt.Printf("%.0f s: cap %s to %dm for %s\n", l.Time, l.Antagonist, l.CapMilli, l.Container)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d rows, %d outliers, %d caps\n", trace.Rows(), summary.Outliers, summary.Caps)
	// Output:
	// 540 s: cap sort-0 to 100m for web-0
	// 1140 s: cap sort-0 to 200m for web-0
	// 40 rows, 6 outliers, 2 caps
}
