// Package licences determines under which licences the binaries may be distributed,
// compares them with the allowed ones, and writes what must accompany them.
//
// What is linked counts: the packages that `go list -deps` names for both commands on
// both architectures, Go's standard library, the sources of the eBPF objects, and what
// is embedded from folders vendored/NAME@VERSION. For
// each package every licence file counts from its directory up to its module's, since
// parts of a module may have a licence of their own. An unrecognised text is an error:
// a person must read it.
package licences

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"

	"github.com/quietcore/quietcore/hack/image/build"
)

// Allowed are the licences, by SPDX's names, that go together with Apache-2.0 in a
// binary and ask for nothing but their text next to it.
func Allowed() []string {
	return []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}
}

// recognised is how much of a file must be the text of licences, in percent of its words.
// The rest is names, years and which part of the module a text is for.
const recognised = 75

var (
	licenceFile = regexp.MustCompile(`(?i)^(licen[cs]es?|copying|unlicense)([-._].*)?$`)
	noticeFile  = regexp.MustCompile(`(?i)^(notice|patents)([-._](md|txt))?$`)
)

// Of lists the parts of the binaries, by name, less the repository's own code.
func Of(ctx context.Context, dir string) ([]build.Part, error) {
	parts := map[string]*part{}
	var objects []string
	for _, platform := range build.Platforms() {
		packages, err := list(ctx, dir, platform)
		if err != nil {
			return nil, err
		}
		for _, p := range packages {
			switch {
			case p.Standard: // all of it is under the licence of Go's own directory
				add(parts, build.Library, p.version, p.goroot, p.goroot)
			case p.Module == nil:
				return nil, fmt.Errorf("package %s has no module", p.ImportPath)
			case p.Module.Main, p.Module.Replace != nil && strings.HasPrefix(p.Module.Replace.Path, ".."): // ours
				for _, f := range p.EmbedFiles {
					if filepath.Ext(f) == ".o" {
						objects = append(objects, filepath.Join(p.Dir, f))
					}
					if name, version := vendored(f); name != "" {
						dir := filepath.Join(p.Dir, filepath.Dir(f))
						add(parts, name, version, dir, dir)
					}
				}
			default:
				m := p.Module
				if m.Replace != nil {
					m = m.Replace
				}
				add(parts, m.Path, m.Version, p.Dir, m.Dir)
			}
		}
	}
	slices.Sort(objects)
	objects = slices.Compact(objects)
	if err := checkObjects(objects); err != nil {
		return nil, err
	}
	var list []build.Part
	var errs []error
	for _, p := range parts {
		done, err := p.read()
		errs = append(errs, err)
		list = append(list, done)
	}
	if len(objects) > 0 {
		list = append(list, libbpf())
	}
	slices.SortFunc(list, func(a, b build.Part) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return list, errors.Join(errs...)
}

// vendored names the software of others that an embedded file belongs to, by its folder vendored/NAME@VERSION; empty:
// the file is ours.
func vendored(file string) (name, version string) {
	above, folder := filepath.Split(filepath.Dir(file))
	if filepath.Base(above) != "vendored" {
		return "", ""
	}
	name, version, _ = strings.Cut(folder, "@")
	return name + " (embedded)", version
}

type module struct {
	Path, Version, Dir string
	Main               bool
	Replace            *module
}

type listed struct {
	ImportPath, Dir string
	Standard        bool
	EmbedFiles      []string
	Module          *module
	version, goroot string
}

func list(ctx context.Context, dir, platform string) ([]listed, error) {
	env, err := build.Environment(platform)
	if err != nil {
		return nil, err
	}
	run := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir, cmd.Env, cmd.Stderr = dir, env, os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("go %s for %s: %w", args[0], platform, err)
		}
		return out, nil
	}
	text, err := run("env", "GOVERSION", "GOROOT")
	if err != nil {
		return nil, err
	}
	version, goroot, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	if text, err = run("list", "-deps", "-json=ImportPath,Dir,Standard,EmbedFiles,Module", "./cmd/..."); err != nil {
		return nil, err
	}
	var packages []listed
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		p := listed{version: strings.TrimPrefix(version, "go"), goroot: goroot}
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages, nil
		}
		if err != nil {
			return nil, fmt.Errorf("what go list says: %w", err)
		}
		packages = append(packages, p)
	}
}

