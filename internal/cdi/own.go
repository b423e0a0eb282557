package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/google/renameio/v2"

	"github.com/quietcore/quietcore/policy"
)

// Own are the specs of the claims of Quietcore's own driver, one file a claim. By their devices the runtime knows which
// container has which request of a claim. They name no CPUs, and nothing is read from them: the policy knows the CPUs.
type Own struct{ Dir string }

// ownPrefix begins the names of the files, ownSuffix ends them.
const (
	ownPrefix = "quietcore.dev-cpu-"
	ownSuffix = ".json"
)

// ownSpec is a spec as it is written. Version 0.5.0 is the first in which a device's name may begin with a digit.
type ownSpec struct {
	Version string      `json:"cdiVersion"`
	Kind    string      `json:"kind"`
	Devices []ownDevice `json:"devices"`
}

type ownDevice struct {
	Name  string `json:"name"`
	Edits struct {
		Env []string `json:"env"`
	} `json:"containerEdits"`
}

// Write writes the spec of a claim with that many requests, atomically and durably.
func (o *Own) Write(uid string, requests int) error {
	path, err := o.path(uid)
	if err != nil {
		return err
	}
	s := ownSpec{Version: "0.5.0", Kind: policy.ClaimKind}
	for i := range requests {
		_, name, _ := strings.Cut(policy.ClaimDevice(uid, i), "=")
		d := ownDevice{Name: name}
		// Runtimes refuse a device without edits. Nobody reads this variable, and it says nothing that changes.
		variable := "QUIETCORE_CLAIM_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		d.Edits.Env = []string{variable + "=given"}
		s.Devices = append(s.Devices, d)
	}
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("CDI spec of claim %s: %w", uid, err)
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return fmt.Errorf("CDI spec of claim %s: %w", uid, err)
	}
	if err := renameio.WriteFile(path, append(text, '\n'), 0o644, renameio.WithTempDir(o.Dir),
		renameio.IgnoreUmask()); err != nil {
		return fmt.Errorf("CDI spec of claim %s: %w", uid, err)
	}
	return nil
}

// Remove removes the spec of a claim, if there is one.
func (o *Own) Remove(uid string) error {
	path, err := o.path(uid)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("CDI spec of claim %s: %w", uid, err)
	}
	return nil
}

// path refuses what is no UID, of which a file's name is made.
func (o *Own) path(uid string) (string, error) {
	if !regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?$`).MatchString(uid) {
		return "", fmt.Errorf("CDI spec: %.70q is no UID of a claim", uid)
	}
	return filepath.Join(o.Dir, ownPrefix+uid+ownSuffix), nil
}
