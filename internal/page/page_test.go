package page

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/page/pagetest"
	"github.com/quietcore/quietcore/internal/page/site"
	"github.com/quietcore/quietcore/internal/render"
	"github.com/quietcore/quietcore/policy"
)

// ask is a request as a browser at the page makes it.
func ask(path string, change ...func(*http.Request)) *http.Request {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = "localhost:9465"
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for _, c := range change {
		c(r)
	}
	return r
}

func answer(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestWhoIsAnswered(t *testing.T) {
	h := newNode(t, small(), "").page.Handler()
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	header := func(pairs ...string) func(*http.Request) {
		return func(r *http.Request) {
			for i := 0; i < len(pairs); i += 2 {
				r.Header.Set(pairs[i], pairs[i+1])
			}
		}
	}
	for name, c := range map[string]struct {
		path   string
		change func(*http.Request)
		want   int
	}{
		"localhost":             {"/", host("localhost"), 200},
		"localhost with a port": {"/", host("LocalHost:1"), 200},
		"127.0.0.1":             {"/", host("127.0.0.1:9465"), 200},
		"another of loopback":   {"/", host("127.9.9.9:9465"), 200},
		"IPv6":                  {"/", host("[::1]:9465"), 200},
		"IPv6 without a port":   {"/", host("[::1]"), 200},
		"rebound name":          {"/", host("evil.example:9465"), 421},
		"rebound, ends alike":   {"/api/state", host("localhost.evil.example"), 421},
		"rebound, begins alike": {"/api/state", host("127.0.0.1.evil.example"), 421},
		"subdomain":             {"/api/state", host("evil.localhost"), 421},
		"no host":               {"/api/state", host(""), 421},
		"the node's address":    {"/", host("10.0.0.7:9465"), 421},
		"another site's script": {"/api/state", header("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors"), 403},
		"another site's stream": {"/api/stream", header("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors"),
			403},
		"another port's picture": {"/incidents/x.svg", header("Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode",
			"no-cors", "Sec-Fetch-Dest", "image"), 403},
		"another site's frame": {"/", header("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate",
			"Sec-Fetch-Dest", "iframe"), 403},
		"a link on another site": {"/", header("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate",
			"Sec-Fetch-Dest", "document"), 200},
		"typed":                 {"/", header("Sec-Fetch-Site", "none"), 200},
		"curl":                  {"/api/state", func(r *http.Request) { r.Header.Del("Sec-Fetch-Site") }, 200},
		"POST":                  {"/api/state", func(r *http.Request) { r.Method = http.MethodPost }, 405},
		"DELETE":                {"/", func(r *http.Request) { r.Method = http.MethodDelete }, 405},
		"HEAD":                  {"/", func(r *http.Request) { r.Method = http.MethodHead }, 200},
		"nothing there":         {"/metrics", nil, 404},
		"outside of the assets": {"/assets/..%2fpage.go", nil, 404},
		"no such asset":         {"/assets/none.js", nil, 404},
		"no such incident":      {"/api/incidents/20261121-120000000-abcdefgh", nil, 404},
		"no incident":           {"/incidents/%2e%2e.svg", nil, 404},
		"no drawing":            {"/incidents/20261121-120000000-abcdefgh.pdf", nil, 404},
	} {
		r := ask(c.path)
		if c.change != nil {
			c.change(r)
		}
		w := answer(h, r)
		if w.Code != c.want {
			t.Errorf("%s: %d, want %d: %s", name, w.Code, c.want, w.Body)
		}
		if got := w.Header().Get("Content-Security-Policy"); !strings.Contains(got, "default-src 'none'") ||
			strings.Contains(got, "unsafe") {
			t.Errorf("%s: the policy is %q", name, got)
		}
		for key, want := range map[string]string{"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
			"Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin",
			"Access-Control-Allow-Origin": ""} {
			if got := w.Header().Get(key); got != want {
				t.Errorf("%s: %s is %q, want %q", name, key, got, want)
			}
		}
	}
}

func TestAssetsAreSelfContained(t *testing.T) {
	list, err := folders()
	if err != nil {
		t.Fatal(err)
	}
	pagetest.SelfContained(t, newNode(t, small(), "").page.Handler(), list...)
}

// document is /api/state.
type document struct {
	Machine    machinePart
	Node       nodePart
	CPUs       cpusPart
	Containers containersPart
	Samples    samplesPart
	Incidents  incidentsPart
}

func (n *node) document() (d document) {
	n.t.Helper()
	w := answer(n.page.Handler(), ask("/api/state"))
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil {
		n.t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	return d
}

func TestTheDocument(t *testing.T) {
	n := newNode(t, small(), "6-7")
	n.pod("shop", "db", "LSR", 2000)
	n.pod("shop", "cache", "LSE", 1000)
	n.pod("shop", "web", "LS", 500)
	id := n.pod("batch", "encode", "BE", 0)
	s := n.plugin.Snapshot()
	kept := s.BEWhole
	kept.Remove(7)
	n.submit(policy.CapVerdict{ID: id, Milli: 100, For: time.Hour}, policy.BESuppressed{CPUs: kept})
	key := n.incident(story(noon, "db", "encode"))
	d := n.document()

	var cpus []int
	for _, s := range d.Machine.Sockets {
		for _, node := range s.Nodes {
			for _, l := range node.L3s {
				for _, c := range l.Cores {
					cpus = append(cpus, c.CPUs...)
				}
			}
		}
	}
	slices.Sort(cpus)
	if !slices.Equal(cpus, []int{0, 1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("the machine has CPUs %v", cpus)
	}
	pools := map[int]string{}
	for _, m := range d.CPUs.CPUs {
		owner := ""
		if m.Owner != nil {
			owner = " " + d.CPUs.Owners[*m.Owner].Pod
		}
		pools[m.ID] = strings.TrimSpace(m.Pool + owner + " " + m.BE)
	}
	want := map[int]string{0: "lsr db in", 1: "lsr db in", 2: "lse cache", 3: "shared in", 4: "shared in",
		5: "shared in", 6: "reserved in", 7: "reserved off"}
	if fmt.Sprint(pools) != fmt.Sprint(want) {
		t.Errorf("CPUs are %v\nwant     %v", pools, want)
	}
	for _, c := range d.Containers.Containers {
		switch c.Pod {
		case "encode":
			if c.CapMilli != 100 || c.CPUs != "" || c.Pool != policy.PoolBE {
				t.Errorf("capped container is %+v", c)
			}
		case "db":
			if c.CPUs != "0-1" || !strings.Contains(c.Why, "LSR") {
				t.Errorf("owner's container is %+v", c)
			}
		}
	}
	if d.Node.Name != "node-a" || !d.Node.Connected || d.Node.CPI.Mode != "observe" || !d.Node.KeepsIncidents {
		t.Errorf("node is %+v", d.Node)
	}
	if want := "2 of 3 jobs are judged; 1 lacks samples (100 in each of 5 containers), the first for 3m at least"; d.
		Node.CPI.Judged != want || !strings.HasPrefix(d.Node.CPI.Counted, "4 of 5 containers were counted") {
		t.Errorf("the page says %q and %q, want %q", d.Node.CPI.Judged, d.Node.CPI.Counted, want)
	}
	if len(d.Samples.Samples) != 4 || d.Samples.Samples[id].CPI == nil {
		t.Errorf("samples are %+v", d.Samples)
	}
	if len(d.Incidents.Incidents) != 1 || d.Incidents.Incidents[0].ID != key ||
		d.Incidents.Incidents[0].Antagonist != "shop/encode/main" {
		t.Errorf("incidents are %+v", d.Incidents)
	}
	// An owner without a container is one.
	n.submit(policy.ContainerStopped{ID: "id-" + fmt.Sprintf("uid-%x-%x", "shop", "db")})
	n.advance(time.Second, time.Second)
	for _, o := range n.document().CPUs.Owners {
		if o.Pod == "db" && (o.Running || o.CPUs != "0-1" || o.Pool != render.Exclusive) {
			t.Errorf("owner without a container is %+v", o)
		}
	}
}

func TestDrawingsOfIncidents(t *testing.T) {
	n := newNode(t, small(), "")
	i := story(noon, hostile()[0], hostile()[2])
	i.Why = hostile()[1]
	id := n.incident(i)
	h := n.page.Handler()
	for path, kind := range map[string]string{"/incidents/" + id + ".svg": "image/svg+xml", "/incidents/" + id +
		".html": "text/html; charset=utf-8", "/api/incidents/" + id: "application/json"} {
		w := answer(h, ask(path))
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != kind {
			t.Errorf("%s: %d %s", path, w.Code, w.Header().Get("Content-Type"))
		}
		if policy := w.Header().Get("Content-Security-Policy"); strings.Contains(policy,
			"script-src 'self'") != (kind == "application/json") {
			t.Errorf("%s: the policy is %q", path, policy)
		}
		if body := w.Body.String(); kind != "application/json" && (strings.Contains(body, "<img src=x") ||
			strings.Contains(body, "<script>")) {
			t.Errorf("%s has markup of a tenant", path)
		}
	}
}

func TestHostileNamesAreCleanText(t *testing.T) {
	n := newNode(t, small(), "")
	for _, bad := range hostile() {
		n.pod(bad, bad, "LS", 100)
	}
	n.pod("owner", hostile()[4], "LSE", 2000)
	n.incident(story(noon, hostile()[4], hostile()[5]))
	n.advance(15*time.Second, time.Second)
	h := n.page.Handler()
	for _, path := range []string{"/api/state", "/api/history", "/api/report"} {
		body := answer(h, ask(path)).Body.String()
		var all any
		if err := json.Unmarshal([]byte(body), &all); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		everyString(all, func(text string) {
			for _, r := range text {
				if r < ' ' || r == 0x7f || (r > '~' && r != '…') {
					t.Errorf("%s holds %q", path, text)
				}
			}
			if len(text) > 1100 {
				t.Errorf("%s holds %d bytes in one text", path, len(text))
			}
		})
		if strings.Contains(body, "<img") || strings.Contains(body, "</script") {
			t.Errorf("%s has angle brackets of a tenant as they are", path)
		}
	}
	if c := n.document().Containers.Containers; !slices.ContainsFunc(c, func(c containerPart) bool {
		return c.Pod == strings.Repeat("n", 253)
	}) {
		t.Error("a name of 253 characters is cut")
	}
}

func everyString(v any, f func(string)) {
	switch v := v.(type) {
	case string:
		f(v)
	case []any:
		for _, one := range v {
			everyString(one, f)
		}
	case map[string]any:
		for key, one := range v {
			f(key)
			everyString(one, f)
		}
	}
}

// reader is one that reads a stream as a browser does.
type reader struct {
	t      *testing.T
	cancel func()
	body   io.ReadCloser
	lines  *bufio.Reader
}

func openStream(t *testing.T, base string) *reader {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("stream: %s %s", resp.Status, resp.Header.Get("Content-Type"))
	}
	return &reader{t, cancel, resp.Body, bufio.NewReaderSize(resp.Body, 1<<20)}
}

// batch reads events up to and with the next time.
func (r *reader) batch() map[string]string {
	r.t.Helper()
	events := map[string]string{}
	event := ""
	for {
		line, err := r.lines.ReadString('\n')
		if err != nil {
			r.t.Fatalf("the stream ended: %v", err)
		}
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, "event: "); ok {
			event = name
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			if !json.Valid([]byte(data)) {
				r.t.Fatalf("%s is not JSON: %.200s", event, data)
			}
			events[event] = data
		}
		if line == "" && event == "now" {
			return events
		}
	}
}

func names(events map[string]string) []string {
	var list []string
	for name := range events {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

func TestTheStreamSendsWhatChanges(t *testing.T) {
	n := newNode(t, small(), "")
	n.pod("shop", "web", "LS", 500)
	n.advance(20*time.Second, time.Second)
	r := openStream(t, n.serve(t))
	first := r.batch()
	if got := names(first); !slices.Equal(got, []string{"containers", "cpus", "incidents", "load", "machine", "node",
		"now", "samples"}) {
		t.Errorf("the first batch has %v", got)
	}
	// A pool changes, and the containers in it are not sent again.
	kept := n.plugin.Snapshot().BEWhole
	kept.Remove(7)
	n.submit(policy.BESuppressed{CPUs: kept})
	n.advance(time.Second, time.Second)
	second := r.batch()
	if _, sent := second[partContainers]; sent || second[partCPUs] == "" || second["changes"] == "" {
		t.Errorf("a change of a pool sends %v", names(second))
	}
	n.pod("shop", "db", "LSR", 2000)
	n.advance(time.Second, time.Second)
	third := r.batch()
	if third[partContainers] == "" || !strings.Contains(third["changes"], "owns CPUs") {
		t.Errorf("a new pod sends %v: %s", names(third), third["changes"])
	}
	// Time passes: the timeline goes on, the machine is not sent again.
	n.advance(10*time.Second, 10*time.Second)
	fourth := r.batch()
	if fourth["points"] == "" || fourth[partMachine] != "" || fourth[partCPUs] != "" {
		t.Errorf("ten seconds send %v", names(fourth))
	}
}

func TestTooManyStreams(t *testing.T) {
	n := newNode(t, small(), "")
	base := n.serve(t)
	var open []*reader
	for range maxStreams {
		r := openStream(t, base)
		r.batch()
		open = append(open, r)
	}
	resp, err := http.Get(base + "/api/stream")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("one too many: %s", resp.Status)
	}
	// What is not a stream is answered all the same, and a place that is free is given.
	if d := n.document(); d.Node.Name != "node-a" {
		t.Errorf("node is %+v", d.Node)
	}
	open[0].cancel()
	open[0].body.Close()
	for len(n.page.streams) == maxStreams {
		runtime.Gosched()
	}
	openStream(t, base).batch()
}

func TestManyAskAtTheSameTime(t *testing.T) {
	n := newNode(t, large(), "")
	for i := range 200 {
		n.pod("web", fmt.Sprintf("frontend-%03d", i), "LS", 100)
	}
	base := n.serve(t)
	before := n.looks.Load()
	// Each keeps its connection: the server counts one that was closed until it sees that,
	// and more than maxFromOne are refused.
	const clients = 40
	transport := &http.Transport{MaxConnsPerHost: clients, MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport}
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for range 5 {
				resp, err := client.Get(base + "/api/state")
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable {
					t.Errorf("%s", resp.Status)
				}
			}
		})
	}
	all.Wait()
	// The clock stands still, so one look is enough for all of them, or for each of
	// those that asked before there was one.
	if looks := n.looks.Load() - before; looks > maxAnswers {
		t.Errorf("200 requests made the daemon look %d times", looks)
	}
}

