package replay

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/experiment"
)

func byExperiment(seed uint64) Options {
	c := experiment.DefaultConfig()
	return Options{Config: detect.DefaultConfig(), Experiment: &c, Seed: seed, Period: time.Minute}
}

// lab is a caller that plays what follows: hog doubles the CPI of web while it works, from
// the second hour on, always. Nobody could tell it from idle by watching: it works all
// the time as well.
type lab struct {
	r       *rand.Rand
	until   map[string]float64 // throttled, as the lines said
	lines   []string
	caps    map[string]int
	quiet   int // of the last hour's minutes, those in which hog was throttled
	minute  int
	minutes int
	in      *io.PipeWriter
}

func (l *lab) interval() string {
	var b strings.Builder
	at := float64(60 * l.minute)
	web, hog := 1+0.05*l.r.NormFloat64(), 0.01
	if l.minute >= 60 {
		hog = 3
		if l.until["hog-0"] >= at {
			hog = 0.1
		}
		web *= 1 + min(hog, 1)
	}
	idle := 2.0
	if l.until["idle-0"] >= at {
		idle = 0.1
	}
	fmt.Fprintf(&b, "%v,web-0,web,LS,1,%.4f\n%v,hog-0,hog,BATCH,%v,1\n%v,idle-0,idle,BATCH,%v,1\n\n", at, web, at, hog,
		at, idle)
	return b.String()
}

func (l *lab) line(x *Line) error {
	text, err := json.Marshal(x)
	l.lines = append(l.lines, string(text))
	switch x.Event {
	case "probe", "cap":
		l.until[x.Antagonist] = x.Until
		if x.Event == "cap" {
			l.caps[x.Antagonist]++
		}
	case "uncap":
		l.until[x.Antagonist] = 0
	}
	return err
}

