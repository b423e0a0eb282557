package reclaim_test

import (
	"fmt"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/reclaim"
	"github.com/quietcore/quietcore/topology"
)

// An Estimator takes a report of what runs, and says what may be offered to batch
// pods. By default that is what production does not request.
func ExampleEstimator() {
	estimator, err := reclaim.New(reclaim.Default())
	if err != nil {
		fmt.Println(err)
		return
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	report := reclaim.Report{Capacity: 16, Reserve: 2, Span: 10 * time.Second, Pods: []reclaim.Pod{
		{ID: "shop", Request: 6, Use: 1, Sampled: true, Created: start},
		{ID: "report", Batch: true, Request: 3, Use: 3, Sampled: true, Created: start},
	}}
	estimate, err := estimator.Step(start, report)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("supply %.0f, promised %.0f, evictions %d\n", estimate.Supply, estimate.Promised, len(estimate.Evict))
	// Output:
	// supply 8, promised 3, evictions 0
}

// A Suppressor says how many CPUs batch pods may run on now; Choose says which.
func ExampleSuppressor() {
	machine, err := topology.Grid{CoresPerL3: 8, ThreadsPerCore: 2}.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	var suppressor reclaim.Suppressor
	load := reclaim.Load{Capacity: 16, Pool: 16, Core: 2, Production: 4, Known: true, Span: time.Second}
	budget := suppressor.Step(reclaim.DefaultSuppress(), load)
	for range 60 { // room is given step by step
		budget = suppressor.Step(reclaim.DefaultSuppress(), load)
	}
	masks := reclaim.Masks{Pool: machine.Online(), Reserved: cpuset.Of(14, 15)}
	fmt.Printf("%.1f CPUs: %s\n", budget.CPUs, reclaim.Choose(machine, masks, int(budget.CPUs)))

	load.Production = 9 // it is taken back at once
	budget = suppressor.Step(reclaim.DefaultSuppress(), load)
	fmt.Printf("%.1f CPUs: %s\n", budget.CPUs, reclaim.Choose(machine, masks, int(budget.CPUs)))
	// Output:
	// 6.0 CPUs: 0-3,14-15
	// 2.0 CPUs: 14-15
}
