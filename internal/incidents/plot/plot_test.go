package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quietcore/quietcore/internal/incidents"
)

var update = flag.Bool("update", false, "write what was drawn into testdata")

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func who(job string) incidents.Subject {
	return incidents.Subject{Namespace: "shop", Pod: job + "-7d4f9c6b5-x2x9q", Container: "main", Job: "Deployment/" +
		job, Class: "BE"}
}

// story is an antagonist that works in bursts, is capped, and a victim that
// recovers.
func story() *incidents.Incident {
	i := &incidents.Incident{
		ID: "20261121-120000000-abcdefgh", At: noon, Node: "node-a", Victim: who("frontend"), CPI: 3.42,
		Threshold: 2.26, Verdict: incidents.Cap,
		Spec: incidents.Spec{Mean: 1.74, StdDev: 0.26, Platform: "Intel(R) Xeon(R) Gold 6230R", Samples: 14210,
			Tasks: 312},
		Why: "shop/video-7d4f9c6b5-x2x9q/main scores 0.61 over 10 samples, contrast 0.83, confidence 0.97",
	}
	names := []string{"video", "index", "cron", "logs", "cache", "proxy", "agent", "backup"}
	for n, name := range names {
		s := incidents.Suspect{Subject: who(name), Score: 0.61 - 0.12*float64(n), Contrast: 0.8 - 0.2*float64(n),
			Confidence: 0.97 / float64(n*n*8+1), Shares: "L3"}
		for m := -10; m <= 7; m++ {
			v := 0.6 + 0.35*float64(n) + 0.2*math.Sin(float64(m*(n+1)))
			if n == 0 {
				v = 0.4
				if m >= -5 && m <= 0 {
					v = 7.5 + math.Sin(float64(m))
				}
				if m > 0 && m <= 5 {
					v = 0.1
				}
			}
			s.Usage += v / 18
			s.Series = append(s.Series, incidents.Point{Offset: time.Duration(m) * time.Minute, Value: v})
		}
		i.Suspects = append(i.Suspects, s)
	}
	for m := -10; m <= 7; m++ {
		v := 1.75 + 0.15*math.Sin(float64(m*3))
		if m >= -5 && m <= 0 {
			v = 3.2 + 0.35*math.Sin(float64(m*2))
		}
		i.Series = append(i.Series, incidents.Point{Offset: time.Duration(m) * time.Minute, Value: v})
	}
	i.Antagonists = []incidents.Subject{who("video")}
	i.Actions = []incidents.Action{{Kind: incidents.Cap, Subject: who("video"), Milli: 100,
		From: noon.Add(2 * time.Second), Until: noon.Add(5 * time.Minute), Ended: noon.Add(5 * time.Minute),
		EndedWhy: "its time is over: success"}}
	i.Outcome = incidents.Outcome{Result: "success", Before: 3.21, After: 1.77, Samples: 5}
	return i
}

