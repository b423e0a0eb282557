package cgroup

import (
	"strings"
	"testing"
)

func TestParseCPUMax(t *testing.T) {
	for text, want := range map[string]int64{
		"max 100000\n": -1, "200000 100000\n": 2000, "1000 100000": 10, "50000 200000": 250,
		"9223372036854775807 1": 0, "18446744073709551615 100000": 0,
		"": 0, "max": 0, "-1 100000": 0, "1 0": 0, "1 -5": 0, "x 100000": 0, "1 2 3": 0, "+5 100000": 0,
	} {
		q, err := parseCPUMax(text)
		bad := want == 0 && text != "9223372036854775807 1"
		if (err != nil) != bad {
			t.Errorf("parseCPUMax(%q) = %+v, %v", text, q, err)
		} else if err == nil && want != 0 && q.Milli() != want {
			t.Errorf("parseCPUMax(%q) is %d milli-CPU, want %d", text, q.Milli(), want)
		}
	}
	if q, err := parseCFS("-1\n", "100000\n"); err != nil || q.Milli() != -1 {
		t.Errorf("v1 without quota: %+v, %v", q, err)
	}
}

func TestWeights(t *testing.T) {
	for weight, shares := range map[uint64]uint64{1: 2, 10000: 262144} {
		if weightToShares(weight) != shares || sharesToWeight(shares) != weight {
			t.Errorf("weight %d is %d shares, %d shares are weight %d", weight, weightToShares(weight), shares,
				sharesToWeight(shares))
		}
	}
}

func FuzzParseCPUMax(f *testing.F) {
	for _, s := range []string{"max 100000\n", "200000 100000\n", "", "-1 1", "9223372036854775807 1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := parseCPUMax(text)
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if back, err := parseCPUMax(q.String()); err != nil || back != q {
			t.Fatalf("%q is %+v, written back %+v, %v", text, q, back, err)
		}
	})
}

func FuzzParseSet(f *testing.F) {
	for _, s := range []string{"0-3\n", "", "\n", "0-2000000000\n", strings.Repeat("0,", 100)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := parseSet(text); err == nil {
			if back, err := parseSet(s.String() + "\n"); err != nil || back != s {
				t.Fatalf("%q is %s, written back %s, %v", text, s, back, err)
			}
		}
	})
}
