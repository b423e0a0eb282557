package script

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/quietcore/quietcore/policy"
)

var update = flag.Bool("update", false, "rewrite the results in docs/semantics and testdata")

// play runs a script and returns the lines.
func play(t *testing.T, text []byte) []Line {
	t.Helper()
	return playOn(t, text, func(dir string) (fs.FS, error) { return os.DirFS(dir), nil })
}

func playOn(t *testing.T, text []byte, openSysfs func(dir string) (fs.FS, error)) []Line {
	t.Helper()
	f, p := loadOn(t, text, openSysfs)
	var lines []Line
	for _, s := range f.Steps {
		line, err := p.Play(s)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	return lines
}

// load makes the node of a script.
func load(t *testing.T, text []byte) (*File, *Player) {
	t.Helper()
	return loadOn(t, text, func(dir string) (fs.FS, error) { return os.DirFS(dir), nil })
}

func loadOn(t *testing.T, text []byte, openSysfs func(dir string) (fs.FS, error)) (*File, *Player) {
	t.Helper()
	f, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	topo, _, err := f.Topology.Build(openSysfs)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPlayer(f, topo)
	if err != nil {
		t.Fatal(err)
	}
	return f, p
}

// TestSemantics plays every script of docs/semantics, and those of testdata/semantics, to which
// the pages link, and compares each with the result printed below it. Run with -update after a
// change that is meant.
func TestSemantics(t *testing.T) {
	const least = 54 // scripts, which are more when a rule is added
	var pages []string
	for _, pattern := range []string{
		filepath.Join("..", "..", "docs", "semantics.md"), filepath.Join("..", "..", "docs", "semantics", "*.md"),
		filepath.Join("testdata", "semantics", "*.md"),
	} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d pages, %v", pattern, len(found), err)
		}
		pages = append(pages, found...)
	}
	n := 0
	for _, page := range pages {
		n += playPage(t, page, os.DirFS)
	}
	t.Logf("%d scripts of %d pages", n, len(pages))
	if n < least {
		t.Errorf("the pages have %d scripts, not %d or more", n, least)
	}
}

// TestMachinesOnPaper plays scripts on the /sys of machines that no virtual machine copies: an
// arm64 server, with the proposal's restrictions for Arm, and a processor of two kinds of cores.
func TestMachinesOnPaper(t *testing.T) {
	for _, page := range []string{"arm64", "hybrid"} {
		t.Run(page, func(t *testing.T) {
			n := playPage(t, filepath.Join("testdata", page+".md"), func(name string) fs.FS {
				return fixture(t, name)
			})
			if n < 3 {
				t.Errorf("%d scripts", n)
			}
		})
	}
}

// fixture is one of the machines by which sysfs is tested.
func fixture(t *testing.T, name string) fs.FS {
	t.Helper()
	a, err := txtar.ParseFile(filepath.Join("..", "..", "sysfs", "testdata", name+".txtar"))
	if err != nil {
		t.Fatal(err)
	}
	tree := fstest.MapFS{}
	for _, f := range a.Files {
		tree[f.Name] = &fstest.MapFile{Data: f.Data, Mode: 0o444}
	}
	return tree
}

// playPage plays the scripts of a page and counts them.
func playPage(t *testing.T, path string, sysfs func(dir string) fs.FS) (n int) {
	t.Helper()
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rest := string(doc)
	var out strings.Builder
	for {
		before, after, ok := strings.Cut(rest, "```yaml\n")
		if !ok {
			out.WriteString(rest)
			break
		}
		body, tail, ok := strings.Cut(after, "```\n")
		if !ok {
			t.Fatalf("a script in %s does not end", path)
		}
		out.WriteString(before + "```yaml\n" + body + "```\n")
		n++
		var got strings.Builder
		for _, line := range playOn(t, []byte(body), func(dir string) (fs.FS, error) { return sysfs(dir), nil }) {
			if err := line.WriteText(&got, false); err != nil {
				t.Fatal(err)
			}
		}
		want := ""
		if strings.HasPrefix(tail, "```text\n") {
			want, tail, _ = strings.Cut(strings.TrimPrefix(tail, "```text\n"), "```\n")
		}
		if want != got.String() && !*update {
			t.Errorf("script %d of %s:\n%s\ngot:\n%s\nwant:\n%s", n, path, body, got.String(), want)
		}
		out.WriteString("```text\n" + got.String() + "```\n")
		rest = tail
	}
	if *update {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// TestScenariosPlay plays every end-to-end scenario on the state machine alone.
func TestScenariosPlay(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "e2e", "scenarios", "*.yaml"))
	if err != nil || len(files) < 20 {
		t.Fatalf("%d scenarios, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			a, b := play(t, text), play(t, text)
			ja, _ := json.Marshal(a)
			jb, _ := json.Marshal(b)
			if !bytes.Equal(ja, jb) {
				t.Error("two runs of the same script differ")
			}
		})
	}
}

