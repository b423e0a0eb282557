package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/internal/cmdtest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"kubectl-quietcore": main, "kubectl": kubectl})
}

// kubectl stands in for the real one. `get pods` is the file pods.json, `get pod` the
// file NAMESPACE.POD.node, and `exec … POD … -- /quietcore COMMAND` the file POD.COMMAND,
// whose first line may be "exit N". Everything that it is asked goes to the file asked.
func kubectl() {
	args := os.Args[1:]
	if f, err := os.OpenFile("asked", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
		fmt.Fprintln(f, strings.Join(args, " "))
		f.Close()
	}
	args = slices.DeleteFunc(args, func(a string) bool {
		return strings.HasPrefix(a, "--kubeconfig=") || strings.HasPrefix(a, "--context=")
	})
	name := "pods.json"
	switch {
	case args[0] == "get" && args[1] == "pod":
		name = args[3] + "." + args[4] + ".node"
	case args[0] == "exec":
		at := slices.Index(args, "--")
		name = args[3] + "." + args[at+2]
	}
	text, err := os.ReadFile(name)
	if err != nil {
		fmt.Fprintf(os.Stderr, "Error from server (Forbidden): %s is not allowed\n", name)
		os.Exit(1)
	}
	code := 0
	first, rest, _ := strings.Cut(string(text), "\n")
	switch words := strings.Fields(first); {
	case len(words) == 2 && words[0] == "exit":
		code, _ = strconv.Atoi(words[1])
		fmt.Fprintf(os.Stderr, "%scommand terminated with exit code %d\n", rest, code)
	case len(words) == 1 && words[0] == "hang":
		time.Sleep(time.Minute)
	default:
		fmt.Print(string(text))
	}
	os.Exit(code)
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool,
			args []string){"exits": cmdtest.Exits},
	})
}

// TestRightsAreThoseOfTheDocs holds docs/kubectl.md and the objects together, and the
// commands that are sent with those that the policy lets pass.
func TestRightsAreThoseOfTheDocs(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "kubectl.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "```yaml\n")
	objects, _, closed := strings.Cut(rest, "```\n")
	if !ok || !closed {
		t.Fatal("docs/kubectl.md has no YAML")
	}
	kinds := map[string]map[string]any{}
	for doc := range strings.SplitSeq(objects, "---\n") {
		var o map[string]any
		if err := yaml.UnmarshalStrict([]byte(doc), &o); err != nil {
			t.Fatal(err)
		}
		kind, _ := o["kind"].(string)
		kinds[kind] = o
	}
	for _, kind := range []string{"Role", "RoleBinding", "ValidatingAdmissionPolicy",
		"ValidatingAdmissionPolicyBinding"} {
		if kinds[kind] == nil {
			t.Errorf("there is no %s", kind)
		}
	}
	rules := fmt.Sprint(kinds["Role"]["rules"])
	for _, want := range []string{"pods/exec", "create", "list"} {
		if !strings.Contains(rules, want) {
			t.Errorf("the Role does not have %s: %s", want, rules)
		}
	}
	if strings.Contains(rules, "secrets") || strings.Contains(rules, "*") {
		t.Errorf("the Role has too much: %s", rules)
	}
}
