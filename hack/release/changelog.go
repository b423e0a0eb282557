package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/hack/image/build"
)

// unreleased heads what people write into CHANGELOG.md while they work. It becomes the
// first words on the next version.
const unreleased = "## Unreleased"

// area is what a part of the tree is to a user.
type area struct {
	title    string
	packages []string // what subjects begin with, without internal/; folders with all that is below
}

func areas() []area {
	return []area{
		{"Classes, pools and allocation", []string{"topology", "cpuallocator", "policy", "sysfs", "script", "cpuset"}},
		{"The runtime and cgroups", []string{"plugin", "cgroup", "cgrouptest", "state", "kubelet", "enablenri"}},
		{"Cycles per instruction, and who disturbs whom", []string{"cpi", "incidents", "clusterspec"}},
		{"Lending idle CPUs", []string{"reclaim", "reclaim replay", "usage", "lend"}},
		{"Kubernetes", []string{"kube", "nrt", "charts"}},
		{"Commands, metrics and the page", []string{
			"cmd", "quietcore", "config", "strict", "control", "dashboards", "doctor", "metrics", "page", "render",
			"top", "topodoc",
		}},
		{"Documentation", []string{"docs", "README"}},
		{"Building and testing", []string{"e2e", "hack", "make", "build", "ci", "lint", "tests", "bench", "deptest"}},
	}
}

const others = "Other changes"

// areaOf is the title for a subject's package: of the longest prefix that is known.
func areaOf(pkg string) string {
	pkg = strings.TrimPrefix(pkg, "internal/")
	best, length := others, 0
	for _, a := range areas() {
		for _, p := range a.packages {
			if len(p) > length && (pkg == p || strings.HasPrefix(pkg, p+"/")) {
				best, length = a.title, len(p)
			}
		}
	}
	return best
}

// change is a commit, as a changelog lists it.
type change struct{ commit, pkg, text string }

// changeOf splits a subject such as "cpi, plugin: what changes": the first package
// decides where it is listed.
func changeOf(commit, subject string) change {
	pkg, text, ok := strings.Cut(subject, ": ")
	if !ok || len(pkg) > 60 || strings.ContainsAny(pkg, ".`'\"()") {
		return change{commit: commit, text: subject}
	}
	return change{commit: commit, pkg: pkg, text: text}
}

// render is the section of a version.
func render(version, day, words string, changes []change) string {
	by := map[string][]change{}
	for _, c := range changes {
		first, _, _ := strings.Cut(c.pkg, ", ")
		by[areaOf(first)] = append(by[areaOf(first)], c)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "## %s - %s\n", version, day)
	if words != "" {
		fmt.Fprintf(&b, "\n%s\n", words)
	}
	for _, a := range append(areas(), area{title: others}) {
		list := by[a.title]
		if len(list) == 0 {
			continue
		}
		slices.SortStableFunc(list, func(a, b change) int { return cmp.Compare(a.pkg, b.pkg) })
		fmt.Fprintf(&b, "\n### %s\n\n", a.title)
		for _, c := range list {
			name := ""
			if c.pkg != "" {
				name = "**" + c.pkg + "**: "
			}
			fmt.Fprintf(&b, "- %s%s (%.12s)\n", name, c.text, c.commit)
		}
	}
	return b.String()
}

// since lists the commits of a version, newest first: those after the version before. A
// final version counts from the final one before it, so that it lists what its candidates listed.
func since(ctx context.Context, dir, version, commit string) ([]change, error) {
	if shallow, err := git(ctx, dir, "rev-parse", "--is-shallow-repository"); err != nil || shallow == "true" {
		return nil, errors.Join(err, fmt.Errorf("%s lacks a part of its history: git fetch --unshallow --tags", dir))
	}
	describe := []string{"describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "--exclude", version}
	if !strings.Contains(version, "-") {
		describe = append(describe, "--exclude", "v*-*")
	}
	commits := commit
	if before, err := git(ctx, dir, append(describe, commit)...); err == nil { // else it is the first
		commits = before + ".." + commit
	}
	text, err := git(ctx, dir, "log", "--no-merges", "--format=%H%x09%s", commits, "--")
	if err != nil {
		return nil, err
	}
	var changes []change
	for line := range strings.Lines(text) {
		if hash, subject, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			changes = append(changes, changeOf(hash, subject))
		}
	}
	return changes, nil
}

// insert puts a version's section above the earlier ones, in place of what is under
// Unreleased. It leaves a file that has the version as it is, since that was edited by
// hand.
func insert(file, version string, section func(words string) string) string {
	if hasVersion(file, version) {
		return file
	}
	head, rest, ok := strings.Cut(file, unreleased+"\n")
	if !ok {
		if at := strings.Index(file, "\n## "); at >= 0 {
			head, rest = file[:at+1], file[at+1:]
		} else {
			head, rest = strings.TrimRight(file, "\n")+"\n\n", ""
		}
	}
	words, older := rest, ""
	if strings.HasPrefix(rest, "## ") {
		words, older = "", rest
	} else if at := strings.Index(rest, "\n## "); at >= 0 {
		words, older = rest[:at], rest[at+1:]
	}
	text := head + unreleased + "\n\n" + section(strings.TrimSpace(words))
	if older != "" {
		text += "\n" + older
	}
	return text
}

func hasVersion(file, version string) bool {
	return bytes.Contains([]byte("\n"+file), []byte("\n## "+version+" - "))
}

// changelog is CHANGELOG.md with the version in it.
func (r Release) changelog(ctx context.Context, source build.Source) (string, error) {
	file, err := os.ReadFile(filepath.Join(source.Dir, changelogName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	changes, err := since(ctx, r.Source, source.Version, source.Commit)
	if err != nil {
		return "", err
	}
	return insert(string(file), source.Version, func(words string) string {
		return render(source.Version, source.Date.Format("2006-01-02"), words, changes)
	}), nil
}

func (r Release) writeChangelog(ctx context.Context, source build.Source, name string) error {
	text, err := r.changelog(ctx, source)
	if err != nil {
		return err
	}
	// A release does not mention that nothing is unreleased.
	text = strings.Replace(text, unreleased+"\n\n", "", 1)
	return os.WriteFile(name, []byte(text), 0o644)
}

func changelogCommand(ctx context.Context, args []string, out io.Writer) error {
	flags, dir := flagsOf("changelog")
	version := flags.String("version", "", "the version, such as v0.1.0")
	write := flags.Bool("write", false, "put it into "+changelogName)
	if err := parse(flags, args); err != nil {
		return err
	}
	if err := checkVersion(*version); err != nil {
		return err
	}
	source, err := build.Describe(ctx, *dir, *version)
	if err != nil {
		return err
	}
	if source.Commit, err = git(ctx, *dir, "rev-parse", "HEAD"); err != nil {
		return err
	}
	text, err := Release{Source: *dir, Version: *version}.changelog(ctx, source)
	if err != nil {
		return err
	}
	if *write {
		return os.WriteFile(filepath.Join(*dir, changelogName), []byte(text), 0o644)
	}
	_, err = io.WriteString(out, text)
	return err
}