// A reader that accepts nothing delays no other, and is disconnected.
func TestASlowReaderHoldsNobodyUp(t *testing.T) {
	n := newNode(t, large(), "")
	for i := range 100 {
		n.pod("web", fmt.Sprintf("frontend-%03d", i), "LS", 100)
	}
	w := &stuck{header: http.Header{}, begun: make(chan struct{}), release: make(chan struct{})}
	ended := make(chan struct{})
	go func() { n.page.Handler().ServeHTTP(w, ask("/api/stream")); close(ended) }()
	<-w.begun
	r := openStream(t, n.serve(t))
	r.batch()
	for i := range 50 {
		n.pod("late", fmt.Sprintf("p-%d", i), "LS", 100)
		n.advance(time.Second, time.Second)
		r.batch()
	}
	close(w.release) // its deadline has come
	<-ended
	if w.deadline.IsZero() {
		t.Error("a write to a reader has no deadline")
	}
	if w.writes != 1 {
		t.Errorf("%d batches were made for a reader that took none", w.writes)
	}
}

// stuck is a reader that takes nothing until its connection is given up.
type stuck struct {
	header         http.Header
	begun, release chan struct{}
	deadline       time.Time
	writes         int
}

func (s *stuck) Header() http.Header { return s.header }
func (s *stuck) WriteHeader(int)     {}
func (s *stuck) Write([]byte) (int, error) {
	s.writes++
	close(s.begun)
	<-s.release
	return 0, os.ErrDeadlineExceeded
}
func (s *stuck) SetWriteDeadline(t time.Time) error { s.deadline = t; return nil }

