package kubelet

import (
	"context"
	"time"
)

// pollEvery is how often kubelet is asked for all of its devices, pollPause the least
// time between requests, and pollLimit bounds a request.
const (
	pollEvery = time.Minute
	pollPause = 5 * time.Second
	pollLimit = 10 * time.Second
)

// Poller follows what kubelet gave to containers.
type Poller struct {
	Devices *Devices
	Take    func(context.Context, Inventory)

	changed chan struct{}
}

// NewPoller makes a poller that passes every inventory to take.
func NewPoller(d *Devices, take func(context.Context, Inventory)) *Poller {
	return &Poller{Devices: d, Take: take, changed: make(chan struct{}, 1)}
}

// Changed says that kubelet may have given devices to a container; a poll follows soon.
func (p *Poller) Changed() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Run polls until ctx ends.
func (p *Poller) Run(ctx context.Context) {
	for {
		p.look(ctx)
		if !pause(ctx, pollPause, nil) || !pause(ctx, pollEvery, p.changed) {
			return
		}
	}
}

func (p *Poller) look(ctx context.Context) {
	asking, cancel := context.WithTimeout(ctx, pollLimit)
	defer cancel()
	found, err := p.Devices.Inventory(asking)
	if err != nil {
		return // no kubelet, or an old one: NUMA nodes are published without devices
	}
	p.Take(ctx, found)
}

// pause waits for a time or an early end; false: ctx ended.
func pause(ctx context.Context, d time.Duration, early <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-early:
	}
	return true
}
