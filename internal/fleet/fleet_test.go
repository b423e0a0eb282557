package fleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/kube/planetest"
)

// streams are what a command writes to.
func streams() (s cli.Streams, out, errs *bytes.Buffer) {
	out, errs = &bytes.Buffer{}, &bytes.Buffer{}
	return cli.Streams{Out: out, Errs: errs}, out, errs
}

// summariesOf is `status -o json`.
func summariesOf(t testing.TB, c *Cluster) map[string]*control.Summary {
	t.Helper()
	s, out, errs := streams()
	if err := c.Status(t.Context(), s, "json", false); err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	var said struct{ Nodes []nodeSummary }
	if err := json.Unmarshal(out.Bytes(), &said); err != nil {
		t.Fatal(err)
	}
	by := map[string]*control.Summary{}
	for _, n := range said.Nodes {
		by[n.Node] = n.Summary
	}
	return by
}

// Every daemon is asked, each answers of itself, and of those that do not the others are not less.
func TestAllNodes(t *testing.T) {
	const nodes = 40
	f, c := clusterOf(t, nodes)
	by := summariesOf(t, c)
	if len(by) != nodes {
		t.Fatalf("%d nodes", len(by))
	}
	shapes := machines()
	for i, d := range f.nodes {
		topo, err := shapes[i%len(shapes)].Build()
		if err != nil {
			t.Fatal(err)
		}
		s := by[d.node]
		if s == nil || s.Node != d.node || s.CPUs != topo.Online().Count() || s.Owners != d.owners ||
			s.Version != "v0.9.0" {
			t.Errorf("%s: %+v, want %d CPUs and %d owners", d.node, s, topo.Online().Count(), d.owners)
		}
	}
	for what, want := range map[string]int64{"pods": 2, "token": 1, "proxy": nodes, "tokenreviews": nodes,
		"subjectaccessreviews": nodes} {
		if got := f.asked(what); got != want {
			t.Errorf("%d requests of %s, want %d", got, what, want)
		}
	}
	c.Selector = "pool=7"
	if by := summariesOf(t, c); len(by) != nodes/10 || by["node-017"] == nil {
		t.Errorf("with a label there are %d", len(by))
	}
	c.Selector = ""
	s, out, errs := streams()
	c.Errs, c.Live = errs, true
	f.nodes[3].port = 1 // nobody listens there
	var part cli.PartialError
	if err := c.Status(t.Context(), s, "text", false); !errors.As(err, &part) {
		t.Errorf("one is gone: %v", err)
	}
	if text := out.String(); !strings.Contains(text, "\n40 nodes: ") ||
		!strings.Contains(text, ", 1 without an answer;") {
		t.Errorf("the last line is missing:\n%s", text[max(0, len(text)-300):])
	}
	if text := errs.String(); !strings.Contains(text, "\r40 of 40 nodes, 1 did not answer\x1b[K") ||
		!strings.Contains(text, "node node-003: ") {
		t.Errorf("progress and reasons are missing:\n%q", text)
	}
}

// Who hurt web most: over all nodes, as one who counts by hand would say.
func TestWhoHurtAJobMost(t *testing.T) {
	_, c := clusterOf(t, 12)
	s, out, _ := streams()
	if err := c.Incidents(t.Context(), s, incidents.Filter{Limit: 1000}, "json"); err != nil {
		t.Fatal(err)
	}
	var list struct {
		Incidents []struct {
			Node        string
			Antagonists []struct{ Job string }
		}
	}
	if err := json.Unmarshal(out.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{}
	for _, i := range list.Incidents {
		want[i.Antagonists[0].Job]++
	}
	if len(want) != 3 {
		t.Fatalf("the world is too small: %v", want)
	}
	out.Reset()
	q := incidents.TopQuery{Victim: "web", By: incidents.ByIncidents, Group: incidents.GroupJob, Limit: 2}
	if err := c.IncidentsTop(t.Context(), s, q, "json"); err != nil {
		t.Fatal(err)
	}
	var top incidents.Top
	if err := json.Unmarshal(out.Bytes(), &top); err != nil {
		t.Fatal(err)
	}
	if len(top.Ranks) != 2 || !top.More || top.Incidents != len(list.Incidents) {
		t.Errorf("%+v of %d incidents", top, len(list.Incidents))
	}
	for n, r := range top.Ranks {
		for job, count := range want {
			if job == r.Name && (count != r.Incidents || r.Score != 0.5) || n == 0 && count > r.Incidents {
				t.Errorf("%s has %d by hand, the ranks are %+v", job, count, top.Ranks)
			}
		}
	}
}

// The report of all nodes adds up what each says, and one node that is asked alone says all.
func TestReportOfAllNodes(t *testing.T) {
	_, c := clusterOf(t, 12)
	s, out, _ := streams()
	if err := c.Incidents(t.Context(), s, incidents.Filter{Limit: 1000}, "json"); err != nil {
		t.Fatal(err)
	}
	all := strings.Count(out.String(), `"id":`)
	if all < 3 {
		t.Fatalf("the world is too small: %d incidents", all)
	}
	out.Reset()
	q := control.ReportQuery{Since: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC), Limit: 2}
	if err := c.Report(t.Context(), s, q, "text"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`NODE +MODE +SEEN +OWNERS SHARING +INCIDENTS `, `(?m)^node-011 +observe +1h +1 +\d `,
		fmt.Sprintf(`(?m)^12 nodes: %d incidents, %d minutes disturbed$`, all, 2*all),
		fmt.Sprintf(`(?m)^shop/Deployment/web +%d +%d +lab/Job/`, all, 2*all),
		`(?m)^shop/db-node-000 +node-000 +LSE +4.0 +2.0 +2.0$`} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("there is no %s in\n%s", want, out)
		}
	}
	if n := strings.Count(out.String(), "shop/db-"); n != 2 {
		t.Errorf("%d left CPUs idle, of at most 2:\n%s", n, out)
	}
	c.Nodes = []string{"node-003"}
	out.Reset()
	whole := regexp.MustCompile(`(?s)^node node-003 from .*shop/db-node-003 +lab/batch +61 +1.0 +61`)
	if err := c.Report(t.Context(), s, q, "text"); err != nil || !whole.MatchString(out.String()) {
		t.Errorf("%v\n%s", err, out)
	}
	out.Reset()
	if err := c.Report(t.Context(), s, q, "json"); err != nil ||
		!strings.Contains(out.String(), `[{"node":"node-003","pod":"quietcore-003","report":{"node":"node-003"`) {
		t.Errorf("%v\n%s", err, out)
	}
}