// experiment is a story of a detector by experiment: video is throttled in windows that coins
// choose, index was tested and let be.
func experiment() *incidents.Incident {
	i := story()
	i.Why = "shop/Deployment/video/main disturbs, e-value 236"
	on := func(m int) bool { return slices.Contains([]int{-5, -3, -2, 0, 2, 3, 4, 6}, m) }
	for n, m := 0, -10; m <= 7; n, m = n+1, m+1 {
		busy := m >= -6
		i.Suspects[0].Series[n].Value, i.Series[n].Value = 0.4, 1.7+0.1*math.Sin(float64(m))
		if busy {
			i.Suspects[0].Series[n].Value = 7.5
			if on(m - 1) {
				i.Suspects[0].Series[n].Value = 0.5
			} else {
				i.Series[n].Value = 3.2 + 0.3*math.Sin(float64(2*m))
			}
		}
	}
	video := incidents.Experiment{Job: "shop/Deployment/video/main", Result: incidents.Guilty, EValue: 236,
		Alone: incidents.Arm{Windows: 9, CPI: 3.21}, Under: incidents.Arm{Windows: 7, CPI: 1.72}, Minutes: 2.4}
	for m := -6; m <= 6; m++ {
		video.Coins = append(video.Coins, incidents.Coin{Offset: time.Duration(m) * time.Minute, Length: time.Minute,
			P: 0.5, On: on(m)})
	}
	index := incidents.Experiment{Job: "shop/Deployment/index/main", Result: incidents.Innocent, EValue: 0.14,
		Alone: incidents.Arm{Windows: 4, CPI: 2.6}, Under: incidents.Arm{Windows: 2, CPI: 2.9}, Minutes: 2,
		Coins: []incidents.Coin{{Offset: -9 * time.Minute, Length: time.Minute, P: 0.25},
			{Offset: -8 * time.Minute, Length: time.Minute, P: 0.25, On: true},
			{Offset: -7 * time.Minute, Length: time.Minute, P: 0.25}}}
	i.Experiments = []incidents.Experiment{index, video}
	i.Actions[0].From, i.Actions[0].EndedWhy = noon.Add(2*time.Minute), ""
	i.Actions[0].Until, i.Actions[0].Ended = noon.Add(7*time.Minute), time.Time{}
	i.Outcome = incidents.Outcome{Result: "success", Before: 3.21, After: 1.72, Samples: 7}
	return i
}

func TestPictures(t *testing.T) {
	svg, page := SVG, HTML
	for name, c := range map[string]struct {
		draw  func(io.Writer, *incidents.Incident) error
		story *incidents.Incident
	}{"story.svg": {svg, story()}, "story.html": {page, story()}, "experiment.svg": {svg, experiment()},
		"experiment.html": {page, experiment()}} {
		var b bytes.Buffer
		if err := c.draw(&b, c.story); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b.Bytes(), want) {
			t.Errorf("%s is drawn anew: look at it, then run this test with -update", name)
		}
	}
	for _, want := range []string{"threshold 2.26", "normal 1.74", "capped at 0.1 CPU for 4m58s", "before: mean 3.21",
		"after: mean 1.77", `font-weight="bold"><title>shop/video-7d4f9c6b5-x2x9q/main</title>`,
		"CPI (cycles per instruction)", "usage (CPUs)", "time (UTC), 2026-11-21", "and 2 more"} {
		if svg := drawnSVG(t, story()); !strings.Contains(svg, want) {
			t.Errorf("the picture does not say %q", want)
		}
	}
}

