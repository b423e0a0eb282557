package machine

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"testing"
)

// readCpio is a reader of its own, so that writer and reader share no mistake.
func readCpio(t *testing.T, data []byte) map[string]string {
	t.Helper()
	out := map[string]string{}
	field := func(h []byte, i int) int {
		n, err := strconv.ParseUint(string(h[6+8*i:14+8*i]), 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		return int(n)
	}
	align := func(n int) int { return (n + 3) &^ 3 }
	for at := 0; ; {
		h := data[at : at+110]
		if string(h[:6]) != "070701" {
			t.Fatalf("no header at %d", at)
		}
		mode, size, nameSize := field(h, 1), field(h, 6), field(h, 11)
		name := string(data[at+110 : at+110+nameSize-1])
		at = align(at + 110 + nameSize)
		if name == "TRAILER!!!" {
			return out
		}
		if _, again := out[name]; again {
			t.Errorf("%s is there twice", name)
		}
		out[name] = fmt.Sprintf("%o:%s", mode, data[at:at+size])
		at = align(at + size)
	}
}

func TestCpio(t *testing.T) {
	var buf bytes.Buffer
	c := newCpio(&buf)
	c.char("dev/console", deviceNumber{5, 1})
	c.file("/etc/deep/file", 0o644, []byte("odd length"))
	c.link("bin", "usr/bin")
	c.files(0o755, map[string]string{"etc/b": "2", "etc/a": "1"})
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	if buf.Len()%512 != 0 {
		t.Errorf("the archive is %d bytes long; another could not follow it", buf.Len())
	}
	got := readCpio(t, buf.Bytes())
	want := map[string]string{
		"dev": "40755:", "dev/console": "20600:", "etc": "40755:", "etc/deep": "40755:",
		"etc/deep/file": "100644:odd length", "bin": "120777:usr/bin", "etc/a": "100755:1", "etc/b": "100755:2",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func untar(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if out[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestImageDescribesItself(t *testing.T) {
	image, err := imageTarball([]byte("not really busybox"))
	if err != nil {
		t.Fatal(err)
	}
	files := untar(t, image)
	follow := func(d descriptor) []byte {
		blob, ok := files["blobs/sha256/"+d.Digest[len("sha256:"):]]
		if !ok || digest(blob) != d.Digest || len(blob) != d.Size {
			t.Fatalf("descriptor %+v does not fit its blob", d)
		}
		return blob
	}
	var index struct{ Manifests []descriptor }
	if err := json.Unmarshal(files["index.json"], &index); err != nil || len(index.Manifests) != 1 {
		t.Fatalf("%v in %s", err, files["index.json"])
	}
	if got := index.Manifests[0].Annotations["io.containerd.image.name"]; got != Image {
		t.Errorf("the image is named %q, want %q", got, Image)
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	if err := json.Unmarshal(follow(index.Manifests[0]), &manifest); err != nil {
		t.Fatal(err)
	}
	var config struct {
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal(follow(manifest.Config), &config); err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(follow(manifest.Layers[0])))
	if err != nil {
		t.Fatal(err)
	}
	layer, err := io.ReadAll(z)
	if err != nil || digest(layer) != config.Rootfs.DiffIDs[0] {
		t.Errorf("the layer unpacks to %s (%v), the config says %v", digest(layer), err, config.Rootfs.DiffIDs)
	}
	if _, ok := untar(t, layer)["bin/sleep"]; !ok {
		t.Error("no bin/sleep in the layer")
	}
}
