package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/quietcore/quietcore/internal/incidents"
)

// queue lets a batch pod fill the CPUs that it shares with others, and checks that the daemon
// tests it, finds it guilty and throttles it by what these wait for in the run queue. Nothing
// stands in for counters that the machine lacks: there is no CPI, and the guest's own scheduler
// makes the waits.
func queue(ctx context.Context, n *node) ([]figure, error) {
	return unlessNoisy(ctx, n, func(ctx context.Context, n *node) ([]figure, error) {
		w, err := newWaiting(ctx, n, byExperiment)
		if err != nil {
			return nil, err
		}
		w.tests = true
		t := &tested{w.circle, pattern{loads: []string{w.antagonist()}}}
		return w.play(ctx, []step{t.learn, t.disturb, t.judge, w.told})
	})
}

// queueByContrast is the same with the detector contrast, which caps by observation.
func queueByContrast(ctx context.Context, n *node) ([]figure, error) {
	return unlessNoisy(ctx, n, func(ctx context.Context, n *node) ([]figure, error) {
		w, err := newWaiting(ctx, n, shortened)
		if err != nil {
			return nil, err
		}
		return w.play(ctx, []step{w.learn, w.disturb, w.judge, w.told})
	})
}

// waiting is a circle of victims that wait.
type waiting struct{ *circle }

// newWaiting begins a circle with a configuration, but for its stand-ins.
func newWaiting(ctx context.Context, n *node, config string) (*waiting, error) {
	head, _, _ := strings.Cut(config, ",\n  standIns:")
	if err := n.configured(ctx, oneLine(head)+"}}"); err != nil {
		return nil, err
	}
	return &waiting{&circle{n: n, began: time.Now(), queue: true}}, nil
}

// told checks what an incident that was acted upon says: that CPUs were what the victims lacked, and
// who had them.
func (w *waiting) told(ctx context.Context, batch workload) error {
	listing := &incidents.Listing{}
	if err := w.ask(ctx, "/v1/incidents", listing); err != nil {
		return err
	}
	acted, named := 0, 0
	for _, s := range listing.Incidents {
		i := &incidents.Incident{}
		if err := w.ask(ctx, "/v1/incidents/one/"+s.ID, i); err != nil {
			return err
		}
		if i.Verdict != incidents.Cap && i.Verdict != incidents.Test {
			continue
		}
		acted++
		e := i.Evidence
		byQueue := strings.HasSuffix(i.Spec.Platform, "(run queue)")
		if e == nil || e.Resource != "queue" || len(e.WaitedFor) == 0 || !byQueue {
			return fmt.Errorf("an incident that was acted upon says %+v, on platform %q: %s", e, i.Spec.Platform, i.Why)
		}
		if strings.Contains(e.WaitedFor[0].Name, "/"+batch.Name+"/") {
			named++
			w.figures = append(w.figures, figure{Name: "an incident", Value: i.Why})
		}
	}
	if named == 0 {
		return fmt.Errorf("of %d incidents %d were acted upon, and none says that %s had the CPU most",
			len(listing.Incidents), acted, batch.Name)
	}
	w.figures = append(w.figures, figure{Name: "incidents that were acted upon, and that name it as who had the CPU",
		Value: fmt.Sprintf("%d, %d", acted, named)})
	return nil
}
