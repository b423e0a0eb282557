package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestKrewTakesThePlugin: krew's own program finds nothing wrong with the manifest, refuses it for an archive of
// another release, and installs the plugin of this machine's platform with its licence.
func TestKrewTakesThePlugin(t *testing.T) {
	ctx, source := context.Background(), small(t)
	dist := draft(t, source, "v1.2.3")
	tools := t.TempDir()
	if err := command(ctx, "", append(toolEnv(), "GOBIN="+tools), "go", "install", krewValidator,
		krewInstaller); err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(dist, krewManifest)
	if err := command(ctx, "", nil, filepath.Join(tools, "validate-krew-manifest"), "-skip-install", "-manifest",
		manifest); err != nil {
		t.Error(err)
	}

	install := func(archive string) (root string, err error) {
		root = t.TempDir()
		env := []string{"KREW_ROOT=" + root, "KREW_OS=linux", "KREW_ARCH=" + runtime.GOARCH, "KREW_NO_UPGRADE_CHECK=1"}
		return root, command(ctx, "", env, filepath.Join(tools, "krew"), "install", "--manifest", manifest, "--archive",
			archive)
	}
	archive := krewArchive("linux/" + runtime.GOARCH)
	root, err := install(filepath.Join(dist, archive))
	if err != nil {
		t.Fatal(err)
	}
	store := filepath.Join(root, "store", "quietcore", "v1.2.3")
	if _, err := os.Stat(filepath.Join(store, "LICENSE")); err != nil {
		t.Error(err)
	}
	out, err := exec.Command(filepath.Join(root, "bin", plugin)).CombinedOutput()
	if err != nil || string(out) != "v1.2.3\n" {
		t.Errorf("the plugin that krew installed says %q, %v", out, err)
	}
	if _, err := install(filepath.Join(draft(t, source, "v1.2.4"), archive)); err == nil ||
		!strings.Contains(err.Error(), "checksum") {
		t.Errorf("krew installs the archive of another release: %v", err)
	}
}
