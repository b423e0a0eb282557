package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/quietcore/quietcore/hack/image/build"
)

const syft = "github.com/anchore/syft/cmd/syft@v1.52.0"

// Suffixes of a binary's bills of materials.
const (
	spdxSuffix      = ".spdx.json"
	cyclonedxSuffix = ".cdx.json"
)

// writeBills lists what a binary is made of, in both formats, by syft. What it draws
// anew each time, the clock's and a random number's, is the commit's and the name's here.
func writeBills(ctx context.Context, source build.Source, dist, binary string) error {
	env := append(toolEnv(), "SYFT_CHECK_FOR_APP_UPDATE=false")
	if err := command(ctx, dist, env, "go", "run", syft, "scan", "--quiet",
		"--source-name", binary, "--source-version", source.Version,
		"-o", "spdx-json="+binary+spdxSuffix, "-o", "cyclonedx-json="+binary+cyclonedxSuffix, "file:"+
			binary); err != nil {
		return err
	}
	for _, suffix := range []string{spdxSuffix, cyclonedxSuffix} {
		if err := forget(dist, binary+suffix); err != nil {
			return err
		}
	}
	at := source.Date.Format(time.RFC3339)
	space := "https://quietcore.dev/spdx/" + source.Version + "/" + binary
	if err := settle(filepath.Join(dist, binary+spdxSuffix), map[string]string{
		"documentNamespace": space, "creationInfo.created": at,
	}); err != nil {
		return err
	}
	return settle(filepath.Join(dist, binary+cyclonedxSuffix), map[string]string{
		"serialNumber": "urn:uuid:" + uuid.NewSHA1(uuid.NameSpaceURL, []byte(space)).String(), "metadata.timestamp": at,
	})
}

// forget takes the folder out of the paths of a bill that lies in it: it exists on this machine only.
func forget(dist, name string) error {
	resolved, err := filepath.EvalSymlinks(dist)
	if err != nil {
		return err
	}
	name = filepath.Join(dist, name)
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	for _, dir := range []string{dist, resolved} {
		quoted, err := json.Marshal(dir + string(filepath.Separator))
		if err != nil {
			return err
		}
		text = bytes.ReplaceAll(text, quoted[1:len(quoted)-1], nil)
	}
	return os.WriteFile(name, text, 0o644)
}

// settle sets keys of a JSON file, which must be there: else syft writes something else
// than what is known here.
func settle(name string, values map[string]string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var bill map[string]any
	if err := json.Unmarshal(text, &bill); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	for key, value := range values {
		object, last := bill, key
		if outer, inner, ok := strings.Cut(key, "."); ok {
			object, _ = bill[outer].(map[string]any)
			last = inner
		}
		if _, ok := object[last].(string); !ok {
			return fmt.Errorf("%s has no %s that could be set", filepath.Base(name), key)
		}
		object[last] = value
	}
	if text, err = json.MarshalIndent(bill, "", " "); err != nil {
		return err
	}
	return os.WriteFile(name, append(text, '\n'), 0o644)
}