// The same over a real connection whose other end reads nothing: its place is free
// again when its patience is over.
func TestADeafConnectionIsGivenUp(t *testing.T) {
	n := newNode(t, large(), "")
	n.page.slow = 50 * time.Millisecond
	for i := range 400 {
		n.pod("web", fmt.Sprintf("frontend-%03d-%s", i, strings.Repeat("x", 200)), "LS", 100)
	}
	base := n.serve(t)
	c, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	for len(n.page.streams) == 0 {
		runtime.Gosched()
	}
	for i := 0; len(n.page.streams) > 0; i++ {
		if i == 2000 {
			t.Fatal("2000 batches were sent to a connection that reads nothing")
		}
		n.pod("late", fmt.Sprintf("p-%d", i), "LS", 100)
		n.advance(time.Second, time.Second)
	}
}

// A day with a reader: everything that is kept has its bound, and the last hour
// and the last day can be recognised.
func TestADay(t *testing.T) {
	n := newNode(t, small(), "")
	id := n.pod("batch", "encode", "BE", 0)
	base := n.serve(t)
	r := openStream(t, base)
	ended := make(chan struct{})
	go func() { // it reads as fast as it can
		defer close(ended)
		_, _ = io.Copy(io.Discard, r.lines)
	}()
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var after uint64
	for hour := range 26 {
		for minute := range 60 {
			if minute%10 == 0 {
				n.submit(policy.CapVerdict{ID: id, Milli: int64(100 + minute), For: 5 * time.Minute})
			}
			n.advance(time.Minute, 10*time.Second)
		}
		if hour == 2 {
			after = heap()
		}
	}
	if now := heap(); now > after+4<<20 {
		t.Errorf("the heap grew from %d to %d bytes in a day", after, now)
	}
	var h struct {
		Fine, Coarse struct{ Points [][]*float64 }
		Changes      []change
	}
	if err := json.Unmarshal(answer(n.page.Handler(), ask("/api/history")).Body.Bytes(), &h); err != nil {
		t.Fatal(err)
	}
	if len(h.Fine.Points) != finePoints || len(h.Coarse.Points) != coarsePoints || len(h.Changes) > maxChanges ||
		len(h.Changes) == 0 {
		t.Errorf("%d fine points, %d coarse ones, %d changes", len(h.Fine.Points), len(h.Coarse.Points), len(h.Changes))
	}
	last := func(p [][]*float64) time.Time { return time.Unix(int64(*p[len(p)-1][0]), 0) }
	span := func(p [][]*float64) time.Duration { return last(p).Sub(time.Unix(int64(*p[0][0]), 0)) }
	if span(h.Fine.Points) != time.Hour-fineStep || span(h.Coarse.Points) != 24*time.Hour-coarseStep {
		t.Errorf("the hour is %s long, the day %s", span(h.Fine.Points), span(h.Coarse.Points))
	}
	r.cancel()
	<-ended
}

