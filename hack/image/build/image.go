package build

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Program is what an image holds.
type Program struct {
	Name   string // of its binary; its package is cmd/NAME
	Module string // folder of its module in the repository
	About  string
	User   string
}

// Daemon is root: it owns what it opens.
func Daemon() Program {
	return Program{Name: "quietcore", About: "CPU orchestration for one Kubernetes node", User: "0:0"}
}

// Scheduler has an image of its own: it is twice as large as the daemon, and nodes need none of it.
func Scheduler() Program {
	return Program{Name: "quietcore-scheduler", Module: "scheduler",
		About: "kube-scheduler that knows which CPUs nodes have left", User: "65532:65532"}
}

// Image is what is to be made.
type Image struct {
	Source   Source
	Program  Program
	Name     string
	Binaries []Binary
	Parts    []Part
	Texts    []File
}

// Binary is the program for one platform.
type Binary struct{ Platform, Path string }

// Part is a module that is linked into the binaries, or what else they are made of.
type Part struct {
	Name, Version string
	Licences      []string // by SPDX's names
	Texts         []string // of its licences and notices
}

func (p Part) String() string { return strings.TrimSpace(p.Name + " " + p.Version) }

// File goes into the image next to the binary.
type File struct {
	Name string
	Data []byte
}

const license = "Apache-2.0"

// Write writes the archive and returns the digest of the image index.
func (s *Image) Write(archive string) (string, error) {
	index := mutate.IndexMediaType(v1.ImageIndex(empty.Index), types.OCIImageIndex)
	for _, b := range s.Binaries {
		img, err := s.image(b)
		if err != nil {
			return "", fmt.Errorf("image for %s: %w", b.Platform, err)
		}
		platform, err := v1.ParsePlatform(b.Platform)
		if err != nil {
			return "", err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img,
			Descriptor: v1.Descriptor{Platform: platform}})
	}
	index = mutate.Annotations(index, s.labels()).(v1.ImageIndex)
	digest, err := index.Digest()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(filepath.Dir(archive), ".oci-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	// containerd takes the whole name from its own annotation, others the tag from OCI's.
	top, err := partial.Descriptor(index)
	if err != nil {
		return "", err
	}
	top.Annotations = map[string]string{
		"io.containerd.image.name":          s.reference(),
		"org.opencontainers.image.ref.name": s.Source.Version,
	}
	outer := mutate.AppendManifests(mutate.IndexMediaType(v1.ImageIndex(empty.Index), types.OCIImageIndex),
		mutate.IndexAddendum{Add: index, Descriptor: *top})
	if _, err := layout.Write(dir, outer); err != nil {
		return "", err
	}
	return digest.String(), s.pack(dir, archive)
}

// reference is the name by which kubelet will ask for the image: one without a
// registry is completed as the runtimes do.
func (s *Image) reference() string {
	first, rest, found := strings.Cut(s.Name, "/")
	switch {
	case !found:
		return "docker.io/library/" + s.Name + ":" + s.Source.Version
	case !strings.ContainsAny(first, ".:") && first != "localhost":
		return "docker.io/" + first + "/" + rest + ":" + s.Source.Version
	}
	return s.Name + ":" + s.Source.Version
}

func (s *Image) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       s.Program.Name,
		"org.opencontainers.image.description": s.Program.About,
		"org.opencontainers.image.version":     s.Source.Version,
		"org.opencontainers.image.licenses":    license,
		"org.opencontainers.image.created":     s.Source.Date.Format(time.RFC3339),
	}
}

func (s *Image) image(b Binary) (v1.Image, error) {
	layer, err := s.layer(b)
	if err != nil {
		return nil, err
	}
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	img = mutate.ConfigMediaType(img, types.OCIConfigJSON)
	if img, err = mutate.Append(img, mutate.Addendum{
		Layer: layer, MediaType: types.OCILayer,
		History: v1.History{Created: v1.Time{Time: s.Source.Date}, CreatedBy: "hack/image"},
	}); err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	platform, err := v1.ParsePlatform(b.Platform)
	if err != nil {
		return nil, err
	}
	file.OS, file.Architecture, file.Variant = platform.OS, platform.Architecture, platform.Variant
	file.Created = v1.Time{Time: s.Source.Date}
	file.Config = v1.Config{
		User: s.Program.User, Entrypoint: []string{"/" + s.Program.Name}, WorkingDir: "/", Labels: s.labels(),
		Env: []string{"PATH=/"},
	}
	if img, err = mutate.ConfigFile(img, file); err != nil {
		return nil, err
	}
	return mutate.Annotations(img, s.labels()).(v1.Image), nil
}

// layer is everything: the binary, who its users are, what the binary is made of, and under
// which licences.
// No certificates: the API server is known by the service account's.
func (s *Image) layer(b Binary) (v1.Layer, error) {
	binary, err := os.ReadFile(b.Path)
	if err != nil {
		return nil, err
	}
	bill, err := s.bill(b)
	if err != nil {
		return nil, err
	}
	type entry struct {
		name string
		mode int64
		data []byte
	}
	sbom, licences := BillName(s.Program), "usr/share/licenses/"+s.Program.Name+"/"
	entries := []entry{
		{"etc/", 0o755, nil},
		{"etc/group", 0o644, []byte("root:x:0:\nnonroot:x:65532:\n")},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532::/:/sbin/nologin\n")},
		{s.Program.Name, 0o755, binary},
		{"usr/", 0o755, nil}, {"usr/share/", 0o755, nil},
		{"usr/share/licenses/", 0o755, nil}, {licences, 0o755, nil},
	}
	for _, t := range s.Texts {
		entries = append(entries, entry{licences + t.Name, 0o644, t.Data})
	}
	entries = append(entries, entry{path.Dir(sbom) + "/", 0o755, nil}, entry{sbom, 0o644, bill})
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	for _, f := range entries {
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: s.Source.Date,
			Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		if f.data == nil {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(text.Bytes())), nil
	},
		tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithMediaType(types.OCILayer))
}

// pack makes one file of the layout, in a fixed order and without times.
func (s *Image) pack(dir, archive string) error {
	var names []string
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		names = append(names, name)
		return nil
	})
	if err != nil {
		return err
	}
	slices.Sort(names)
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	w := tar.NewWriter(f)
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		below, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: filepath.ToSlash(below), Mode: 0o644, Size: int64(len(data)),
			ModTime: s.Source.Date, Format: tar.FormatUSTAR, Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return f.Close()
}
