package nrt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ownedByOtherError says that another manager owns the object.
type ownedByOtherError struct{ why string }

func (e *ownedByOtherError) Error() string { return e.why }

// resolve decides the ownership of the object after an apply conflicted with fields of
// others. An object that was never ours stays theirs. One of ours is taken back once,
// since it may have been edited by hand. If it is changed again, another manager owns
// it.
func (p *Publisher) resolve(ctx context.Context, o *v1alpha2.NodeResourceTopology, body []byte,
	conflict error) (*v1alpha2.NodeResourceTopology, error) {
	var got *v1alpha2.NodeResourceTopology
	err := p.ask(ctx, func(ctx context.Context) (err error) {
		got, err = p.o.API.Get(ctx, p.version, o.Name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w; its owner cannot be read: %w", conflict, err)
	}
	if by, want := got.Labels[LabelManagedBy], o.Labels[LabelManagedBy]; by != "" && by != want {
		return nil,
			&ownedByOtherError{
				fmt.Sprintf(
					"the object's label %s is %.63q and Quietcore's is %q; remove the label, delete the object, or "+
						"set kubernetes.nodeResourceTopology.managedBy", LabelManagedBy, by, want)}
	}
	others := managersIn(conflict)
	if len(others) == 0 {
		return nil, conflict
	}
	if !appliedByUs(got) {
		return nil,
			&ownedByOtherError{
				fmt.Sprintf(
					"the object is written by %s; stop that and delete the object, or set "+
						"kubernetes.nodeResourceTopology.enabled to false", strings.Join(others, ", "))}
	}
	now := p.o.Now()
	for _, m := range others {
		if at, ok := p.takeover[m]; ok && now.Sub(at) < conflictPause {
			return nil, &ownedByOtherError{fmt.Sprintf(
				"%s keeps changing the object and is left alone until %s; stop it, or set "+
					"kubernetes.nodeResourceTopology.enabled to false", m,
				at.Add(conflictPause).UTC().Format("15:04 MST"))}
		}
	}
	p.o.Log.Warn("the NodeResourceTopology was changed by another manager; taking it back", "node", o.Name, "by",
		strings.Join(others, ", "))
	taken, err := p.apply(ctx, Applied{Name: o.Name, Body: body, Force: true})
	if err != nil {
		return nil, err
	}
	if len(p.takeover) > 100 {
		clear(p.takeover)
	}
	for _, m := range others {
		p.takeover[m] = now
	}
	return taken, nil
}

func appliedByUs(o *v1alpha2.NodeResourceTopology) bool {
	return slices.ContainsFunc(o.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == FieldManager && e.Operation == metav1.ManagedFieldsOperationApply
	})
}

// managersIn names the owners of conflicting fields. The API server has the name in its
// message only: conflict with "kubectl-edit" using topology….
func managersIn(conflict error) []string {
	var status apierrors.APIStatus
	if !errors.As(conflict, &status) || status.Status().Details == nil {
		return nil
	}
	var names []string
	for _, c := range status.Status().Details.Causes {
		if c.Type != metav1.CauseTypeFieldManagerConflict {
			continue
		}
		_, rest, _ := strings.Cut(c.Message, `"`)
		name, _, ok := strings.Cut(rest, `"`)
		if name = fmt.Sprintf("%.128s", name); ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