func TestAClockThatIsSetBackIsSurvived(t *testing.T) {
	h := newHistory()
	at := noon
	for i := range 1000 {
		if i == 500 {
			at = at.Add(-6 * time.Hour)
		}
		if h.wants(at) {
			h.put(point{at: at})
		}
		at = at.Add(time.Second)
	}
	if n := h.fine.total; n < 99 || n > 102 {
		t.Errorf("%d points in 1000 seconds", n)
	}
}

func TestShortPeaksAreInTheDayToo(t *testing.T) {
	h := newHistory()
	for i := range 36 {
		p := point{at: noon.Add(time.Duration(i) * fineStep)}
		for k := range p.values {
			p.values[k] = math.NaN()
		}
		p.values[seriesShared], p.values[seriesCapped] = 4, 0
		if i == 15 {
			p.values[seriesCapped], p.values[seriesShared] = 1, 16
		}
		h.put(p)
	}
	list := h.coarse.since(0)
	if len(list) != 2 || list[1].values[seriesCapped] != 1 || list[1].values[seriesShared] != 5 ||
		!math.IsNaN(list[1].values[seriesProduction]) {
		t.Errorf("coarse points are %+v", list)
	}
}

func TestRingKeepsTheLast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := ring[int]{size: rapid.IntRange(1, 20).Draw(t, "size")}
		var all []int
		for i := range rapid.IntRange(0, 100).Draw(t, "puts") {
			r.put(i)
			all = append(all, i)
		}
		known := rapid.IntRange(0, 120).Draw(t, "known")
		want := all[min(known, len(all)):]
		want = want[max(0, len(want)-r.size):]
		if got := r.since(uint64(known)); !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

