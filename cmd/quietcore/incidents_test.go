package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/incidents"
)

const evil = "\x1b[2Jevil<script>\u202e"

func party(job string) incidents.Subject {
	s := incidents.Subject{Namespace: "shop", Pod: job + "-1", Container: "main", Job: "Deployment/" + job,
		Class: "BE", CPUs: "0-7"}
	if job == "web" || job == "cron" {
		s.Claims = "shop/" + job + "-cpus"
	}
	return s
}

// incidentDatabase has three incidents: web disturbed twice by video, once by a
// container of a hostile name; the last has no suspect.
func incidentDatabase(t *testing.T) (path string, ids []string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "incidents.db")
	s := incidents.New(incidents.Options{Path: path})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	base := time.Now().Add(-3 * time.Hour).UTC().Truncate(time.Second)
	for n, who := range []string{"video", "video", evil, ""} {
		at := base.Add(time.Duration(n) * 30 * time.Minute)
		i := incidents.Incident{
			At: at, Node: "node-a", Victim: party("web"), CPI: 3.5, Threshold: 2.25,
			Spec:     incidents.Spec{Mean: 1.75, StdDev: 0.25, Samples: 1000, Tasks: 6},
			Suspects: []incidents.Suspect{{Subject: party("cron"), Score: 0.25}}, Why: "a sentence " + evil,
			Series: []incidents.Point{{Offset: -time.Minute, Value: 3.5}, {Offset: 0, Value: 1.75}},
		}
		if who != "" {
			i.Verdict, i.Antagonists = incidents.Cap, []incidents.Subject{party(who)}
			i.Suspects = slices.Insert(i.Suspects, 0, incidents.Suspect{Subject: party(who), Score: 0.5, Usage: 4,
				Series: []incidents.Point{{Offset: 0, Value: 4}}})
			i.Actions = []incidents.Action{{Kind: incidents.Cap, Subject: party(who), Milli: 100, From: at,
				Until: at.Add(5 * time.Minute), Ended: at.Add(4 * time.Minute)}}
			i.Outcome = incidents.Outcome{Result: "success", Before: 3.5, After: 1.75, Samples: 4}
			i.Evidence = &incidents.Evidence{Resource: "memory bandwidth", Waited: true,
				Node: []incidents.Neighbour{{Name: "shop/" + who + "-1/main", CPUs: 4, Misses: 12345678}}}
		}
		ids = append(ids, s.Put(i))
	}
	cancel()
	<-ended
	if st := s.Stats(); st.Written != 4 {
		t.Fatalf("%+v", st)
	}
	return path, ids
}

func quietcore(args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = run(context.Background(), args, strings.NewReader(""), &o, &e)
	return code, o.String(), e.String()
}

func incidentsOf(t *testing.T, source []string, args ...string) string {
	t.Helper()
	code, out, errs := quietcore(slices.Concat([]string{"incidents"}, args, source)...)
	if code != 0 {
		t.Fatalf("%q: exit code %d: %s", args, code, errs)
	}
	if strings.ContainsFunc(out, func(r rune) bool { return r < ' ' && r != '\n' || r == 0x202e }) {
		t.Fatalf("%q moves the cursor: %q", args, out)
	}
	return out
}

