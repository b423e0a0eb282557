package driver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quietcore/quietcore/internal/dra"
)

const (
	// writeEvery bounds how often slices are written, lookEvery is how often others' changes are looked for.
	writeEvery = time.Second
	lookEvery  = 5 * time.Minute
	// lacksFor is after how many looks it is tried again whether the API server still drops fields: about an hour.
	lacksFor = 12
	// wipedWithin is how long after a driver comes back kubelet may still delete its slices.
	wipedWithin = 40 * time.Second
	firstRetry  = time.Second
	lastRetry   = 5 * time.Minute
)

// publisher keeps the node's slices up to date. Its fields are its run's, except looks.
type publisher struct {
	d     *Driver
	looks chan struct{} // holds one when kubelet has taken the driver in
	retry time.Duration
	// sent are the specs as they were applied, kept as the API server answered: it may drop fields that it does not
	// know, and then they are not written again and again.
	sent, kept []resourceapi.ResourceSliceSpec
	want       []resourceapi.ResourceSliceSpec // what was published last; nil: that failed
	// lacking counts the looks since the API server dropped some.
	lacking int
}

func newPublisher(d *Driver) *publisher { return &publisher{d: d, looks: make(chan struct{}, 1)} }

// look has the slices looked at. It never blocks.
func (p *publisher) look() {
	select {
	case p.looks <- struct{}{}:
	default:
	}
}

// run publishes until ctx ends.
func (p *publisher) run(ctx context.Context) {
	var again time.Time // after kubelet has taken the driver in
	for ctx.Err() == nil {
		wait := p.attempt(ctx)
		if left := time.Until(again); left > 0 {
			wait = min(wait, left)
		}
		if p.rest(ctx, wait) {
			p.forget() // kubelet may have been restarted for a feature gate that the API server has, too
			again = time.Now().Add(wipedWithin)
		}
	}
}

// rest waits until the slices have to be looked at, and reports whether kubelet has taken the driver in. Most changes
// of a node change nothing of its slices, and cost no request.
func (p *publisher) rest(ctx context.Context, wait time.Duration) (taken bool) {
	t := time.NewTimer(wait)
	defer t.Stop()
	for changed := false; !changed; {
		select {
		case <-ctx.Done():
			return false
		case <-p.looks:
			pause(ctx, writeEvery)
			return true
		case <-p.d.dirty:
			pause(ctx, writeEvery)
			node := p.d.o.Node()
			changed = node == nil || p.want == nil || !equality.Semantic.DeepEqual(node.Slices(), p.want)
		case <-t.C:
			changed = true
		}
	}
	return false
}

// attempt brings the slices up to date, and returns when to try again.
func (p *publisher) attempt(ctx context.Context) time.Duration {
	node := p.d.o.Node()
	if node == nil {
		return writeEvery
	}
	p.want = nil
	dropped, err := p.publish(ctx, node)
	switch {
	case ctx.Err() != nil:
		return 0
	case err != nil:
		p.d.set(&p.d.slices, fmt.Sprintf("ResourceSlices are not written: %v", err))
		p.retry = min(max(p.retry*2, firstRetry), lastRetry)
		return p.retry
	}
	p.retry = 0
	if p.lacking++; dropped == "" {
		p.lacking = 0
	} else if p.lacking >= lacksFor {
		p.forget()
	}
	p.d.set(&p.d.slices, dropped)
	p.want = node.Slices()
	return lookEvery*4/5 + rand.N(lookEvery*2/5)
}

// forget has slices of which fields were dropped written again.
func (p *publisher) forget() { p.sent, p.kept, p.lacking = nil, nil, 0 }

// publish brings the slices up to date, and says what of them the API server does not keep. Where it refuses them for a
// kubelet that does not account for CPUs of claims, they do without that: claims work all the same.
func (p *publisher) publish(ctx context.Context, node *dra.Node) (dropped string, err error) {
	want := node.Slices()
	dropped, err = p.write(ctx, node, want)
	if !apierrors.IsForbidden(err) || !dra.StripAllocatable(want) {
		return dropped, err
	}
	switch more, second := p.write(ctx, node, want); {
	case second != nil:
		return "", err // it is all of the slices that are forbidden
	case more != "":
		return more, nil
	}
	return fmt.Sprintf(allocatableRefused, err), nil
}

