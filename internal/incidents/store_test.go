package incidents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// manual is a clock that a test moves; nothing is due before it says so.
type manual struct {
	now atomic.Int64
	due chan time.Time
}

func (m *manual) options(path string) Options {
	return Options{
		Path: path, MaxBytes: LeastBytes, Now: func() time.Time { return noon.Add(time.Duration(m.now.Load())) },
		After: func(time.Duration) <-chan time.Time { return m.due },
	}
}

// Bounds hold, the newest is always kept, and only the oldest goes.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(inMemory(), "incidents")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		path := filepath.Join(dir, "incidents.db")
		m := &manual{due: make(chan time.Time)}
		o := m.options(path)
		o.MaxAge = time.Duration(rapid.IntRange(1, 100).Draw(t, "hours")) * time.Hour
		var ids []string
		for range rapid.IntRange(1, 2).Draw(t, "lives") {
			s := New(o)
			ctx, cancel := context.WithCancel(context.Background())
			go s.Run(ctx)
			size := rapid.IntRange(0, 20).Draw(t, "suspects")
			for range rapid.IntRange(1, 6).Draw(t, "batches") {
				for range rapid.IntRange(1, 60).Draw(t, "puts") {
					m.now.Add(int64(rapid.IntRange(1, 3600).Draw(t, "seconds")) * int64(time.Second))
					var names []string
					for n := range size {
						names = append(names, fmt.Sprintf("antagonist-%d-%d", len(ids), n))
					}
					ids = append(ids, s.Put(example(o.Now(), fmt.Sprint("victim-", len(ids)%7), names...)))
				}
				if err := s.Flush(context.Background()); err != nil {
					t.Fatal(err)
				}
				if size := fileSize(path); size > o.MaxBytes {
					t.Fatalf("the file has %d bytes, at most %d", size, o.MaxBytes)
				}
			}
			list, err := s.List(context.Background(), Filter{})
			if err != nil {
				t.Fatal(err)
			}
			n := len(list.Incidents)
			if n == 0 || list.Incidents[0].ID != ids[len(ids)-1] || list.Kept != n {
				t.Fatalf("%d incidents (counted %d), the newest is not among them", n, list.Kept)
			}
			if st := s.Stats(); st.Dropped != 0 || st.Why != "" || st.Kept != n || int(st.Deleted) > len(ids) {
				t.Fatalf("%+v after %d incidents, %d kept", st, len(ids), n)
			}
			for k, i := range list.Incidents {
				if want := ids[len(ids)-1-k]; i.ID != want {
					t.Fatalf("incident %d from the end is %s, want %s", k, i.ID, want)
				}
			}
			cancel()
			<-s.ended
		}
	})
}

// inMemory is a folder where syncing costs nothing, if there is one.
func inMemory() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return ""
}

func TestWhatIsTooOldGoesAndTheDiskIsGivenBack(t *testing.T) {
	m := &manual{due: make(chan time.Time)}
	o := m.options(filepath.Join(t.TempDir(), "incidents.db"))
	o.MaxBytes, o.Queue = 64<<20, 5000
	s, end := running(t, o)
	for n := range 3000 {
		i := example(noon.Add(time.Duration(n)*time.Minute), "web", "a", "b", "c", "d", "e", "f", "g")
		for k := range i.Suspects {
			for p := range i.Suspects[k].Series {
				i.Suspects[k].Series[p].Value = float64((n*31+k*17+p*7)%977) / 977
			}
		}
		s.Put(i)
	}
	flush(t, s)
	before := s.Stats()
	if before.Bytes < 5<<20 {
		t.Fatalf("the file has only %d bytes: make it larger", before.Bytes)
	}
	end()
	m.now.Store(int64(31*24*time.Hour + 1500*time.Minute)) // a start looks after it as well
	s, _ = running(t, o)
	list, err := s.List(context.Background(), Filter{})
	if err != nil {
		t.Fatal(err)
	}
	after := s.Stats()
	if n := len(list.Incidents); n > 1500 || n < 3 && n != 0 {
		t.Errorf("%d are left", n)
	}
	if after.Bytes > before.Bytes/2+1<<20 || after.Why != "" {
		t.Errorf("the file has %d bytes, before %d; %s", after.Bytes, before.Bytes, after.Why)
	}
	// And it can still be written.
	s.Put(example(o.Now(), "web"))
	flush(t, s)
	if st := s.Stats(); st.Kept != after.Kept+1 {
		t.Errorf("%+v", st)
	}
}