// What is sent of each question is what the daemon says over its socket.
func TestEveryQuestion(t *testing.T) {
	_, c := clusterOf(t, 3)
	dir := t.TempDir()
	for what, q := range map[string]struct {
		ask  func(cli.Streams) error
		want string
	}{
		"top": {func(s cli.Streams) error { return c.Top(t.Context(), s, Top{Sort: "usage", Limit: 3}) },
			`(?s)^3 nodes, \d+ CPUs, .*node-000 .*shop/db-0/main`},
		"map":      {func(s cli.Streams) error { return c.Map(t.Context(), s, "text") }, `(?m)^node-002 +64 `},
		"map json": {func(s cli.Streams) error { return c.Map(t.Context(), s, "json") }, `"status":\{"containers":`},
		"draw": {func(s cli.Streams) error { return c.Draw(t.Context(), s) },
			`(?s)node-001 \(pod quietcore-001\)\n.*shop/db-0/main`},
		"explain": {func(s cli.Streams) error { return c.Explain(t.Context(), s, "shop/db-0", "text") },
			`(?s)node node-000\nshop/db-0/main\n  why `},
		"incidents": {func(s cli.Streams) error {
			return c.Incidents(t.Context(), s, incidents.Filter{Limit: 5}, "text")
		}, `AT +NODE`},
		"bundle": {func(s cli.Streams) error {
			c := *c
			c.All = true
			return c.Bundle(t.Context(), s, dir, false, noon)
		}, `node-001: .*/quietcore-bundle-node-001-20261121T120000Z.tar.gz`},
	} {
		s, out, errs := streams()
		if err := q.ask(s); err != nil || !regexp.MustCompile(q.want).MatchString(out.String()) {
			t.Errorf("%s: %v\n%s%s", what, err, out, errs)
		}
	}
	if text, err := os.ReadFile(filepath.Join(dir, "quietcore-bundle-node-002-20261121T120000Z.tar.gz")); err != nil ||
		string(text) != "an archive of node-002" {
		t.Errorf("%q, %v", text, err)
	}
	s, _, errs := streams()
	if err := c.Doctor(t.Context(), s, "text", false); err == nil ||
		!strings.Contains(errs.String(), "3 nodes (node-000, node-001, node-002): this daemon was started without") {
		t.Errorf("%v\n%s", err, errs)
	}
}

// globalAddress is one of this machine that the API server's proxy takes.
func globalAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if n, is := a.(*net.IPNet); is && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Skip("the API server's proxy takes no address of loopback, and this machine has no other")
	return ""
}

var realNodes = flag.Int("fleet.nodes", 3, "how many daemons there are behind the real API server")

// rights are those of the chart for a release quietcore, for the user reader.
const rights = "../../hack/chart/testdata/reader.yaml"

