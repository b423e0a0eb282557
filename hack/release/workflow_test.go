package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// workflow is what of a workflow is judged.
type workflow struct {
	On struct {
		Push struct{ Tags, Branches []string }
	} `json:"true"` // YAML's word for on
	Permissions map[string]string
	Env         map[string]string
	Jobs        map[string]struct {
		Needs       any
		Environment string
		Strategy    struct{ Matrix struct{ Runner []string } }
		Permissions map[string]string
		Steps       []struct {
			Name, Uses, Run string
			Env             map[string]string
			With            map[string]any
		}
	}
}

// TestWorkflow: the release workflow runs on tags alone, with Make's targets and variables that exist, the compiler of
// the modules, actions of one commit, and no job with more rights than its part takes. A secret is never text of a
// command. actionlint judges its form in `make lint`.
func TestWorkflow(t *testing.T) {
	text, err := os.ReadFile("../../.github/workflows/release.yml")
	if err != nil {
		t.Fatal(err)
	}
	var w workflow
	if err := yaml.Unmarshal(text, &w); err != nil {
		t.Fatal(err)
	}
	if len(w.On.Push.Tags) != 1 || len(w.On.Push.Branches) > 0 || strings.Contains(string(text), "pull_request") {
		t.Errorf("it runs on %+v", w.On)
	}
	modules, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(modules), "\ngo "+strings.TrimPrefix(w.Env["GOTOOLCHAIN"], "go")+"\n") {
		t.Errorf("it compiles with %s, which is not that of go.mod", w.Env["GOTOOLCHAIN"])
	}
	rights := map[string]string{
		"vulnerabilities": "contents: read", "build": "contents: read", "publish": "contents: read, id-token: write",
		"attach": "contents: write",
	}
	if len(w.Permissions) > 0 || len(w.Jobs) != len(rights) {
		t.Errorf("jobs have the rights %v by default, and there are %d", w.Permissions, len(w.Jobs))
	}
	if publish := w.Jobs["publish"]; publish.Environment == "" ||
		fmt.Sprint(publish.Needs) != "[vulnerabilities build]" {
		t.Errorf("a publication waits for %v and for whom environment %q names", publish.Needs, publish.Environment)
	}
	runners := w.Jobs["build"].Strategy.Matrix.Runner
	if len(runners) < 2 {
		t.Errorf("it is built on %q alone", runners)
	}
	for _, r := range runners {
		if !strings.Contains(string(text), "built/dist-"+r+"/dist/SHA256SUMS") {
			t.Errorf("the checksums of %s are not compared", r)
		}
	}
	pinned := regexp.MustCompile(`^actions/[a-z-]+@[0-9a-f]{40}$`)
	steps := 0
	for name, job := range w.Jobs {
		var has []string
		for _, right := range []string{"contents", "id-token"} {
			if job.Permissions[right] != "" {
				has = append(has, right+": "+job.Permissions[right])
			}
		}
		if got := strings.Join(has, ", "); got != rights[name] || len(has) != len(job.Permissions) {
			t.Errorf("%s has the rights %v, want %s", name, job.Permissions, rights[name])
		}
		for _, s := range job.Steps {
			steps++
			if s.Uses != "" && !pinned.MatchString(s.Uses) {
				t.Errorf("%s uses %s, want an action of the forge by its commit", name, s.Uses)
			}
			if strings.Contains(s.Uses, "checkout@") && s.With["persist-credentials"] != false {
				t.Errorf("%s leaves the token to what it runs", name)
			}
			if strings.Contains(s.Run, "${{") {
				t.Errorf("%s: an expression is text of %q; take an environment variable", name, s.Run)
			}
		}
	}
	if steps < 12 {
		t.Errorf("only %d steps were found", steps)
	}
	// Each commit has its version beside it, and an action has one.
	versions := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^.*uses:.*$`).FindAllString(string(text), -1) {
		if !regexp.MustCompile(`@[0-9a-f]{40} # v[0-9]+\.[0-9]+\.[0-9]+$`).MatchString(line) {
			t.Errorf("%q does not say its version", strings.TrimSpace(line))
		}
		action, version, _ := strings.Cut(line[strings.Index(line, "uses:"):], "@")
		if has, ok := versions[action]; ok && has != version {
			t.Errorf("%s is %s and %s", action, has, version)
		}
		versions[action] = version
	}
}

// TestWhatTheWorkflowRuns: every target of Make, every variable of it, and every flag of publish.
func TestWhatTheWorkflowRuns(t *testing.T) {
	text, err := os.ReadFile("../../.github/workflows/release.yml")
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\s*(?:run: )?make (.*)$`).FindAllStringSubmatch(string(text), -1) {
		for _, word := range strings.Fields(regexp.MustCompile(`"[^"]*"`).ReplaceAllString(m[1], "x")) {
			name, _, variable := strings.Cut(word, "=")
			if variable && !strings.Contains(string(makefile), "$("+name+")") {
				t.Errorf("the Makefile reads no variable %s", name)
			}
			if !variable {
				targets[name] = true
			}
		}
	}
	for name := range targets {
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `:`).Match(makefile) {
			t.Errorf("the Makefile has no target %s", name)
		}
	}
	if !targets["release"] || !targets["release-publish"] || !targets["vulncheck"] || !targets["vulncheck-scheduler"] {
		t.Errorf("it makes %v", targets)
	}
	if strings.Contains(string(text), "VULNCHECK") || strings.Contains(string(text), "unreachable-ok") {
		t.Error("a release goes on where no database of vulnerabilities answers")
	}
	// The flags of publish are in the lines that collect them and in the one that passes them on.
	var args []string
	for _, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "sign=") && !strings.HasPrefix(line, "make release-publish") {
			continue
		}
		for _, word := range strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '"' }) {
			if !strings.HasPrefix(word, "-") {
				continue
			}
			name, _, _ := strings.Cut(word, "=")
			if args = append(args, name); name != "-keyless" {
				args = append(args, "x")
			}
		}
	}
	options, err := parsePublish(args)
	if err != nil {
		t.Fatal(err)
	}
	if len(options.signers) != 2 || options.by != (builder{"x", "x"}) || options.hubID != "x" {
		t.Errorf("with %q it publishes %+v", args, options)
	}
	if !strings.Contains(string(makefile), "-o "+options.dist+"\n") {
		t.Errorf("make release writes no %s", options.dist)
	}
	checkFilesOf(t, string(text), filepath.Base(options.dist)+" "+filepath.Base(options.to))
	for _, wrong := range [][]string{{}, {"-keyless"}, {"-key", "x"}, {"-public-key", "x"}} {
		if _, err := parsePublish(wrong); err == nil {
			t.Errorf("with %q somebody signs", wrong)
		}
	}
}

// checkFilesOf: pages that the workflow names exist, and it packs the folders that are made before, in the end all.
func checkFilesOf(t *testing.T, workflow, made string) {
	t.Helper()
	pages := regexp.MustCompile(`[A-Za-z/]+\.md`).FindAllString(workflow, -1)
	for _, page := range pages {
		if _, err := os.Stat(filepath.Join("../..", page)); err != nil {
			t.Errorf("%s: %v", page, err)
		}
	}
	folders := regexp.MustCompile(`tar -cf dist\.tar (.*)`).FindAllStringSubmatch(workflow, -1)
	if len(pages) < 2 || len(folders) != 2 || folders[0][1] != "dist" || folders[1][1] != made {
		t.Errorf("it names the pages %q and packs %q, in the end want %q", pages, folders, made)
	}
}
