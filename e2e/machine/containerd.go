package machine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/quietcore/quietcore/e2e/kubelet"
)

// ContainerdVersion is the runtime in most guests.
const ContainerdVersion = "v2.4.2"

func containerdKit() kit {
	return kit{
		programs: func(ctx context.Context, b *builder, _ kubelet.Driver) (map[string]string, error) {
			return containerdPrograms(b.containerd(ctx))
		},
		etc:    containerdEtc(containerdTemplate),
		server: "/usr/bin/containerd",
		socket: containerdSocket,
		data:   "/var/lib/containerd",
		// --local, because containerd 2.4 otherwise finds no platform to unpack for with
		// this snapshotter.
		load:  []string{"ctr", "-n", "k8s.io", "images", "import", "--local", "--snapshotter", "native", imageFile},
		scope: containerdScope,
	}
}

// containerd17Kit differs in its configuration's version, in which NRI is off unless
// it says otherwise.
func containerd17Kit() kit {
	k := containerdKit()
	k.programs = func(ctx context.Context, b *builder, _ kubelet.Driver) (map[string]string, error) {
		return containerdPrograms(b.containerd17(ctx))
	}
	k.etc = containerdEtc(containerd17Template)
	return k
}

func containerdScope(d kubelet.Driver) string {
	if d == kubelet.Systemd {
		return "cri-containerd-"
	}
	return ""
}

func containerdPrograms(dir string, err error) (map[string]string, error) {
	if err != nil {
		return nil, err
	}
	from := map[string]string{}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		from["usr/bin/"+name] = filepath.Join(dir, name)
	}
	return from, nil
}

func (b *builder) containerd(ctx context.Context) (string, error) {
	return b.once("containerd-"+ContainerdVersion, func(tmp string) error {
		b.say("build containerd %s (about 90 s, once)", ContainerdVersion)
		argv := []string{"go", "install", "-p", "2", "-trimpath", "-ldflags", "-s -w"}
		for _, c := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
			argv = append(argv, "github.com/containerd/containerd/v2/cmd/"+c+"@"+ContainerdVersion)
		}
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Dir = tmp // outside any module's directory tree matters not: @version ignores go.mod
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOBIN="+tmp, "GOFLAGS=")
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("go install containerd: %w: %s", err, tail(out, 2000))
		}
		return nil
	})
}

func (b *builder) containerd17(ctx context.Context) (string, error) {
	const module = "github.com/containerd/containerd"
	tools := toolsModule{Dir: "hack/tools/containerd17"}
	version, err := tools.version(ctx, module)
	if err != nil {
		return "", err
	}
	return b.once("containerd-"+version, func(tmp string) error {
		b.say("build containerd %s (about 2 minutes, once)", version)
		return tools.build(ctx, tmp, module+"/cmd/containerd", module+"/cmd/containerd-shim-runc-v2", module+"/cmd/ctr")
	})
}

// toolsModule pins programs in a go.mod of their own, where go install cannot build
// them: what the main module must not depend on is there.
type toolsModule struct {
	Dir  string // from the root of this module
	Tags string
}

func (t toolsModule) version(ctx context.Context, module string) (string, error) {
	return t.list(ctx, "{{.Version}}", module)
}

// source is the directory with the module's files, which it downloads if need be.
func (t toolsModule) source(ctx context.Context, module string) (string, error) {
	if _, err := command(ctx, t.Dir, "go", "mod", "download", module); err != nil {
		return "", err
	}
	return t.list(ctx, "{{.Dir}}", module)
}

func (t toolsModule) list(ctx context.Context, format, module string) (string, error) {
	out, err := command(ctx, t.Dir, "go", "list", "-m", "-f", format, module)
	if err != nil {
		return "", fmt.Errorf("%s in %s: %w", module, t.Dir, err)
	}
	return strings.TrimSpace(out), nil
}

func (t toolsModule) build(ctx context.Context, into string, packages ...string) error {
	argv := append([]string{"build", "-p", "2", "-trimpath", "-tags", t.Tags, "-ldflags", "-s -w", "-o", into + "/"},
		packages...)
	cmd := exec.CommandContext(ctx, "go", argv...)
	cmd.Dir = t.Dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s in %s: %w: %s", strings.Join(packages, " "), t.Dir, err, tail(out, 2000))
	}
	return nil
}

func containerdEtc(template string) func(kubelet.Driver) map[string]string {
	return func(d kubelet.Driver) map[string]string {
		return map[string]string{
			"etc/containerd/config.toml": strings.Replace(template, "DRIVER", strconv.FormatBool(d == kubelet.Systemd),
				1),
		}
	}
}

const containerdTemplate = `version = 4

[debug]
  level = 'info'

[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'native'

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '` + Image + `'

[plugins.'io.containerd.cri.v1.runtime']
  disable_apparmor = true

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
  snapshotter = 'native'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = DRIVER
` + containerdNRI

// containerdNRI: under emulation one cgroup write can take longer than the default
// of 2s.
const containerdNRI = `
[plugins.'io.containerd.nri.v1.nri']
  disable = false
  plugin_registration_timeout = '1m'
  plugin_request_timeout = '30s'
`

const containerd17Template = `version = 2

[debug]
  level = 'info'

[plugins.'io.containerd.grpc.v1.cri']
  sandbox_image = '` + Image + `'
  disable_apparmor = true

[plugins.'io.containerd.grpc.v1.cri'.containerd]
  snapshotter = 'native'

[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
  snapshotter = 'native'

[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc.options]
  SystemdCgroup = DRIVER
` + containerdNRI
