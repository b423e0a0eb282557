package incidents

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestMain(m *testing.M) {
	if dir := os.Getenv("INCIDENTS_WRITER"); dir != "" {
		writeUntilKilled(dir)
	}
	goleak.VerifyTestMain(m)
}

func subject(job string) Subject {
	return Subject{Namespace: "default", Pod: job + "-1", Container: "main", Job: "Deployment/" + job, Class: "BE",
		CPUs: "0-7"}
}

// example is an incident with everything.
func example(at time.Time, victim string, antagonists ...string) Incident {
	i := Incident{
		At: at, Node: "node-a", Victim: subject(victim), CPI: 3.5, Threshold: 2.25, Verdict: None,
		Why:     "nobody scores enough",
		Spec:    Spec{Mean: 1.75, StdDev: 0.25, Platform: "Intel", Band: 2, Samples: 1200, Tasks: 6},
		Outcome: Outcome{Result: "success", Before: 3.5, After: 1.75, Samples: 5},
	}
	for m := -10; m <= 5; m++ {
		i.Series = append(i.Series, Point{time.Duration(m) * time.Minute, 1.75 + float64(m&3)/4})
	}
	for n, a := range append(slices.Clone(antagonists), "innocent") {
		s := Suspect{Subject: subject(a), Score: 0.75 - float64(n)/8, Contrast: 0.5, Confidence: 0.875, Usage: 2.5,
			Shares: "L3"}
		for m := -10; m <= 5; m++ {
			s.Series = append(s.Series, Point{time.Duration(m) * time.Minute, 2.5})
		}
		i.Suspects = append(i.Suspects, s)
	}
	for _, a := range antagonists {
		i.Verdict = Cap
		i.Antagonists = append(i.Antagonists, subject(a))
		i.Actions = append(i.Actions, Action{Kind: Cap, Subject: subject(a), Milli: 100, From: at,
			Until: at.Add(5 * time.Minute), Ended: at.Add(4 * time.Minute), EndedWhy: "its time is over"})
	}
	return i
}

// running is a store in use; it ends with the test, or when end is called.
func running(t testing.TB, o Options) (s *Store, end func()) {
	t.Helper()
	if o.Path == "" {
		o.Path = filepath.Join(t.TempDir(), "incidents.db")
	}
	if o.Now == nil {
		o.Now = func() time.Time { return noon }
	}
	s = New(o)
	ctx, cancel := context.WithCancel(context.Background())
	go s.Run(ctx)
	end = sync.OnceFunc(func() { cancel(); <-s.ended })
	t.Cleanup(end)
	return s, end
}

func flush(t testing.TB, s *Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

func all(t testing.TB, s Source) []*Incident {
	t.Helper()
	var list []*Incident
	if err := s.Export(context.Background(), Filter{}, func(i *Incident) error {
		list = append(list, i)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return list
}

func TestWhatWasPutIsThereAfterARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "incidents.db")
	s, end := running(t, Options{Path: path})
	first, second := example(noon.Add(-time.Hour), "web", "batch"), example(noon, "db")
	id := s.Put(first)
	s.Put(second)
	first.Outcome.Result = "failure" // what is known by now
	if again := s.Put(first); again != id {
		t.Errorf("the same anomaly is %s and %s", id, again)
	}
	end() // writes what waits
	s, end = running(t, Options{Path: path})
	got, err := s.Get(context.Background(), id[:15])
	if err != nil {
		t.Fatal(err)
	}
	first.ID = id
	if d := cmp.Diff(&first, got); d != "" {
		t.Errorf("what came back differs: %s", d)
	}
	list, err := s.List(context.Background(), Filter{})
	if err != nil || len(list.Incidents) != 2 || list.Incidents[0].Victim.Pod != "db-1" || list.Kept != 2 ||
		!list.Oldest.Equal(first.At) {
		t.Errorf("the list is %+v, %v", list, err)
	}
	if st := s.Stats(); st.Why != "" || st.Kept != 2 || st.Bytes == 0 || st.Bytes > 2<<20 {
		t.Errorf("stats are %+v", st)
	}
	end()
	r, err := OpenReader(path, noon)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if n := len(all(t, r)); n != 2 {
		t.Errorf("%d incidents in the file", n)
	}
}

func TestIDs(t *testing.T) {
	s, _ := running(t, Options{})
	a, b := s.Put(example(noon, "a")), s.Put(example(noon.Add(time.Second), "b"))
	for id, want := range map[string]string{
		a: "", a[:14]: "several", "": "several", "2025": "no incident", "zz'; drop": "no incident", b +
			"0": "no incident",
	} {
		_, err := s.Get(context.Background(), id)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("Get(%q): %v, want %q", id, err, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		span := time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC).Unix()
		x, y := rapid.Int64Range(0, span).Draw(t, "x"), rapid.Int64Range(0, span).Draw(t, "y")
		p, q := NewID(time.Unix(x, 0), "n", subject("a")), NewID(time.Unix(y, 0), "n", subject("b"))
		if !validID(p) || !validID(q) || x < y && p >= q || x > y && p <= q || !timeOf(p).Equal(time.Unix(x, 0)) {
			t.Fatalf("%d is %s, %d is %s", x, p, y, q)
		}
	})
}

