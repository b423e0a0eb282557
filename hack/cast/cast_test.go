package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const shown = "../../docs/cast.svg"

// TestRecorded: the README shows what the commands print today.
func TestRecorded(t *testing.T) {
	if _, err := exec.LookPath("jq"); err != nil && os.Getenv("QUIETCORE_CI") != "1" {
		t.Skipf("%v: make setup-test installs it", err)
	}
	want, err := record("../..")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(shown)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/cast.svg is not what quietcore prints: go run ./hack/cast writes it anew")
	}
}

// TestPicture: it is small, well-formed and moves for 20 seconds; it neither loads nor runs anything.
func TestPicture(t *testing.T) {
	svg, err := os.ReadFile(shown)
	if err != nil {
		t.Fatal(err)
	}
	if len(svg) > 200_000 {
		t.Errorf("%d bytes", len(svg))
	}
	total := 0.0
	for _, s := range session {
		total += s.seconds
	}
	if total != 20 || !strings.Contains(string(svg), "animation-duration:20s") {
		t.Errorf("the session takes %g s", total)
	}
	texts := 0
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if e.Name.Local == "text" {
			texts++
		}
		for _, a := range e.Attr {
			if a.Name.Local == "href" || strings.HasPrefix(a.Name.Local, "on") {
				t.Errorf("%s has %s", e.Name.Local, a.Name.Local)
			}
		}
	}
	if texts < 20 || strings.Contains(string(svg), "url(") {
		t.Errorf("%d lines; or it loads something", texts)
	}
}

// TestScreens: what does not fit, or cannot be read in its time, is refused.
func TestScreens(t *testing.T) {
	for name, s := range map[string]screen{
		"as it should be": {scene{"a", "b", 5}, []string{"c"}},
		"lines":           {scene{"a", "b", 9}, make([]string, rows-1)},
		"seconds":         {scene{"a", "b", 3}, []string{"c"}},
	} {
		if list, err := s.lines(1); (err == nil) != (name == "as it should be") {
			t.Errorf("%s: %v, %v", name, list, err)
		}
	}
	if got := wrap(strings.Repeat("ä", columns+1)); len(got) != 2 || got[1] != "ä" {
		t.Errorf("%q", got)
	}
}
