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
	data, err := ProgramImage("example.org/a/b:7", "quietcore", []byte("binary"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := ProgramImage("example.org/a/b:7", "quietcore", []byte("binary"))
	if err != nil || !bytes.Equal(data, again) {
		t.Fatalf("the same image twice differs: %v", err)
	}
	files := map[string][]byte{}
	in := tar.NewReader(bytes.NewReader(data))
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(in); err != nil {
			t.Fatal(err)
		}
	}
	var index struct{ Manifests []descriptor }
	if err := json.Unmarshal(files["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	if len(index.Manifests) != 1 || index.Manifests[0].Annotations["io.containerd.image.name"] != "example.org/a/b:7" ||
		index.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "7" {
		t.Fatalf("index %s", files["index.json"])
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	blob := func(d descriptor) []byte {
		content := files["blobs/sha256/"+d.Digest[len("sha256:"):]]
		if digest(content) != d.Digest || len(content) != d.Size {
			t.Errorf("blob %s holds %d bytes with digest %s, want %d", d.Digest, len(content), digest(content), d.Size)
		}
		return content
	}
	if err := json.Unmarshal(blob(index.Manifests[0]), &manifest); err != nil {
		t.Fatal(err)
	}
	if len(manifest.Layers) != 1 || len(blob(manifest.Layers[0])) == 0 || !bytes.Contains(blob(manifest.Config), []byte(`"Entrypoint":["/quietcore"]`)) {
		t.Fatalf("manifest %+v", manifest)
	}
}
