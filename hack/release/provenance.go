package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/quietcore/quietcore/hack/image/build"
)

const (
	buildType    = "https://quietcore.dev/build/release/v1"
	byHand       = "https://quietcore.dev/build/by-hand"
	provenanceIs = "https://slsa.dev/provenance/v1"

	// statementName is the file with the provenance of all files of a release. It is none of them, since it names who
	// built them: whoever makes the same bytes again is somebody else.
	statementName = "provenance.intoto.json"
)

// builder is who built, and in which run.
type builder struct{ id, invocation string }

func (b *builder) flags(flags *flag.FlagSet) {
	flags.StringVar(&b.id, "builder", byHand, "who built it, a URI: in a workflow, the workflow's")
	flags.StringVar(&b.invocation, "invocation", "", "in which run")
}

// provenanceCommand writes the provenance of a release next to it.
func provenanceCommand(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("provenance", flag.ContinueOnError)
	dist := flags.String("dist", "../../dist", "the release")
	file := flags.String("o", "../../dist-signatures/"+statementName, "the file to write")
	var by builder
	by.flags(flags)
	if err := parse(flags, args); err != nil {
		return err
	}
	if err := checkSums(*dist); err != nil {
		return err
	}
	said, err := whatItSays(ctx, *dist)
	if err != nil {
		return err
	}
	registry, err := registryOf(*dist, said.Version)
	if err != nil {
		return err
	}
	predicate, err := provenanceOf(*dist, said, registry, by)
	if err != nil {
		return err
	}
	text, err := statementOf(*dist, predicate)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(*file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(*file, text, 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s says how %s came about\n", *file, *dist)
	return err
}

// statementOf is in-toto's statement v1 that the files of a release, and its images by the digests that they have in a
// registry, came about as the predicate says. It is the same text for the same files and predicate.
func statementOf(dist string, predicate []byte) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(dist, sumsName))
	if err != nil {
		return nil, err
	}
	sums, err := readSums(string(text))
	if err != nil {
		return nil, err
	}
	sums[sumsName] = checksum(text)
	images, err := filepath.Glob(filepath.Join(dist, "*"+imageSuffix))
	if err != nil {
		return nil, err
	}
	for _, archive := range images {
		top, err := topOf(archive)
		if err != nil {
			return nil, err
		}
		sums[top.Annotations[nameOfImage]] = top.Digest.Hex
	}
	s := &intoto.Statement{Type: intoto.StatementTypeUri, PredicateType: provenanceIs, Predicate: &structpb.Struct{}}
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		s.Subject = append(s.Subject, &intoto.ResourceDescriptor{Name: name,
			Digest: map[string]string{"sha256": sums[name]}})
	}
	if err := protojson.Unmarshal(predicate, s.GetPredicate()); err != nil {
		return nil, err
	}
	return settled(s)
}

// settled is a message as JSON, the same in each run.
func settled(m interface {
	proto.Message
	Validate() error
}) ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer // protojson's spaces differ from run to run
	if err := json.Indent(&b, text, "", " "); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// provenanceOf says how the release in dist came about: SLSA's provenance v1, as text that is the same for the same
// files, builder and run.
func provenanceOf(dist string, said version, registry string, by builder) ([]byte, error) {
	modules, err := materials(dist)
	if err != nil {
		return nil, err
	}
	sums, err := sumOf(filepath.Join(dist, sumsName))
	if err != nil {
		return nil, err
	}
	external, err := structpb.NewStruct(map[string]any{
		"repository": forge, "commit": said.Commit, "version": said.Version, "registry": registry,
	})
	if err != nil {
		return nil, err
	}
	platforms := []any{}
	for _, p := range build.Platforms() {
		platforms = append(platforms, p)
	}
	internal, err := structpb.NewStruct(map[string]any{
		"command": "make release VERSION=" + said.Version + " REGISTRY=" + registry, "go": said.Go,
		"platforms": platforms,
	})
	if err != nil {
		return nil, err
	}
	p := &provenance.Provenance{
		BuildDefinition: &provenance.BuildDefinition{
			BuildType: buildType, ExternalParameters: external, InternalParameters: internal,
			ResolvedDependencies: append([]*intoto.ResourceDescriptor{
				{Uri: "git+" + forge + "@" + said.Commit, Digest: map[string]string{"gitCommit": said.Commit}},
				{Uri: "pkg:generic/go@" + strings.TrimPrefix(said.Go, "go")},
			}, modules...),
		},
		RunDetails: &provenance.RunDetails{
			Builder:    &provenance.Builder{Id: by.id, Version: map[string]string{"go": said.Go}},
			Metadata:   &provenance.BuildMetadata{InvocationId: by.invocation},
			Byproducts: []*intoto.ResourceDescriptor{{Name: sumsName, Digest: map[string]string{"sha256": sums}}},
		},
	}
	return settled(p)
}

