package cpuset

import (
	"strings"
	"testing"

	oracle "k8s.io/utils/cpuset"
	"pgregory.net/rapid"
)

func cpus() *rapid.Generator[[]int] {
	return rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 130), rapid.IntRange(0, MaxCPUs-1)), 0, 200)
}

func TestSetAgainstOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		as, bs := cpus().Draw(t, "a"), cpus().Draw(t, "b")
		a, b := Of(as...), Of(bs...)
		oa, ob := oracle.New(as...), oracle.New(bs...)
		and, or, minus := a.And(b), a.Or(b), a.Minus(b)
		for _, c := range []struct {
			op   string
			got  Set
			want oracle.CPUSet
		}{
			{"a", a, oa}, {"and", and, oa.Intersection(ob)}, {"or", or, oa.Union(ob)},
			{"minus", minus, oa.Difference(ob)},
		} {
			if c.got.String() != c.want.String() {
				t.Fatalf("%s: got %s, want %s", c.op, c.got, c.want)
			}
			if c.got.Count() != c.want.Size() || c.got.IsEmpty() != c.want.IsEmpty() {
				t.Fatalf("%s: count %d, want %d", c.op, c.got.Count(), c.want.Size())
			}
			back, err := Parse(c.got.String())
			if err != nil || back != c.got {
				t.Fatalf("parse %q: %v, %v", c.got, back, err)
			}
		}
		if a.SubsetOf(&b) != oa.IsSubsetOf(ob) || a.Intersects(&b) != !and.IsEmpty() || a.CountAnd(&b) != and.Count() {
			t.Fatalf("relations of %s and %s", a, b)
		}
		// By one CPU at a time the same: what is equal compares as equal, whatever it was.
		added, left := a, a
		for _, c := range bs {
			added.Add(c)
			left.Remove(c)
		}
		if added != or || left != minus {
			t.Fatalf("%s with %s is %s, without %s", a, b, added, left)
		}
		from := rapid.IntRange(-1, MaxCPUs).Draw(t, "from")
		want := a
		for c := range max(from, 0) {
			want.Remove(c)
		}
		if next := a.Next(from); next != want.First() {
			t.Fatalf("after %d in %s comes %d, want %d", from, a, next, want.First())
		}
		var listed []int
		for c := range a.All() {
			listed = append(listed, c)
		}
		if Of(listed...) != a || len(listed) != a.Count() {
			t.Fatalf("All gave %v for %s", listed, a)
		}
	})
}

func TestParseRefuses(t *testing.T) {
	for list, want := range map[string]string{
		"0-2000000000":                  "end at 8191",
		"8192":                          "end at 8191",
		"99999999999999999999999999999": "end at 8191",
		"-1":                            "missing",
		"3-1":                           "backwards, write 1-3",
		"0-3,2":                         "names CPU 2 twice",
		"1,,2":                          "missing",
		"1,":                            "missing",
		"0-":                            "missing",
		"a":                             "not a CPU number",
		" 1":                            "not a CPU number",
		"1\n":                           "not a CPU number",
		"٣":                             "not a CPU number",
		"0-1-2":                         "not a CPU number",
		"0x10":                          "not a CPU number",
		"1\x1b[31m":                     `\x1b`,
		strings.Repeat("1,", 1<<19):     "longer than",
	} {
		got, err := Parse(list)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%.20q) = %s, %v; want an error with %q", list, got, err, want)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("Parse(%.20q): error of %d bytes", list, len(err.Error()))
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "0", "0-3,8", "0-2000000000", "3-1", "0-3,2", "1,,2", "8191"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		s, err := Parse(list)
		if err != nil {
			return
		}
		want, err := oracle.Parse(list)
		if err != nil || want.String() != s.String() {
			t.Fatalf("Parse(%q) = %s; the oracle says %s, %v", list, s, want, err)
		}
	})
}

func BenchmarkMinus(b *testing.B) {
	x, y := Range(0, 511), Range(100, 200)
	for b.Loop() {
		x = x.Minus(y)
	}
}

func BenchmarkParseHostile(b *testing.B) {
	for b.Loop() {
		if _, err := Parse("0-10000000"); err == nil {
			b.Fatal("accepted")
		}
	}
}
