package kubelet

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestShares(t *testing.T) {
	for milli, want := range map[int64]int64{0: 2, 1: 2, 2: 2, 100: 102, 1500: 1536, 4000: 4096, 256000: 262144,
		512000: 262144} {
		if got := Shares(milli); got != want {
			t.Errorf("Shares(%d) = %d, want %d", milli, got, want)
		}
	}
}

func TestQuota(t *testing.T) {
	for milli, want := range map[int64]int64{0: 0, 1: 1000, 10: 1000, 11: 1100, 1500: 150000, 256000: 25600000} {
		if got := Quota(milli); got != want {
			t.Errorf("Quota(%d) = %d, want %d", milli, got, want)
		}
	}
}

func TestWeight(t *testing.T) {
	for shares, want := range map[int64]int64{0: 100, 1: 1, 2: 1, 1024: 39, 4096: 157, 262144: 10000} {
		if got := Weight(shares); got != want {
			t.Errorf("Weight(%d) = %d, want %d", shares, got, want)
		}
	}
}

func TestPodSums(t *testing.T) {
	for name, tc := range map[string]struct {
		containers       []Container
		request, limit   int64
		class            string
		quota, sandboxed int64
	}{
		"nothing": {[]Container{{Name: "a"}}, 0, 0, BestEffort, 0, 0},
		"one guaranteed": {[]Container{{Name: "a", RequestMilli: 2000, LimitMilli: 2000}}, 2000, 2000, Guaranteed,
			200000, 200000},
		"limit only": {[]Container{{Name: "a", LimitMilli: 1000}}, 1000, 1000, Guaranteed, 100000, 100000},
		"a container without a limit hides in the sandbox's sum": {
			[]Container{{Name: "a", RequestMilli: 1000, LimitMilli: 1000}, {Name: "b", RequestMilli: 500}},
			1500, 1000, Burstable, 0, 100000},
		"the largest init container counts": {
			[]Container{{Name: "i", RequestMilli: 3000, LimitMilli: 3000, Kind: Init},
				{Name: "j", RequestMilli: 1000, LimitMilli: 1000, Kind: Init},
				{Name: "a", RequestMilli: 2000, LimitMilli: 2000}},
			3000, 3000, Guaranteed, 300000, 300000},
		"sidecars run next to all later ones": {
			[]Container{{Name: "i", RequestMilli: 2000, LimitMilli: 2000, Kind: Init},
				{Name: "s", RequestMilli: 1000, LimitMilli: 1000, Kind: Sidecar},
				{Name: "j", RequestMilli: 2000, LimitMilli: 2000, Kind: Init},
				{Name: "a", RequestMilli: 1000, LimitMilli: 1000}},
			3000, 3000, Guaranteed, 300000, 300000},
	} {
		p := Pod{UID: "u", Containers: tc.containers}
		if p.Requests() != tc.request || p.Limits() != tc.limit || p.ClassOf() != tc.class {
			t.Errorf("%s: %d/%d %s, want %d/%d %s", name, p.Requests(), p.Limits(), p.ClassOf(), tc.request, tc.limit,
				tc.class)
		}
		if got := p.PodCPU().Quota; got != tc.quota {
			t.Errorf("%s: pod quota %d, want %d", name, got, tc.quota)
		}
		if got := p.SandboxCPU().Quota; got != tc.sandboxed {
			t.Errorf("%s: sandbox quota %d, want %d", name, got, tc.sandboxed)
		}
	}
}

func TestStateFileIsJSON(t *testing.T) {
	var got struct {
		PolicyName    string
		DefaultCPUSet string `json:"defaultCpuSet"`
		Entries       map[string]map[string]string
	}
	text := StateFile("static", "2-15", map[string]map[string]string{"u": {"b": "1", "a": "0"}, "v": {}})
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if got.PolicyName != "static" || got.DefaultCPUSet != "2-15" || got.Entries["u"]["b"] != "1" ||
		len(got.Entries) != 2 {
		t.Errorf("%+v", got)
	}
}

func TestResizePlan(t *testing.T) {
	set := func(shares, quota int64) PodSet {
		c := CPU{Shares: shares, Quota: quota, Period: Period}
		return PodSet{c, c}
	}
	for name, tc := range map[string]struct {
		from, to      PodSet
		before, after []PodSet
	}{
		"grow":          {set(4096, 400000), set(6144, 600000), []PodSet{set(4096, 600000), set(6144, 600000)}, nil},
		"shrink":        {set(4096, 400000), set(2048, 200000), nil, []PodSet{set(2048, 400000), set(2048, 200000)}},
		"same":          {set(4096, 400000), set(4096, 400000), nil, nil},
		"limit removed": {set(1024, 100000), set(1024, 0), []PodSet{set(1024, 0)}, nil},
		"limit appears": {set(1024, 0), set(1024, 100000), nil, []PodSet{set(1024, 100000)}},
		"away from each": {set(2048, 200000), set(1024, 300000), []PodSet{set(2048, 300000)},
			[]PodSet{set(1024, 300000)}},
	} {
		before, after := ResizePlan(tc.from, tc.to)
		if !slices.Equal(before, tc.before) || !slices.Equal(after, tc.after) {
			t.Errorf("%s:\n got %v then %v\nwant %v then %v", name, before, after, tc.before, tc.after)
		}
	}
}
