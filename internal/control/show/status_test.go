package show

import (
	"slices"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/policy"
)

// Claims are listed with what each of their devices gave, and with what they lost; without claims there is no list.
func TestClaimsInTheStatus(t *testing.T) {
	cpus, err := cpuset.Parse("2-3")
	if err != nil {
		t.Fatal(err)
	}
	withheld, err := cpuset.Parse("5")
	if err != nil {
		t.Fatal(err)
	}
	claims := []policy.ClaimView{
		{Namespace: "ns", Name: "a", Pods: []string{"p", "q"}, Requests: []policy.ClaimPart{
			{Device: "numa-0", Asked: 2, CPUs: cpus},
			{Device: "numa-1", Asked: 1, CPUs: withheld, Withheld: withheld}}},
		{Namespace: "ns", Name: "b", Requests: []policy.ClaimPart{
			{Device: "numa-0", Asked: 4, Lost: "CPUs 4-7, which it had, are others' now"}}},
	}
	var out strings.Builder
	if err := writeClaims(&out, claims); err != nil {
		t.Fatal(err)
	}
	const want = `
CLAIM  DEVICE  CPUS  PODS  WHY
ns/a   numa-0  2-3   2     asked for 2
ns/a   numa-1  5     2     asked for 1; CPUs 5 are kept idle for it
ns/b   numa-0  none  0     asked for 4; CPUs 4-7, which it had, are others' now
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	if err := writeClaims(&out, nil); err != nil || out.Len() > 0 {
		t.Errorf("without claims: %q, %v", out.String(), err)
	}
}

// The last day is one of the notes, once there is one.
func TestReportInTheStatus(t *testing.T) {
	s := &control.Status{Connected: true, Synchronised: true}
	if list := notes(s); len(list) != 0 {
		t.Errorf("without a report: %q", list)
	}
	s.Report = "in 24h0m: 3 incidents, 20 minutes disturbed"
	if list := notes(s); !slices.Equal(list, []string{"quietcore report: " + s.Report}) {
		t.Errorf("%q", list)
	}
}
