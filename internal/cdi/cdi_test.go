package cdi

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quietcore/quietcore/policy"
)

// driver is a spec as dra-driver-cpu writes it, for a claim.
func driver(uid, cpus string) string {
	return `{"cdiVersion":"0.8.0","kind":"dra.k8s.io/cpu","devices":[{"name":"claim-` + uid +
		`","containerEdits":{"env":["DRA_CPUSET_` + uid + `=` + cpus + `"]}}]}`
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ name, text, want, err string }{
		{"a claim of dra-driver-cpu", driver("5f9c", "2-3,6"), "dra.k8s.io/cpu=claim-5f9c 2-3,6", ""},
		{"YAML", "kind: vendor.com/cpu\ndevices:\n- name: a\n  containerEdits: {env: [DRA_CPUSET_x=1]}\n",
			"vendor.com/cpu=a 1", ""},
		{"another vendor, CPUs not said", `{"kind":"v.com/cpu","devices":[{"name":"a"}]}`, "v.com/cpu=a ", ""},
		{"a GPU, whatever its variables", strings.Replace(driver("5f9c", "2"), "/cpu", "/gpu", 1), "", ""},
		{"no list of CPUs", driver("5f9c", "2-"), "", "DRA_CPUSET_5f9c"},
		{"no vendor", `{"kind":"/cpu","devices":[{"name":"a"}]}`, "", "no qualified name"},
		{"no name", `{"kind":"v/cpu","devices":[{}]}`, "", "no qualified name"},
		{"half a file", driver("5f9c", "2")[:60], "", "CDI spec"},
		{"too large", strings.Repeat(" ", maxSpec+1), "", "larger than"},
		{"too many devices", `{"kind":"v/cpu","devices":[{}` + strings.Repeat(",{}", maxDevices) + `]}`, "", "at most"},
	} {
		t.Run(c.name, func(t *testing.T) {
			devices, err := Parse([]byte(c.text))
			var got []string
			for _, d := range devices {
				got = append(got, d.Name+" "+d.CPUs.String())
			}
			if strings.Join(got, ";") != c.want || (err == nil) != (c.err == "") ||
				err != nil && !strings.Contains(err.Error(), c.err) {
				t.Fatalf("got %q, %v", got, err)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(driver("5f9c", "2-3")))
	f.Add([]byte("kind: v/cpu\ndevices: [{name: a}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		devices, err := Parse(text)
		if err != nil && len(devices) > 0 {
			t.Fatalf("devices %v in spite of %v", devices, err)
		}
		for _, d := range devices {
			if !IsCPU(d.Name) {
				t.Fatalf("%q is no device for CPUs", d.Name)
			}
		}
	})
}

// node are the specs of a node of a test, whose files are all trusted.
type node struct {
	specs *Specs
	taken []policy.ForeignClaims
	fails error
}

func newNode(t *testing.T) *node {
	n := &node{}
	n.specs = New(Options{Dirs: []string{t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "none")},
		Log: slog.New(slog.DiscardHandler),
		Take: func(_ context.Context, e policy.ForeignClaims) error {
			if n.fails == nil {
				n.taken = append(n.taken, e)
			}
			return n.fails
		}})
	n.specs.owner = func(fs.FileInfo) error { return nil }
	return n
}

func (n *node) write(t *testing.T, dir int, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(n.specs.Dirs[dir], name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// look looks, and returns the CPUs of claim "a" if anything was handed on.
func (n *node) look(t *testing.T) string {
	t.Helper()
	before := len(n.taken)
	n.specs.Look(t.Context())
	if len(n.taken) == before {
		return "unchanged"
	}
	cpus, ok := n.taken[before].Devices["dra.k8s.io/cpu=claim-a"]
	if !ok {
		return "gone"
	}
	return cpus.String()
}

func TestLook(t *testing.T) {
	n := newNode(t)
	if got := n.look(t); got != "unchanged" {
		t.Fatalf("without specs: %s", got)
	}
	for _, step := range []struct {
		what, want string
		do         func()
	}{
		{"a claim", "2-3", func() { n.write(t, 1, "a.json", driver("a", "2-3")) }},
		{"nothing", "unchanged", func() {}},
		{"a file that is no spec", "unchanged", func() { n.write(t, 1, "a.txt", driver("a", "7")) }},
		{"a spec that is broken now", "unchanged", func() { n.write(t, 1, "a.json", "{") }},
		{"and whole again", "4-7", func() { n.write(t, 1, "a.json", driver("a", "4-7")) }},
		{"a failure to take it over", "unchanged", func() {
			n.fails = errors.New("busy")
			n.write(t, 1, "a.json", driver("a", "10-11"))
		}},
		{"which is tried again", "10-11", func() { n.fails = nil }},
		{"files that others may write", "unchanged", func() {
			n.specs.owner = func(fs.FileInfo) error { return errors.New("not root's") }
		}},
		{"root's again", "gone", func() {
			n.specs.owner = func(fs.FileInfo) error { return nil }
			if err := os.Remove(filepath.Join(n.specs.Dirs[1], "a.json")); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		step.do()
		if got := n.look(t); got != step.want {
			t.Fatalf("%s: %s, want %s", step.what, got, step.want)
		}
	}
}

// Who takes the claims over and hangs keeps nobody else from going on.
func TestALookThatHangsHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.write(t, 1, "a.json", driver("a", "2-3"))
		ended := make(chan struct{})
		n.specs.Take = func(ctx context.Context, _ policy.ForeignClaims) error {
			<-ended
			return ctx.Err()
		}
		go n.specs.Look(t.Context())
		synctest.Wait()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		n.specs.Look(ctx)
		if took := time.Since(began); took != time.Second {
			t.Errorf("a look beside one that hangs took %v of the second it had", took)
		}
		close(ended)
	})
}

// info is a file's.
type info struct {
	fs.FileInfo
	uid  uint32
	mode fs.FileMode
}

func (i info) Sys() any           { return &syscall.Stat_t{Uid: i.uid} }
func (i info) Mode() fs.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return time.Time{} }

func TestOnlyRootsSpecsAreBelieved(t *testing.T) {
	for _, c := range []struct {
		info info
		ok   bool
	}{
		{info{uid: 0, mode: 0o644}, true}, {info{uid: 0, mode: 0o600}, true},
		{info{uid: 1000, mode: 0o600}, false}, {info{uid: 0, mode: 0o664}, false}, {info{uid: 0, mode: 0o646}, false},
	} {
		if err := rootOwned(c.info); (err == nil) != c.ok {
			t.Errorf("user %d, mode %#o: %v", c.info.uid, c.info.mode, err)
		}
	}
}
