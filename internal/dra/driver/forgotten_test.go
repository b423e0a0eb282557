package driver

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

func (p *decider) claims() (list []policy.ClaimView) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid := range p.given {
		list = append(list, policy.ClaimView{UID: uid, Namespace: "ns", Name: "c1"})
	}
	return list
}

// A claim is given back without a request only if kubelet has not known it for long and no pod has it.
func TestForgottenClaims(t *testing.T) {
	missing := &fs.PathError{Op: "open", Path: "dra_manager_state", Err: fs.ErrNotExist}
	for _, c := range []struct {
		name   string
		change func(*world)
		given  bool // back
	}{
		{"kubelet's record does not have it", func(*world) {}, true},
		{"kubelet knows it", func(w *world) { w.known = map[string]bool{uid: true} }, false},
		{"a pod has it", func(w *world) { w.policy.used = true }, false},
		{"kubelet's record is not read", func(w *world) {
			w.unread = errors.New("torn")
			delete(w.api.claims, "ns/c1") // which says nothing about the pod
		}, false},
		{"no record, and the API server has it", func(w *world) { w.unread = missing }, false},
		{"no record, and it is gone", func(w *world) { w.unread = missing; delete(w.api.claims, "ns/c1") }, true},
		{"no record, and it was replaced", func(w *world) {
			w.unread = missing
			w.api.claims["ns/c1"].UID = "other"
		}, true},
		{"no record, and no API server", func(w *world) { w.unread, w.api.fails = missing, errors.New("gone") }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.policy.given[uid] = []cpuset.Set{{}}
			if err := w.driver.o.Specs.Write(uid, 1); err != nil {
				t.Fatal(err)
			}
			c.change(w)
			seen := forgotten{}
			for i := range forgottenFor {
				if len(w.policy.given) == 0 {
					t.Fatalf("given back after %d looks", i)
				}
				w.driver.look(t.Context(), seen)
			}
			left, _ := filepath.Glob(filepath.Join(w.dir, "cdi", "*"))
			if given := len(w.policy.given) == 0; given != c.given || given != (len(left) == 0) {
				t.Errorf("given back %v, specs left: %v", given, left)
			}
		})
	}
}

// A claim that kubelet knows again in between begins anew.
func TestAClaimIsForgottenInARow(t *testing.T) {
	w := newWorld(t)
	w.policy.given[uid] = []cpuset.Set{{}}
	seen := forgotten{}
	for range 3 {
		for range forgottenFor - 1 {
			w.driver.look(t.Context(), seen)
		}
		w.known = map[string]bool{uid: true}
		w.driver.look(t.Context(), seen)
		w.known = nil
	}
	if len(w.policy.given) != 1 {
		t.Error("it was given back")
	}
	delete(w.policy.given, uid)
	w.driver.look(t.Context(), seen)
	if len(seen) > 0 {
		t.Errorf("what is gone is still counted: %v", seen)
	}
}
