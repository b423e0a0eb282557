package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/fleet"
	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/page/pagetest"
	"github.com/quietcore/quietcore/internal/page/site"
	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/policy"
)

func TestHeat(t *testing.T) {
	for name, c := range map[string]struct {
		s    control.Summary
		used *float64
		want heat
	}{
		"nothing is lent": {control.Summary{CPUs: 8, Pools: script.Pools{Exclusive: "0-2"}}, nil,
			heat{CPUs: 8, Exclusive: amountOf(3)}},
		"containers alone": {control.Summary{CPUs: 8}, amountOf(2.5),
			heat{CPUs: 8, Used: amountOf(2.5), Exclusive: amountOf(0)}},
		"the node measures more": {control.Summary{CPUs: 16, Pools: script.Pools{Exclusive: "0,8"}, Lent: amountOf(4),
			Withheld: amountOf(6), Used: &control.Use{Production: 3, Batch: 2, Outside: 0.5}}, amountOf(4),
			heat{CPUs: 16, Used: amountOf(5.5), Exclusive: amountOf(2), Lent: amountOf(4), Withheld: amountOf(6)}},
		"nonsense": {control.Summary{CPUs: -8, Pools: script.Pools{Exclusive: "all"}, Lent: amountOf(-1)}, nil,
			heat{Lent: amountOf(0)}},
	} {
		if d := cmp.Diff(c.want, heatOf(&c.s, c.used)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestSums(t *testing.T) {
	got := sumOf([]nodeView{
		{heat: heat{CPUs: 8, Used: amountOf(2), Exclusive: amountOf(4)}, Idle: amountOf(1.5)},
		{heat: heat{CPUs: 16, Used: amountOf(3), Exclusive: amountOf(0), Lent: amountOf(6)}, Problems: []string{"a"}},
		{Wrong: "no answer", Problems: []string{"of before"}},
	})
	want := sums{Nodes: 3, Silent: 1, Unwell: 1, Idle: 1.5, heat: heat{CPUs: 24, Used: amountOf(5),
		Exclusive: amountOf(4), Lent: amountOf(6), Withheld: amountOf(0)}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(sums{})); d != "" {
		t.Error(d)
	}
}

// What an owner leaves is its CPUs without what it used of them, over the time in which that is known.
func TestOwnersThatIdle(t *testing.T) {
	var u use
	at := noon
	look := func(after time.Duration, list ...control.TopContainer) {
		at = at.Add(after)
		for i := range list {
			list[i].UsageAt = at.Sub(noon).Seconds()
		}
		u.take(at, &control.Top{At: at, Containers: list})
	}
	if u.idle() != nil {
		t.Error("something is known of a node that was never asked")
	}
	const own, shared = policy.PoolExclusive, policy.PoolShared
	look(0, container("db", own, "0-3", 100, at), container("web", shared, "4-7", 10, at))
	if u.inUse != nil || u.idle() != nil {
		t.Errorf("after one answer %v are in use, %v idle", u.inUse, u.idle())
	}
	look(time.Minute, container("db", own, "0-3", 160, at), container("web", shared, "4-7", 130, at))
	if *u.inUse != 3 || *u.idle() != 3 {
		t.Errorf("%v are in use, %v idle, want 3 and 3", *u.inUse, *u.idle())
	}
	// It comes to use all of them, and more than those; a new one has no use yet.
	look(time.Minute, container("db", own, "0-3", 460, at), container("cache", own, "8-9", 5, at))
	db := u.owners[podName{"shop", "db"}]
	if db.watched != 2*time.Minute || db.left != 3*time.Minute || *db.used != 5 || *u.idle() != 0 {
		t.Errorf("%+v, %v idle", db, *u.idle())
	}
	if cache := u.owners[podName{"shop", "cache"}]; cache.used != nil || cache.watched != 0 || cache.cpus != 2 {
		t.Errorf("a new one: %+v", cache)
	}
	// One that is gone is forgotten, and one whose cgroup is another begins anew.
	look(time.Minute, container("cache", own, "8-9", 1, at))
	if len(u.owners) != 1 || u.owners[podName{"shop", "cache"}].watched != 0 {
		t.Errorf("%+v", u.owners)
	}
	// Containers of a pod count together, and none where one is not known.
	two := func(a, b float64) []control.TopContainer {
		list := []control.TopContainer{container("app", own, "0-1", a, at), container("app", own, "1-2", b, at)}
		list[1].ID = "app-second"
		return list
	}
	look(time.Minute, two(0, 0)...)
	look(time.Minute, two(30, 60)...)
	if app := u.owners[podName{"shop", "app"}]; app.cpus != 3 || *app.used != 1.5 || app.left != 90*time.Second {
		t.Errorf("of two containers: %+v", app)
	}
	half := two(60, 90)
	half[1].UsageSeconds = nil
	look(time.Minute, half...)
	if app := u.owners[podName{"shop", "app"}]; app.used != nil || app.watched != time.Minute {
		t.Errorf("of two, one of them unknown: %+v", app)
	}
}

func TestWhoIsDisturbed(t *testing.T) {
	both := happened("5", noon, "db", 2, "encode", "encode")
	both.Antagonists[1].Pod = "encode-1"
	lone := happened("6", noon.Add(time.Hour), "db", 0.5)
	lone.Mean = 0
	list := []happening{}
	for i, one := range []incidents.Summary{happened("1", noon, "web", 2, "sort"),
		happened("2", noon, "web", 3, "encode"), happened("3", noon.Add(time.Minute), "web", 1.5, "encode"),
		happened("4", noon, "ads", 9), both, lone} {
		list = append(list, happening{fmt.Sprint("node-", i%2), &one})
	}
	want := []*disturbed{
		{Job: "shop/Deployment/web", Incidents: 3, Nodes: 2, Excess: 3.5, Worst: "lab/Job/encode", Blamed: 2,
			Last: noon.Add(time.Minute).UnixMilli()},
		{Job: "shop/Deployment/db", Incidents: 2, Nodes: 2, Excess: 1, Worst: "lab/Job/encode", Blamed: 1,
			Last: noon.Add(time.Hour).UnixMilli()},
		{Job: "shop/Deployment/ads", Incidents: 1, Nodes: 1, Excess: 8, Last: noon.UnixMilli()},
	}
	if d := cmp.Diff(want, disturbedOf(list), cmpopts.IgnoreUnexported(disturbed{})); d != "" {
		t.Error(d)
	}
}

// What came later stands for what it was before, what is too old goes, and what is left out is said.
func TestIncidentsAreKeptWithinBounds(t *testing.T) {
	minute := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Minute) }
	at := func(ids ...int) (list []incidents.Summary) {
		for _, n := range ids {
			list = append(list, happened(fmt.Sprint(n), minute(n), "web", 2))
		}
		return list
	}
	changed := at(3)
	changed[0].Result = "success"
	for name, c := range map[string]struct {
		was, news []incidents.Summary
		more      bool
		want      string
		whole     time.Time
	}{
		"the first":    {nil, at(3, 2, 1), false, "3 2 1", time.Time{}},
		"nothing new":  {at(3, 2), nil, false, "3 2", time.Time{}},
		"more":         {at(3, 2), at(5, 4), false, "5 4 3 2", time.Time{}},
		"changed":      {at(4, 3, 2), changed, false, "4 3success 2", time.Time{}},
		"too old":      {at(2, -1), at(3), false, "3 2", time.Time{}},
		"too many":     {at(4, 3, 2), at(6, 5), false, "6 5 4 3", minute(3)},
		"more to have": {nil, at(6, 5), true, "6 5", minute(5)},
	} {
		p := past{incidents: c.was}
		got := p.merge(&incidents.Listing{Incidents: c.news, More: c.more}, noon, 4)
		var ids []string
		for _, one := range got.incidents {
			ids = append(ids, one.ID+one.Result)
		}
		if text := strings.Join(ids, " "); text != c.want || !got.whole.Equal(c.whole) {
			t.Errorf("%s: %s since %v, want %s since %v", name, text, got.whole, c.want, c.whole)
		}
	}
}

// A node is asked for a summary in each round, and for the rest in each fourth, for what it has not said yet.
func TestRounds(t *testing.T) {
	a, b := &daemon{name: "a", summary: control.Summary{CPUs: 8, CPI: "observe"}},
		&daemon{name: "b", summary: control.Summary{CPUs: 8, CPI: "off"}}
	w, h := newHub(t, a, b)
	w.next(t, h, 0)
	week, hour := "2026-11-14T12:00:00Z", "2026-11-21T11:00:00Z"
	if want := []string{"summary", "top", "incidents since " + week + " limit 1000"}; !slices.Equal(a.asked, want) {
		t.Errorf("in the first round a is asked %q, want %q", a.asked, want)
	}
	if want := []string{"summary", "top"}; !slices.Equal(b.asked, want) {
		t.Errorf("b, which detects nothing, is asked %q, want %q", b.asked, want)
	}
	a.asked, b.asked = nil, nil
	for range 4 {
		w.next(t, h, 15*time.Second)
	}
	for d, times := range map[*daemon]int{a: 1, b: 0} {
		n := map[string]int{}
		for _, path := range d.asked {
			n[strings.Fields(path)[0]]++
		}
		if n["summary"] != 4 || n["top"] != 1 || n["incidents"] != times {
			t.Errorf("in four rounds %s is asked %v", d.name, d.asked)
		}
	}
	i := slices.IndexFunc(a.asked, func(path string) bool { return strings.HasPrefix(path, "incidents") })
	if want := "incidents since " + hour + " limit 1000"; a.asked[i] != want {
		t.Errorf("a is asked for %q, want %q", a.asked[i], want)
	}
}

// A node that does not answer keeps its place and what it said, with when; one that is gone from the cluster is
// forgotten after ten minutes; and while nobody can be asked, everything stays.
func TestNodesThatDoNotAnswer(t *testing.T) {
	a, b := &daemon{name: "a", summary: control.Summary{CPUs: 8}}, &daemon{name: "b",
		summary: control.Summary{CPUs: 16, Problems: []string{"x"}}}
	w, h := newHub(t, a, b)
	node := func(i int) nodeView { return h.fleet().Nodes[i] }
	w.next(t, h, 0)
	b.wrong = errors.New("no route\x1b[2J to host")
	w.next(t, h, time.Minute)
	if n := node(1); n.Wrong != "no route?[2J to host" || n.Heard != noon.UnixMilli() || n.CPUs != 16 {
		t.Errorf("%+v", n)
	}
	if s := h.fleet().Sums; s.Silent != 1 || s.Unwell != 0 || s.CPUs != 24 {
		t.Errorf("%+v", s)
	}
	b.wrong = nil
	w.next(t, h, time.Minute)
	if n := node(1); n.Wrong != "" || n.Heard != noon.Add(2*time.Minute).UnixMilli() {
		t.Errorf("again: %+v", n)
	}
	w.daemons = w.daemons[:1]
	w.next(t, h, time.Minute)
	if n := node(1); n.Wrong != "its daemon's pod is gone" || n.Heard != noon.Add(2*time.Minute).UnixMilli() {
		t.Errorf("gone: %+v", n)
	}
	w.wrong = errors.New("the API server is away")
	w.next(t, h, time.Hour)
	if f := h.fleet(); f.Problem != "the API server is away" || len(f.Nodes) != 2 || f.Rounds != 4 {
		t.Errorf("%+v", f)
	}
	w.wrong = nil
	w.next(t, h, time.Minute)
	if f := h.fleet(); f.Problem != "" || len(f.Nodes) != 1 || f.Nodes[0].Name != "a" {
		t.Errorf("%+v", f)
	}
}

// Who hurt web most, over all nodes, in a window; and of which nodes that is not known.
func TestWhoHurtAJobMost(t *testing.T) {
	list := func(d *daemon, ago time.Duration, all ...incidents.Summary) *daemon {
		for i := range all {
			all[i].At = noon.Add(-ago - time.Duration(i)*time.Minute)
			all[i].ID = fmt.Sprint(d.name, i)
		}
		d.list = append(d.list, all...)
		d.summary.CPI = "observe"
		return d
	}
	one := func(by string) incidents.Summary { return happened("", noon, "web", 2, by) }
	a := list(&daemon{name: "a"}, time.Hour, one("encode"), one("sort"), happened("", noon, "db", 3, "train"))
	b := list(&daemon{name: "b"}, time.Hour, one("encode"), happened("", noon, "web", 2))
	old := list(&daemon{name: "c"}, 48*time.Hour, one("sort"), one("sort"), one("sort"))
	silent := &daemon{name: "d", wrong: errors.New("no")}
	_, h := newHub(t, a, b, old, silent, &daemon{name: "e", summary: control.Summary{CPI: "off"}})
	h.ask(t.Context())
	ranks := func(v incidentsView) string {
		var text []string
		for _, r := range v.Hurt.Ranks {
			text = append(text, fmt.Sprintf("%s %d", r.Name, r.Incidents))
		}
		return strings.Join(text, ", ")
	}
	for _, c := range []struct {
		q             query
		ranks         string
		all, unblamed int
	}{
		{query{victim: "web", hours: 24, limit: 9}, "lab/Job/encode 2, lab/Job/sort 1", 4, 1},
		{query{victim: "web", hours: 168, limit: 9}, "lab/Job/sort 4, lab/Job/encode 2", 7, 1},
		{query{hours: 24, limit: 9}, "lab/Job/encode 2, lab/Job/train 1, lab/Job/sort 1", 5, 1},
		{query{antagonist: "encode", hours: 24, limit: 9}, "shop/Deployment/web 2", 2, 0},
		{query{hours: 24, limit: 1}, "lab/Job/encode 2", 5, 1},
		{query{victim: "nobody", hours: 24, limit: 9}, "", 0, 0},
	} {
		v := h.incidents(c.q)
		if got := ranks(v); got != c.ranks || v.All != c.all || v.Hurt.Unexplained != c.unblamed ||
			len(v.Incidents) != min(c.all, c.q.limit) {
			t.Errorf("%+v: %s of %d, %d unblamed, %d listed; want %+v", c.q, got, v.All, v.Hurt.Unexplained,
				len(v.Incidents), c)
		}
		if v.Nodes != 3 || v.Off != 1 || v.Unread != 1 || v.Cut != 0 {
			t.Errorf("%+v: of %d nodes, %d off, %d unread, %d cut", c.q, v.Nodes, v.Off, v.Unread, v.Cut)
		}
	}
	v := h.incidents(query{hours: 24, limit: 9})
	if want := []string{"shop/Deployment/db", "shop/Deployment/web"}; !slices.Equal(v.Jobs, want) ||
		v.Incidents[0].Node != "a" || v.Incidents[1].Node != "b" {
		t.Errorf("%v, %+v", v.Jobs, v.Incidents)
	}
}

// The page answers as the daemon's does: to names of this machine alone, with the same policy, and only reads.
func TestWhoIsAnswered(t *testing.T) {
	_, h := newHub(t, some(3)...)
	h.ask(t.Context())
	page := h.Handler()
	set := func(key, value string) func(*http.Request) { return func(r *http.Request) { r.Header.Set(key, value) } }
	for _, c := range []struct {
		path   string
		change func(*http.Request)
		want   int
	}{
		{"/", nil, 200}, {"/api/fleet", nil, 200}, {"/api/owners", nil, 200}, {"/api/incidents", nil, 200},
		{"/api/incidents?hours=6&victim=web&by=excess", nil, 200}, {"/api/incidents?hours=1000", nil, 400},
		{"/api/incidents?hours=NaN", nil, 400}, {"/api/incidents?hours=-1", nil, 400},
		{"/api/incidents?by=capped", nil, 400}, {"/assets/none.js", nil, 404}, {"/livez", nil, 404},
		{"/", func(r *http.Request) { r.Host = "evil.example" }, 421},
		{"/api/fleet", set("Sec-Fetch-Site", "cross-site"), 403},
		{"/api/fleet", func(r *http.Request) { r.Method = http.MethodPost }, 405},
	} {
		change := c.change
		if change == nil {
			change = func(*http.Request) {}
		}
		w := get(page, c.path, change)
		if w.Code != c.want || !strings.Contains(w.Header().Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %d %q, want %d", c.path, w.Code, w.Header().Get("Content-Security-Policy"), c.want)
		}
	}
	own, err := fs.Sub(embedded, "assets")
	if err != nil {
		t.Fatal(err)
	}
	pagetest.SelfContained(t, page, own, site.Shared())
}

// The probes say whether the hub asks at all, not whether anybody answers.
func TestProbes(t *testing.T) {
	w, h := newHub(t, &daemon{name: "a", wrong: errors.New("no")})
	probe := func(path string) int { return get(h.Health(), path).Code }
	if live, ready := probe("/livez"), probe("/readyz"); live != 200 || ready != 503 {
		t.Errorf("before the first round: %d, %d", live, ready)
	}
	w.next(t, h, time.Second)
	if live, ready := probe("/livez"), probe("/readyz"); live != 200 || ready != 200 {
		t.Errorf("after it: %d, %d", live, ready)
	}
	w.now = w.now.Add(stuckFor + time.Minute)
	if live := probe("/livez"); live != 503 {
		t.Errorf("after a long silence: %d", live)
	}
	w.wrong = errors.New("no API server")
	w.next(t, h, 0)
	if live := probe("/livez"); live != 200 {
		t.Errorf("without an API server: %d", live)
	}
}

func TestServiceChecks(t *testing.T) {
	good := Service{Listen: "127.0.0.1:0", Every: time.Minute, Window: time.Hour, Cluster: fleet.Cluster{Home: "a",
		Labels: "b", Parallel: 1, Patience: time.Second}}
	for name, c := range map[string]struct {
		change func(*Service)
		want   string
	}{
		"good":                  {func(*Service) {}, ""},
		"a Unix socket":         {func(s *Service) { s.Listen = "/run/hub.sock" }, ""},
		"IPv6":                  {func(s *Service) { s.Listen = "[::1]:9470" }, ""},
		"every address":         {func(s *Service) { s.Listen = ":9470" }, "on loopback"},
		"another's":             {func(s *Service) { s.Listen = "10.0.0.1:9470" }, "on loopback"},
		"a name":                {func(s *Service) { s.Listen = "localhost.example:9470" }, "on loopback"},
		"too often":             {func(s *Service) { s.Every = time.Millisecond }, "--every"},
		"too far":               {func(s *Service) { s.Window = 1000 * time.Hour }, "--window"},
		"the cluster's mistake": {func(s *Service) { s.Cluster.Parallel = 0 }, "--parallel"},
		"a Prometheus": {func(s *Service) {
			s.Prometheus.URL, s.Matchers = "https://prometheus.monitoring/at", `cluster="a",env=~"b|c"`
		}, ""},
		"no Prometheus":   {func(s *Service) { s.Prometheus.URL = "prometheus:9090" }, "--prometheus is"},
		"matchers alone":  {func(s *Service) { s.Matchers = `cluster="a"` }, "want --prometheus"},
		"a token of none": {func(s *Service) { s.Prometheus.TokenFile = "/token" }, "want --prometheus"},
		"braces": {func(s *Service) { s.Prometheus.URL, s.Matchers = "http://a", `{cluster="a"}` },
			"without braces"},
	} {
		s := good
		c.change(&s)
		if err := s.Check(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	good.Cluster.Kubeconfig = t.TempDir() + "/none"
	if err := good.Run(context.Background(), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("without a kubeconfig it runs")
	}
}
