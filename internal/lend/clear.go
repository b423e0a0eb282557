package lend

import (
	"context"
	"fmt"

	"github.com/quietcore/quietcore/internal/kube"
)

// Cleared is the result of Clear.
type Cleared struct {
	Was, Now Published
	Changed  bool
}

// Clear removes from a Node what an earlier daemon published. Koordinator's resource
// keeps what pods of this node still request; that stays under our annotation for the
// next Clear. now and pods come from kube.Client's ReadNode and ListBatch.
func Clear(ctx context.Context, api NodeWriter, node string, now kube.LentNode, pods []kube.BatchPod) (Cleared, error) {
	have, torn := amountsIn(now)
	d := demandOf(pods)
	touch := ours(now)
	next := none()
	if d.bound[koordinator] > 0 {
		next[koordinator] = d.bound[koordinator]
	}
	write, left := now.Record != "", false
	for i := range next {
		if !touch[i] {
			next[i] = have[i]
			continue
		}
		write = write || have[i] != next[i] || torn[i]
		left = left || next[i] != absent
	}
	c := Cleared{Was: publishedOf(have, d), Now: publishedOf(have, d)}
	if !write || left && have == next && !torn[koordinator] {
		return c, nil
	}
	r, _ := parseRecord(now.Record)
	body, err := patchOf(next, touch, record{At: r.At})
	if err != nil {
		return c, err
	}
	reqCtx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	got, err := api.PatchNode(reqCtx, node, body)
	if err != nil {
		return c, fmt.Errorf("remove %s from Node %s: %w", have, node, err)
	}
	have, _ = amountsIn(got)
	c.Now, c.Changed = publishedOf(have, d), true
	return c, nil
}

func publishedOf(a amounts, d demand) Published {
	return Published{Offer: absent, Bound: d.lent, Own: a[own], Koordinator: a[koordinator]}
}
