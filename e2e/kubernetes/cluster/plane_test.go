package cluster

import (
	"slices"
	"testing"
)

func TestWithGates(t *testing.T) {
	plain := []string{"kube-scheduler", "--leader-elect=false"}
	one := withGates(plain, "A=true")
	if want := append(slices.Clone(plain), "--feature-gates=A=true"); !slices.Equal(one, want) {
		t.Errorf("with a gate %q, want %q", one, want)
	}
	if two := withGates(one, "B=false"); !slices.Contains(two, "--feature-gates=B=false") || len(two) != len(one) {
		t.Errorf("with another %q", two)
	}
	if none := withGates(one, ""); !slices.Equal(none, plain) {
		t.Errorf("with none %q, want %q", none, plain)
	}
}