// The real API server: who may ask, and who may not, with the rights of the chart.
func TestRealAPIServer(t *testing.T) {
	p := planetest.Start(t)
	ip := globalAddress(t)
	p.Create("/api/v1/namespaces", "{metadata: {name: quietcore-system}}")
	p.Apply(rights)
	p.Create("/api/v1/namespaces/quietcore-system/serviceaccounts", "{metadata: {name: quietcore-hub}}")
	p.Apply(hubRights)
	api := p.Config()
	var list []*simulated
	for i := range *realNodes {
		d := simulate(t, i, "0.0.0.0:0", api)
		list = append(list, d)
		running(t, p, d, ip)
	}
	as := func(user string, groups ...string) *Cluster {
		c := asUser(t, api.Host, "admin")
		c.Kubeconfig = p.Kubeconfig(user, groups, nil)
		return c
	}
	reader := as("reader", "system:authenticated")
	began := time.Now()
	by := summariesOf(t, reader)
	t.Logf("%d nodes in %s", len(by), time.Since(began))
	for _, d := range list {
		if s := by[d.node]; s == nil || s.Owners != d.owners {
			t.Errorf("%s: %+v", d.node, s)
		}
	}
	refused := func(who string, c *Cluster, want string) {
		t.Helper()
		s, out, errs := streams()
		err := c.Status(t.Context(), s, "text", false)
		if text := fmt.Sprint(err, "\n", errs); err == nil || !strings.Contains(text, want) {
			t.Errorf("%s: %s\n%s", who, text, out)
		}
	}
	refused("anybody", as("somebody", "system:authenticated"), `cannot list resource "pods"`)
	// Who may reach pods, and may have no token of readers.
	p.Create("/apis/rbac.authorization.k8s.io/v1/namespaces/quietcore-system/roles",
		`{metadata: {name: near}, rules: [{apiGroups: [""], resources: [pods, pods/proxy], verbs: [list, get]}]}`)
	p.Create("/apis/rbac.authorization.k8s.io/v1/namespaces/quietcore-system/rolebindings",
		`{metadata: {name: near}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: near},
		subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: near}]}`)
	near := as("near", "system:authenticated")
	p.Within("the role counts", func() bool {
		s, _, _ := streams()
		err := near.Status(t.Context(), s, "text", false)
		return err != nil && !strings.Contains(err.Error(), "list the daemons' pods")
	})
	refused("near", near, `cannot create resource "serviceaccounts/token"`)
	hubMayAsk(t, p, list)
	answersOnlyReaders(t, p, list[0])
}

// running has a daemon's pod run at the API server.
func running(t *testing.T, p *planetest.Plane, d *simulated, ip string) {
	t.Helper()
	text, err := json.Marshal(podOf(d, ip))
	if err != nil {
		t.Fatal(err)
	}
	p.Create("/api/v1/namespaces/quietcore-system/pods", string(text))
	status, err := json.Marshal(map[string]any{"status": podOf(d, ip)["status"]})
	if err != nil {
		t.Fatal(err)
	}
	p.Merge("/api/v1/namespaces/quietcore-system/pods/"+d.pod+"/status", string(status))
}

func TestPodOf(t *testing.T) {
	for _, c := range []struct{ text, namespace, want string }{
		{"shop/db", "", "shop/db"}, {"shop/db/main", "", "shop/db/main"}, {"db", "shop", "shop/db"}, {"db", "", "/db"},
		{"shop/db", "shop", "shop/db"}, {"shop/db", "lab", ""}, {"a/b/c/d", "", ""}, {"", "", ""}, {"shop/", "", ""},
		{"-n/x", "", ""}, {"shop/$(id)", "", ""}, {"Shop/db", "", ""}, {"shop/db\n", "", ""}, {"shop/../x", "", ""},
		{"shop/" + strings.Repeat("x", 300), "", ""},
	} {
		if got, ok := PodOf(c.text, c.namespace); got != c.want || ok != (c.want != "") {
			t.Errorf("%.40q in %q: %q, %t", c.text, c.namespace, got, ok)
		}
	}
}

// A daemon that is busy is asked again, after as long as it says.
func TestBusyDaemonsAreAskedAgain(t *testing.T) {
	var waited []time.Duration
	s := busyServer(t, 3, func(d time.Duration) <-chan time.Time {
		waited = append(waited, d)
		now := make(chan time.Time, 1)
		now <- time.Time{}
		return now
	})
	var said struct{ Fine bool }
	if err := s.do(t.Context(), call{method: "GET", path: "/x"}, into(&said)); err != nil || !said.Fine {
		t.Errorf("%+v, %v", said, err)
	}
	if fmt.Sprint(waited) != "[2s 2s 2s]" {
		t.Errorf("waited %v", waited)
	}
	waited = nil
	s = busyServer(t, 100, s.after)
	if err := s.do(t.Context(), call{method: "GET", path: "/x"}, into(&said)); err == nil || len(waited) != tries-1 ||
		!strings.Contains(err.Error(), "others are being answered") {
		t.Errorf("%v after %v", err, waited)
	}
}
