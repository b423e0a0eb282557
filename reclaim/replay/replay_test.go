package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/reclaim"
)

func play(t interface {
	Helper()
	Fatal(...any)
}, text string, o Options) ([]Line, Summary) {
	t.Helper()
	rec, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var lines []Line
	s, err := Run(rec, o, func(l Line) error {
		lines = append(lines, l)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines, s
}

func TestWorkedExample(t *testing.T) {
	text := `time,pod,class,request,usage
0,web,prod,6,2
0,batch,batch,4,3
300,web,prod,6,2
300,batch,batch,4,3
600,web,prod,6,2
600,batch,batch,4,3
600,db,prod,8,7
900,web,prod,6,5
900,db,prod,8,11
900,batch,batch,4,3
`
	lines, s := play(t, text, Options{Capacity: 16, Config: reclaim.Default()})
	want := []Line{
		{Time: 0, Reclaimable: 10, AllocationSlack: 10, ProdUsage: 2, BatchUsage: 3},
		{Time: 300, Reclaimable: 10, AllocationSlack: 10, ProdUsage: 2, BatchUsage: 3},
		{Time: 600, Reclaimable: 2, AllocationSlack: 2, ProdUsage: 9, BatchUsage: 3, Overcommitted: true,
			Evict: []string{"batch"}},
		{Time: 900, Reclaimable: 2, AllocationSlack: 2, ProdUsage: 16, BatchUsage: 3, Overcommitted: true},
	}
	for i, w := range want {
		g := lines[i]
		if g.Time != w.Time || g.Reclaimable != w.Reclaimable || g.AllocationSlack != w.AllocationSlack ||
			g.ProdUsage != w.ProdUsage ||
			g.BatchUsage != w.BatchUsage || g.Overcommitted != w.Overcommitted || !slices.Equal(g.Evict, w.Evict) {
			t.Errorf("interval %d is %+v, want %+v", i, g, w)
		}
	}
	// 9 used at 600, where 10 of 16 had been promised away at 300; 16 used at 900
	// where 2 had.
	if s.Violations != 2 || s.ViolationRatio != round(2.0/3) || s.MeanReclaimable != 6 || s.Intervals != 4 ||
		s.Evicted != 1 {
		t.Errorf("summary %+v", s)
	}
	if s.Shortfalls != 2 {
		t.Errorf("%d shortfalls, want 2: no pod is idle", s.Shortfalls)
	}
	text2, err := json.Marshal(lines[0])
	if err != nil || !bytes.Contains(text2, []byte(`"idlePods":[],`)) || !bytes.Contains(text2, []byte(`"evict":[],`)) {
		t.Errorf("an empty list is not []: %s, %v", text2, err)
	}
}

// TestAgainstTheContract compares every interval of random records with the
// formulas of the contract, computed the plain way from the rows so far.
func TestAgainstTheContract(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const step, window = 60, 20
		cfg := reclaim.Default()
		cfg.Idle.Window, cfg.Idle.Sample = reclaim.Duration(window*step*time.Second), reclaim.Duration(step*time.Second)
		cfg.Idle.Percentile = float64(rapid.SampledFrom([]int{90, 95, 100}).Draw(t, "percentile"))
		pods := rapid.IntRange(1, 5).Draw(t, "pods")
		type row struct {
			batch          bool
			request, usage float64
		}
		requests := make([]float64, pods)
		for i := range requests {
			requests[i] = float64(rapid.IntRange(0, 8).Draw(t, "request"))
		}
		n := rapid.IntRange(1, 70).Draw(t, "intervals")
		rows := make([][]row, n)
		var text strings.Builder
		text.WriteString("usage,extra,time,pod,class,request\n")
		for i := range rows {
			for k := range pods {
				r := row{k%2 == 0, requests[k], 0.05 * requests[k]}
				if rapid.IntRange(0, 11).Draw(t, "burst") == 0 {
					r.usage = requests[k] * rapid.Float64Range(0, 1).Draw(t, "share")
				}
				rows[i] = append(rows[i], r)
				class := map[bool]string{true: "batch", false: "prod"}[r.batch]
				fmt.Fprintf(&text, "%v,x,%d,pod%d,%s,%v\n", r.usage, i*step, k, class, r.request)
			}
		}
		capacity := float64(rapid.SampledFrom([]int{4, 8, 24}).Draw(t, "capacity"))
		lines, summary := play(t, text.String(), Options{Capacity: capacity, Config: cfg})
		if len(lines) != n || summary.Intervals != n {
			t.Fatalf("%d lines for %d intervals", len(lines), n)
		}
		published, violations := 0.0, 0
		for i, l := range lines {
			slack, unutilised, demand, prod := capacity, 0.0, 0.0, 0.0
			idle := []string{}
			for k, r := range rows[i] {
				if !r.batch {
					slack -= r.request
					prod += r.usage
					continue
				}
				var uses []float64
				for _, past := range rows[max(0, i-window+1) : i+1] {
					uses = append(uses, past[k].usage)
				}
				below := 0
				for _, u := range uses {
					if float32(u) < float32(cfg.Idle.Threshold/100*r.request) {
						below++
					}
				}
				slices.Sort(uses)
				if i >= window && float64(below) >= cfg.Idle.Percentile/100*float64(len(uses))-1e-9 {
					idle = append(idle, fmt.Sprint("pod", k))
					p := uses[int(math.Ceil(0.99*float64(len(uses))))-1]
					unutilised += r.request - p
					demand += p
				} else {
					demand += r.request
				}
			}
			exists := max(0, slack) + unutilised
			if i == 0 || exists < published || exists-published >= 1-1e-9 {
				published = exists
			}
			if i > 0 && l.ProdUsage > capacity-lines[i-1].Reclaimable+1e-9 { // as printed, which is rounded
				violations++
			}
			near := func(what string, got, want float64) {
				if math.Abs(got-want) > 2e-6 {
					t.Fatalf("interval %d: %s is %v, want %v", i, what, got, want)
				}
			}
			near("slack", l.AllocationSlack, slack)
			near("unutilised", l.Unutilised, unutilised)
			near("reclaimable", l.Reclaimable, published)
			near("production's use", l.ProdUsage, prod)
			if !slices.Equal(l.IdlePods, idle) {
				t.Fatalf("interval %d: idle are %v, want %v", i, l.IdlePods, idle)
			}
			if l.Overcommitted != (demand > l.Reclaimable+2e-6) && math.Abs(demand-l.Reclaimable) > 1e-5 {
				t.Fatalf("interval %d: overcommitted is %v with a demand of %v and %v reclaimable", i, l.Overcommitted,
					demand, l.Reclaimable)
			}
		}
		if summary.Violations != violations {
			t.Fatalf("%d violations, want %d", summary.Violations, violations)
		}
	})
}

