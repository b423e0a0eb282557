package bundle

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func sample() *Bundle {
	b := New("v1", time.Date(2026, 11, 21, 12, 0, 0, 123, time.UTC))
	b.AddJSON("status.json", "status", func() (any, error) {
		return map[string]any{"containers": []map[string]any{
			{"namespace": "shop", "pod": "web-1", "container": "main", "class": "LSR",
				"why": "web-1 owns 2 CPUs; shop may have 8. main."},
			{"namespace": "kube-system", "pod": "shared", "container": "sidecar", "pool": "shared",
				"why": "in the pool shared"},
		}, "labels": map[string]string{"app": "tills", "koordinator.sh/qosClass": "LSR"},
			"maxCPUs": map[string]int{"shop": 8, "*": 1}}, nil
	})
	b.AddText("metrics.txt", "metrics", func(w io.Writer) error {
		_, err := io.WriteString(w, `quietcore_x{namespace="shop",pod="web-1"} 1`+
			"\nweb-10 webshop web-1.shop é shop\n")
		return err
	})
	b.AddJSON("gone.json", "none", func() (any, error) { return nil, errors.New("shop/web-1 is away") })
	return b
}

func TestHashedNames(t *testing.T) {
	b := sample()
	if err := b.hashNames([]byte("key")); err != nil {
		t.Fatal(err)
	}
	h := hasher{key: []byte("key"), known: map[string]string{}}
	h.learn("shop")
	h.learn("web-1")
	shop, web := h.known["shop"], h.known["web-1"]
	status, metrics := string(b.parts[0].text), string(b.parts[1].text)
	for _, want := range []string{`"namespace": "` + shop + `"`, web + " owns 2 CPUs; " + shop + " may have 8.", `"` +
		shop + `": 8`, `"*": 1`, `"pool": "shared"`, `"class": "LSR"`, `"namespace": "kube-system"`} {
		if !strings.Contains(status, want) {
			t.Errorf("%s is not in\n%s", want, status)
		}
	}
	if want := `quietcore_x{namespace="` + shop + `",pod="` + web + `"} 1` + "\nweb-10 webshop " + web + "." + shop +
		" é " + shop + "\n"; metrics != want {
		t.Errorf("got %s, want %s", metrics, want)
	}
	if got := b.parts[2].entry.Missing; got != shop+"/"+web+" is away" {
		t.Error(got)
	}
	if !b.manifest.Hashed {
		t.Error("the manifest does not say so")
	}
	if strings.Contains(status, "tills") || !strings.Contains(status, `"koordinator.sh/qosClass": "LSR"`) {
		t.Errorf("labels:\n%s", status)
	}
	other := sample()
	if err := other.HashNames(); err != nil || bytes.Equal(other.parts[0].text, b.parts[0].text) {
		t.Errorf("two bundles have the same hashes: %v", err)
	}
}

// TestNoNameStays: whatever a name is, no word of the archive is it afterwards.
func TestNoNameStays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[a-z][a-z0-9]{2,8}(-[a-z0-9]{1,4})?`).Draw(t, "name")
		around := rapid.SampledFrom([]string{" ", "/", "\"", ".", ", ", "é", "\n", "=", "("}).Draw(t, "around")
		b := New("v1", time.Unix(0, 0))
		b.AddJSON("a.json", "", func() (any, error) {
			return map[string]string{"pod": name, "why": around + name + around}, nil
		})
		b.AddText("b.txt", "", func(w io.Writer) error {
			_, err := io.WriteString(w, around+name+around)
			return err
		})
		if err := b.HashNames(); err != nil {
			t.Fatal(err)
		}
		for _, p := range b.parts {
			for _, word := range strings.FieldsFunc(string(p.text), notInName) {
				for _, part := range strings.Split(word, ".") {
					if part == name && name != "pod" && name != "why" {
						t.Fatalf("%q is still in %q", name, p.text)
					}
				}
			}
		}
	})
}

func TestTheSamePartsAreTheSameBytes(t *testing.T) {
	var first, second bytes.Buffer
	if err := errors.Join(sample().Write(&first), sample().Write(&second)); err != nil ||
		!bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("two archives differ: %v", err)
	}
	if got := sample().Summary(); got != "2 files; could not be had: gone.json (MANIFEST.json says why)" {
		t.Error(got)
	}
}

func TestAPartThatIsTooLargeIsLeftOut(t *testing.T) {
	b := New("v1", time.Unix(0, 0))
	b.AddText("big.txt", "", func(w io.Writer) error {
		chunk := make([]byte, 1<<20)
		for range maxPart>>20 + 1 {
			if _, err := w.Write(chunk); err != nil {
				return err
			}
		}
		return nil
	})
	if b.parts[0].entry.Missing == "" || b.parts[0].text != nil {
		t.Error("it is kept")
	}
}
