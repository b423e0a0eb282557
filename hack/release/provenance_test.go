package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
)

// signable is provenance as cosign signs it.
func signable(t *testing.T, digest string, predicate []byte) []byte {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"_type": "https://in-toto.io/Statement/v1", "predicateType": provenanceIs,
		"subject":   []any{map[string]any{"digest": map[string]any{"sha256": digest[len("sha256:"):]}}},
		"predicate": json.RawMessage(predicate),
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestProvenance: in-toto's own types take it, it says of which commit the binaries are and who built them, and
// anything else under a signature is found.
func TestProvenance(t *testing.T) {
	source := small(t)
	dist := draft(t, source, "v1.2.3")
	said, err := whatItSays(t.Context(), dist)
	if err != nil {
		t.Fatal(err)
	}
	by := builder{id: "https://example.org/builder", invocation: "run 7"}
	text, err := provenanceOf(dist, said, "registry.example/project", by)
	if err != nil {
		t.Fatal(err)
	}
	again, err := provenanceOf(dist, said, "registry.example/project", by)
	if err != nil || string(again) != string(text) {
		t.Errorf("the second time it is other text: %v", err)
	}
	p := &provenance.Provenance{}
	if err := protojson.Unmarshal(text, p); err != nil {
		t.Fatal(err)
	}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
	head, err := git(t.Context(), source, "rev-parse", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := sumOf(filepath.Join(dist, sumsName))
	if err != nil {
		t.Fatal(err)
	}
	from := p.GetBuildDefinition().GetResolvedDependencies()
	if from[0].GetDigest()["gitCommit"] != head || p.GetRunDetails().GetBuilder().GetId() != by.id ||
		p.GetRunDetails().GetMetadata().GetInvocationId() != by.invocation ||
		p.GetRunDetails().GetByproducts()[0].GetDigest()["sha256"] != sums {
		t.Errorf("it says %s", text)
	}
	if _, err := provenanceOf(dist, said, "registry.example/project", builder{}); err == nil {
		t.Error("nobody built it")
	}

	digest := "sha256:" + strings.Repeat("a", 64)
	if err := checkProvenance(signable(t, digest, text), digest, text); err != nil {
		t.Error(err)
	}
	for name, wrong := range map[string]struct {
		statement string
		says      string
	}{
		"of another digest": {string(signable(t, "sha256:"+strings.Repeat("b", 64), text)), "the provenance is of"},
		"another commit": {strings.ReplaceAll(string(signable(t, digest, text)), head, strings.Repeat("0", 40)),
			"commit is 0000"},
		"another builder": {strings.Replace(string(signable(t, digest, text)), by.id, "https://example.org/other", 1),
			"builder.id is https://example.org/other"},
		"another predicate": {strings.Replace(string(signable(t, digest, text)), provenanceIs, "https://slsa.dev/x", 1),
			"is a https://slsa.dev/x"},
		"more than the release says": {strings.Replace(string(signable(t, digest, text)), `"registry"`,
			`"more":"","registry"`, 1), "has more"},
		"no builder": {strings.Replace(string(signable(t, digest, text)), by.id, "", 1), "builder.id required"},
		"no JSON":    {"{", "provenance"},
	} {
		if err := checkProvenance([]byte(wrong.statement), digest, text); err == nil ||
			!strings.Contains(err.Error(), wrong.says) {
			t.Errorf("%s: %v, want %q", name, err, wrong.says)
		}
	}
}

// TestMaterials: each module of a real binary is named by its checksum in go.sum. The binary is this test's: what is
// released is built in the same way.
func TestMaterials(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dist := t.TempDir()
	if err := os.Symlink(self, filepath.Join(dist, "quietcore-linux-amd64")); err != nil {
		t.Fatal(err)
	}
	list, err := materials(dist)
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, m := range list {
		if err := m.Validate(); err != nil {
			t.Error(err)
		}
		name, version, _ := strings.Cut(strings.TrimPrefix(m.GetUri(), "pkg:golang/"), "@")
		if strings.Contains(string(sums), name+" "+version+" h1:") {
			found++
		}
	}
	if found < 10 || found != len(list) {
		t.Errorf("%d of %d modules are in go.sum", found, len(list))
	}
}

// TestStatementOfFiles: the release writes a statement of in-toto that names each file and image by the digest that it
// has, and the same text each time; of files that are not the release's it writes nothing.
func TestStatementOfFiles(t *testing.T) {
	dist := filepath.Join(t.TempDir(), "dist")
	if _, err := (Release{Source: withChart(t), Commit: "HEAD", Version: "v1.2.3", Registry: "registry.example/project",
		Lacks: Lacks{Bills: true}}).Build(t.Context(), dist); err != nil {
		t.Fatal(err)
	}
	var texts [2][]byte
	for i, dir := range []string{t.TempDir(), t.TempDir()} {
		file := filepath.Join(dir, "new", statementName)
		if err := run(t.Context(), []string{"provenance", "-dist", dist, "-o", file}, io.Discard); err != nil {
			t.Fatal(err)
		}
		var err error
		if texts[i], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(texts[0], texts[1]) {
		t.Errorf("the second time it is other text:\n%s\n%s", texts[0], texts[1])
	}
	s := &intoto.Statement{}
	if err := protojson.Unmarshal(texts[0], s); err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	if s.GetType() != "https://in-toto.io/Statement/v1" || s.GetPredicateType() != "https://slsa.dev/provenance/v1" {
		t.Errorf("it is a %s of a %s", s.GetType(), s.GetPredicateType())
	}
	said, err := whatItSays(t.Context(), dist)
	if err != nil {
		t.Fatal(err)
	}
	want, err := provenanceOf(dist, said, "registry.example/project", builder{id: byHand})
	if err != nil {
		t.Fatal(err)
	}
	predicate, err := protojson.Marshal(s.GetPredicate())
	if err != nil {
		t.Fatal(err)
	}
	var has, wants any
	if err := errors.Join(json.Unmarshal(predicate, &has), json.Unmarshal(want, &wants)); err != nil {
		t.Fatal(err)
	}
	if err := differ("the predicate", has, wants); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(digests(t, dist), subjects(s)); diff != "" {
		t.Errorf("digests of what lies in the folder (-), and of the statement (+):\n%s", diff)
	}
	write(t, filepath.Join(dist, "LICENSE"), "another\n")
	file := filepath.Join(t.TempDir(), statementName)
	if err := run(t.Context(), []string{"provenance", "-dist", dist, "-o", file}, io.Discard); err == nil ||
		!strings.Contains(err.Error(), "LICENSE") {
		t.Errorf("a changed file has provenance: %v", err)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("and it is written")
	}
}

// digests are those of a release's files and of the images in them, read anew.
func digests(t *testing.T, dist string) map[string]string {
	t.Helper()
	files, err := os.ReadDir(dist)
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]string{}
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(dist, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		list[f.Name()] = fmt.Sprintf("%x", sha256.Sum256(data))
		program, ok := strings.CutSuffix(f.Name(), imageSuffix)
		if !ok {
			continue
		}
		layout, err := untar(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		var index struct{ Manifests []struct{ Digest string } }
		if err := json.Unmarshal(layout["index.json"], &index); err != nil {
			t.Fatal(err)
		}
		blob := layout["blobs/sha256/"+strings.TrimPrefix(index.Manifests[0].Digest, "sha256:")]
		list["registry.example/project/"+program+":v1.2.3"] = fmt.Sprintf("%x", sha256.Sum256(blob))
	}
	if len(list) < 15 {
		t.Errorf("only %d files were found", len(list))
	}
	return list
}

func subjects(s *intoto.Statement) map[string]string {
	list := map[string]string{}
	for _, of := range s.GetSubject() {
		list[of.GetName()] = of.GetDigest()["sha256"]
	}
	return list
}
