package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// attack is one thing done to the registry, and its undoing.
type attack struct {
	what string
	do   func(context.Context) (undo func() error, err error)
}

// attacked requires of each attack that its result is not taken for the release, and that this is the attack's doing:
// without it everything is verified.
func (t *trial) attacked(ctx context.Context, other signer) error {
	list := append(t.attacksOnTheRegistry(), t.attacksOnSignatures(other)...)
	for _, a := range list {
		undo, err := a.do(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", a.what, err)
		}
		found := t.verify(ctx, t.list)
		if found == nil {
			return fmt.Errorf("%s, and everything is verified all the same", a.what)
		}
		t.say("%s: refused: %s", a.what, shortly(found))
		if err := undo(); err != nil {
			return fmt.Errorf("%s: undo it: %w", a.what, err)
		}
		if err := t.verify(ctx, t.list); err != nil {
			return fmt.Errorf("%s, that is undone, and still: %w", a.what, err)
		}
	}
	t.say("%d attacks were refused, and without them everything is verified", len(list))
	return nil
}

// attacksOnTheRegistry change what is served.
func (t *trial) attacksOnTheRegistry() []attack {
	image, chart := t.list[0], t.list[len(t.list)-1]
	return []attack{
		{"another image has the tag", func(ctx context.Context) (func() error, error) {
			return moveImage(ctx, image, false)
		}},
		{"another image has the tag and the signatures", func(ctx context.Context) (func() error, error) {
			return moveImage(ctx, image, true)
		}},
		{"another chart has the version", func(ctx context.Context) (func() error, error) {
			return t.moveChart(ctx, chart)
		}},
		{"another image is served under the image's digest", func(ctx context.Context) (func() error, error) {
			return t.serveImage(ctx, image)
		}},
		{"a byte of an image's layer is changed", func(ctx context.Context) (func() error, error) {
			images, err := platforms(ctx, image)
			if err != nil {
				return nil, err
			}
			return t.changeLayer(images["linux/amd64"])
		}},
		{"a byte of the chart's archive is changed", func(ctx context.Context) (func() error, error) {
			img, err := remote.Image(chart.digest, options(ctx)...)
			if err != nil {
				return nil, err
			}
			return t.changeLayer(img)
		}},
	}
}

// attacksOnSignatures change what is signed, by whom, and the files.
func (t *trial) attacksOnSignatures(other signer) []attack {
	image, chart := t.list[0], t.list[len(t.list)-1]
	return []attack{
		{"the image's provenance names another commit", func(ctx context.Context) (func() error, error) {
			return t.forge(ctx, image)
		}},
		{"the chart's provenance names another commit", func(ctx context.Context) (func() error, error) {
			return t.forge(ctx, chart)
		}},
		{"the image's signatures are gone", func(ctx context.Context) (func() error, error) {
			return removeSignatures(ctx, image)
		}},
		{"the key is another", func(context.Context) (func() error, error) {
			was := t.signers[0].verify
			t.signers[0].verify = other.verify
			return func() error { t.signers[0].verify = was; return nil }, nil
		}},
		{"a checksum is changed", func(context.Context) (func() error, error) { return t.changeFile(sumsName) }},
		{"a file is changed", func(context.Context) (func() error, error) { return t.changeFile("LICENSE") }},
		{"the files' provenance names another commit", func(context.Context) (func() error, error) {
			return t.forgeFile()
		}},
	}
}

// shortly is the end of what a program says, where the reason is.
func shortly(err error) string {
	lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
	last := lines[len(lines)-1]
	if at := strings.LastIndex(last, "exit status"); at >= 0 {
		last = last[at:]
	}
	return last[max(0, len(last)-160):]
}

// foreignTo is an image that says something else of itself.
func foreignTo(ctx context.Context, a artefact) (was, foreign v1.ImageIndex, err error) {
	if was, err = remote.Index(a.digest, options(ctx)...); err != nil {
		return nil, nil, err
	}
	title := map[string]string{"org.opencontainers.image.title": "foreign"}
	return was, mutate.Annotations(was, title).(v1.ImageIndex), nil
}

