package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/internal/cli"
	"github.com/quietcore/quietcore/internal/doctor/bundle"
)

func unpack(t *testing.T, text []byte) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(zip); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(h.Name, "quietcore-bundle/")] = string(b)
	}
}

func TestBundleHasWhatAReportNeedsAndNoSecret(t *testing.T) {
	t.Setenv("MY_SECRET_TOKEN", "s3cret-of-the-environment")
	socket, _, _ := talking(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	kubeconfig := write("kubeconfig",
		`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: `+
			`"http://127.0.0.1:1"}}], users: [{name: u, user: {token: s3cret-of-the-user}}], contexts: [{name: c, `+
			`context: {cluster: c, user: u}}]}`)
	config := write("config.yaml",
		fmt.Sprintf(
			"apiVersion: quietcore.dev/v1alpha1\nnode: {name: node-of-shop}\nlisten: \"\"\ncpi: {mode: "+
				"\"off\"}\nkubernetes: {kubeconfig: %s}\nauthority: {exclusive: {maxCPUs: {shop: 8}}}\n", kubeconfig))
	file := filepath.Join(dir, "b.tar.gz")
	code, out, errs := call("bundle", "--config", config, "--socket", socket, file)
	if code != 0 || !strings.Contains(out, file) || !strings.Contains(out, "could not be had: ") {
		t.Fatalf("exit %d, %s%s", code, out, errs)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	files := unpack(t, text)
	var m bundle.Manifest
	if err := json.Unmarshal([]byte(files[bundle.ManifestName]), &m); err != nil || m.Hashed || m.Version != version {
		t.Fatalf("%v, %+v", err, m)
	}
	missing := map[string]string{}
	for _, e := range m.Files {
		if e.Missing != "" {
			missing[e.Name] = e.Missing
		} else if len(files[e.Name]) != e.Bytes {
			t.Errorf("%s has %d bytes, the manifest says %d", e.Name, len(files[e.Name]), e.Bytes)
		}
	}
	for _, name := range []string{"version.json", "doctor.json", "config.json", "status.json", "top.json",
		"record.json", "topology.json", "topology.txt", "kernel.txt", "cmdline.txt"} {
		if files[name] == "" {
			t.Errorf("%s is not there: %s", name, missing[name])
		}
	}
	if missing["metrics.txt"] == "" || missing["incidents.json"] == "" {
		t.Errorf("what cannot be had is not listed: %v", missing)
	}
	if !strings.Contains(files["status.json"], "shop") {
		t.Error("names are hashed although nobody asked for it")
	}
	for name, text := range files {
		if strings.Contains(text, "s3cret") || strings.Contains(text, "MY_SECRET") {
			t.Errorf("%s has a secret in it", name)
		}
	}
}

func TestBundleHashesNames(t *testing.T) {
	socket, _, _ := talking(t)
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config,
		[]byte("apiVersion: quietcore.dev/v1alpha1\nnode: {name: node-of-shop}\nlisten: \"\"\ncpi: {mode: "+
			"\"off\"}\nauthority: {exclusive: {maxCPUs: {shop: 8}}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := call("bundle", "--config", config, "--socket", socket, "--hash-names", "-")
	if code != 0 {
		t.Fatalf("exit %d, %s", code, errs)
	}
	for name, text := range unpack(t, []byte(out)) {
		for _, secret := range []string{"shop", `"web"`, "web suffered", "batch\"", "node-of"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s has %q in it", name, secret)
			}
		}
	}
}

func TestBundlesFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"at most one argument": {"a", "b"}, "is not there": {"--config", "/none.yaml"},
	} {
		if code, _, errs := call(append([]string{"bundle"}, args...)...); code != cli.Wrong ||
			!strings.Contains(errs, want) {
			t.Errorf("%v: exit %d, %s", args, code, errs)
		}
	}
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("apiVersion: quietcore.dev/v1alpha1\nx: y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := call("bundle", "--config", bad, "-")
	if code != 0 || !strings.Contains(unpack(t, []byte(out))[bundle.ManifestName], "unknown key") {
		t.Errorf("with a bad configuration: exit %d, %s", code, errs)
	}
	if code, _, errs := call("bundle", "--config", bad, "/proc/none/b.tar.gz"); code != cli.Failed {
		t.Errorf("where nothing can be written: exit %d, %s", code, errs)
	}
}

// What a daemon has recorded replays with hashed names too.
func TestAHashedRecordReplays(t *testing.T) {
	p := newPlace(t, "node: {name: till-7, labels: {node.koordinator.sh/cpu-bind-policy: FullPCPUsOnly}}")
	p.start(t)
	code, out, errs := call("bundle", "--config", p.config, "--hash-names", "-")
	if code != 0 {
		t.Fatalf("exit %d, %s", code, errs)
	}
	files := unpack(t, []byte(out))
	for name, text := range files {
		if strings.Contains(text, "till-7") {
			t.Errorf("%s has the Node's name", name)
		}
	}
	record := filepath.Join(t.TempDir(), "record.json")
	if err := os.WriteFile(record, []byte(files["record.json"]), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := call("simulate", record); code != 0 {
		t.Errorf("exit %d, %s\n%s", code, errs, files["record.json"])
	}
}