// materials are the modules that are linked into any binary, by their checksums in go.sum.
func materials(dist string) ([]*intoto.ResourceDescriptor, error) {
	binaries, err := filepath.Glob(filepath.Join(dist, "*-linux-a??64"))
	if err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for _, b := range binaries {
		info, err := buildinfo.ReadFile(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(b), err)
		}
		for _, m := range build.Modules(info) {
			sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
			if err != nil || len(sum) == 0 {
				return nil, fmt.Errorf("%s %s in %s has checksum %q, want h1 of go.sum", m.Path, m.Version,
					filepath.Base(b), m.Sum)
			}
			sums["pkg:golang/"+m.Path+"@"+m.Version] = hex.EncodeToString(sum)
		}
	}
	var list []*intoto.ResourceDescriptor
	for _, uri := range slices.Sorted(maps.Keys(sums)) {
		list = append(list, &intoto.ResourceDescriptor{Uri: uri, Digest: map[string]string{"dirHash": sums[uri]}})
	}
	return list, nil
}

// checkProvenance judges a statement of provenance that somebody signed: it is about the digest, and says of the
// release what the release says of itself.
func checkProvenance(statement []byte, digest string, want []byte) error {
	s := &intoto.Statement{}
	if err := protojson.Unmarshal(statement, s); err != nil {
		return fmt.Errorf("provenance: %w", err)
	}
	if err := s.Validate(); err != nil {
		return fmt.Errorf("provenance: %w", err)
	}
	if s.GetPredicateType() != provenanceIs {
		return fmt.Errorf("the statement is a %s, want %s", s.GetPredicateType(), provenanceIs)
	}
	if len(s.GetSubject()) != 1 || "sha256:"+s.GetSubject()[0].GetDigest()["sha256"] != digest {
		return fmt.Errorf("the provenance is of %v, want %s", s.GetSubject(), digest)
	}
	predicate, err := protojson.Marshal(s.GetPredicate())
	if err != nil {
		return err
	}
	p := &provenance.Provenance{}
	if err := protojson.Unmarshal(predicate, p); err != nil {
		return fmt.Errorf("provenance: %w", err)
	}
	if err := p.Validate(); err != nil {
		return fmt.Errorf("provenance: %w", err)
	}
	var has, wants any
	if err := json.Unmarshal(predicate, &has); err != nil {
		return err
	}
	if err := json.Unmarshal(want, &wants); err != nil {
		return err
	}
	return differ("the provenance", has, wants)
}

// differ is the first thing in which two JSON values are not the same.
func differ(path string, has, wants any) error {
	switch wants := wants.(type) {
	case map[string]any:
		object, _ := has.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(wants)) {
			if err := differ(path+"."+key, object[key], wants[key]); err != nil {
				return err
			}
		}
		for key := range object {
			if _, ok := wants[key]; !ok {
				return fmt.Errorf("%s has %s, which the release does not say", path, key)
			}
		}
		return nil
	case []any:
		list, _ := has.([]any)
		if len(list) != len(wants) {
			return fmt.Errorf("%s has %d entries, want %d", path, len(list), len(wants))
		}
		for i := range wants {
			if err := differ(fmt.Sprintf("%s[%d]", path, i), list[i], wants[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if has != wants {
		return fmt.Errorf("%s is %v, want %v", path, has, wants)
	}
	return nil
}