// Nothing of a line depends on the rows that follow.
func TestCausality(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var head strings.Builder
		head.WriteString("time,pod,class,request,usage\n")
		for i := range rapid.IntRange(1, 30).Draw(t, "intervals") {
			fmt.Fprintf(&head, "%d,a,batch,4,%v\n%d,b,prod,4,%v\n", i*60, rapid.Float64Range(0, 4).Draw(t, "a"), i*60,
				rapid.Float64Range(0, 4).Draw(t, "b"))
		}
		cfg := reclaim.Default()
		cfg.From = reclaim.FromUsage
		short, _ := play(t, head.String(), Options{Capacity: 8, Config: cfg})
		long, _ := play(t, head.String()+"99999,a,batch,4,4\n99999,c,prod,8,8\n", Options{Capacity: 8, Config: cfg})
		for i := range short {
			if a, b := fmt.Sprint(short[i]), fmt.Sprint(long[i]); a != b {
				t.Fatalf("line %d is %s, with later rows %s", i, a, b)
			}
		}
	})
}

func TestOrderOfRowsDoesNotMatter(t *testing.T) {
	sorted := "time,pod,class,request,usage\n0,a,batch,4,1\n0,b,prod,2,1\n60,a,batch,4,1\n60,b,prod,2,1\n"
	byPod := "\ufefftime,pod,class,request,usage\n0,a,batch,4,1\n60,a,batch,4,1\n0,b,prod,2,1\n60,b,prod,2,1\n"
	a, _ := play(t, sorted, Options{Capacity: 8, Config: reclaim.Default()})
	b, _ := play(t, byPod, Options{Capacity: 8, Config: reclaim.Default()})
	if fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("sorted %v, by pod %v", a, b)
	}
}