// A slow or missing disk makes Put no slower.
func TestPutNeverWaits(t *testing.T) {
	m := &manual{due: make(chan time.Time)}
	o := m.options(filepath.Join(t.TempDir(), "no", "such", "folder", "incidents.db"))
	o.Queue = 10
	s := New(o) // Run is not running yet
	for n := range 100 {
		s.Put(example(noon.Add(time.Duration(n)*time.Second), "web"))
	}
	if st := s.Stats(); st.Puts != 100 || st.Dropped != 90 {
		t.Errorf("%+v", st)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go s.Run(ctx)
	flush(t, s)
	if st := s.Stats(); !strings.Contains(st.Why, "no such file") {
		t.Errorf("%+v", st)
	}
	var missing *UnavailableError
	if _, err := s.List(ctx, Filter{}); !errors.As(err, &missing) || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("List: %v", err)
	}
	// The folder comes: what still waited is written.
	if err := os.MkdirAll(filepath.Dir(o.Path), 0o700); err != nil {
		t.Fatal(err)
	}
	flush(t, s)
	if st := s.Stats(); st.Why != "" || st.Kept != 10 || st.Written != 10 {
		t.Errorf("%+v", st)
	}
	cancel()
	<-s.ended
}

func TestAFileOfANewerVersionIsLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "incidents.db")
	db, err := openBolt(path, LeastBytes, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := schema(db); err != nil {
		t.Fatal(err)
	}
	if err := setVersion(db, "2"); err != nil {
		t.Fatal(err)
	}
	db.Close()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, end := running(t, Options{Path: path})
	s.Put(example(noon, "web"))
	flush(t, s)
	if st := s.Stats(); st.Dropped != 1 || !strings.Contains(st.Why, `version "2"`) || st.Aside != "" {
		t.Errorf("%+v", st)
	}
	end()
	after, err := os.ReadFile(path)
	if err != nil || string(after) != string(before) {
		t.Errorf("the file was changed (%v)", err)
	}
	if _, err := OpenReader(path, noon); err == nil || !strings.Contains(err.Error(), "newer one wrote it") {
		t.Errorf("reading it: %v", err)
	}
}

func TestTwoProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "incidents.db")
	s, end := running(t, Options{Path: path})
	s.Put(example(noon, "web"))
	flush(t, s)
	if _, err := OpenReader(path, noon); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("reading the file of a daemon that runs: %v", err)
	}
	end()
	r, err := OpenReader(path, noon)
	if err != nil {
		t.Fatal(err)
	}
	// A daemon that starts during a read waits for it, and loses nothing.
	s, _ = running(t, Options{Path: path})
	s.Put(example(noon.Add(time.Second), "web"))
	flush(t, s)
	if st := s.Stats(); !strings.Contains(st.Why, "in use") || st.Aside != "" {
		t.Errorf("%+v", st)
	}
	r.Close()
	flush(t, s)
	if st := s.Stats(); st.Why != "" || st.Kept != 2 {
		t.Errorf("%+v", st)
	}
}