// part is a module, and the directories in it that may hold licences.
type part struct {
	name, version, root string
	dirs                map[string]bool
}

func add(parts map[string]*part, name, version, dir, root string) {
	p := parts[name]
	if p == nil {
		p = &part{name: name, version: version, root: root, dirs: map[string]bool{}}
		parts[name] = p
	}
	for d := dir; ; d = filepath.Dir(d) {
		p.dirs[d] = true
		if d == root || len(d) <= len(root) {
			return
		}
	}
}

func (p *part) read() (build.Part, error) {
	out := build.Part{Name: p.name, Version: p.version}
	dirs := make([]string, 0, len(p.dirs))
	for d := range p.dirs {
		dirs = append(dirs, d)
	}
	slices.Sort(dirs)
	for _, d := range dirs {
		files, err := os.ReadDir(d)
		if err != nil {
			return out, err
		}
		for _, f := range files {
			// LICENSE.docs is of a project's documentation, of which nothing is linked.
			isLicence := licenceFile.MatchString(f.Name()) && filepath.Ext(f.Name()) != ".go" &&
				filepath.Ext(f.Name()) != ".docs"
			if f.IsDir() || !isLicence && !noticeFile.MatchString(f.Name()) {
				continue
			}
			name := filepath.Join(d, f.Name())
			text, err := os.ReadFile(name)
			if err != nil {
				return out, err
			}
			if isLicence {
				ids, err := Recognise(text)
				if err != nil {
					return out, fmt.Errorf("%s of %s %s: %w",
						strings.TrimPrefix(name, p.root+string(filepath.Separator)), p.name, p.version, err)
				}
				out.Licences = append(out.Licences, ids...)
			}
			out.Texts = append(out.Texts, string(text))
		}
	}
	slices.Sort(out.Licences)
	out.Licences = slices.Compact(out.Licences)
	if len(out.Licences) == 0 {
		return out, fmt.Errorf("%s %s has no licence file in %s: without one it may not be passed on", p.name,
			p.version, p.root)
	}
	return out, nil
}

// Recognise names the licences of a text, all of which must be allowed.
func Recognise(text []byte) ([]string, error) {
	found := licensecheck.Scan(text)
	var ids []string
	for _, m := range found.Match {
		if !m.IsURL {
			ids = append(ids, m.ID)
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) == 0 || found.Percent < recognised {
		return nil, fmt.Errorf("%.0f %% of it are the words of a known licence %v, wanted %d %%: read it",
			found.Percent, ids, recognised)
	}
	for _, id := range ids {
		if !slices.Contains(Allowed(), id) {
			return nil, fmt.Errorf("it is under %s; allowed are %s", id, strings.Join(Allowed(), ", "))
		}
	}
	return ids, nil
}

// Notices is the file that goes with the binaries: every part, and every text once.
func Notices(parts []build.Part) []byte {
	var b bytes.Buffer
	b.WriteString("Third-party software in Quietcore's binaries, and the licences it is under.\n\n")
	width := 0
	for _, p := range parts {
		width = max(width, len(p.String()))
	}
	var texts []string
	users := map[string][]string{}
	for _, p := range parts {
		fmt.Fprintf(&b, "%-*s  %s\n", width, p, strings.Join(p.Licences, " AND "))
		for _, text := range p.Texts {
			text = strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n"))
			if users[text] == nil {
				texts = append(texts, text)
			}
			if !slices.Contains(users[text], p.Name) {
				users[text] = append(users[text], p.Name)
			}
		}
	}
	for _, text := range texts {
		fmt.Fprintf(&b, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(users[text], "\n"), text)
	}
	return b.Bytes()
}

// Notice is the name of the notices' file.
const Notice = "THIRD_PARTY_NOTICES"

// Texts are the repository's own licence and the notices, under the names that they
// have in images and releases.
func Texts(dir string, parts []build.Part) ([]build.File, error) {
	own, err := os.ReadFile(filepath.Join(dir, "LICENSE"))
	if err != nil {
		return nil, err
	}
	return []build.File{{Name: "LICENSE", Data: own}, {Name: Notice, Data: Notices(parts)}}, nil
}
