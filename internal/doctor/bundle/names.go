package bundle

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// nameKeys are the keys whose values are names.
func nameKeys() []string {
	return []string{
		"namespace", "pod", "container", "name", "node", "job", "owner", "jobs", "victim", "antagonist", "namespaces",
		"workload", "hostname", "victimJob", "antagonistJob", "suspect",
	}
}

// mapKeys are the keys of objects whose own keys are names.
func mapKeys() []string { return []string{"maxCPUs", "perNamespace"} }

// plain names are Kubernetes' own, or words; they identify nothing.
func plain() []string {
	return []string{"default", "kube-system", "kube-public", "kube-node-lease", "quietcore", "quietcore-system", ""}
}

// HashNames replaces every name that occurs under a key for names, wherever it occurs:
// as a value, a word of a sentence, a label of a metric. It discards the key of the
// hash, so that names cannot be guessed. more are further names.
func (b *Bundle) HashNames(more ...string) error {
	key := make([]byte, sha256.Size)
	if _, err := rand.Read(key); err != nil {
		return err
	}
	return b.hashNames(key, more...)
}

func (b *Bundle) hashNames(key []byte, more ...string) error {
	h := hasher{key: key, known: map[string]string{}}
	for _, name := range more {
		h.learn(name)
	}
	docs := make([]any, len(b.parts))
	for i := range b.parts {
		p := &b.parts[i]
		if !p.json || p.entry.Missing != "" {
			continue
		}
		d := json.NewDecoder(bytes.NewReader(p.text))
		d.UseNumber()
		if err := d.Decode(&docs[i]); err != nil {
			return fmt.Errorf("hash the names in %s: %w", p.entry.Name, err)
		}
		h.collect(docs[i], "")
	}
	for i := range b.parts {
		p := &b.parts[i]
		p.entry.Missing = h.text(p.entry.Missing)
		if docs[i] == nil {
			p.text = []byte(h.text(string(p.text)))
			continue
		}
		var out bytes.Buffer
		e := json.NewEncoder(&out)
		e.SetEscapeHTML(false)
		e.SetIndent("", " ")
		if err := e.Encode(h.walk(docs[i], "")); err != nil {
			return fmt.Errorf("hash the names in %s: %w", p.entry.Name, err)
		}
		p.text = out.Bytes()
	}
	b.manifest.Hashed = true
	return nil
}

type hasher struct {
	key   []byte
	known map[string]string // name -> hash
}

// learn adds a name; of "Deployment/web" and "shop/web" its parts, since a workload's
// kind is not a name.
func (h *hasher) learn(name string) {
	for part := range strings.SplitSeq(name, "/") {
		if slices.Contains(plain(), part) || isKind(part) || h.known[part] != "" {
			continue
		}
		mac := hmac.New(sha256.New, h.key)
		mac.Write([]byte(part))
		h.known[part] = "n-" + hex.EncodeToString(mac.Sum(nil)[:6])
	}
}

// isKind says whether a part is a workload's kind, which starts with a capital letter
// as no name may.
func isKind(part string) bool { return part != "" && part[0] >= 'A' && part[0] <= 'Z' }

func (h *hasher) collect(v any, under string) {
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			if slices.Contains(mapKeys(), under) && k != "*" {
				h.learn(k)
			}
			if text, ok := inner.(string); ok && (under == "labels" || under == "annotations") && !known(k) {
				h.learn(text) // a label that names a job
			}
			h.collect(inner, k)
		}
	case []any:
		for _, inner := range v {
			h.collect(inner, under)
		}
	case string:
		if slices.Contains(nameKeys(), under) {
			h.learn(v)
		}
	}
}

// known says whether a label or annotation has a value of Koordinator's or ours, and
// not a name.
func known(key string) bool {
	return strings.Contains(key, "koordinator.sh/") || strings.Contains(key, "quietcore.dev/")
}

// walk returns v with every name replaced. Keys stay, except those that are names.
func (h *hasher) walk(v any, under string) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, inner := range v {
			name := k
			if slices.Contains(mapKeys(), under) {
				name = h.text(k)
			}
			out[name] = h.walk(inner, k)
		}
		return out
	case []any:
		for i := range v {
			v[i] = h.walk(v[i], under)
		}
		return v
	case string:
		if !slices.Contains(nameKeys(), under) && slices.Contains(wordKeys(), under) {
			return v
		}
		return h.text(v)
	}
	return v
}

// wordKeys are those whose values are keywords: a pod with such a name must not make a
// record that cannot be replayed.
func wordKeys() []string {
	return []string{
		"class", "pool", "mode", "admission", "memory", "kind", "qos", "apiVersion", "driver", "api", "detector",
		"waits", "verdict", "level", "format", "id", "type", "event", "op",
		"bindPolicy", "exclusivePolicy", "numaStrategy", "alignment", "smt", "cpuManagerPolicy",
		"topologyManagerPolicy", "topologyManagerScope", "resourceStatus", "policyName", "predictor", "from",
	}
}

// text replaces every word that is a name.
func (h *hasher) text(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		end := strings.IndexFunc(text, notInName)
		if end < 0 {
			end = len(text)
		}
		word := strings.TrimRight(text[:end], ".-")
		if hash := h.known[word]; hash != "" {
			b.WriteString(hash)
		} else {
			b.WriteString(h.dotted(word))
		}
		b.WriteString(text[len(word):end])
		if end < len(text) {
			b.WriteByte(text[end])
			end++
		}
		text = text[end:]
	}
	return b.String()
}

// dotted replaces names that are joined by dots, as in a host name.
func (h *hasher) dotted(word string) string {
	if !strings.Contains(word, ".") {
		return word
	}
	parts := strings.Split(word, ".")
	for i, p := range parts {
		if hash := h.known[p]; hash != "" {
			parts[i] = hash
		}
	}
	return strings.Join(parts, ".")
}

func notInName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.' && r != '_'
}