func TestChangesInWords(t *testing.T) {
	n := newNode(t, small(), "")
	id := n.pod("batch", "encode", "BE", 0)
	n.advance(time.Second, time.Second)
	n.submit(policy.CapVerdict{ID: id, Milli: 100, For: time.Hour})
	n.pod("shop", "db", "LSE", 2000)
	n.advance(time.Second, time.Second)
	n.gone.Store(true)
	n.advance(time.Second, time.Second)
	n.gone.Store(false)
	n.submit(policy.PodRemoved{Sandbox: "sb-" + fmt.Sprintf("uid-%x-%x", "shop", "db")})
	n.submit(policy.ContainerStopped{ID: id})
	n.advance(time.Second, time.Second)
	var got []string
	for _, c := range n.page.board.changes(0) {
		got = append(got, strings.TrimSpace(c.Who+" "+c.Text))
	}
	want := []string{
		"shop/db owns CPUs 0-1", "batch/encode/main is capped at 100m", "the connection to the runtime is gone",
		"connected to the runtime, and what runs is taken over", "shop/db no longer owns CPUs 0-1",
		"batch/encode/main is no longer capped",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestAUnixSocketIsForRootAlone(t *testing.T) {
	n := newNode(t, small(), "")
	path := filepath.Join(t.TempDir(), "run", "page.sock")
	l, err := site.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	n.serveOn(t, l, n.page.Handler())
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode is %v (%v)", info.Mode(), err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context,
		string, string) (net.Conn, error) {
		return net.Dial("unix", path)
	}}}
	resp, err := client.Get("http://localhost/api/state")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("%s", resp.Status)
	}
}

