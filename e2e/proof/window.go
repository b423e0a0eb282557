package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/quietcore/quietcore/e2e/sampler/sweep"
)

const (
	samplerName = "sampler"
	refuserName = "refuser"
)

const (
	// leastNear is how many samples of busy threads next to owners there must be;
	// with fewer, nothing was proved.
	leastNear = 2000
	// leastOwners is how many owners must have come, however slow the host is.
	leastOwners = 6
	// naiveOwners is how many come in the naive order.
	naiveOwners = 3
	// mostLate keeps the daemon's work within the time that a step waits for it: the
	// pod and its container are late each.
	mostLate = 28 * time.Second
	// residents is how many owners are there when the next comes.
	residents = 1
)

// neighbours cover every slice that their pods can be in, including mismatches of class
// and Kubernetes' own QoS.
//
// A small limit would delay the start of the pod itself.
func neighbours() []workload {
	return []workload{
		shared("web", 200), shared("part", 1500).limited(1500), bestEffort("batch"),
		{Pod: sweep.Pod{Class: sweep.BE, Name: "crawl"}, milli: 100},
	}
}

// visitor is the i-th owner to come: every class, size and place.
func visitor(i int) workload {
	name := fmt.Sprintf("own%d", i)
	switch i % 6 {
	case 0:
		return owner(sweep.LSE, 2, name)
	case 1:
		return owner(sweep.LSR, 3, name)
	case 2:
		return owner(sweep.LSE, 2, name).of("Burstable")
	case 3:
		return owner(sweep.LSR, 2, name).isolated()
	case 4:
		return owner(sweep.LSR, 1, name).of("Burstable")
	default:
		return owner(sweep.LSE, 4, name)
	}
}

// window lets owners start and end next to busy neighbours: none of these may ever be
// seen on an owner's CPUs, and in the naive order some must be.
func window(ctx context.Context, n *node) ([]figure, error) {
	if err := n.fresh(ctx); err != nil {
		return nil, err
	}
	for _, w := range neighbours() {
		if err := n.busy(ctx, w); err != nil {
			return nil, err
		}
	}
	v := &visitors{n: n}
	began := time.Now()
	ours, err := v.watched(ctx, func(came int) bool { return came >= leastOwners && time.Since(began) >= n.minutes() })
	if err != nil {
		return nil, err
	}
	figures := []figure{
		{Name: "sweeps", Value: ours.Sweeps}, {Name: "between two sweeps",
			Value: fmt.Sprintf("%v mean, %v max", round(ours.MeanGap), round(ours.MaxGap))},
		{Name: "samples of busy threads", Value: ours.Samples}, {Name: "of them next to owners", Value: ours.Near},
		{Name: "owners that came", Value: fmt.Sprintf("%d, %d of them onto CPUs in use", ours.Owners, ours.Contested)},
		{Name: "violations", Value: ours.Violations},
	}
	if err := judge(ours); err != nil {
		return figures, err
	}
	// A plugin that repairs the others in rounds lets them stay for 1 to 10 s. Here a
	// pod may take longer to start, which is no merit of the order.
	late := min(v.slowest+3*time.Second, mostLate)
	if err := n.restart(ctx, "--test-late", late.String()); err != nil {
		return figures, err
	}
	naive, err := v.watched(ctx, func(came int) bool { return came >= naiveOwners })
	if err != nil {
		return figures, err
	}
	figures = append(figures, figure{Name: "violations in the naive order",
		Value: fmt.Sprintf("%d, on %d of %d owners", naive.Violations, naive.Pods, naive.Owners)})
	if naive.Violations == 0 {
		return figures, fmt.Errorf("the sampler sees nothing wrong in the naive order, so it proves nothing")
	}
	return figures, nil
}

// busy starts a pod with busy threads. They may use but a fraction of a CPU, or the
// emulated guest would do nothing else: a thread whose group has used up its quota
// stays ready to run on the CPU where it is, and leaves it like any other.
func (n *node) busy(ctx context.Context, w workload) error {
	if _, err := n.create(ctx, w); err != nil {
		return err
	}
	id, err := n.containerID(ctx, w)
	if err != nil {
		return err
	}
	_, err = n.CRI().UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{
		ContainerId: id, Linux: &cri.LinuxContainerResources{CpuQuota: 5000, CpuPeriod: 100000}})
	if err != nil {
		return err
	}
	return n.spin(ctx, w, 2)
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

func judge(r sweep.Report) error {
	switch {
	case r.Violations > 0:
		text, _ := json.Marshal(r.First) // of plain values
		return fmt.Errorf("%d violations, the first of them: %s", r.Violations, text)
	case r.Near < leastNear:
		return fmt.Errorf("only %d samples of busy threads next to owners: this proves nothing", r.Near)
	case r.Contested < r.Owners/2 || r.Contested < 3:
		return fmt.Errorf("only %d of %d owners came onto CPUs that others used: this proves nothing", r.Contested,
			r.Owners)
	}
	return nil
}

// visitors come and go, a few at a time.
type visitors struct {
	n       *node
	next    int
	there   []string
	slowest time.Duration // start of one of them
}

// watched runs the sampler while owners come and go.
func (v *visitors) watched(ctx context.Context, enough func(came int) bool) (sweep.Report, error) {
	var r sweep.Report
	if err := v.n.Start(ctx, samplerName, samplerPath, "window"); err != nil {
		return r, err
	}
	for came := 0; !enough(came); came++ {
		if err := v.turn(ctx); err != nil {
			return r, err
		}
	}
	if err := v.n.Signal(ctx, samplerName, int(syscall.SIGTERM)); err != nil {
		return r, err
	}
	// The log holds the reports of all samplers so far.
	lines := strings.Split(strings.TrimSpace(v.n.LogTail(ctx, samplerName, 1<<20)), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil {
		return r, fmt.Errorf("the sampler's last words: %w: %s", err, lines[len(lines)-1])
	}
	return r, nil
}

// turn lets one owner come, and the oldest go when there are enough. The
// neighbours first pin themselves to the CPUs that it is about to get.
func (v *visitors) turn(ctx context.Context) error {
	if _, err := v.n.Exec(ctx, samplerPath, "spread"); err != nil {
		return err
	}
	w := visitor(v.next)
	v.next++
	began := time.Now()
	if _, err := v.n.create(ctx, w); err != nil {
		return err
	}
	v.slowest = max(v.slowest, time.Since(began))
	v.there = append(v.there, w.Name)
	if len(v.there) <= residents {
		return nil
	}
	_, err := v.n.remove(ctx, v.there[0])
	v.there = v.there[1:]
	return err
}