// TestRecordReplays checks P8: what a recorder kept, played on an empty machine,
// ends where the recorded machine ended, however much the ring had forgotten.
func TestRecordReplays(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "e2e", "scenarios", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		for _, size := range []int{1, 3, 1000} {
			t.Run(fmt.Sprintf("%s/%d", filepath.Base(file), size), func(t *testing.T) {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				recordAndReplay(t, text, size)
			})
		}
	}
}

func recordAndReplay(t *testing.T, text []byte, size int) {
	f, p := load(t, text)
	recorder := policy.NewRecorder(size)
	p.Observe(recorder)
	for _, s := range f.Steps {
		if s.RestartDaemon != nil {
			continue // a record never spans two daemons
		}
		if _, err := p.Play(s); err != nil {
			t.Fatal(err)
		}
	}
	var steps []map[string]any
	for _, r := range recorder.Records() {
		steps = append(steps, map[string]any{"event": r})
	}
	doc, err := json.Marshal(map[string]any{"steps": steps})
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(doc)
	if err != nil {
		t.Fatalf("the record does not parse: %v\n%s", err, doc)
	}
	_, q := load(t, text)
	for _, s := range again.Steps {
		if _, err := q.Play(s); err != nil {
			t.Fatal(err)
		}
	}
	want, wantPools := StateOf(p.Machine().Snapshot())
	got, gotPools := StateOf(q.Machine().Snapshot())
	a, _ := json.Marshal(want)
	b, _ := json.Marshal(got)
	if wantPools != gotPools || !bytes.Equal(a, b) {
		t.Errorf("recorded: %v %s\nreplayed: %v %s", wantPools, a, gotPools, b)
	}
}

func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob(filepath.Join("..", "..", "e2e", "scenarios", "*.yaml"))
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Parse(text)
		if err != nil {
			return
		}
		topo, _, err := file.Topology.Build(func(string) (fs.FS, error) { return nil, fs.ErrNotExist })
		if err != nil {
			return
		}
		p, err := NewPlayer(file, topo)
		if err != nil {
			return
		}
		for _, s := range file.Steps {
			if _, err := p.Play(s); err != nil {
				return
			}
		}
	})
}

// A daemon that starts with another configuration keeps what was decided and decides what
// comes by the new one.
func TestRestartWithAnotherConfiguration(t *testing.T) {
	const head = "topology: {grid: {sockets: 1, coresPerL3: 4, threadsPerCore: 2}}\n" +
		"config: {authority: {profile: open}}\nsteps:\n" +
		"  - create: {pod: a, labels: {koordinator.sh/qosClass: LSR}, containers: " +
		"[{name: main, requestMilli: 1000, limitMilli: 1000}]}\n"
	f, p := load(t, []byte(head+"  - restartDaemon: {config: {allocation: {smt: isolate}}}\n"+
		"  - create: {pod: b, labels: {koordinator.sh/qosClass: LSR}, containers: "+
		"[{name: main, requestMilli: 1000, limitMilli: 1000}]}\n  - restartDaemon: {}\n"))
	var last Line
	for _, s := range f.Steps {
		var err error
		if last, err = p.Play(s); err != nil || last.Error != nil {
			t.Fatal(err, last.Error)
		}
	}
	got := map[string]string{}
	for _, c := range last.Containers {
		got[c.Pod] = c.CPUs + " beside " + c.Withheld
	}
	if want := map[string]string{"a": "0 beside ", "b": "2 beside 3"}; !maps.Equal(got, want) {
		t.Errorf("after the restarts %v, want %v", got, want)
	}
	for bad, want := range map[string]string{
		"{config: {node: {name: other}}}":               "the node stands at the top",
		"{config: {allocation: {smt: sideways}}}":       "sideways",
		"{config: {cpi: {window: 2m, interval: 1m}}}":   "cpi",
		"{config: {allocation: {smt: none}}, more: no}": "more",
	} {
		_, err := Parse([]byte(head + "  - restartDaemon: " + bad + "\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", bad, err, want)
		}
	}
}
