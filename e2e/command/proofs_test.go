package command

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// fakeGround remembers what was done to it.
type fakeGround struct {
	broken, unclean error
	did             []string
}

func (g *fakeGround) Broken() error               { return g.broken }
func (g *fakeGround) Clean(context.Context) error { g.did = append(g.did, "clean"); return g.unclean }
func (g *fakeGround) Diagnosis(context.Context) string {
	g.did = append(g.did, "diagnosis")
	return "why"
}
func (g *fakeGround) Close() error { g.did = append(g.did, "close"); return nil }

func holds(context.Context, *fakeGround) ([]Figure, error) { return []Figure{{"what", 1}}, nil }
func fails(context.Context, *fakeGround) ([]Figure, error) { return nil, errors.New("no") }

// stage keeps the grounds that it opened.
func stage(open func(n int) (*fakeGround, error)) (*Stage[*fakeGround], *[]*fakeGround, *bytes.Buffer) {
	var grounds []*fakeGround
	var out bytes.Buffer
	s := &Stage[*fakeGround]{Program: "test", Flags: &Flags{Driver: "systemd", Output: "text"}, Limit: time.Minute,
		Stdout: &out, Stderr: &out}
	s.Open = func(context.Context) (*fakeGround, error) {
		g, err := open(len(grounds))
		grounds = append(grounds, g)
		return g, err
	}
	return s, &grounds, &out
}

func sound(int) (*fakeGround, error) { return &fakeGround{}, nil }

func TestProofsShareOneGround(t *testing.T) {
	s, grounds, out := stage(sound)
	err := s.Show(t.Context(), []Proof[*fakeGround]{{"a", holds}, {"b", fails}, {"c", holds}})
	if err == nil || !strings.Contains(err.Error(), "1 of 3 proofs failed: b: no") {
		t.Errorf("err %v", err)
	}
	if len(*grounds) != 1 {
		t.Fatalf("%d grounds, want 1", len(*grounds))
	}
	if got := strings.Join((*grounds)[0].did, " "); got != "clean diagnosis clean clean close" {
		t.Errorf("did %s", got)
	}
	for _, want := range []string{"a         holds (systemd", "what", "b         FAILS", "    no", "2 of 3 hold",
		"why"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
}

func TestALostGroundIsReplacedOnce(t *testing.T) {
	s, grounds, out := stage(func(n int) (*fakeGround, error) {
		if n == 0 {
			return &fakeGround{broken: errors.New("gone")}, nil
		}
		return &fakeGround{}, nil
	})
	runs := 0
	err := s.Show(t.Context(), []Proof[*fakeGround]{{"a", func(_ context.Context, g *fakeGround) ([]Figure, error) {
		runs++
		return nil, g.broken
	}}})
	if err != nil || runs != 2 || len(*grounds) != 2 || !strings.Contains(out.String(),
		"once more on a new one: gone") {
		t.Errorf("err %v, %d runs, %d grounds, %s", err, runs, len(*grounds), out)
	}
	for i, g := range *grounds {
		if g.did[len(g.did)-1] != "close" {
			t.Errorf("ground %d is left open: %v", i, g.did)
		}
	}
}

func TestAGroundThatCannotBeMadeOrCleanedFailsTheProof(t *testing.T) {
	s, _, out := stage(func(int) (*fakeGround, error) { return nil, errors.New("no machine") })
	if err := s.Show(t.Context(), []Proof[*fakeGround]{{"a", holds}}); err == nil ||
		!strings.Contains(out.String(), "no machine") {
		t.Errorf("err %v, %s", err, out)
	}
	s, grounds, out := stage(func(int) (*fakeGround, error) { return &fakeGround{unclean: errors.New("rubbish")}, nil })
	if err := s.Show(t.Context(), []Proof[*fakeGround]{{"a", holds}}); err == nil ||
		!strings.Contains(out.String(), "rubbish") {
		t.Errorf("err %v, %s", err, out)
	}
	if got := strings.Join((*grounds)[0].did, " "); got != "clean diagnosis close" {
		t.Errorf("did %s", got)
	}
}

func TestChoose(t *testing.T) {
	all := []Proof[*fakeGround]{{"a", holds}, {"b", holds}}
	for only, want := range map[string]string{"": "ab", "b": "b", "b,a": "ba", "c": "", "a,": ""} {
		got, err := Choose(all, only)
		names := ""
		for _, p := range got {
			names += p.Name
		}
		if names != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", only, names, err)
		}
	}
}

func TestResultAsJSON(t *testing.T) {
	var out bytes.Buffer
	(&result{Proof: "none", Figures: []Figure{{"what", 1}}}).print(&out, "json")
	if got, want :=
		out.String(), `{"proof":"none","driver":"","ok":false,"seconds":0,"figures":[{"name":"what","value":1}]}`+
			"\n"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