// serveImage has another image answer for the digest.
func (t *trial) serveImage(ctx context.Context, a artefact) (func() error, error) {
	_, foreign, err := foreignTo(ctx, a)
	if err != nil {
		return nil, err
	}
	digest, err := foreign.Digest()
	if err != nil {
		return nil, err
	}
	if err := remote.WriteIndex(a.tag.Digest(digest.String()), foreign, options(ctx)...); err != nil {
		return nil, err
	}
	return t.store.serve(a.digest.DigestStr(), digest.String()), nil
}

// changeLayer has the only layer of an image, or a chart's archive, served with a byte changed.
func (t *trial) changeLayer(img v1.Image) (func() error, error) {
	if img == nil {
		return nil, errors.New("there is no image for linux/amd64")
	}
	manifest, err := img.Manifest()
	if err != nil {
		return nil, err
	}
	if len(manifest.Layers) != 1 {
		return nil, fmt.Errorf("it has %d layers, want 1", len(manifest.Layers))
	}
	return t.store.serve(manifest.Layers[0].Digest.String(), ""), nil
}

// moveImage gives the tag to an image that says something else of itself, with a copy of the signatures or without.
func moveImage(ctx context.Context, a artefact, signed bool) (func() error, error) {
	index, foreign, err := foreignTo(ctx, a)
	if err != nil {
		return nil, err
	}
	if err := remote.WriteIndex(a.tag, foreign, options(ctx)...); err != nil {
		return nil, err
	}
	undo := func() error { return remote.Tag(a.tag, index, options(ctx)...) }
	if !signed {
		return undo, nil
	}
	list, err := referrers(ctx, a)
	if err != nil {
		return nil, err
	}
	subject, err := partial.Descriptor(foreign)
	if err != nil {
		return nil, err
	}
	for _, r := range list {
		r.content["subject"] = subject
		if err := r.put(ctx, a); err != nil {
			return nil, err
		}
	}
	return undo, nil
}