func TestMissingSamples(t *testing.T) {
	lines, _ := play(t, "time,pod,class,request,usage\n0,a,batch,4,\n0,b,prod,2,\n60.5,a,batch,4,\n60.5,b,prod,2,\n",
		Options{Capacity: 8, Config: reclaim.Default()})
	if l := lines[1]; l.Time != 60.5 || len(l.IdlePods) > 0 || l.AllocationSlack != 6 || l.ProdUsage != 0 {
		t.Errorf("without samples: %+v", l)
	}
}

func TestBadRecords(t *testing.T) {
	const head = "time,pod,class,request,usage\n0,a,batch,4,1\n"
	for text, want := range map[string]string{
		"":                             "empty",
		"time,pod,class,request,use\n": `"usage" is missing`,
		head + "60,a,batch,4\n":        "line 3",
		head + "60,a,batch,4,1,1\n":    "line 3",
		head + "x,a,batch,4,1\n":       "line 3: time",
		head + "NaN,a,batch,4,1\n":     "line 3: time",
		head + "1e12,a,batch,4,1\n":    "line 3: time",
		head + "60,,batch,4,1\n":       "line 3: pod",
		head + "60,a,Batch,4,1\n":      "line 3: class",
		head + "60,a,batch,-1,1\n":     "line 3: request",
		head + "60,a,batch,4,-1\n":     "line 3: usage",
		head + "60,a,batch,4,NaN\n":    "line 3: usage",
		head + "60,a,batch,,1\n":       "line 3: request",
		head + "60,a,batch,4,1e99\n":   "line 3: usage",
		head + "0,a,prod,4,1\n":        "line 3: pod \"a\" is there twice",
		head + "60,\"a,batch,4,1\n":    "quote",
		strings.Repeat("x",
			1<<18): "the record that begins at byte 0 is longer than 65536 bytes",
		head + "\"" +
			strings.Repeat("x\n", 1<<18): "the record that begins at byte 43 is longer than 65536 bytes",
		head + "60," + strings.Repeat("a", 300) + ",batch,4,1\n": "line 3: pod",
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) ||
			len(err.Error()) > 300 {
			t.Errorf("%.60q: %v, want an error with %q", text, err, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("time,pod,class,request,usage\n0,a,batch,4,1\n60,b,prod,2,\n-1,b,prod,2,0.5\n"))
	f.Add([]byte("usage,request,class,pod,time\n\"1\",2,batch,\"a\nb\",3.5\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		rec, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		before := math.Inf(-1)
		_, err = Run(rec, Options{Capacity: 8, Config: reclaim.Default()}, func(l Line) error {
			if l.Time <= before || l.Reclaimable < 0 || l.Offer > l.Reclaimable+1e-6 {
				t.Fatalf("line %+v after time %v", l, before)
			}
			before = l.Time
			_, err := json.Marshal(l)
			return err
		})
		if err != nil && !strings.Contains(err.Error(), "begin anew") {
			t.Fatal(err)
		}
	})
}

func BenchmarkReplay(b *testing.B) {
	var text bytes.Buffer
	text.WriteString("time,pod,class,request,usage\n")
	const pods, intervals = 50, 2000
	for i := range intervals {
		for k := range pods {
			fmt.Fprintf(&text, "%d,pod-%d,%s,4,%.4f\n", i*300, k, []string{"prod", "batch"}[k%2],
				float64((i*7+k*13)%100)/50)
		}
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		rec, err := Read(bytes.NewReader(text.Bytes()))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := Run(rec, Options{Capacity: 128, Config: reclaim.Default()}, func(Line) error {
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(pods*intervals)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
