package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRender(t *testing.T) {
	var changes []change
	for _, subject := range []string{
		"docs: a page",
		"plugin: nobody waits",
		"cpi/counter: exact: to the cycle",
		"internal/incidents, cmd: a picture",
		"internal/cgroup: files",
		"plugin: nobody is late",
		"Merge of `x: y` by hand",
		"Say why: it is better.",
		"novel: a package that is not known",
	} {
		changes = append(changes, changeOf("0123456789abcdef", subject))
	}
	want := `## v1.0.0 - 2026-11-22

For people.

### The runtime and cgroups

- **internal/cgroup**: files (0123456789ab)
- **plugin**: nobody waits (0123456789ab)
- **plugin**: nobody is late (0123456789ab)

### Cycles per instruction, and who disturbs whom

- **cpi/counter**: exact: to the cycle (0123456789ab)
- **internal/incidents, cmd**: a picture (0123456789ab)

### Documentation

- **docs**: a page (0123456789ab)

### Other changes

- Merge of ` + "`x: y`" + ` by hand (0123456789ab)
- **Say why**: it is better. (0123456789ab)
- **novel**: a package that is not known (0123456789ab)
`
	if d := cmp.Diff(want, render("v1.0.0", "2026-11-22", "For people.", changes)); d != "" {
		t.Error(d)
	}
}

func TestInsert(t *testing.T) {
	const (
		head    = "# Changelog\n\nWhat it is.\n\n"
		older   = "## v1.0.0 - 2026-01-01\n\n- old\n"
		section = "## v1.1.0 - 2026-02-02\n"
	)
	for name, test := range map[string]struct{ file, want string }{
		"nothing":      {"", "\n\n## Unreleased\n\n" + section},
		"no versions":  {head, head + "## Unreleased\n\n" + section},
		"an older one": {head + older, head + "## Unreleased\n\n" + section + "\n" + older},
		"nothing new":  {head + "## Unreleased\n\n" + older, head + "## Unreleased\n\n" + section + "\n" + older},
		"words": {head + "## Unreleased\n\nnew\n\n### words\n\n" + older, head + "## Unreleased\n\n" +
			section + "\nnew\n\n### words\n\n" + older},
		"words alone": {head + "## Unreleased\n\nnew\n", head + "## Unreleased\n\n" + section + "\nnew\n"},
		"edited by hand": {head + section + "\nbetter words\n\n" + older, head + section + "\nbetter words\n\n" +
			older},
		"a version like it": {head + "## v1.1.0-rc.1 - 2026-01-31\n", head + "## Unreleased\n\n" + section +
			"\n## v1.1.0-rc.1 - 2026-01-31\n"},
	} {
		t.Run(name, func(t *testing.T) {
			add := func(words string) string {
				if words != "" {
					words = "\n" + words + "\n"
				}
				return section + words
			}
			got := insert(test.file, "v1.1.0", add)
			if d := cmp.Diff(test.want, got); d != "" {
				t.Error(d)
			}
			if again := insert(got, "v1.1.0", add); again != got {
				t.Errorf("a second time it is %q", again)
			}
		})
	}
}

// TestSince: a candidate lists what is new since the one before, a final version what is
// new since the final version before.
func TestSince(t *testing.T) {
	dir := t.TempDir()
	for _, step := range []string{"a: 1", "v1.0.0", "b: 2", "v1.1.0-rc.1", "c: 3", "v1.1.0-rc.2", "d: 4", "other",
		"e: 5"} {
		if strings.Contains(step, ":") {
			commit(t, dir, step)
		} else {
			gitIn(t, dir, "tag", step)
		}
	}
	for version, want := range map[string]string{"v1.1.0-rc.3": "ed", "v1.1.0": "edcb", "v1.1.0-rc.2": "edc"} {
		changes, err := since(context.Background(), dir, version, "HEAD")
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, c := range changes {
			got += c.pkg
		}
		if got != want {
			t.Errorf("%s lists %q, want %q", version, got, want)
		}
	}
	if changes, err := since(context.Background(), dir, "v1.0.0", "v1.0.0"); err != nil || len(changes) != 1 {
		t.Errorf("the first version lists %v, %v", changes, err)
	}
	shallow := filepath.Join(t.TempDir(), "shallow")
	gitIn(t, ".", "clone", "-q", "--depth", "1", "file://"+dir, shallow)
	if _, err := since(context.Background(), shallow, "v1.1.0", "HEAD"); err == nil ||
		!strings.Contains(err.Error(), "unshallow") {
		t.Errorf("half of a history lists a version: %v", err)
	}
}

func TestChangelogCommand(t *testing.T) {
	dir := small(t)
	var out bytes.Buffer
	if err := run(context.Background(), []string{"changelog", "-source", dir, "-version", "v0.1.0"}, &out); err != nil {
		t.Fatal(err)
	}
	if err := run(context.Background(), []string{"changelog", "-source", dir, "-version", "v0.1.0", "-write"},
		nil); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, changelogName))
	if err != nil || !strings.Contains(string(text), "- **cmd/quietcore**: the first (") {
		t.Errorf("the file is %s, %v", text, err)
	}
	if d := cmp.Diff(out.String(), string(text)); d != "" {
		t.Error(d)
	}
}
