package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/cli/man"
)

var update = flag.Bool("update", false, "rewrite docs/cli")

// TestReference holds docs/cli, one page a command, and the commands' help together;
// -update rewrites it.
func TestReference(t *testing.T) {
	dir := filepath.Join("..", "..", "docs", "cli")
	want := map[string][]byte{}
	err := man.Each(newRoot(), func(c *cobra.Command) error {
		var page bytes.Buffer
		err := doc.GenMarkdownCustom(c, &page, func(link string) string { return link })
		want[strings.ReplaceAll(c.CommandPath(), " ", "_")+".md"] = page.Bytes()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, page := range want {
			if err := os.WriteFile(filepath.Join(dir, name), page, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if want[e.Name()] == nil {
			t.Errorf("docs/cli/%s is of no command; go generate ./cmd/quietcore", e.Name())
		}
	}
	for name, page := range want {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, page) {
			t.Errorf("docs/cli/%s is not what the command's help says; go generate ./cmd/quietcore (%v)", name, err)
		}
	}
}

// TestEveryCommandHelps wants of each command what its page is made of.
func TestEveryCommandHelps(t *testing.T) {
	n := 0
	err := man.Each(newRoot(), func(c *cobra.Command) error {
		n++
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: the short help is %q, must be there and no sentence", c.CommandPath(), c.Short)
		}
		if c.Runnable() && c.Args == nil {
			t.Errorf("%s takes any arguments", c.CommandPath())
		}
		return nil
	})
	if err != nil || n < 20 {
		t.Errorf("%d commands, %v", n, err)
	}
}

func TestManPages(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	pages := func() map[string]string {
		dir := filepath.Join(t.TempDir(), "man1")
		if code, _, errs := call("man", dir); code != 0 {
			t.Fatalf("exit %d, %s", code, errs)
		}
		all := map[string]string{}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			all[e.Name()] = string(text)
		}
		return all
	}
	first, second := pages(), pages()
	for name, text := range first {
		if second[name] != text {
			t.Errorf("%s differs from the one of the same date", name)
		}
	}
	doctor := first["quietcore-doctor.1"]
	for _, want := range []string{`.TH "QUIETCORE-DOCTOR" "1" "Nov 2023"`, ".SH NAME", ".SH EXAMPLE", "--strict"} {
		if !strings.Contains(strings.ReplaceAll(doctor, `\-`, "-"), want) {
			t.Errorf("%q is not in\n%s", want, doctor)
		}
	}
	if code, _, errs := call("man"); code != cli.Wrong || !strings.Contains(errs, "the directory") {
		t.Errorf("without a directory: exit %d, %s", code, errs)
	}
	if code, _, _ := call("man", "/proc/none"); code != cli.Failed {
		t.Errorf("a directory that cannot be: exit %d", code)
	}
}

func TestCompletionOfEveryShell(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		code, out, errs := call("completion", shell)
		if code != 0 || !strings.Contains(out, "quietcore") || len(out) < 1000 {
			t.Errorf("%s: exit %d, %d bytes, %s", shell, code, len(out), errs)
		}
	}
	if code, _, errs := call("completion", "tcsh"); code != cli.Wrong || !strings.Contains(errs, "bash") {
		t.Errorf("another shell: exit %d, %s", code, errs)
	}
	for _, c := range []struct {
		args []string
		want string
	}{{[]string{"doctor", "--runtime", ""}, "cri-o"}, {[]string{"conf"}, "config"},
		{[]string{"completion", ""}, "zsh"}} {
		code, out, _ := call(append([]string{"__complete"}, c.args...)...)
		if code != 0 || !slices.ContainsFunc(strings.Split(out, "\n"), func(l string) bool {
			return strings.HasPrefix(l, c.want)
		}) {
			t.Errorf("%v completes to\n%s", c.args, out)
		}
	}
}
