package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/quietcore/quietcore/internal/strict"
)

// local are parts of the configuration, beside those that are read at a start alone, that a node's own file says and
// no QuietcorePolicy: they name files of the node, and whom their contents are sent to.
func local() []string { return []string{"apiVersion", "kind", "cpi.specs"} }

// InPolicies reports whether a QuietcorePolicy may say a key, or some key below it.
func InPolicies(key string) bool {
	for _, p := range readAtStart() {
		if within(key, p.key) {
			return false
		}
	}
	for _, part := range local() {
		if within(key, part) {
			return false
		}
	}
	return true
}

func within(key, part string) bool { return key == part || strings.HasPrefix(key, part+".") }

// With is c with what a QuietcorePolicy says written over it: mappings key by key, lists as a whole. It is valid as a
// whole or refused as a whole, with every mistake named at once. It shares no memory with c.
func (c *Config) With(policy []byte) (*Config, error) {
	text, err := c.YAML()
	if err != nil {
		return nil, err
	}
	merged, err := Parse(text)
	if err != nil {
		return nil, err
	}
	decodeErr := strict.Unmarshal(policy, merged)
	v := &checker{}
	v.fields(merged)
	if decodeErr == nil {
		v.relations(merged)
	}
	if err := errors.Join(append([]error{decodeErr}, v.errs...)...); err != nil {
		return nil, err
	}
	changes, err := Changes(c, merged)
	if err != nil {
		return nil, err
	}
	var refused []error
	for _, change := range changes {
		switch {
		case !InPolicies(change.Key):
			refused = append(refused, fmt.Errorf("%s: only the node's own file may say it", change.Key))
		case change.Restart:
			refused = append(refused, fmt.Errorf("%s: takes effect after a restart only, on a node whose labels are "+
				"not read", change.Key))
		}
	}
	return merged, errors.Join(refused...)
}
