package machine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/e2e/kubelet"
)

const crioModule = "github.com/cri-o/cri-o"

// crioTools builds CRI-O without cgo: OpenPGP in Go, and none of the storage drivers
// that want a library. A guest's storage is the vfs driver's.
func crioTools() toolsModule {
	return toolsModule{
		Dir:  "hack/tools/crio",
		Tags: "containers_image_openpgp exclude_graphdriver_btrfs exclude_graphdriver_devicemapper",
	}
}

func crioKit() kit {
	return kit{
		programs: func(ctx context.Context, b *builder, d kubelet.Driver) (map[string]string, error) {
			return b.crioPrograms(ctx, d)
		},
		etc:    crioEtc,
		server: "/usr/bin/crio",
		socket: "/run/crio/crio.sock",
		data:   "/var/lib/containers",
		load:   []string{"loadimage", imageFile, Image},
		scope:  func(kubelet.Driver) string { return "crio-" },
	}
}

func (b *builder) crioPrograms(ctx context.Context, d kubelet.Driver) (map[string]string, error) {
	dir, err := b.crio(ctx)
	if err != nil {
		return nil, err
	}
	tree, err := b.conmon(ctx)
	if err != nil {
		return nil, err
	}
	from := map[string]string{"usr/bin/conmon": filepath.Join(tree, "usr/bin/conmon")}
	for _, name := range []string{"crio", "loadimage", "pinns"} {
		from["usr/bin/"+name] = filepath.Join(dir, name)
	}
	if d == kubelet.Systemd { // its root tree has the others
		const glib = "usr/lib/x86_64-linux-gnu/libglib-2.0.so.0"
		from[glib] = filepath.Join(tree, glib)
		return from, nil
	}
	for _, lib := range conmonLibraries {
		path, err := findLibrary(tree, lib)
		if err != nil {
			return nil, err
		}
		from["usr/lib/"+lib] = path
	}
	return from, nil
}

// crio builds CRI-O, its helper for namespaces, which is a C program of its module,
// and what gives its storage the image.
func (b *builder) crio(ctx context.Context) (string, error) {
	tools := crioTools()
	version, err := tools.version(ctx, crioModule)
	if err != nil {
		return "", err
	}
	return b.once("crio-"+version, func(tmp string) error {
		b.say("build CRI-O %s (about 5 minutes, once)", version)
		if err := tools.build(ctx, tmp, crioModule+"/cmd/crio", "./loadimage"); err != nil {
			return err
		}
		source, err := tools.source(ctx, crioModule)
		if err != nil {
			return err
		}
		files, err := filepath.Glob(filepath.Join(source, "pinns", "src", "*.c"))
		if err != nil {
			return err
		}
		// As in CRI-O's own Makefile.
		_, err = command(ctx, tmp, slices.Concat([]string{"cc", "-std=c99", "-Os", "-static", "-s", "-o", "pinns"},
			files)...)
		return err
	})
}

// conmonLibraries are what conmon is linked to beyond what runc is.
var conmonLibraries = []string{
	"libglib-2.0.so.0", "libpcre2-8.so.0", "libm.so.6", "libsystemd.so.0", "libcap.so.2", "libgcrypt.so.20",
	"libgpg-error.so.0", "liblz4.so.1", "liblzma.so.5", "libzstd.so.1",
}

// findLibrary looks where Debian's packages have them.
func findLibrary(tree, name string) (string, error) {
	var looked []string
	for _, dir := range []string{"usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"} {
		path := filepath.Join(tree, dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		looked = append(looked, path)
	}
	return "", fmt.Errorf("%s is in none of %s", name, strings.Join(looked, ", "))
}

func (b *builder) conmon(ctx context.Context) (string, error) {
	packages := []string{
		"conmon", "libglib2.0-0", "libpcre2-8-0", "libc6", "libsystemd0", "libcap2", "libgcrypt20",
		"libgpg-error0", "liblz4-1", "liblzma5", "libzstd1",
	}
	return b.once("conmon-tree-1", func(tmp string) error {
		b.say("download %s", strings.Join(packages, ", "))
		if err := b.download(ctx, tmp, packages...); err != nil {
			return err
		}
		return extractAll(ctx, tmp, tmp)
	})
}

// crioEtc are CRI-O's defaults but for: what a guest lacks (AppArmor's profiles,
// iptables, a storage driver that wants a module); conmon in the pod's cgroup, the only place
// that there is for both drivers; NRI's time, since under emulation one cgroup write
// can take longer than the default of 2s.
func crioEtc(d kubelet.Driver) map[string]string {
	runc := "/usr/bin/runc"
	if d == kubelet.Systemd {
		runc = "/usr/sbin/runc"
	}
	return map[string]string{
		"etc/crio/policy.json": `{"default": [{"type": "insecureAcceptAnything"}]}` + "\n",
		"etc/crio/crio.conf":   strings.NewReplacer("DRIVER", string(d), "RUNC", runc).Replace(crioTemplate),
	}
}

const crioTemplate = `[crio]
storage_driver = "vfs"
root = "/var/lib/containers/storage"
runroot = "/run/containers/storage"

[crio.runtime]
cgroup_manager = "DRIVER"
conmon_cgroup = "pod"
apparmor_profile = "unconfined"
disable_hostport_mapping = true
default_runtime = "runc"

[crio.runtime.runtimes.runc]
runtime_path = "RUNC"
runtime_type = "oci"
runtime_root = "/run/runc"
monitor_path = "/usr/bin/conmon"
monitor_cgroup = "pod"

[crio.image]
pause_image = "` + Image + `"
pause_command = ""
signature_policy = "/etc/crio/policy.json"

[crio.nri]
enable_nri = true
nri_plugin_registration_timeout = "1m"
nri_plugin_request_timeout = "30s"
`
