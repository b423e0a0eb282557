package sample_test

import (
	"fmt"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/sample"
)

// edge is a reading of one container's counters, on a machine of 4 CPUs.
func edge(at time.Duration, c *cpi.Container, counts sample.Counts) *sample.Edge {
	e := &sample.Edge{Wall: time.Unix(0, 0).Add(at), Monotonic: at, Boot: at, CPUs: 4}
	e.Present[sample.Cycles], e.Present[sample.Instructions] = true, true
	e.Groups = []sample.Group{{Container: c, CgroupID: 1, Counts: counts}}
	return e
}

// Judge compares the readings at both edges of a window. The container used 20 s of CPU
// time in 10 s, and 50 thousand million cycles for 25 thousand million instructions.
func ExampleJudge() {
	const window = 10 * time.Second
	web := &cpi.Container{ID: "1", Namespace: "shop", Pod: "web-0", Name: "nginx"}
	var before, after sample.Counts
	after.Events[sample.Cycles], after.Events[sample.Instructions] = 50e9, 25e9
	after.OnCPU, after.Counted = 20*time.Second, 20*time.Second

	w := sample.Judge(edge(time.Hour, web, before), edge(time.Hour+window, web, after), sample.Hardware(window))
	r := w.Containers[0]
	fmt.Printf("%v: usage %.1f CPUs, CPI %.1f\n", r.Container, r.Usage, r.CPI)

	// A counter that went backwards says nothing: the sample is dropped.
	w = sample.Judge(edge(time.Hour, web, after), edge(time.Hour+window, web, before), sample.Hardware(window))
	fmt.Println("dropped:", w.Containers[0].Dropped.Sentence())
	// Output:
	// shop/web-0/nginx: usage 2.0 CPUs, CPI 2.0
	// dropped: a counter went backwards
}

// A History keeps a container's last samples, here three.
func ExampleHistory() {
	h := sample.NewHistory(3)
	for minute := range 5 {
		h.Add(sample.Sample{Boot: time.Duration(minute) * time.Minute, CPI: 1 + float64(minute)/10})
	}
	for _, s := range h.AppendTo(nil) {
		fmt.Println(s.Boot, s.CPI)
	}
	// Output:
	// 2m0s 1.2
	// 3m0s 1.3
	// 4m0s 1.4
}
