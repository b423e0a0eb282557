package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cdi"
	"github.com/quietcore/quietcore/internal/dra"
	"github.com/quietcore/quietcore/policy"
)

// Policy decides about claims. What it answers is on disk.
type Policy interface {
	Prepare(context.Context, policy.ClaimPrepared) ([]cpuset.Set, error)
	Unprepare(context.Context, policy.ClaimUnprepared) error
}

// Options of a Driver. All are required.
type Options struct {
	Policy Policy
	API    API
	// Node is the node as it is now; nil while that is not known.
	Node func() *dra.Node
	// Foreign names another driver for CPUs on this node, beside which ours does not start; empty: there is none.
	Foreign func(context.Context) string
	// Beside is told when a driver begins to be kept from serving by another one, and when no longer. It never blocks.
	Beside func()
	// NodeUID is the Node's UID, empty while it is not known: slices are deleted with their Node.
	NodeUID func() string
	// Claims are those that have CPUs; Known are the UIDs of those that kubelet knows.
	Claims                 func() []policy.ClaimView
	Known                  func() (map[string]bool, error)
	Specs                  cdi.Own
	PluginDir, RegistryDir string
	Log                    *slog.Logger
}

// Driver is Quietcore's DRA driver on one node.
type Driver struct {
	o     Options
	dirty chan struct{} // holds one when the slices may have to change
	one   sync.Mutex    // one claim at a time; it guards no field

	mu     sync.Mutex // guards what follows
	beside bool       // another driver keeps ours from serving
	state  string     // why the driver does not serve; empty: it does
	slices string     // why the slices are not up to date
}

const (
	// foreignEvery is how often it is looked again for another driver.
	foreignEvery = 30 * time.Second
	// serveAgain is the pause after sockets that could not be opened.
	serveAgain = 5 * time.Second
	// askFor bounds a request to the API server.
	askFor = 10 * time.Second
)

// New makes a driver that does nothing until Run.
func New(o Options) *Driver {
	return &Driver{o: o, dirty: make(chan struct{}, 1), state: "not started yet"}
}

// Changed says that Node may return another node. It never blocks.
func (d *Driver) Changed() {
	select {
	case d.dirty <- struct{}{}:
	default:
	}
}

// State says why claims are not served, or slices not up to date; empty: all is well.
func (d *Driver) State() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state != "" {
		return d.state
	}
	return d.slices
}

// IsBeside reports whether another driver keeps ours from serving: nobody can claim CPUs of ours then.
func (d *Driver) IsBeside() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.beside
}

func (d *Driver) setBeside(beside bool) {
	d.mu.Lock()
	changed := d.beside != beside
	d.beside = beside
	d.mu.Unlock()
	if changed {
		d.o.Beside()
	}
}

// set sets one of the two states, and logs it if it is another one.
func (d *Driver) set(which *string, why string) {
	d.mu.Lock()
	was := *which
	*which = why
	d.mu.Unlock()
	switch {
	case was == why:
	case why != "" && which == &d.slices:
		d.o.Log.Warn("the DRA driver's ResourceSlices are not as they should be", "driver", dra.DriverName, "why", why)
	case why != "":
		d.o.Log.Warn("the DRA driver does not work", "driver", dra.DriverName, "why", why)
	default:
		d.o.Log.Info("the DRA driver works", "driver", dra.DriverName)
	}
}

// Run serves until ctx ends.
func (d *Driver) Run(ctx context.Context) {
	for ctx.Err() == nil {
		why := d.o.Foreign(ctx)
		d.setBeside(why != "")
		if why != "" {
			d.set(&d.state, why)
			pause(ctx, foreignEvery)
			continue
		}
		if err := d.serve(ctx); err != nil && ctx.Err() == nil {
			d.set(&d.state, err.Error())
			pause(ctx, serveAgain)
		}
	}
}

// pause waits for d, or for the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// errUnknown is why claims wait at a start.
var errUnknown = errors.New("what runs on the node is not known yet; the claim is tried again")

// prepare prepares a claim and returns its devices.
func (d *Driver) prepare(ctx context.Context, asked *drapb.Claim) ([]*drapb.Device, error) {
	node := d.o.Node()
	if node == nil {
		return nil, errUnknown
	}
	asking, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	claim, err := d.o.API.Claim(asking, asked.GetNamespace(), asked.GetName())
	if err != nil {
		return nil, fmt.Errorf("read it from the API server: %w", err)
	}
	if uid := string(claim.UID); uid != asked.GetUid() {
		return nil, fmt.Errorf("it was replaced: its UID is %s", uid)
	}
	e, err := node.Prepared(claim)
	if err != nil {
		return nil, err
	}
	d.one.Lock()
	defer d.one.Unlock()
	cpus, err := d.o.Policy.Prepare(ctx, e)
	if err != nil {
		return nil, err
	}
	if err := d.o.Specs.Write(e.UID, len(e.Requests)); err != nil {
		return nil, err
	}
	for i, r := range e.Requests {
		if i < len(cpus) {
			d.o.Log.Info("claim prepared", "claim", e.Namespace+"/"+e.Name, "device", r.Device, "cpus",
				cpus[i].String())
		}
	}
	return devicesOf(dra.GivenDevices(claim)), nil
}

func devicesOf(given []dra.Given) []*drapb.Device {
	devices := make([]*drapb.Device, len(given))
	for i, g := range given {
		devices[i] = &drapb.Device{
			RequestNames: []string{g.Request}, PoolName: g.Pool, DeviceName: g.Device,
			CdiDeviceIds: []string{g.CDIDevice}, ShareId: g.ShareID,
		}
	}
	return devices
}

// unprepare gives the CPUs of a claim back. The order is that of prepare, turned round.
func (d *Driver) unprepare(ctx context.Context, asked *drapb.Claim) error {
	d.one.Lock()
	defer d.one.Unlock()
	if err := d.giveBack(ctx, policy.ClaimUnprepared{UID: asked.GetUid()}); err != nil {
		return err
	}
	d.o.Log.Info("claim unprepared", "claim", asked.GetNamespace()+"/"+asked.GetName())
	return nil
}

// giveBack is called with one held.
func (d *Driver) giveBack(ctx context.Context, e policy.ClaimUnprepared) error {
	if err := d.o.Policy.Unprepare(ctx, e); err != nil {
		return err
	}
	return d.o.Specs.Remove(e.UID)
}
