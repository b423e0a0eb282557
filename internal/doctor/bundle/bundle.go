// Package bundle makes the archive for a bug report: a tar.gz of files with a
// [Manifest].
//
//	b := bundle.New("v0.3.0", time.Now())
//	b.AddJSON("status.json", "quietcore status", status)
//	err := b.Write(file)
//
// A part that is not available is listed in the manifest with the reason; it is not an
// error. The same parts at the same time give the same bytes.
package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// maxPart bounds one file; a record of a full node is a few megabytes.
const maxPart = 64 << 20

// Bundle is an archive under construction.
type Bundle struct {
	manifest Manifest
	parts    []part
}

type part struct {
	entry Entry
	text  []byte
	json  bool
}

// Manifest lists what an archive has.
type Manifest struct {
	Version string    `json:"version"` // of the program that made it
	Made    time.Time `json:"made"`
	// Hashed says that names are hashes.
	Hashed bool    `json:"namesHashed"`
	Files  []Entry `json:"files"`
}

// Entry is one file of an archive, or one that is missing.
type Entry struct {
	Name   string `json:"name"`
	What   string `json:"what"`
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256,omitempty"`
	// Missing is why the file is missing.
	Missing string `json:"missing,omitempty"`
}

// ManifestName is the manifest's name, the first in the archive.
const ManifestName = "MANIFEST.json"

// New makes an empty bundle.
func New(version string, now time.Time) *Bundle {
	return &Bundle{manifest: Manifest{Version: version, Made: now.UTC().Truncate(time.Second)}}
}

// AddJSON adds what get returns.
func (b *Bundle) AddJSON(name, what string, get func() (any, error)) {
	b.add(name, what, true, func(w io.Writer) error {
		v, err := get()
		if err != nil {
			return err
		}
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		e.SetIndent("", " ")
		return e.Encode(v)
	})
}

// AddText adds what write writes.
func (b *Bundle) AddText(name, what string, write func(io.Writer) error) {
	b.add(name, what, false, write)
}

func (b *Bundle) add(name, what string, isJSON bool, write func(io.Writer) error) {
	p := part{entry: Entry{Name: name, What: what}, json: isJSON}
	var text bytes.Buffer
	err := write(&text)
	if err == nil && text.Len() > maxPart {
		err = fmt.Errorf("it has %d bytes, more than %d", text.Len(), maxPart)
	}
	if err != nil {
		p.entry.Missing = err.Error()
	} else {
		p.text = text.Bytes()
	}
	b.parts = append(b.parts, p)
}

// Summary lists in a line what is included and what is missing.
func (b *Bundle) Summary() string {
	missing := ""
	n := 0
	for i := range b.parts {
		if b.parts[i].entry.Missing == "" {
			n++
		} else if missing == "" {
			missing = b.parts[i].entry.Name
		} else {
			missing += ", " + b.parts[i].entry.Name
		}
	}
	text := fmt.Sprintf("%d files", n)
	if missing != "" {
		text += "; could not be had: " + missing + " (" + ManifestName + " says why)"
	}
	return text
}

// Write writes the archive.
func (b *Bundle) Write(w io.Writer) error {
	m := b.manifest
	m.Files = make([]Entry, 0, len(b.parts))
	for i := range b.parts {
		e := b.parts[i].entry
		if e.Missing == "" {
			sum := sha256.Sum256(b.parts[i].text)
			e.Bytes, e.SHA256 = len(b.parts[i].text), hex.EncodeToString(sum[:])
		}
		m.Files = append(m.Files, e)
	}
	var head bytes.Buffer
	e := json.NewEncoder(&head)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(m); err != nil {
		return err
	}
	zip := gzip.NewWriter(w)
	archive := tar.NewWriter(zip)
	if err := b.file(archive, ManifestName, head.Bytes()); err != nil {
		return err
	}
	for i := range b.parts {
		if p := &b.parts[i]; p.entry.Missing == "" {
			if err := b.file(archive, p.entry.Name, p.text); err != nil {
				return err
			}
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return zip.Close()
}

func (b *Bundle) file(archive *tar.Writer, name string, text []byte) error {
	const mode = 0o600
	err := archive.WriteHeader(&tar.Header{Name: "quietcore-bundle/" + name, Mode: mode, Size: int64(len(text)),
		ModTime: b.manifest.Made, Format: tar.FormatPAX})
	if err != nil {
		return err
	}
	_, err = archive.Write(text)
	return err
}
