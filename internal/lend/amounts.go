package lend

import (
	"fmt"

	"github.com/quietcore/quietcore/internal/kube"
)

// The resources of lent CPUs.
const (
	own = iota
	koordinator
	resources
)

func resourceName(i int) string {
	return [resources]string{own: kube.BatchResource, koordinator: kube.KoordinatorResource}[i]
}

// absent is the amount of a resource that is not in the Node's status.
const absent = kube.Absent

// amounts are thousandths of a CPU by resource.
type amounts [resources]int64

func none() amounts { return amounts{absent, absent} }

// maxMilli bounds an offer to avoid overflow: a thousand million CPUs.
const maxMilli = 1 << 40

// demand is what bound pods request.
type demand struct {
	bound amounts // by resource, as kubelet counts it when it admits pods
	lent  int64   // of all pods, by whichever resource
}

func demandOf(pods []kube.BatchPod) demand {
	var d demand
	for _, p := range pods {
		d.bound[own] += max(p.Own, 0)
		d.bound[koordinator] += max(p.Koordinator, 0)
		d.lent += max(p.Milli, p.Own, p.Koordinator, 0)
	}
	return d
}

// free is the part of an offer that is not promised yet.
func (d *demand) free(offer int64) int64 { return max(0, min(offer, maxMilli)-d.lent) }

// step is a change of the published amounts.
type step struct {
	was, want amounts
	bound     amounts
	mayRise   bool
}

// next returns the amounts to publish. They fall at once. They rise above what pods
// request only if mayRise; up to that they rise at once, since no other pod can take
// it.
func (s step) next() amounts {
	var next amounts
	for i, want := range s.want {
		next[i] = want
		if want != absent && want > max(s.was[i], s.bound[i]) && !s.mayRise {
			next[i] = max(s.was[i], s.bound[i])
		}
	}
	return next
}

// amountsIn returns the amounts in a Node's status. If capacity and allocatable differ,
// the smaller one counts and the resource is torn.
func amountsIn(n kube.LentNode) (a amounts, torn [resources]bool) {
	for i, in := range [resources]kube.Amount{own: n.Own, koordinator: n.Koordinator} {
		a[i], torn[i] = min(in.Capacity, in.Allocatable), in.Capacity != in.Allocatable
	}
	return a, torn
}

func (a amounts) String() string {
	text := ""
	for i, v := range a {
		if v == absent {
			continue
		}
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf("%s %d", resourceName(i), v)
	}
	if text == "" {
		return "nothing"
	}
	return text
}
