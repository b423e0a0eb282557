package cpuset

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

func TestPacked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Of(rapid.SliceOfN(rapid.IntRange(0, MaxCPUs-1), 0, 40).Draw(t, "cpus")...)
		o := Of(rapid.SliceOfN(rapid.IntRange(0, MaxCPUs-1), 0, 40).Draw(t, "others")...)
		p := s.Pack()
		if p.Set() != s || p.Count() != s.Count() || p.String() != s.String() {
			t.Fatalf("%s became %s with %d CPUs", s, p, p.Count())
		}
		sum, rest := o, o
		sum.AddPacked(p)
		rest.RemovePacked(p)
		if sum != o.Or(s) || rest != o.Minus(s) {
			t.Fatalf("%s and %s make %s, and without %s", o, s, sum, rest)
		}
		text, err := json.Marshal(map[string]Packed{"cpus": p})
		if err != nil {
			t.Fatal(err)
		}
		var back map[string]Packed
		if err := json.Unmarshal(text, &back); err != nil || back["cpus"] != p {
			t.Fatalf("%s comes back as %v, %v", text, back, err)
		}
	})
	if (&Set{}).Pack() != "" {
		t.Error("the empty set takes bytes")
	}
	if few := Range(0, 127); len(few.Pack()) != 16 {
		t.Errorf("128 CPUs take %d bytes", len(few.Pack()))
	}
}
