package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/quietcore/quietcore/internal/strict"
)

// Load reads a file; an empty name means no file and gives the default.
func Load(name string) (*Config, error) {
	if name == "" {
		c := Default()
		return &c, nil
	}
	data, err := readFile(name)
	if err != nil {
		return nil, err
	}
	c, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("configuration %s:\n%w", name, err)
	}
	return c, nil
}

// Read is Load, which reads standard input for "-".
func Read(name string, stdin io.Reader) (*Config, error) {
	if name != "-" {
		return Load(name)
	}
	text, err := io.ReadAll(io.LimitReader(stdin, strict.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("configuration on standard input: %w", err)
	}
	c, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("configuration on standard input:\n%w", err)
	}
	return c, nil
}

// NodeName is the name of the Node object: the key node.name, else the
// environment variable NODE_NAME, which a DaemonSet sets. It is "" where
// neither is there: the host's name is no substitute, since in a pod that is
// the pod's, and changes with it.
func (c *Config) NodeName() string {
	if c.Node.Name != "" {
		return c.Node.Name
	}
	return os.Getenv("NODE_NAME")
}

// readFile reads no more than a document may have, whatever the name turns out
// to be (/dev/zero, a FIFO).
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("configuration %s: is %s, must be a regular file", name, info.Mode().Type())
	}
	data, err := io.ReadAll(io.LimitReader(f, strict.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return data, nil
}

// Parse reads the text of a file. Mistakes of spelling and of meaning are
// reported together.
func Parse(data []byte) (*Config, error) {
	c := Default()
	c.APIVersion, c.CPI.JobSeries = "", unsaid
	decodeErr := strict.Unmarshal(data, &c)
	if c.CPI.JobSeries == unsaid {
		c.CPI.JobSeries = c.CPI.usualJobSeries()
	}
	v := &checker{}
	if c.APIVersion == "" && decodeErr == nil {
		v.fail("apiVersion", "is missing; begin the file with apiVersion: %s", APIVersion)
	}
	v.fields(&c)
	if decodeErr == nil {
		v.relations(&c)
	}
	if err := errors.Join(append([]error{decodeErr}, v.errs...)...); err != nil {
		return nil, err
	}
	return &c, nil
}

// YAML writes the whole configuration in the order of the reference; Parse
// reads it back to the same value.
func (c *Config) YAML() ([]byte, error) { return toYAML(c) }

func toYAML(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	plain(&doc)
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return nil, err
	}
	return out.Bytes(), enc.Close()
}

// oldBools are booleans to readers of YAML 1.1, such as Helm.
var oldBools = []string{"y", "n", "yes", "no", "on", "off"}

// plain turns JSON's style into what people write; quotes come back where YAML
// needs them, in either of its versions.
func plain(n *yaml.Node) {
	n.Style &^= yaml.FlowStyle
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || !slices.Contains(oldBools, strings.ToLower(n.Value)) {
		n.Style &^= yaml.DoubleQuotedStyle
	}
	if len(n.Content) == 0 && n.Kind != yaml.ScalarNode {
		n.Style |= yaml.FlowStyle
	}
	for _, c := range n.Content {
		plain(c)
	}
}