// TestCoins: each window of an experiment is drawn, full where its suspect was throttled.
func TestCoins(t *testing.T) {
	svg := drawnSVG(t, experiment())
	if on, all := strings.Count(svg, `class="coin on"`), strings.Count(svg, `class="coin`); on != 9 || all != 16 {
		t.Errorf("%d of %d windows are throttled", on, all)
	}
	var page bytes.Buffer
	if err := HTML(&page, experiment()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"coins: video/main, e-value 236", "coins: index/main, e-value 0.14",
		"shop/Deployment/video/main: throttled, probability of throttling 0.5", "left alone: mean 3.21",
		"throttled: mean 1.72", "mean CPI 3.21 left alone, 1.72 throttled"} {
		if !strings.Contains(svg, want) {
			t.Errorf("the picture does not say %q", want)
		}
	}
	for _, wrong := range []string{"before", "after"} {
		if strings.Contains(svg, wrong) {
			t.Errorf("the picture says %q of windows that lie between one another", wrong)
		}
	}
	for _, want := range []string{"<h2>Experiments</h2>", "guilty", "innocent", "3.21", "1 of 3 throttled"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

func drawnSVG(t interface{ Fatal(...any) }, i *incidents.Incident) string {
	var b strings.Builder
	if err := SVG(&b, i); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// hostile is any incident: names with markup, escapes and other scripts, numbers
// that are not measured.
func hostile(t *rapid.T) *incidents.Incident {
	name := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{`"><script>alert(1)</script>`, "]]>",
		"--><svg onload=x>", "&lt;", "\x1b[2J", "\u202egnp", `" onmouseover="x`, strings.Repeat("W", 900)}))
	number := rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 10),
		rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), 0, 1e-300}))
	subject := rapid.Custom(func(t *rapid.T) incidents.Subject {
		return incidents.Subject{Namespace: name.Draw(t, "ns"), Pod: name.Draw(t, "pod"), Container: name.Draw(t, "c"),
			Job: name.Draw(t, "job"), Class: name.Draw(t, "class")}
	})
	series := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) incidents.Point {
		return incidents.Point{Offset: time.Duration(rapid.Int64Range(-1e15, 1e15).Draw(t, "offset")),
			Value: number.Draw(t, "v")}
	}), 0, 9)
	at := rapid.Custom(func(t *rapid.T) time.Time {
		return time.Unix(rapid.Int64Range(-1e10, 1e11).Draw(t, "at"), 0)
	})
	return &incidents.Incident{
		ID: name.Draw(t, "id"), At: at.Draw(t, "at"), Node: name.Draw(t, "node"), Victim: subject.Draw(t, "victim"),
		CPI: number.Draw(t, "cpi"), Threshold: number.Draw(t, "threshold"),
		Spec:    incidents.Spec{Mean: number.Draw(t, "mean"), Platform: name.Draw(t, "platform")},
		Verdict: name.Draw(t, "verdict"), Why: name.Draw(t, "why"),
		Experiments: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) incidents.Experiment {
			return incidents.Experiment{Job: name.Draw(t, "job"), Result: name.Draw(t, "result"),
				EValue: number.Draw(t, "e"), Coins: []incidents.Coin{{P: number.Draw(t, "p"),
					Offset: time.Duration(rapid.Int64Range(-1e15, 1e15).Draw(t, "offset")),
					Length: time.Duration(rapid.Int64Range(-1e15, 1e15).Draw(t, "length")), On: true}}}
		}), 0, 3).Draw(t, "experiments"),
		Suspects: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) incidents.Suspect {
			return incidents.Suspect{Subject: subject.Draw(t, "s"), Score: number.Draw(t, "score"),
				Shares: name.Draw(t, "shares"), Series: series.Draw(t, "usage")}
		}), 0, 8).Draw(t, "suspects"),
		Antagonists: rapid.SliceOfN(subject, 0, 4).Draw(t, "antagonists"),
		Actions: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) incidents.Action {
			return incidents.Action{Kind: name.Draw(t, "kind"), Subject: subject.Draw(t, "of"),
				Milli: rapid.Int64().Draw(t, "milli"), Off: name.Draw(t, "off"), From: at.Draw(t, "from"),
				Until: at.Draw(t, "until"),
				Ended: at.Draw(t, "ended"), EndedWhy: name.Draw(t, "endedWhy")}
		}), 0, 4).Draw(t, "actions"),
		Outcome: incidents.Outcome{Result: name.Draw(t, "result"), Before: number.Draw(t, "before"),
			After: number.Draw(t, "after")}, Series: series.Draw(t, "cpi series"),
	}
}

func elements() map[string]bool {
	out := map[string]bool{}
	for _, e := range strings.Fields("svg title style rect text line path circle") {
		out[e] = true
	}
	return out
}