// drawn is any incident, with texts and numbers that a tenant or a broken counter
// could bring.
func drawn(t *rapid.T) Incident {
	number := rapid.Float64()
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"web", "db", "batch", "", "\x1b[2J", "<script>",
		strings.Repeat("x", 2000)}))
	who := rapid.Custom(func(t *rapid.T) Subject {
		return Subject{text.Draw(t, "ns"), text.Draw(t, "pod"), text.Draw(t, "container"), text.Draw(t, "job"),
			text.Draw(t, "class"), text.Draw(t, "cpus"), text.Draw(t, "claims")}
	})
	when := rapid.Custom(func(t *rapid.T) time.Time { return time.Unix(rapid.Int64().Draw(t, "at"), 0) })
	series := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Point {
		return Point{time.Duration(rapid.Int64().Draw(t, "offset")), number.Draw(t, "value")}
	}), 0, 5)
	return Incident{
		ID: text.Draw(t, "id"), At: when.Draw(t, "when"), Node: text.Draw(t, "node"), Victim: who.Draw(t, "victim"),
		CPI: number.Draw(t, "cpi"), Threshold: number.Draw(t, "threshold"),
		Spec: Spec{number.Draw(t, "mean"), number.Draw(t, "sd"), text.Draw(t, "platform"), 3,
			number.Draw(t, "samples"), rapid.Int().Draw(t, "tasks")},
		Suspects: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Suspect {
			return Suspect{who.Draw(t, "suspect"), number.Draw(t, "score"), number.Draw(t, "contrast"),
				number.Draw(t, "confidence"), number.Draw(t, "usage"), number.Draw(t, "prior"), number.Draw(t, "e"),
				text.Draw(t, "shares"), series.Draw(t, "series")}
		}), 0, 2).Draw(t, "suspects"),
		Verdict: text.Draw(t, "verdict"), Antagonists: rapid.SliceOfN(who, 0, 3).Draw(t, "antagonists"),
		Why: text.Draw(t, "why"),
		Actions: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Action {
			return Action{text.Draw(t, "kind"), who.Draw(t, "of"), rapid.Int64().Draw(t, "milli"),
				text.Draw(t, "off"), when.Draw(t, "from"), when.Draw(t, "until"), when.Draw(t, "ended"),
				text.Draw(t, "endedWhy")}
		}), 0, 3).Draw(t, "actions"),
		Outcome: Outcome{text.Draw(t, "result"), number.Draw(t, "before"), number.Draw(t, "after"),
			rapid.Int().Draw(t, "n")}, Series: series.Draw(t, "victims"),
		Experiments: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Experiment {
			arm := Arm{rapid.Int().Draw(t, "windows"), number.Draw(t, "arm")}
			return Experiment{text.Draw(t, "job"), text.Draw(t, "result"), number.Draw(t, "e"), arm, arm,
				number.Draw(t, "minutes"), rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Coin {
					return Coin{time.Duration(rapid.Int64().Draw(t, "offset")),
						time.Duration(rapid.Int64().Draw(t, "length")), number.Draw(t, "p"), rapid.Bool().Draw(t, "on")}
				}), 0, 4).Draw(t, "coins"), rapid.Ptr(rapid.Custom(func(t *rapid.T) Witness {
					return Witness{text.Draw(t, "witness"), number.Draw(t, "its e"), rapid.Int().Draw(t, "jobs")}
				}), true).Draw(t, "witnesses")}
		}), 0, 2).Draw(t, "experiments"),
		Evidence: rapid.Ptr(rapid.Custom(func(t *rapid.T) Evidence {
			neighbours := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Neighbour {
				return Neighbour{text.Draw(t, "who"), number.Draw(t, "CPUs"), number.Draw(t, "instructions"),
					number.Draw(t, "misses")}
			}), 0, 2*maxParts)
			v := number.Draw(t, "figure")
			return Evidence{Resource: text.Draw(t, "resource"), Waited: rapid.Bool().Draw(t, "waited"),
				Now: &Figures{CPI: &v, Speed: &v}, Steal: v, L3: neighbours.Draw(t, "l3"),
				WaitedFor: []Part{{text.Draw(t, "for"), v}}}
		}), true).Draw(t, "evidence"),
	}
}

