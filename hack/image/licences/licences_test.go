package licences

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/hack/image/build"
)

const repo = "../../.."

// gpl is how a file says it that is under a licence which is not allowed.
const gpl = `
This program is free software: you can redistribute it and/or modify it under the terms of the GNU General
Public License as published by the Free Software Foundation, either version 3 of the License, or (at your
option) any later version.

This program is distributed in the hope that it will be useful, but WITHOUT ANY WARRANTY; without even the
implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the GNU General Public License
for more details.

You should have received a copy of the GNU General Public License along with this program. If not, see
<https://www.gnu.org/licenses/>.
`

// TestRepository: everything that is linked into this repository's binaries may be.
func TestRepository(t *testing.T) {
	parts, err := Of(context.Background(), repo)
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = p.Name
		t.Log(p, p.Licences)
	}
	if !slices.IsSorted(names) {
		t.Errorf("the parts are not sorted: %v", names)
	}
	for _, want := range []string{"Go's standard library", "github.com/cilium/ebpf", "k8s.io/client-go",
		"libbpf's headers (in the eBPF objects)", "uplot (embedded)"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not among %v", want, names)
		}
	}
	notices := string(Notices(parts))
	for _, p := range parts {
		if !strings.Contains(notices, p.String()) {
			t.Errorf("the notices do not name %s", p)
		}
		for _, text := range p.Texts {
			if text = strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n")); !strings.Contains(notices, text) {
				t.Errorf("the notices lack a text of %s", p)
			}
		}
	}
}

// TestScheduler: the same of what the scheduler's image holds.
func TestScheduler(t *testing.T) {
	parts, err := Of(context.Background(), repo+"/scheduler")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(parts, func(p build.Part) bool { return p.Name == "k8s.io/kubernetes" }) {
		t.Errorf("Kubernetes is not among %v", parts)
	}
}

func TestNotices(t *testing.T) {
	text := string(Notices([]build.Part{
		{Name: "a", Version: "v1.0.0", Licences: []string{"MIT"}, Texts: []string{"free as air\r\n"}},
		{Name: "longer", Licences: []string{"Apache-2.0", "MIT"}, Texts: []string{"\nfree as air", "and a notice"}},
	}))
	want := `
a v1.0.0  MIT
longer    Apache-2.0 AND MIT

================================================================================
a
longer

free as air

================================================================================
longer

and a notice
`
	if !strings.HasSuffix(text, want) {
		t.Errorf("the notices are %q, want the end %q", text, want)
	}
}

func TestRecognise(t *testing.T) {
	apache, err := os.ReadFile(filepath.Join(repo, "LICENSE"))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		text string
		ids  []string
		says string
	}{
		"libbpf":        {text: libbpfLicence, ids: []string{"BSD-2-Clause"}},
		"two in a file": {text: string(apache) + libbpfLicence, ids: []string{"Apache-2.0", "BSD-2-Clause"}},
		"copyleft":      {text: gpl, says: "GPL-3.0"},
		"own words":     {text: strings.Repeat("You may use this on Tuesdays. ", 40), says: "read it"},
		"with a rider": {text: libbpfLicence + strings.Repeat("You may use this on Tuesdays. ", 40),
			says: "read it"},
		"nothing":           {says: "read it"},
		"only an address":   {text: "see http://www.apache.org/licenses/LICENSE-2.0", says: "read it"},
		"one not allowed":   {text: libbpfLicence + gpl, says: "GPL-3.0"},
		"bytes of no words": {text: "\x00\xff\xfe", says: "read it"},
	} {
		t.Run(name, func(t *testing.T) {
			ids, err := Recognise([]byte(test.text))
			if test.says == "" && (err != nil || !slices.Equal(ids, test.ids)) {
				t.Errorf("it is %v, %v, want %v", ids, err, test.ids)
			}
			if test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("it is %v, %v, want an error with %q", ids, err, test.says)
			}
		})
	}
}

