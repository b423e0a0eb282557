package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/quietcore/quietcore/hack/image/build"
)

// TestALayerIsReadToItsEnd: a registry that serves other bytes under a layer's digest is found, even where they unpack
// to the same files, since the digest is compared behind these.
func TestALayerIsReadToItsEnd(t *testing.T) {
	s, err := openStore()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	var layer bytes.Buffer
	zipped := gzip.NewWriter(&layer)
	files := tar.NewWriter(zipped)
	bill := build.BillName(build.Program{Name: "p"})
	if err := files.WriteHeader(&tar.Header{Name: bill, Mode: 0o644, Size: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := files.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	for _, close := range []func() error{files.Close, zipped.Close} {
		if err := close(); err != nil {
			t.Fatal(err)
		}
	}
	img, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		static.NewLayer(layer.Bytes(), types.OCILayer))
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(s.address+"/p:v1", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag, img); err != nil {
		t.Fatal(err)
	}
	ask := func() (string, error) {
		img, err := remote.Image(tag)
		if err != nil {
			t.Fatal(err)
		}
		text, err := billOf(img, "p")
		return string(text), err
	}
	if text, err := ask(); err != nil || text != "x" {
		t.Fatalf("%q, %v", text, err)
	}
	undo := s.serve("sha256:"+checksum(layer.Bytes()), "")
	if text, err := ask(); err == nil || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("with a byte changed it is %q, %v", text, err)
	}
	if err := undo(); err != nil {
		t.Error(err)
	}
	if text, err := ask(); err != nil || text != "x" {
		t.Errorf("that is undone, and still %q, %v", text, err)
	}
}