// Whatever the names and numbers are, the picture is XML of our elements only,
// every number in it is one, and it has a bounded size.
func TestHostileIncidents(t *testing.T) {
	known := elements()
	rapid.Check(t, func(t *rapid.T) {
		i := incidents.Bounded(*hostile(t))
		svg := drawnSVG(t, &i)
		if len(svg) > 200<<10 {
			t.Fatalf("%d bytes", len(svg))
		}
		if strings.ContainsFunc(svg, func(r rune) bool { return r < ' ' && r != '\n' || r > '~' && r != '…' }) {
			t.Fatal("it holds characters that move something")
		}
		for d := xml.NewDecoder(strings.NewReader(svg)); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("no XML: %v\n%s", err, svg)
			}
			e, ok := token.(xml.StartElement)
			if !ok {
				continue
			}
			if !known[e.Name.Local] {
				t.Fatalf("element %s is not ours", e.Name.Local)
			}
			for _, a := range e.Attr {
				if strings.HasPrefix(a.Name.Local, "on") || a.Name.Local == "href" {
					t.Fatalf("attribute %s is not ours", a.Name.Local)
				}
				switch a.Name.Local {
				case "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height":
					if v, err := strconv.ParseFloat(a.Value, 64); err != nil || math.IsNaN(v) || math.Abs(v) > 1e5 {
						t.Fatalf("%s=%q", a.Name.Local, a.Value)
					}
				case "d":
					if strings.Contains(a.Value, "N") || strings.Contains(a.Value, "I") {
						t.Fatalf("d=%q", a.Value)
					}
				}
			}
		}
		var page strings.Builder
		if err := HTML(&page, &i); err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"<script", "onload=x>", ` onmouseover="x`, "\x1b", "\u202e"} {
			if strings.Contains(page.String(), bad) {
				t.Fatalf("the page holds %q", bad)
			}
		}
	})
}

// A start that is a hundred times everything after it is named, and leaves the rest
// readable; names of spans neither cover nor touch each other.
func TestWildSamplesAndManySpans(t *testing.T) {
	i := story()
	i.Series[0].Value = 408
	first := i.Actions[0]
	first.Ended = noon.Add(3 * time.Minute)
	second := first
	second.Milli, second.From, second.Ended = 200, noon.Add(5*time.Minute), noon.Add(6*time.Minute)
	i.Actions = []incidents.Action{first, second}
	svg := drawnSVG(t, i)
	for _, want := range []string{">408</text>", ">capped at 0.1 CPU for 2m58s<", ">0.2 CPU<",
		`<text x="66" y="96.0" text-anchor="end">8<`} {
		if !strings.Contains(svg, want) {
			t.Errorf("the picture does not say %q", want)
		}
	}
	i.Actions[0].Kind, i.Actions[0].Milli, i.Actions[0].Off = incidents.Move, 0, "0-7"
	var page strings.Builder
	if err := HTML(&page, i); err != nil || !strings.Contains(page.String(), "<td>move off CPUs 0-7</td>") ||
		!strings.Contains(drawnSVG(t, i), ">moved off CPUs 0-7 for 2m58s<") {
		t.Errorf("a move off some CPUs is not told: %v", err)
	}
	i.Actions[0].Kind, i.Actions[0].Off = incidents.Idle, ""
	page.Reset()
	if err := HTML(&page, i); err != nil || !strings.Contains(page.String(), "<td>idle CPUs only</td>") ||
		!strings.Contains(drawnSVG(t, i), ">on idle CPUs only, for 2m58s<") {
		t.Errorf("who runs on idle CPUs only is not told: %v", err)
	}
	i.Actions[0].Kind = incidents.Narrow
	page.Reset()
	if err := HTML(&page, i); err != nil || !strings.Contains(page.String(), "<td>least memory bandwidth</td>") ||
		!strings.Contains(drawnSVG(t, i), ">least memory bandwidth, for 2m58s<") {
		t.Errorf("who has the least memory bandwidth is not told: %v", err)
	}
	edge := float64(left + plotWidth)
	if free := new(drawing).name(second, edge-20, edge-10, left); free >= edge-10 || free < edge-20 {
		t.Errorf("a name beside a span from %.0f to %.0f lets the next one begin at %.0f", edge-20, edge-10, free)
	}
	if path := os.Getenv("QUIETCORE_PLOT"); path != "" {
		if err := os.WriteFile(path, []byte(svg), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNumbersForPeople(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.1: "0.1", 1.744: "1.74", 2: "2", 17.44: "17.4", 174.4: "174",
		1e9: "1.00e+09", 0.00001: "1.00e-05"} {
		if got := num(v); got != want {
			t.Errorf("num(%v) is %s, want %s", v, got, want)
		}
	}
	if got := fmt.Sprint(tick(0.3), tick(1), tick(1.2), tick(60), tick(0)); got != "0.5 1 2 100 1" {
		t.Errorf("ticks are %s", got)
	}
}