func TestIncidentsThatCannotBeRead(t *testing.T) {
	n := newNode(t, small(), "")
	n.page.o.Incidents = broken{n.store}
	if d := n.document(); !strings.Contains(d.Incidents.Why, "the disk is on fire") || d.Node.Name == "" {
		t.Errorf("incidents are %+v", d.Incidents)
	}
	if w := answer(n.page.Handler(), ask("/api/incidents/x")); w.Code != http.StatusServiceUnavailable {
		t.Errorf("one incident: %d", w.Code)
	}
}

type broken struct{ incidents.Source }

func (broken) List(context.Context, incidents.Filter) (*incidents.Listing, error) {
	return nil, fmt.Errorf("the disk is on fire")
}

func (broken) Get(context.Context, string) (*incidents.Incident, error) {
	return nil, fmt.Errorf("the disk is on fire")
}

// What a look costs with 1,000 containers on 512 CPUs when everything has changed
// and there is a reader.
func BenchmarkLook(b *testing.B) {
	n := newNode(b, large(), "")
	for i := range 40 {
		n.pod("search", fmt.Sprintf("leaf-%02d", i), "LSR", 4000)
	}
	for i := range 960 {
		n.pod("web", fmt.Sprintf("frontend-%03d", i), "LS", 100)
	}
	for b.Loop() {
		n.page.mu.Lock()
		n.page.made.snapshot = nil
		n.page.mu.Unlock()
		n.page.look(context.Background(), true)
	}
}
