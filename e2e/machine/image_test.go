package machine

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"
)

// Every blob must be what its name says: the runtime checks it.
func TestArchiveIsAnOCILayout(t *testing.T) {
	files := []tarFile{{name: "program", mode: 0o755, data: []byte("binary")}}
	data, err := archive("example.org/a/b:7", []string{"/program"}, files)
	if err != nil {
		t.Fatal(err)
	}
	again, err := archive("example.org/a/b:7", []string{"/program"}, files)
	if err != nil || !bytes.Equal(data, again) {
		t.Fatalf("the same image twice differs: %v", err)
	}
	content := map[string][]byte{}
	in := tar.NewReader(bytes.NewReader(data))
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if content[h.Name], err = io.ReadAll(in); err != nil {
			t.Fatal(err)
		}
	}
	var index struct{ Manifests []descriptor }
	if err := json.Unmarshal(content["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	if len(index.Manifests) != 1 || index.Manifests[0].Annotations["io.containerd.image.name"] != "example.org/a/b:7" ||
		index.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "7" {
		t.Fatalf("index %s", content["index.json"])
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	blob := func(d descriptor) []byte {
		b := content["blobs/sha256/"+d.Digest[len("sha256:"):]]
		if digest(b) != d.Digest || len(b) != d.Size {
			t.Errorf("blob %s holds %d bytes with digest %s, want %d", d.Digest, len(b), digest(b), d.Size)
		}
		return b
	}
	if err := json.Unmarshal(blob(index.Manifests[0]), &manifest); err != nil {
		t.Fatal(err)
	}
	if len(manifest.Layers) != 1 || len(blob(manifest.Layers[0])) == 0 ||
		!bytes.Contains(blob(manifest.Config), []byte(`"Entrypoint":["/program"]`)) {
		t.Fatalf("manifest %+v", manifest)
	}
}