// converse plays a lab to its end.
func converse(t *testing.T, o Options, minutes int) (*lab, Summary) {
	t.Helper()
	l := &lab{r: rand.New(rand.NewPCG(9, 9)), until: map[string]float64{}, caps: map[string]int{}, minutes: minutes}
	out, in := io.Pipe()
	l.in = in
	go func() { _, _ = io.WriteString(in, header+l.interval()) }()
	summary, err := Interactive(out, o, l.line, func(at float64) error {
		if at != float64(60*l.minute) {
			t.Errorf("a tick at %v after the interval of minute %d", at, l.minute)
		}
		if l.until["hog-0"] > at && l.minute >= minutes-60 {
			l.quiet++
		}
		l.minute++
		next := l.interval()
		go func() {
			if l.minute < minutes {
				_, _ = io.WriteString(in, next)
			} else {
				_ = in.Close()
			}
		}()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return l, summary
}

func TestConversationFindsTheSteady(t *testing.T) {
	for seed := range uint64(3) {
		l, summary := converse(t, byExperiment(seed+1), 300)
		if l.caps["hog-0"] == 0 || l.caps["idle-0"] > 0 || l.quiet < 45 || summary.Probes == 0 {
			t.Errorf("seed %d: %v, hog was throttled in %d minutes of the last hour; %+v", seed, l.caps, l.quiet,
				summary)
		}
	}
}

// TestBudgetOfNothing: nobody is probed, and nobody is capped for being steady.
func TestBudgetOfNothing(t *testing.T) {
	o := byExperiment(1)
	o.Experiment.Budget = 0
	l, summary := converse(t, o, 200)
	if summary.Caps+summary.Probes > 0 || summary.Anomalies == 0 {
		t.Errorf("%+v", summary)
	}
	if !slices.ContainsFunc(l.lines, func(s string) bool { return strings.Contains(s, "the budget of probes is 0") }) {
		t.Error("no analysis says why nobody is tested")
	}
}

// TestLaterRowsChangeNoEarlierLine, nor does whether they were there already.
func TestLaterRowsChangeNoEarlierLine(t *testing.T) {
	rows := noisy(0)
	whole, _ := told(t, header+strings.Join(rows, "\n"))
	part, _ := told(t, header+strings.Join(rows[:1700], "\n"))
	if len(part) < 20 || len(part) > len(whole) || !slices.Equal(part, whole[:len(part)]) {
		t.Errorf("%d lines of 170 minutes are not the first of the %d of 200", len(part), len(whole))
	}
	var talk strings.Builder
	talk.WriteString(header)
	for i := 0; i < len(rows); i += 10 {
		talk.WriteString(strings.Join(rows[i:i+10], "\n") + "\n\n")
	}
	var spoken []string
	if _, err := Interactive(strings.NewReader(talk.String()), byExperiment(1), func(l *Line) error {
		text, err := json.Marshal(l)
		spoken = append(spoken, string(text))
		return err
	}, func(float64) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(spoken, whole) {
		t.Errorf("%d lines interval by interval, %d in one", len(spoken), len(whole))
	}
	if other, _ := toldWith(t, header+strings.Join(rows, "\n"), byExperiment(2)); slices.Equal(other, whole) {
		t.Error("another seed changes nothing")
	}
}

func told(t *testing.T, text string) ([]string, Summary) { return toldWith(t, text, byExperiment(1)) }

func toldWith(t *testing.T, text string, o Options) ([]string, Summary) {
	t.Helper()
	trace, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	summary, err := Run(trace, o, func(l *Line) error {
		text, err := json.Marshal(l)
		lines = append(lines, string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines, summary
}

// TestPeriodOfAConversation: without one, a probe is as long as the intervals are.
func TestPeriodOfAConversation(t *testing.T) {
	for _, period := range []float64{10, 60} {
		o := byExperiment(1)
		o.Period, o.Specs = 0, []GivenSpec{{Job: "web", Mean: 1, StdDev: 0.05}}
		var b strings.Builder
		b.WriteString(header)
		for i := range 40 {
			cpi, usage := 1.0, 0.01
			if i%20 >= 10 {
				cpi, usage = 2, 3
			}
			at := float64(i) * period
			fmt.Fprintf(&b, "%v,w,web,LS,1,%v\n%v,h,hog,BE,%v,1\n\n", at, cpi, at, usage)
		}
		probes := 0
		if _, err := Interactive(strings.NewReader(b.String()), o, func(l *Line) error {
			if l.Event != "probe" {
				return nil
			}
			if probes++; l.Until != l.Time+period || l.CapMilli != 210 {
				t.Errorf("every %v s: %+v", period, l)
			}
			return nil
		}, func(float64) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if probes == 0 {
			t.Errorf("every %v s: no probe", period)
		}
	}
}

func TestConversationRefuses(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", "the file is empty"},
		{header + "60,v,web,LS,1\n", "line 2: 5 fields"},
		{header + "60,v,web,LS,1,1\n\n0,v,web,LS,1,1\n", "line 4: time is 0, in the interval before it was 60"},
	} {
		_, err := Interactive(strings.NewReader(c.in), byExperiment(1), func(*Line) error { return nil },
			func(float64) error { return nil })
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v", c.in, err)
		}
	}
}

// TestCoinsAreFair, and those of other pairs, windows and seeds are others.
func TestCoinsAreFair(t *testing.T) {
	var sum, cross, before float64
	const n = 20_000
	pair, near := experiment.PairKey{Victim: "web", Suspect: "hog"}, experiment.PairKey{Victim: "we", Suspect: "bhog"}
	for i := range int64(n) {
		u := Coin(1, pair, i) - 0.5
		sum, cross, before = sum+u, cross+u*before, u
		for _, other := range []float64{Coin(2, pair, i), Coin(1, near, i)} {
			if other == u+0.5 {
				t.Fatalf("window %d: the same coin twice", i)
			}
		}
	}
	if math.Abs(sum/n) > 0.01 || math.Abs(cross/n) > 0.005 {
		t.Errorf("mean %v, correlation with the one before %v", sum/n+0.5, 12*cross/n)
	}
}
