package control

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/policy"
)

func TestAFilterChoosesContainers(t *testing.T) {
	type container struct {
		namespace, pod string
		class          policy.Class
	}
	web, db, job := container{"shop", "web-7d-x", policy.LS}, container{"shop", "db", policy.LSR},
		container{"jobs", "web-batch", policy.BE}
	for name, c := range map[string]struct {
		f    Filter
		want []container
	}{
		"all":                   {Filter{}, []container{web, db, job}},
		"a namespace":           {Filter{Namespaces: []string{"shop"}}, []container{web, db}},
		"two classes":           {Filter{Classes: []string{"LSR", "BE"}}, []container{db, job}},
		"a name":                {Filter{Pods: []string{"db"}}, []container{db}},
		"not a part of a name":  {Filter{Pods: []string{"web"}}, nil},
		"a pattern":             {Filter{Pods: []string{"web-*"}}, []container{web, job}},
		"patterns":              {Filter{Pods: []string{"d?", "*-x"}}, []container{web, db}},
		"all three must fit":    {Filter{[]string{"shop"}, []string{"LS"}, []string{"web*"}}, []container{web}},
		"a namespace of nobody": {Filter{Namespaces: []string{"sho"}}, nil},
	} {
		var got []container
		for _, one := range []container{web, db, job} {
			if c.f.Match(one.namespace, one.pod, one.class) {
				got = append(got, one)
			}
		}
		if d := cmp.Diff(c.want, got, cmp.AllowUnexported(container{})); d != "" || c.f.Check() != nil {
			t.Errorf("%s: %v\n%s", name, c.f.Check(), d)
		}
	}
	for _, bad := range []Filter{{Classes: []string{"ls"}}, {Pods: []string{"web-["}}} {
		if err := bad.Check(); !errors.As(err, new(cli.UsageError)) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// What is about other pods goes, what is about the machine stays.
func TestAFilteredStatus(t *testing.T) {
	status := func() *Status {
		return &Status{
			Containers: []script.State{{Namespace: "shop", Pod: "web", Container: "main", Class: "LS"},
				{Namespace: "shop", Pod: "db", Container: "main", Class: "LSR"},
				{Namespace: "jobs", Pod: "sort", Container: "main", Class: "BE"}},
			Throttled: map[string]Throttled{"jobs/sort/main": {}, "shop/web/main": {}},
			Owners:    []Owner{{Namespace: "shop", Pod: "db"}, {Namespace: "shop", Pod: "crashing"}},
			Waiting:   []policy.Waiting{{Namespace: "shop", Pod: "web"}, {Namespace: "jobs", Pod: "sort"}},
			Powers:    []policy.PowersView{{Namespace: "shop", Pod: "db"}, {Namespace: "jobs", Pod: "sort"}},
			Claims:    []policy.ClaimView{{Namespace: "shop", Name: "cpu"}, {Namespace: "jobs", Name: "cpu"}},
			Lending: &Lending{Capacity: 16, Pods: []BatchPod{{Namespace: "jobs", Pod: "sort"}},
				Taken: []Taken{{What: "all"}, {Pod: "jobs/sort"}}},
			Pools: script.Pools{Shared: "0-3"},
		}
	}
	for name, c := range map[string]struct {
		f    Filter
		want func(*Status)
	}{
		"all": {Filter{}, func(*Status) {}},
		"a namespace": {Filter{Namespaces: []string{"jobs"}}, func(s *Status) {
			s.Containers, s.Owners, s.Waiting = s.Containers[2:], s.Owners[:0], s.Waiting[1:]
			s.Powers, s.Claims = s.Powers[1:], s.Claims[1:]
			delete(s.Throttled, "shop/web/main")
		}},
		"a class": {Filter{Classes: []string{"LSR"}}, func(s *Status) {
			s.Containers, s.Owners, s.Waiting = s.Containers[1:2], s.Owners[:1], s.Waiting[:0]
			s.Powers, s.Throttled = s.Powers[:1], map[string]Throttled{}
			s.Lending.Pods, s.Lending.Taken = s.Lending.Pods[:0], s.Lending.Taken[:1]
		}},
		"a pod that does not run": {Filter{Pods: []string{"crashing"}}, func(s *Status) {
			s.Containers, s.Owners, s.Waiting = s.Containers[:0], s.Owners[1:], s.Waiting[:0]
			s.Powers, s.Throttled = s.Powers[:0], map[string]Throttled{}
			s.Lending.Pods, s.Lending.Taken = s.Lending.Pods[:0], s.Lending.Taken[:1]
		}},
	} {
		got, want := status(), status()
		got.Filter(&c.f)
		c.want(want)
		if d := cmp.Diff(text(t, want), text(t, got)); d != "" {
			t.Errorf("%s:\n%s", name, d)
		}
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// What best effort is kept off is counted as the daemon's metric counts it.
func TestWithheld(t *testing.T) {
	none := -1.0
	for _, c := range []struct {
		l    Lending
		want float64
	}{
		{Lending{Suppression: "off", Pool: 8, Suppressed: "0-1"}, none},
		{Lending{Suppression: "enforce", Problem: "broken"}, none},
		{Lending{Suppression: "enforce", Pool: 8}, 0},
		{Lending{Suppression: "enforce", Pool: 8, Suppressed: "0-1"}, 6},
		{Lending{Suppression: "observe", Pool: 8, Suppressed: "0-1"}, 6},
		{Lending{Suppression: "enforce", Pool: 8, Suppressed: "0-1", Retreated: true}, 0},
		{Lending{Suppression: "enforce", Pool: 8, Quota: 2.5}, 5.5},
		{Lending{Suppression: "enforce", Pool: 2, Suppressed: "0-3"}, 0},
	} {
		got := none
		if n := (&Status{Lending: &c.l}).summary(8, nil).Withheld; n != nil {
			got = *n
		}
		if got != c.want {
			t.Errorf("%+v: %v, want %v", c.l, got, c.want)
		}
	}
}
