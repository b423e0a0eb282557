package show

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/script"
)

func lent() *control.Lending {
	published := 4.5
	at := time.Unix(1e9, 0)
	return &control.Lending{
		Mode: "enforce", Suppression: "observe", Capacity: 16, Production: 7, Batch: 2, Outside: 0.25, Known: true,
		Budget: 3.15, Pool: 16, Suppressed: "0-3",
		Estimate:  &control.Estimate{Supply: 4, Offer: 4.5, Promised: 5, Demand: 4.75, Idle: 1, Overcommitted: true},
		Published: &published,
		Pods: []control.BatchPod{{Namespace: "jobs", Pod: "sort", Requests: 4, Counts: 4,
			Why: "not idle: 3 of 5 samples"}, {Namespace: "jobs", Pod: "grep\x1b[31m", Requests: 1}},
		Taken: []control.Taken{
			{At: at, What: "4 of 16 CPUs are left, were 8", Why: "production uses 7.00 of 16 CPUs"},
			{At: at, Pod: "jobs/gone", What: "evicted", Why: "batch pods need 5.00 CPUs"},
		},
	}
}

func TestStatusSaysWhatIsLentAndWhyItWasTakenBack(t *testing.T) {
	var b strings.Builder
	if err := writeLending(&b, lent()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"lending enforce, suppression observe", "production 7.00",
		"best effort (would be): a budget of 3.15 CPUs, on CPUs 0-3 of 16",
		"lent: 4.50 CPUs offered; 5.00 promised, 4.75 needed (1 idle pods)",
		"overcommitted", "published: 4.50", "jobs/sort", "not idle: 3 of 5",
		"4 of 16 CPUs are left, were 8; production uses 7.00",
		"from jobs/gone at 2001-09-09T01:46:40Z: evicted; batch pods need",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Error("a tenant's name moves the cursor")
	}
	b.Reset()
	small := lent()
	small.Retreated, small.Suppressed = true, "0-1"
	want := "on CPUs 0-1 of 16 of its pool: the reserved ones, which are enough for it"
	if err := writeLending(&b, small); err != nil || !strings.Contains(b.String(), want) {
		t.Errorf("%v, no %q in\n%s", err, want, b.String())
	}
	b.Reset()
	parted := lent()
	parted.Group = &control.Group{Mode: "observe", Slice: 0.4, Pods: 2}
	parted.Pods[0].Part = 0.35
	want = "one group (would be): the best-effort slice has 0.40 CPUs of the quota, 2 pods outside of it the rest"
	if err := writeLending(&b, parted); err != nil || !strings.Contains(b.String(), want) {
		t.Errorf("%v, no %q in\n%s", err, want, b.String())
	}
	b.Reset()
	want = "part (would be)    0.35 CPUs of it"
	of := &control.Status{Lending: parted, Owners: []control.Owner{{Namespace: "jobs", Pod: "sort"}}}
	if lentText(&b, of.Explain([]string{"jobs", "sort"}).Lending); !strings.Contains(b.String(), want) {
		t.Errorf("no %q in\n%s", want, b.String())
	}
	b.Reset()
	if err := writeLending(&b, nil); err != nil || b.Len() > 0 {
		t.Errorf("%q, %v where lending is off", b.String(), err)
	}
}

func TestExplainSaysWhatAPodWasLent(t *testing.T) {
	s := &control.Status{Containers: []script.State{{Namespace: "jobs", Pod: "sort", Container: "main",
		Why: "because"}, {Namespace: "jobs", Pod: "web", Container: "main"}}, Lending: lent()}
	var b strings.Builder
	if !explained(&b, s, []string{"jobs", "sort"}) {
		t.Fatal("it is not found")
	}
	for _, want := range []string{"lent      4.00 CPUs", "not idle", "budget (would be)", "were 8"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "jobs/gone") {
		t.Errorf("another pod's eviction is shown:\n%s", b.String())
	}
	b.Reset()
	if explained(&b, s, []string{"jobs", "web"}); strings.Contains(b.String(), "budget") {
		t.Errorf("a pod of production shows what best effort has:\n%s", b.String())
	}
}

// What is only observed is not shown as if it had happened, and a quota is a budget too.
func TestObservedIsSaidToBe(t *testing.T) {
	l := lent()
	l.Mode, l.Suppressed, l.Quota = "observe", "", 0.5
	for i := range l.Taken {
		l.Taken[i].Observed = true
	}
	l.Taken[1].Pod = "jobs/sort"
	s := &control.Status{Containers: []script.State{{Namespace: "jobs", Pod: "sort", Container: "main"}}, Lending: l}
	var b strings.Builder
	if err := writeLending(&b, l); err != nil || !explained(&b, s, []string{"jobs", "sort"}) {
		t.Fatal(err)
	}
	for _, want := range []string{"taken back (would be) at", "taken back (would be) from jobs/sort",
		"taken     (would be) at", "budget (would be)  3.15 CPUs for all of best effort together, by a quota of 0.50"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestStatusNotesWhatDoesNotWork(t *testing.T) {
	s := &control.Status{Connected: true, Synchronised: true}
	s.CPI.Specs, s.RestartRequired = "no answer", []string{"cpi.mode", "mode"}
	s.CPI.Watchlist = &control.Watchlist{Counted: 4, Containers: 9, Victims: 1, Suspects: 1, Turns: 2}
	want := []string{"the configuration file has changed; a restart is required for cpi.mode, mode",
		"CPU performance: 4 of 9 containers were counted in the last window: 1 as victims, 1 as suspects, " +
			"2 because they had waited longest, 0 because they use most",
		"specs of the cluster: no answer"}
	if got := notes(s); !slices.Equal(got, want) {
		t.Errorf("status notes %q, want %q", got, want)
	}
}