// moveChart publishes a chart of the same version with another template.
func (t *trial) moveChart(ctx context.Context, a artefact) (func() error, error) {
	was, err := remote.Get(a.digest, options(ctx)...)
	if err != nil {
		return nil, err
	}
	files, err := unpack(filepath.Join(t.dist, chartArchive(t.version)))
	if err != nil {
		return nil, err
	}
	var list []packed
	for name, data := range files {
		if strings.HasSuffix(name, "/templates/daemonset.yaml") {
			data = append(data, "{{/* foreign */}}\n"...)
		}
		list = append(list, packed{name, 0o644, data})
	}
	dir, err := os.MkdirTemp("", "quietcore-foreign-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	foreign := filepath.Join(dir, chartArchive(t.version))
	if err := pack(foreign, time.Unix(0, 0), list); err != nil {
		return nil, err
	}
	moved, err := t.pushChart(ctx, foreign)
	if err != nil {
		return nil, err
	}
	if moved.digest == a.digest {
		return nil, errors.New("the other chart is the same")
	}
	return func() error { return remote.Tag(a.tag, was, options(ctx)...) }, nil
}

// referrer is a manifest that says something of another.
type referrer struct {
	digest  name.Digest
	raw     *remote.Descriptor
	content map[string]any
}

// RawManifest and MediaType are what the registry takes.
func (r referrer) RawManifest() ([]byte, error) { return json.Marshal(r.content) }

func (r referrer) MediaType() (types.MediaType, error) { return r.raw.MediaType, nil }

// put writes it under its own digest.
func (r referrer) put(ctx context.Context, a artefact) error {
	text, err := r.RawManifest()
	if err != nil {
		return err
	}
	return remote.Put(a.tag.Digest("sha256:"+checksum(text)), r, options(ctx)...)
}

// referrers are the signatures and attestations of an artefact.
func referrers(ctx context.Context, a artefact) ([]referrer, error) {
	index, err := remote.Referrers(a.digest, options(ctx)...)
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(manifest.Manifests) == 0 {
		return nil, fmt.Errorf("nothing is signed of %s", a.digest)
	}
	var list []referrer
	for _, m := range manifest.Manifests {
		r := referrer{digest: a.tag.Digest(m.Digest.String())}
		if r.raw, err = remote.Get(r.digest, options(ctx)...); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(r.raw.Manifest, &r.content); err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

// removeSignatures deletes all that was signed.
func removeSignatures(ctx context.Context, a artefact) (func() error, error) {
	list, err := referrers(ctx, a)
	if err != nil {
		return nil, err
	}
	for _, r := range list {
		if err := remote.Delete(r.digest, options(ctx)...); err != nil {
			return nil, err
		}
	}
	return func() error {
		for _, r := range list {
			if err := remote.Put(r.digest, r.raw, options(ctx)...); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// forge puts an attestation in the place of the provenance that names another commit under the same signature.
func (t *trial) forge(ctx context.Context, a artefact) (func() error, error) {
	list, err := referrers(ctx, a)
	if err != nil {
		return nil, err
	}
	for _, r := range list {
		layers, _ := r.content["layers"].([]any)
		if len(layers) != 1 {
			return nil, fmt.Errorf("%s has %d layers, want 1", r.digest, len(layers))
		}
		descriptor, _ := layers[0].(map[string]any)
		text, err := blob(ctx, a, fmt.Sprint(descriptor["digest"]))
		if err != nil {
			return nil, err
		}
		forged, ok, err := otherCommit(text)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		layer := static.NewLayer(forged, types.MediaType(fmt.Sprint(descriptor["mediaType"])))
		if err := remote.WriteLayer(a.tag.Repository, layer, options(ctx)...); err != nil {
			return nil, err
		}
		descriptor["digest"], descriptor["size"] = "sha256:"+checksum(forged), len(forged)
		if err := remote.Delete(r.digest, options(ctx)...); err != nil {
			return nil, err
		}
		if err := r.put(ctx, a); err != nil {
			return nil, err
		}
		changed, err := r.RawManifest()
		if err != nil {
			return nil, err
		}
		return func() error {
			return errors.Join(remote.Delete(a.tag.Digest("sha256:"+checksum(changed)), options(ctx)...),
				remote.Put(r.digest, r.raw, options(ctx)...))
		}, nil
	}
	return nil, fmt.Errorf("%s has no provenance", a.digest)
}

func blob(ctx context.Context, a artefact, digest string) ([]byte, error) {
	layer, err := remote.Layer(a.tag.Digest(digest), options(ctx)...)
	if err != nil {
		return nil, err
	}
	r, err := layer.Compressed()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// otherCommit changes the commit in a bundle's statement, if that is provenance.
func otherCommit(bundle []byte) (forged []byte, ok bool, err error) {
	var b map[string]any
	if err := json.Unmarshal(bundle, &b); err != nil {
		return nil, false, err
	}
	envelope, _ := b["dsseEnvelope"].(map[string]any)
	payload, _ := envelope["payload"].(string)
	statements, err := payloads(`{"payload":"` + payload + `"}`)
	if err != nil {
		return nil, false, err
	}
	var statement map[string]any
	if err := json.Unmarshal(statements[0], &statement); err != nil {
		return nil, false, err
	}
	predicate, _ := statement["predicate"].(map[string]any)
	definition, _ := predicate["buildDefinition"].(map[string]any)
	external, _ := definition["externalParameters"].(map[string]any)
	if external["commit"] == nil {
		return nil, false, nil
	}
	external["commit"] = strings.Repeat("0", 40)
	text, err := json.Marshal(statement)
	if err != nil {
		return nil, false, err
	}
	envelope["payload"] = text // as base64
	forged, err = json.Marshal(b)
	return forged, true, err
}

// changeFile edits a file of the release.
func (t *trial) changeFile(name string) (func() error, error) {
	file := filepath.Join(t.dist, name)
	was, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	changed := append([]byte("0"), was[1:]...)
	if changed[0] == was[0] {
		changed[0] = '1'
	}
	return func() error { return os.WriteFile(file, was, 0o644) }, os.WriteFile(file, changed, 0o644)
}

// forgeFile edits what is signed of the files.
func (t *trial) forgeFile() (func() error, error) {
	file := t.bundle(provenanceName, 0)
	was, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	forged, ok, err := otherCommit(was)
	if err == nil && !ok {
		err = fmt.Errorf("%s has no provenance", filepath.Base(file))
	}
	if err != nil {
		return nil, err
	}
	return func() error { return os.WriteFile(file, was, 0o600) }, os.WriteFile(file, forged, 0o600)
}
