package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/quietcore/quietcore/policy"
)

const (
	// forgottenEvery is how often it is looked for claims that nobody will unprepare.
	forgottenEvery = time.Minute
	// forgottenFor is for how many looks in a row such a claim keeps its CPUs all the same. kubelet prepares claims
	// anew meanwhile, if it has only just come back.
	forgottenFor = 5
)

// forgotten counts, by UID, in how many looks in a row kubelet did not know a claim.
type forgotten map[string]int

// Reconcile gives back, until ctx ends, the CPUs of claims that kubelet has forgotten. They would be nobody's until the
// node reboots.
func (d *Driver) Reconcile(ctx context.Context) {
	seen := forgotten{}
	for ctx.Err() == nil {
		pause(ctx, forgottenEvery)
		d.look(ctx, seen)
	}
}

// look looks once. A claim is given back when kubelet has not known it for long, and no pod on the node has it: the
// policy, which knows the pods, refuses otherwise. kubelet has a claim on disk before it asks us to prepare it, so that
// one that it will start a pod with is never seen as forgotten.
func (d *Driver) look(ctx context.Context, seen forgotten) {
	claims := d.o.Claims()
	here := map[string]bool{}
	for i := range claims {
		c := &claims[i]
		here[c.UID] = true
		why := d.whyForgotten(ctx, c)
		if why == "" {
			delete(seen, c.UID)
			continue
		}
		if seen[c.UID]++; seen[c.UID] < forgottenFor {
			continue
		}
		if err := d.forget(ctx, c); err != nil {
			d.o.Log.Debug("a claim that kubelet does not know keeps its CPUs", "claim", c.Namespace+"/"+c.Name,
				"err", err)
			continue
		}
		d.o.Log.Warn("a claim was never unprepared; its CPUs are given back", "claim", c.Namespace+"/"+c.Name,
			"why", why)
		delete(seen, c.UID)
	}
	for uid := range seen {
		if !here[uid] {
			delete(seen, uid)
		}
	}
}

// forget takes the CPUs of a claim back if it is forgotten still, now that no claim is prepared at the same time.
func (d *Driver) forget(ctx context.Context, c *policy.ClaimView) error {
	d.one.Lock()
	defer d.one.Unlock()
	if d.whyForgotten(ctx, c) == "" {
		return errors.New("it is known again")
	}
	return d.giveBack(ctx, policy.ClaimUnprepared{UID: c.UID, IfUnused: true})
}

// whyForgotten says why nobody will unprepare a claim; empty: somebody may. Where kubelet's own record is missing the
// API server is believed, and only when it answers that there is no such claim.
func (d *Driver) whyForgotten(ctx context.Context, c *policy.ClaimView) string {
	known, err := d.o.Known()
	switch {
	case err == nil && known[c.UID]:
		return ""
	case err == nil:
		return "kubelet's record of claims does not have it"
	case !errors.Is(err, fs.ErrNotExist):
		return ""
	}
	asking, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	found, err := d.o.API.Claim(asking, c.Namespace, c.Name)
	switch {
	case apierrors.IsNotFound(err):
		return "kubelet has no record of claims, and the API server has no such claim"
	case err == nil && string(found.UID) != c.UID:
		return fmt.Sprintf("kubelet has no record of claims, and the API server has another claim of that name, "+
			"with UID %s", found.UID)
	}
	return ""
}
