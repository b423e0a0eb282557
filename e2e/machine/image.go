package machine

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Image is the name of the only image in the guest: pause and every workload.
const Image = "quietcore.dev/e2e/busybox:1"

// imageFile is where the guest has it, as an OCI archive.
const imageFile = "/usr/share/image.tar"

// imageTarball holds busybox, which is pause and every workload.
func imageTarball(busybox []byte) ([]byte, error) {
	return archive(Image, []string{"/bin/sleep", "2147483647"}, []tarFile{
		{name: "bin/busybox", mode: 0o755, data: busybox},
		{name: "bin/sh", link: "busybox"},
		{name: "bin/sleep", link: "busybox"},
		{name: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/:/bin/sh\n")},
		{name: "tmp/.keep", mode: 0o644},
	})
}

// archive is an OCI layout with one layer, written here so that no registry is ever
// asked.
func archive(name string, entrypoint []string, files []tarFile) ([]byte, error) {
	layer, err := tarball(files)
	if err != nil {
		return nil, err
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write(layer); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	blobs := &blobSet{}
	layerDesc := blobs.add("application/vnd.oci.image.layer.v1.tar+gzip", zipped.Bytes())
	config, err := blobs.addJSON("application/vnd.oci.image.config.v1+json", map[string]any{
		"architecture": "amd64", "os": "linux",
		"config": map[string]any{"Entrypoint": entrypoint, "Env": []string{"PATH=/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
	})
	if err != nil {
		return nil, err
	}
	const manifestType = "application/vnd.oci.image.manifest.v1+json"
	manifest, err := blobs.addJSON(manifestType, map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": config, "layers": []any{layerDesc},
	})
	if err != nil {
		return nil, err
	}
	_, tag, _ := strings.Cut(name, ":")
	manifest.Annotations = map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []any{manifest}})
	if err != nil {
		return nil, err
	}
	return tarball(append([]tarFile{
		{name: "oci-layout", mode: 0o644, data: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{name: "index.json", mode: 0o644, data: index},
	}, blobs.files...))
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type blobSet struct{ files []tarFile }

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

func (b *blobSet) add(mediaType string, data []byte) descriptor {
	d := digest(data)
	b.files = append(b.files, tarFile{name: "blobs/sha256/" + d[len("sha256:"):], mode: 0o644, data: data})
	return descriptor{MediaType: mediaType, Digest: d, Size: len(data)}
}

func (b *blobSet) addJSON(mediaType string, v any) (descriptor, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	return b.add(mediaType, data), nil
}

type tarFile struct {
	name, link string
	mode       int64
	data       []byte
}

func tarball(files []tarFile) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), Typeflag: tar.TypeReg}
		if f.link != "" {
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.link, 0o777
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := io.Copy(w, bytes.NewReader(f.data)); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