func TestWhatIsNoDatabase(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "incidents.db")
	if err := os.WriteFile(path, []byte("a letter"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, end := running(t, Options{Path: path})
	s.Put(example(noon, "web"))
	flush(t, s)
	st := s.Stats()
	if st.Kept != 1 || st.Why != "" || !strings.HasPrefix(st.Aside, path+asideMark) ||
		!strings.Contains(st.DamagedWhy, "no database") {
		t.Errorf("%+v", st)
	}
	if text, err := os.ReadFile(st.Aside); err != nil || string(text) != "a letter" {
		t.Errorf("what was put aside is %q, %v", text, err)
	}
	end()
	// A link leads elsewhere, a folder and a pipe are no files; none is touched.
	for name, make := range map[string]func(string) error{
		"link": func(p string) error {
			return os.Symlink(path, p)
		}, "folder": func(p string) error { return os.Mkdir(p, 0o700) },
		"pipe": func(p string) error { return unix.Mkfifo(p, 0o600) },
	} {
		p := filepath.Join(dir, name)
		if err := make(p); err != nil {
			t.Fatal(err)
		}
		s, end := running(t, Options{Path: p})
		flush(t, s)
		if st := s.Stats(); st.Why == "" || st.Aside != "" {
			t.Errorf("%s: %+v", name, st)
		}
		end()
	}
}

// naive is Top and List by definition, over whole incidents.
func naiveTop(list []Incident, q TopQuery, now time.Time) map[string]Rank {
	name := func(s Subject) string {
		if q.Group == GroupPod {
			return s.Namespace + "/" + s.Pod
		}
		return s.Namespace + "/" + s.Job
	}
	is := func(s Subject, want string) bool {
		return want == "" || want == s.Pod || want == s.Job || want == s.Namespace+"/"+s.Job || want == s.Name() ||
			want == s.Namespace+"/"+s.Pod || want == strings.TrimPrefix(s.Job, "Deployment/")
	}
	rows, scores := map[string]Rank{}, map[string][]float64{}
	for _, i := range list {
		if !is(i.Victim, q.Victim) || !q.Since.IsZero() && i.At.Before(q.Since) || !q.Until.IsZero() &&
			!i.At.Before(q.Until) {
			continue
		}
		seen := map[string]bool{}
		for _, a := range i.Antagonists {
			if !is(a, q.Antagonist) {
				continue
			}
			other := a
			if q.Antagonist != "" {
				other = i.Victim
			}
			r := rows[name(other)]
			if !seen[name(other)] {
				r.Incidents++
				if i.Outcome.Result == "success" {
					r.Helped++
				}
				seen[name(other)] = true
			}
			r.Excess += (i.CPI/i.Spec.Mean - 1) / float64(len(i.Antagonists))
			for _, s := range i.Suspects {
				if s.Same(a) {
					scores[name(other)] = append(scores[name(other)], s.Score)
				}
			}
			for _, act := range i.Actions {
				if act.Subject.Same(a) {
					end := act.End()
					if end.After(now) {
						end = now
					}
					r.CappedSeconds += max(0, end.Sub(act.From).Seconds())
				}
			}
			rows[name(other)] = r
		}
	}
	for k, r := range rows {
		for _, s := range scores[k] {
			r.Score += s / float64(len(scores[k]))
		}
		rows[k] = r
	}
	return rows
}

func TestQueriesAreThoseOfANaiveModel(t *testing.T) {
	jobs := []string{"web", "db", "batch", "video", "cron"}
	job := rapid.SampledFrom(jobs)
	now := noon.Add(100 * time.Minute)
	s, _ := running(t, Options{Now: func() time.Time { return now }, Queue: 5000})
	var list []Incident
	rapid.Check(t, func(t *rapid.T) {
		// Every round adds to what is there.
		for range rapid.IntRange(0, 10).Draw(t, "more") {
			i := example(noon.Add(time.Duration(len(list))*time.Second), job.Draw(t, "victim"),
				rapid.SliceOfNDistinct(job, 0, 3, rapid.ID[string]).Draw(t, "antagonists")...)
			if rapid.Bool().Draw(t, "in force") {
				for k := range i.Actions {
					i.Actions[k].Ended, i.Actions[k].Until = time.Time{}, i.At.Add(time.Duration(rapid.IntRange(0,
						9000).Draw(t, "term"))*time.Second)
				}
			}
			i.Outcome.Result = rapid.SampledFrom([]string{"success", "failure", ""}).Draw(t, "result")
			i.ID = s.Put(i)
			list = append(list, i)
		}
		name := rapid.Custom(func(t *rapid.T) string {
			j := job.Draw(t, "job")
			return rapid.SampledFrom([]string{"", j, "default/" + j, j + "-1", "default/" + j + "-1/main",
				"default/Deployment/" + j, "Deployment/" + j, "nobody"}).Draw(t, "form")
		})
		f := Filter{Victim: name.Draw(t, "victim"), Antagonist: name.Draw(t, "antagonist"),
			Verdict: rapid.SampledFrom([]string{"", Cap, None}).Draw(t, "verdict"),
			Limit:   rapid.IntRange(0, 20).Draw(t, "limit"), Active: rapid.Bool().Draw(t, "active")}
		if rapid.Bool().Draw(t, "windowed") {
			f.Since = noon.Add(time.Duration(rapid.IntRange(-10, 200).Draw(t, "since")) * time.Second)
			f.Until = f.Since.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "length")) * time.Second)
		}
		if f.Victim == "default/"+strings.TrimPrefix(f.Victim, "default/") &&
			!strings.Contains(f.Victim[len("default/"):], "/") && !strings.Contains(f.Victim, "-") {
			f.Victim += "-1" // the model knows the pod's name only
		}
		if strings.HasPrefix(f.Antagonist, "default/") && strings.Count(f.Antagonist, "/") == 1 &&
			!strings.Contains(f.Antagonist, "-") {
			f.Antagonist += "-1"
		}
		for _, group := range []string{GroupJob, GroupPod} {
			q := TopQuery{Victim: f.Victim, Antagonist: f.Antagonist, Since: f.Since, Until: f.Until, Group: group}
			want := naiveTop(list, q, now)
			got, err := s.Top(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Ranks) != len(want) {
				t.Fatalf("%+v: %d rows, want %v", q, len(got.Ranks), slices.Collect(maps.Keys(want)))
			}
			for _, r := range got.Ranks {
				w := want[r.Name]
				if r.Incidents != w.Incidents || r.Helped != w.Helped || !near(r.CappedSeconds, w.CappedSeconds) ||
					!near(r.Score, w.Score) || !near(r.Excess, w.Excess) {
					t.Fatalf("%+v\nis   %+v\nwant %+v", q, r, w)
				}
			}
			if !slices.IsSortedFunc(got.Ranks, func(a, b Rank) int { return cmp.Compare(b.Incidents, a.Incidents) }) {
				t.Fatalf("not in order: %+v", got.Ranks)
			}
		}
		checkList(t, s, list, f, now)
	})
}