// TestIncidents asks the same of a file and of a daemon over its socket.
func TestIncidents(t *testing.T) {
	path, ids := incidentDatabase(t)
	t.Run("database", func(t *testing.T) { askIncidents(t, []string{"--database", path}, ids) })
	t.Run("daemon", func(t *testing.T) {
		r, err := incidents.OpenReader(path, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		socket := filepath.Join(t.TempDir(), "run", "q.sock")
		l, err := control.Listen(socket)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- control.Serve(ctx, l, (&control.Server{Incidents: r}).Handler()) }()
		askIncidents(t, []string{"--socket", socket}, ids)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func askIncidents(t *testing.T, source, ids []string) {
	list := incidentsOf(t, source)
	if lines := strings.Split(strings.TrimSpace(list), "\n"); len(lines) != 5 ||
		!strings.HasPrefix(lines[1], ids[3]) || !strings.Contains(lines[4], "shop/video-1") ||
		!strings.Contains(lines[4], "4m0s") || !strings.Contains(lines[4], "memory bandwidth and queue") {
		t.Errorf("the list is\n%s", list)
	}
	for args, want := range map[string]string{
		"list --limit 1":                     "There are more",
		"list --victim nobody":               "None matches; 4 are kept",
		"list --since 1s":                    "None matches",
		"list --antagonist video --since 7d": ids[0],
		"list --verdict none":                ids[3],
		"list --active":                      "None matches",
		"top --victim web":                   "4 incidents, 1 of them without an antagonist.",
		"top --antagonist video":             "shop/Deployment/web  2",
		"top --group pod":                    "shop/video-1",
		"show " + ids[0]:                     "cap at 100m of shop/video-1/main",
		"show " + ids[1]:                     "shop/video-1/main  NUMA node  4.00  -               1.23e+07",
		"show " + ids[2]:                     "class BE, CPUs 0-7, claim shop/web-cpus)",
		"show " + ids[3]:                     "claim shop/cron-cpus",
		"show " + ids[1] + " -o html":        "<td>claim shop/cron-cpus</td>",
		"show " + ids[0] + " -o svg":         "capped at 0.1 CPU for 4m0s",
		"show " + ids[2] + " -o html":        "<!doctype html>",
	} {
		if out := incidentsOf(t, source, strings.Fields(args)...); !strings.Contains(out, want) ||
			strings.Contains(out, "<script>") && strings.Contains(out, "<svg") {
			t.Errorf("%s says\n%s\nwant %q in it", args, out, want)
		}
	}
	_, top, _ := quietcore(append([]string{"incidents", "top", "--victim", "web", "-o", "json"}, source...)...)
	var ranks incidents.Top
	if err := json.Unmarshal([]byte(top), &ranks); err != nil || len(ranks.Ranks) != 2 ||
		ranks.Ranks[0].Name != "shop/Deployment/video" || ranks.Ranks[0].Incidents != 2 ||
		ranks.Ranks[0].CappedSeconds != 480 || ranks.Ranks[0].Score != 0.5 || ranks.Ranks[0].Excess != 2 ||
		ranks.Ranks[0].Helped != 2 {
		t.Errorf("top is %s, %v", top, err)
	}
	var one incidents.Incident
	code, out, _ := quietcore(append([]string{"incidents", "show", ids[2], "-o", "json"}, source...)...)
	if err := json.Unmarshal([]byte(out), &one); code != 0 || err != nil || one.ID != ids[2] || len(one.Series) != 2 ||
		one.Suspects[0].Pod != evil+"-1" {
		t.Errorf("show -o json is %s, %v", out, err)
	}
	dir := t.TempDir()
	incidentsOf(t, source, "show", ids[0], "--svg", filepath.Join(dir, "a.svg"))
	incidentsOf(t, source, "export", filepath.Join(dir, "a.csv"))
	incidentsOf(t, source, "export", filepath.Join(dir, "a.jsonl"))
	if text, err := os.ReadFile(filepath.Join(dir, "a.svg")); err != nil || !bytes.HasPrefix(text, []byte("<svg ")) {
		t.Errorf("a.svg is %.20q, %v", text, err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "a.jsonl")); err != nil ||
		bytes.Count(text, []byte("\n")) != len(ids)+1 || !bytes.HasSuffix(text, []byte("\n{}\n")) {
		t.Errorf("a.jsonl is %.20q, %v", text, err)
	}
	f, err := os.Open(filepath.Join(dir, "a.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if lines, err := csv.NewReader(f).ReadAll(); err != nil || len(lines) != 1+3*2+1 {
		t.Errorf("a.csv has %d lines, %v", len(lines), err)
	}
	code, out, _ = quietcore(append([]string{"incidents", "export", "--format", "csv", "--victim", "web", "-"},
		source...)...)
	if code != 0 || strings.Count(out, "\n") != 8 {
		t.Errorf("export to standard output: %d\n%s", code, out)
	}
	code, out, _ = quietcore(append(append([]string{"__complete", "incidents", "show"}, source...), "")...)
	if code != 0 || !strings.Contains(out, ids[0]+"\tshop/web-1/main cap") {
		t.Errorf("completion of an ID says %q", out)
	}
	if code, out, _ = quietcore("__complete", "incidents", "top", "--by", ""); code != 0 ||
		!strings.Contains(out, "excess") {
		t.Errorf("completion of --by says %q", out)
	}
}

func TestIncidentsSaysWhatIsWrong(t *testing.T) {
	path, ids := incidentDatabase(t)
	torn := filepath.Join(t.TempDir(), "torn.db")
	if err := os.WriteFile(torn, make([]byte, 9000), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"list --database " + path + ".none", 1, "no database at"},
		{"list --database " + torn, 1, "is damaged"},
		{"list --socket /nonexistent/q.sock", 1, "no daemon answers"},
		{"show 2020 --database " + path, 1, "no incident has an ID"},
		{"show " + ids[0][:3] + " --database " + path, 1, "several IDs"},
		{"show --database " + path, 2, "exactly one argument"},
		{"show " + ids[0] + " -o yaml", 2, "must be one of"},
		{"lst", 2, "unknown command"},
		{"list --since yesterday", 2, "give a duration back"},
		{"list --since 1h --until 2h", 2, "is not before"},
		{"list --verdict guilty", 2, "must be one of"},
		{"list --limit -1", 2, "must be 0"},
		{"top --by name", 2, "must be one of"},
		{"export x.xlsx", 2, "must be one of [csv jsonl]"},
		{"export x.parquet", 2, "kubectl quietcore incidents export --from makes parquet"},
		{"export --format csv /nonexistent/x.csv --database " + path, 1, "no such file"},
		{"show " + ids[0] + " --svg /nonexistent/x.svg --database " + path, 1, "no such file"},
	} {
		code, out, errs := quietcore(append([]string{"incidents"}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.Contains(errs, c.want) || out != "" {
			t.Errorf("%s: exit code %d, %q on stderr, %q on stdout; want %d and %q", c.args, code, errs, out, c.code,
				c.want)
		}
	}
}
