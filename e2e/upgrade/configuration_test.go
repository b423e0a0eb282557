package upgrade

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/internal/cmdtest"
)

// takesConfiguration: this version takes what an older one was configured with, its documentation's examples and all
// of its defaults, and understands it as that one did.
func takesConfiguration(t *testing.T, now string, v Version, old string) {
	dir := t.TempDir()
	if err := v.Extract(t.Context(), root, dir, "docs/configuration.md"); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "docs/configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	examples := strings.Split(string(page), "```yaml\napiVersion: quietcore.dev/v1alpha1\n")
	for _, e := range examples[1:] {
		e, _, _ := strings.Cut(e, "```")
		cmdtest.Write(t, filepath.Join(dir, "example.yaml"), "apiVersion: quietcore.dev/v1alpha1\n"+e)
		says(t, now, "config", "validate", filepath.Join(dir, "example.yaml"))
	}
	if len(examples) < 2 {
		t.Errorf("%s has no example of a configuration", v.Name)
	}
	whole := filepath.Join(dir, "whole.yaml")
	text := says(t, old, "config", "print")
	cmdtest.Write(t, whole, text)
	was, is := keys(t, text), keys(t, says(t, now, "config", "print", whole))
	same := 0
	for key, value := range was {
		if got, known := is[key]; known && got != value {
			t.Errorf("%s is %s for %s, and %s for this version", key, value, v.Name, got)
		} else if known {
			same++
		}
	}
	if same < 80 {
		t.Errorf("of %d keys of %s %d are known", len(was), v.Name, same)
	}
}

// refusesConfiguration: an older daemon names every key that it does not know, and does not start: nothing is applied
// in part, and nothing is written.
func refusesConfiguration(t *testing.T, now, old string) {
	dir := t.TempDir()
	text := says(t, now, "config", "print")
	state := filepath.Join(dir, "state")
	file := filepath.Join(dir, "config.yaml")
	cmdtest.Write(t, file, strings.Replace(text, "/var/lib/quietcore", state, 1))
	out, err := exec.CommandContext(t.Context(), old, "run", "--config", file).CombinedOutput()
	if exit, ended := err.(*exec.ExitError); !ended || exit.ExitCode() != 2 {
		t.Errorf("run ends with %v, want code 2: it is configured wrongly\n%s", err, out)
	}
	known := keys(t, says(t, old, "config", "print"))
	named := 0
	for key := range keys(t, text) {
		if unknown := unknownPart(key, known); unknown != "" {
			named++
			if !strings.Contains(string(out), fmt.Sprintf("unknown key %q", unknown)) {
				t.Errorf("nothing is said of %s, which %s does not know:\n%s", key, old, out)
			}
		}
	}
	if named == 0 {
		t.Error("every key is known: this shows nothing")
	}
	if _, err := os.Stat(state); err == nil {
		t.Error("the state folder was made")
	}
}

// unknownPart is the name in a key at which it is unknown; empty: it is known. What was a word and became a mapping is
// known.
func unknownPart(key string, known map[string]string) string {
	parts := strings.Split(key, ".")
	for i, name := range parts {
		at := strings.Join(parts[:i+1], ".")
		if _, ok := known[at]; ok {
			return ""
		}
		below := false
		for k := range known {
			below = below || strings.HasPrefix(k, at+".")
		}
		if !below {
			return name
		}
	}
	return ""
}

// keys are the values of a configuration, by their keys with dots between.
func keys(t *testing.T, text string) map[string]string {
	t.Helper()
	var all map[string]any
	if err := yaml.Unmarshal([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	flatten(out, "", all)
	return out
}

func flatten(out map[string]string, at string, value any) {
	m, _ := value.(map[string]any)
	if len(m) == 0 {
		out[strings.TrimPrefix(at, ".")] = fmt.Sprint(value)
	}
	for key, v := range m {
		flatten(out, at+"."+key, v)
	}
}

// says runs a command that succeeds.
func says(t *testing.T, binary string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, &errs)
	}
	return string(out)
}