func near(a, b float64) bool { return max(a-b, b-a) <= 1e-3*max(1, a, b) }

func checkList(t *rapid.T, s *Store, list []Incident, f Filter, now time.Time) {
	var want []string
	for _, i := range slices.Backward(list) {
		one := naiveTop([]Incident{i}, TopQuery{Victim: f.Victim, Antagonist: f.Antagonist, Since: f.Since,
			Until: f.Until}, now)
		if f.Antagonist != "" && len(one) == 0 || !f.Since.IsZero() && i.At.Before(f.Since) || !f.Until.IsZero() &&
			!i.At.Before(f.Until) {
			continue
		}
		if f.Antagonist == "" && f.Victim != "" { // one without an antagonist counts as well
			i := i
			i.Antagonists = []Subject{{Job: "x"}}
			if len(naiveTop([]Incident{i}, TopQuery{Victim: f.Victim}, now)) == 0 {
				continue
			}
		}
		active := slices.ContainsFunc(i.Actions, func(a Action) bool { return a.Ended.IsZero() && a.Until.After(now) })
		if f.Verdict != "" && f.Verdict != i.Verdict || f.Active && !active {
			continue
		}
		want = append(want, i.ID)
	}
	got, err := s.List(context.Background(), f)
	if err != nil {
		t.Fatal(err)
	}
	more := f.Limit > 0 && len(want) > f.Limit
	if more {
		want = want[:f.Limit]
	}
	var ids []string
	for _, i := range got.Incidents {
		ids = append(ids, i.ID)
	}
	if !slices.Equal(ids, want) || got.More != more {
		t.Fatalf("%+v lists %q (more: %t), want %q (%t)", f, ids, got.More, want, more)
	}
	f.Limit = 0
	full, err := s.List(context.Background(), f)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := s.Export(context.Background(), f, func(i *Incident) error {
		n++
		return nil
	}); err != nil || n != len(full.Incidents) {
		t.Fatalf("%d exported (%v), %d listed", n, err, len(full.Incidents))
	}
}
