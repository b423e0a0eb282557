package main

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/internal/cli"
)

func TestEnableNRI(t *testing.T) {
	const off = "version = 2\n[plugins.\"io.containerd.nri.v1.nri\"]\n  disable = true\n"
	for name, c := range map[string]struct {
		args   []string
		files  map[string]string
		listen bool
		out    []string // parts of the output
		err    string
		usage  bool
		wrote  bool
	}{
		"a dry run writes nothing": {args: []string{"--runtime", "containerd"},
			files: map[string]string{"/etc/containerd/config.toml": off},
			out:   []string{"-  disable = true", "+  disable = false", "nothing was written"}},
		"apply": {args: []string{"--apply"}, files: map[string]string{"/etc/containerd/config.toml": off,
			"/run/containerd/containerd.sock": ""}, out: []string{"config.toml.before-quietcore",
			"takes effect when containerd is restarted"}, wrote: true},
		"it listens": {args: []string{"--runtime", "containerd", "--apply"},
			files: map[string]string{"/etc/containerd/config.toml": "version = 3\n"}, listen: true,
			out: []string{"NRI is on: containerd listens"}},
		"it listens until the next restart": {args: []string{"--runtime", "containerd", "--apply"},
			files: map[string]string{"/etc/containerd/config.toml": off}, listen: true,
			out: []string{"NRI is on until containerd is restarted", "config.toml.before-quietcore"}, wrote: true},
		"it listens, and nobody knows why": {args: []string{"--runtime", "containerd", "--apply"},
			files: map[string]string{"/etc/containerd/config.toml": "version = 9\n"}, listen: true,
			out: []string{"NRI is on: containerd listens", "not to be seen"}},
		"on, but not restarted": {args: []string{"--runtime", "containerd"},
			files: map[string]string{"/etc/containerd/config.toml": "version = 3\n"},
			out:   []string{"nothing to do", "restart containerd"}},
		"no runtime": {err: "say --runtime"},
		"both runtimes": {files: map[string]string{"/run/containerd/containerd.sock": "",
			"/run/crio/crio.sock": ""}, err: "both containerd and CRI-O"},
		"CRI-O by its socket": {args: []string{"--runtime-version", "1.29.1"},
			files: map[string]string{"/run/crio/crio.sock": ""},
			out:   []string{"+++ /etc/crio/crio.conf.d/99-quietcore-nri.conf", "enable_nri = true"}},
		"Docker": {args: []string{"--runtime", "docker"}, err: "must be containerd or cri-o",
			usage: true},
		"both ways":       {args: []string{"--apply", "--dry-run"}, err: "exclude each other", usage: true},
		"too long a time": {args: []string{"--request-timeout", "5m"}, err: "between 0 and 1m", usage: true},
		"a relative directory": {args: []string{"--runtime", "cri-o", "--config-dir", "etc"}, err: "must be absolute",
			usage: true},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range c.files {
				name = filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if c.listen {
				l, err := net.Listen("unix", filepath.Join(root, "nri.sock"))
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
			}
			cmd := newEnableNRI()
			var out bytes.Buffer
			cmd.SetOut(&out)
			cmd.SetArgs(append(c.args, "--root", root, "--nri-socket", "/nri.sock"))
			cmd.SilenceUsage, cmd.SilenceErrors = true, true
			err := cmd.Execute()
			var wrong cli.UsageError
			switch {
			case c.err == "" && err != nil:
				t.Fatal(err)
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) ||
				errors.As(err, &wrong) != c.usage):
				t.Fatalf("got %v, want an error with %q", err, c.err)
			}
			for _, o := range c.out {
				if !strings.Contains(out.String(), o) {
					t.Errorf("no %q in\n%s", o, out.String())
				}
			}
			for name, text := range c.files {
				now, err := os.ReadFile(filepath.Join(root, name))
				if err != nil {
					t.Fatal(err)
				}
				if changed := string(now) != text; changed && !c.wrote {
					t.Errorf("%s was changed", name)
				}
			}
		})
	}
}