// write writes what differs. The pool's generation grows with every change, so that the scheduler takes no mixture of
// old and new slices for a pool.
func (p *publisher) write(ctx context.Context, node *dra.Node, want []resourceapi.ResourceSliceSpec) (dropped string,
	err error) {
	var have []resourceapi.ResourceSlice
	if err := p.ask(ctx, func(ctx context.Context) (err error) {
		have, err = p.d.o.API.Slices(ctx, node.Name)
		return err
	}); err != nil {
		return "", fmt.Errorf("list them: %w", err)
	}
	names := make([]string, len(want))
	for i := range want {
		names[i] = sliceName(node.Name, i)
	}
	if p.upToDate(want, names, have) {
		return p.droppedFields(), nil
	}
	generation := int64(1)
	for i := range have {
		generation = max(generation, have[i].Spec.Pool.Generation+1)
	}
	p.sent, p.kept = nil, nil
	var kept []resourceapi.ResourceSliceSpec
	for i := range want {
		want[i].Pool.Generation = generation
		s := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: names[i], OwnerReferences: p.owner(node)},
			Spec: want[i]}
		if err := p.ask(ctx, func(ctx context.Context) error {
			got, err := p.d.o.API.Apply(ctx, s)
			if err == nil {
				kept = append(kept, got.Spec)
			}
			return err
		}); err != nil {
			return "", explained(err)
		}
	}
	for i := range have {
		name := have[i].Name
		if _, wanted := position(names, name); wanted {
			continue
		}
		if err := p.ask(ctx, func(ctx context.Context) error { return p.d.o.API.Delete(ctx, name) }); err != nil {
			return "", fmt.Errorf("delete %s: %w", name, err)
		}
	}
	p.sent, p.kept = want, kept
	return p.droppedFields(), nil
}

// upToDate reports whether the slices are those that are wanted, or what the API server made of them.
func (p *publisher) upToDate(want []resourceapi.ResourceSliceSpec, names []string,
	have []resourceapi.ResourceSlice) bool {
	if len(have) != len(want) {
		return false
	}
	for i := range have {
		at, ok := position(names, have[i].Name)
		if !ok {
			return false
		}
		is, should := have[i].Spec, want[at]
		should.Pool.Generation = is.Pool.Generation
		if have[0].Spec.Pool.Generation != is.Pool.Generation {
			return false
		}
		same := equality.Semantic.DeepEqual(is, should)
		if at < len(p.sent) {
			was := p.sent[at]
			was.Pool.Generation = is.Pool.Generation
			same = same || equality.Semantic.DeepEqual(was, should) && equality.Semantic.DeepEqual(p.kept[at], is)
		}
		if !same {
			return false
		}
	}
	return true
}

// fieldsDropped is what an old API server makes of slices.
const fieldsDropped = "the API server drops fields of ResourceSlices that it does not know, so that claims for these " +
	"CPUs may find no device; the cluster needs consumable capacity (feature DRAConsumableCapacity, on since " +
	"Kubernetes 1.36)"

// What becomes of a mapping on the node's allocatable CPUs without the feature.
const (
	allocatableDropped = "the API server drops nodeAllocatableResources from ResourceSlices" + allocatableWayOut
	allocatableRefused = "the API server refuses nodeAllocatableResources in ResourceSlices for this node (%v), and " +
		"they are published without" + allocatableWayOut
	allocatableWayOut = ", so CPUs of claims are not among those that kube-scheduler counts for their pods; enable " +
		"the feature DRANodeAllocatableResources (alpha and off in Kubernetes 1.37) in kube-apiserver, " +
		"kube-scheduler and kubelet, or set dra.nodeAllocatable to false"
)

// droppedFields says what of the slices the API server did not keep; empty: it kept all.
func (p *publisher) droppedFields() (why string) {
	for i := range p.sent {
		if equality.Semantic.DeepEqual(p.sent[i], p.kept[i]) {
			continue
		}
		rest := []resourceapi.ResourceSliceSpec{*p.sent[i].DeepCopy()}
		if !dra.StripAllocatable(rest) || !equality.Semantic.DeepEqual(rest[0], p.kept[i]) {
			return fieldsDropped
		}
		why = allocatableDropped
	}
	return why
}

func (p *publisher) owner(node *dra.Node) []metav1.OwnerReference {
	uid := p.d.o.NodeUID()
	if uid == "" {
		return nil
	}
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: types.UID(uid)}}
}

// ask bounds a request.
func (p *publisher) ask(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	return request(ctx)
}

// explained adds to a refusal what it probably is.
func explained(err error) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the API server has no resource.k8s.io/v1, which Kubernetes has since 1.34: %w", err)
	}
	return err
}

func position(names []string, name string) (int, bool) {
	for i, n := range names {
		if n == name {
			return i, true
		}
	}
	return 0, false
}

// maxNode is how much of a node's name is in the names of its slices, which have at most 253 bytes.
const maxNode = 200

// sliceName is the name of a node's slice. A long node name is cut, and told apart by a hash.
func sliceName(node string, i int) string {
	if len(node) > maxNode {
		sum := sha256.Sum256([]byte(node))
		node = strings.TrimRight(node[:maxNode], ".-") + "-" + hex.EncodeToString(sum[:8])
	}
	return fmt.Sprintf("%s-%s-%d", node, dra.DriverName, i)
}
