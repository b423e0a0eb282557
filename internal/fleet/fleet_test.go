package fleet

import (
	"strings"
	"testing"
)

func TestOnlyNamesOfPodsAreHandedOn(t *testing.T) {
	for text, want := range map[string]bool{
		"shop/db": true, "shop/db/main": true, "shop/db-0.x": true, "shop": false, "": false, "a/b/c/d": false,
		"-n/x": false, "shop/--": false,
		"shop/$(id)": false, "Shop/db": false, "shop/db\n": false, "shop/" + strings.Repeat("x", 700): false,
	} {
		if got := IsPod(text); got != want {
			t.Errorf("%.40q: %t", text, got)
		}
	}
}

func TestBoundedKeepsTheBeginning(t *testing.T) {
	b := bounded{most: 5}
	for _, p := range []string{"abc", "defg", "h"} {
		if n, err := b.Write([]byte(p)); n != len(p) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if b.String() != "abcde" || !b.cut {
		t.Errorf("%q, cut %t", b.String(), b.cut)
	}
}
