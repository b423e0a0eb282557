package doctext

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const page = "# A `code` heading, with: marks\n\n# Twice\n\n# Twice\n\nSee [there](../b.md#c) and `quietcore " +
	"top`. <a id=\"old\"></a>\n\n" +
	"| a | b |\n|---|---|\n| [cell](x.md) | `y` |\n\n" +
	"```\nquietcore status      who sits where\nquietcore explain default/web   # why\n```\n\n" +
	"```sh\nhelm install q charts/q \\\n  --set 'a=\"0,1\"' | jq '.x[]  | .y' > out\nkubectl apply -f - <<EOF\na: " +
	"1\nEOF\n```\n\n" +
	"```console\n$ quietcore diff\nnothing differs\n```\n\n```text\nquietcore no command\n```\n\n```\nquietcore top " +
	"- 12:30:05, 16 CPUs\n```\n"

func TestPage(t *testing.T) {
	p := Parse("docs/a.md", []byte(page))
	if want := map[string]bool{"a-code-heading-with-marks": true, "twice": true,
		"twice-1": true, "old": true}; !cmp.Equal(p.Anchors, want) {
		t.Errorf("anchors %v", p.Anchors)
	}
	if want := []Span{{"../b.md#c", 7}, {"x.md", 11}}; !slices.Equal(p.Links, want) {
		t.Errorf("links %v", p.Links)
	}
	var got []string
	for _, c := range p.Commands() {
		got = append(got, c.String())
	}
	want := []string{
		"docs/a.md:14: quietcore status", "docs/a.md:15: quietcore explain default/web",
		`docs/a.md:19: helm install q charts/q --set 'a="0,1"' | jq '.x[]  | .y' > out`,
		"docs/a.md:21: kubectl apply -f - <<EOF\na: 1\nEOF", "docs/a.md:27: quietcore diff",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	calls, err := p.Commands()[2].Calls()
	if err != nil || len(calls) != 2 || !slices.Equal(calls[0],
		[]string{"helm", "install", "q", "charts/q", "--set", `a="0,1"`}) || calls[1][1] != ".x[]  | .y" {
		t.Errorf("%q, %v", calls, err)
	}
}

func TestTarget(t *testing.T) {
	for link, want := range map[string]string{
		"../b.md#c": "b.md#c", "#d": "docs/a.md#d", "c.svg": "docs/c.svg#", "https://example.com/x": "#",
		"mailto:a@b": "#",
	} {
		file, anchor, _ := Target("docs/a.md", link)
		if got := file + "#" + anchor; got != want {
			t.Errorf("%s leads to %s, want %s", link, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(page)
	f.Fuzz(func(t *testing.T, s string) {
		for _, c := range Parse("x.md", []byte(s)).Commands() {
			if strings.TrimSpace(c.Text) == "" {
				t.Errorf("an empty command in %q", s)
			}
			_, _ = c.Calls() // no panic; what is no shell is an error
		}
	})
}