// A digest that an older version wrote says nothing of the resource, and one of this version is
// read by it: the resource stands behind all that it looks at.
func TestOldDigestsAreRead(t *testing.T) {
	i := example(noon, "web", "batch")
	i.Evidence, i.DisturbedSeconds = &Evidence{Resource: "L3", Waited: true}, 180
	d := digestOf(&i, 3)
	value := d.encode()
	var now, old digest
	if err := now.decode(value); err != nil || now.summary("x", 0).Resource != "L3 and queue" {
		t.Errorf("%q, %v", now.resource, err)
	}
	if s := now.summary("x", 0); s.DisturbedSeconds != 180 || s.Suspect != i.Suspects[0].JobName() {
		t.Errorf("%+v", s)
	}
	value = seal(value[:len(value)-4-1-len(d.suspect)])
	if err := now.decode(value); err != nil || now.summary("x", 0).Resource != "L3 and queue" || now.disturbed != 0 ||
		now.suspect != nil {
		t.Errorf("one without how long: %+v, %v", now.summary("x", 0), err)
	}
	value = seal(value[:len(value)-1-len(d.resource)])
	old.resource, old.suspect = []byte("of another one"), []byte("of another one")
	if err := old.decode(value); err != nil || old.summary("x", 0).Resource != "" || old.suspect != nil ||
		!slices.Equal(old.antagonists[0].caps, now.antagonists[0].caps) {
		t.Errorf("%+v, %v", old.summary("x", 0), err)
	}
}

// Whatever is put can be kept, is bounded, and comes back as it was kept.
func TestAnyIncidentComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawn(t)
		many := rapid.SampledFrom([]int{1, 1, 1, 50}).Draw(t, "many") // more than is kept
		in.Suspects, in.Antagonists = slices.Repeat(in.Suspects, many), slices.Repeat(in.Antagonists, many)
		in.Actions, in.Series = slices.Repeat(in.Actions, many), slices.Repeat(in.Series, many)
		in.Experiments = slices.Repeat(in.Experiments, many)
		kept := Bounded(in)
		if d := cmp.Diff(kept, Bounded(kept)); d != "" {
			t.Fatalf("what is bounded changes when it is bounded again: %s", d)
		}
		var c codec
		value, err := c.encode(&kept)
		if err != nil {
			t.Fatal(err)
		}
		if len(value) > 100<<10 {
			t.Fatalf("it takes %d bytes", len(value))
		}
		back, err := decode(value)
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(kept)
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(back)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), string(got)); d != "" {
			t.Fatalf("what came back differs: %s", d)
		}
		d := digestOf(&kept, 7)
		var e digest
		if err := e.decode(d.encode()); err != nil {
			t.Fatal(err)
		}
		if !slices.EqualFunc(d.antagonists, e.antagonists, func(a, b rawAntagonist) bool {
			return a.subject() == b.subject() && slices.Equal(a.caps, b.caps)
		}) || string(d.verdict) != string(e.verdict) || d.seq != e.seq || d.at != e.at ||
			d.victim.subject() != e.victim.subject() {
			t.Fatalf("%+v became %+v", d, e)
		}
	})
}

func FuzzDigest(f *testing.F) {
	i := example(noon, "web", "batch", "other")
	d := digestOf(&i, 3)
	f.Add(d.encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var d digest
		if len(b) >= sumLength {
			b = seal(slices.Clone(b)) // past the checksum
		}
		if d.decode(b) == nil {
			d.summary("x", 0)
			d.encode()
		}
	})
}

func FuzzIncident(f *testing.F) {
	i := Bounded(example(noon, "web", "batch"))
	var c codec
	value, err := c.encode(&i)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(value)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= sumLength {
			b = seal(slices.Clone(b))
		}
		if i, err := decode(b); err == nil {
			if _, err := c.encode(i); err != nil {
				t.Errorf("read, but not written again: %v", err)
			}
		}
	})
}