// program is a main module with one dependency, which holds files.
func program(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	all := map[string]string{
		"go.mod": "module example.org/x\n\ngo 1.26\n\nrequire example.org/dep v1.0.0\n\nreplace " +
			"example.org/dep => ./dep\n",
		"cmd/x/main.go": "package main\n\nimport _ \"example.org/dep/sub\"\n\nfunc main() {}\n",
		"dep/go.mod":    "module example.org/dep\n\ngo 1.26\n",
		"dep/sub/x.go":  "package sub\n",
	}
	for name, text := range files {
		all["dep/"+name] = text
	}
	for name, text := range all {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestModules(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		says  string
	}{
		"none":                   {says: "no licence file"},
		"a notice is no licence": {files: map[string]string{"NOTICE": "x"}, says: "no licence file"},
		"known":                  {files: map[string]string{"LICENSE": libbpfLicence}},
		"another below": {files: map[string]string{"LICENSE": libbpfLicence, "sub/COPYING": gpl},
			says: "sub/COPYING"},
		"next to what is not linked": {files: map[string]string{"LICENSE": libbpfLicence, "other/COPYING": gpl}},
		"code of that name": {files: map[string]string{"LICENSE.txt": libbpfLicence,
			"license.go": "package dep\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			parts, err := Of(context.Background(), program(t, test.files))
			if test.says != "" {
				if err == nil || !strings.Contains(err.Error(), test.says) {
					t.Errorf("got %v, want an error with %q", err, test.says)
				}
				return
			}
			if err != nil || len(parts) != 2 || parts[0].Name != "./dep" ||
				!slices.Equal(parts[0].Licences, []string{"BSD-2-Clause"}) {
				t.Errorf("the parts are %+v, %v", parts, err)
			}
		})
	}
}

// What is embedded from others has to have a licence, too, and one that is allowed.
func TestVendored(t *testing.T) {
	for name, test := range map[string]struct {
		licence, says string
	}{"none": {"", "chart (embedded) 1.2.3 has no licence file"}, "known": {libbpfLicence, ""},
		"another": {gpl, "GPL-3.0"}} {
		dir := program(t, map[string]string{"LICENSE": libbpfLicence})
		files := map[string]string{"cmd/x/main.go": "package main\n\nimport (\n\t\"embed\"\n\n\t_ " +
			"\"example.org/dep/sub\"\n)\n\n//go:embed own vendored\nvar _ embed.FS\n\nfunc main() {}\n",
			"cmd/x/own/LICENSE": "of our own", "cmd/x/vendored/chart@1.2.3/chart.js": "1"}
		if test.licence != "" {
			files["cmd/x/vendored/chart@1.2.3/LICENSE"] = test.licence
		}
		for file, text := range files {
			file = filepath.Join(dir, file)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		parts, err := Of(context.Background(), dir)
		if test.says != "" {
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: got %v, want an error with %q", name, err, test.says)
			}
			continue
		}
		if err != nil || len(parts) != 3 || parts[2].String() != "chart (embedded) 1.2.3" {
			t.Errorf("%s: the parts are %+v, %v", name, parts, err)
		}
	}
}

func TestObjects(t *testing.T) {
	dir := t.TempDir()
	object, err := os.ReadFile(filepath.Join(repo, "cpi/counter/program_x86_bpfel.o"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	check := func(says string, objects ...string) {
		t.Helper()
		err := checkObjects(objects)
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
	check("embedded object", write("no.o", "text"))
	right := write("right.o", string(object))
	check("no sources", right)
	write("bpf/x.bpf.c", "// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only\nint x;\n")
	check("", right)
	write("bpf/y.h", "int y;\n")
	check("y.h", right)
	write("bpf/y.h", "/* SPDX-License-Identifier: GPL-2.0-only */\n")
	check("GPL-2.0-only", right)
	write("bpf/y.h", "/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */\n")
	check("", right)
	at := strings.Index(string(object), "GPL\x00")
	if at < 0 {
		t.Fatal("the object has no licence")
	}
	check("MIT", write("wrong.o", string(object[:at])+"MIT"+string(object[at+3:])))
}
