package machine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"syscall"
)

// ContainerdVersion is the runtime in the guests.
const ContainerdVersion = "v2.4.2"

// Assets are the cached parts of a machine.
type Assets struct {
	Kernel string // path of the bzImage
	Base   string // path of the cpio archive
}

// builder makes what is missing below dir and says so.
type builder struct {
	dir      string
	progress io.Writer
}

func (b *builder) say(format string, args ...any) {
	fmt.Fprintf(b.progress, "e2e: "+format+"\n", args...)
}

// Build makes the cache complete. Two runs at once wait for each other.
func Build(ctx context.Context, dir string, progress io.Writer) (*Assets, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	b := &builder{dir: dir, progress: progress}
	kernel, err := b.kernel(ctx)
	if err != nil {
		return nil, err
	}
	tree, err := b.debianTree(ctx)
	if err != nil {
		return nil, err
	}
	runtime, err := b.containerd(ctx)
	if err != nil {
		return nil, err
	}
	base, err := b.base(kernel, tree, runtime)
	if err != nil {
		return nil, err
	}
	return &Assets{Kernel: filepath.Join(kernel, "vmlinuz"), Base: base}, nil
}

// once makes a directory in the cache by filling a temporary one and renaming it,
// so that an interrupted build leaves nothing that looks complete.
func (b *builder) once(name string, fill func(tmp string) error) (string, error) {
	final := filepath.Join(b.dir, name)
	if _, err := os.Stat(final); err == nil {
		return final, nil
	}
	tmp, err := os.MkdirTemp(b.dir, "making-"+name+"-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := fill(tmp); err != nil {
		return "", fmt.Errorf("make %s: %w", name, err)
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", err
	}
	return final, os.Rename(tmp, final)
}

func command(ctx context.Context, dir string, argv ...string) (string, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// download asks apt again after refreshing its lists: on a fresh host they are
// empty, and on an old one they name versions that are gone.
func (b *builder) download(ctx context.Context, dir string, packages ...string) error {
	argv := append([]string{"apt-get", "download", "-q"}, packages...)
	if _, err := command(ctx, dir, argv...); err == nil {
		return nil
	}
	b.say("apt-get update")
	if _, err := command(ctx, dir, "apt-get", "update", "-q"); err != nil {
		return err
	}
	_, err := command(ctx, dir, argv...)
	return err
}

func extractAll(ctx context.Context, dir, into string) error {
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return err
	}
	for _, d := range debs {
		if _, err := command(ctx, dir, "dpkg-deb", "-x", d, into); err != nil {
			return err
		}
		if err := os.Remove(d); err != nil {
			return err
		}
	}
	return nil
}

var kernelPackage = regexp.MustCompile(`^linux-image-6\.1\.0-(\d+)-cloud-amd64$`)

// newestKernel is the signed kernel with the highest ABI number that apt knows.
func (b *builder) newestKernel(ctx context.Context) (string, error) {
	for attempt := range 2 {
		out, err := command(ctx, b.dir, "apt-cache", "pkgnames", "linux-image-6.1.0-")
		if err != nil {
			return "", err
		}
		best, newest := "", -1
		for _, name := range strings.Fields(out) {
			if m := kernelPackage.FindStringSubmatch(name); m != nil {
				if abi, err := strconv.Atoi(m[1]); err == nil && abi > newest {
					best, newest = name, abi
				}
			}
		}
		if best != "" {
			return best, nil
		}
		if attempt == 0 {
			b.say("apt-get update")
			if _, err := command(ctx, b.dir, "apt-get", "update", "-q"); err != nil {
				return "", err
			}
		}
	}
	return "", errors.New("apt knows no linux-image-6.1.0-N-cloud-amd64: the guests need Debian 12's package lists")
}

// modules are what the agent's port needs, in the order in which they depend on
// each other.
var modules = []string{"virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_console"}

// kernel keeps using the one that is cached: asking apt takes longer than a boot
// step and would make a run depend on the network.
func (b *builder) kernel(ctx context.Context) (string, error) {
	have, err := filepath.Glob(filepath.Join(b.dir, "linux-image-*"))
	if err != nil {
		return "", err
	}
	if len(have) > 0 {
		sort.Strings(have)
		return have[len(have)-1], nil
	}
	name, err := b.newestKernel(ctx)
	if err != nil {
		return "", err
	}
	b.say("download %s", name)
	return b.once(name, func(tmp string) error {
		if err := b.download(ctx, tmp, name); err != nil {
			return err
		}
		tree := filepath.Join(tmp, "tree")
		if err := extractAll(ctx, tmp, tree); err != nil {
			return err
		}
		defer os.RemoveAll(tree)
		images, err := filepath.Glob(filepath.Join(tree, "boot", "vmlinuz-*"))
		if err != nil || len(images) != 1 {
			return fmt.Errorf("%s holds kernels %v, want one", name, images)
		}
		if err := os.Rename(images[0], filepath.Join(tmp, "vmlinuz")); err != nil {
			return err
		}
		return pickModules(tree, tmp)
	})
}

func pickModules(tree, into string) error {
	wanted := map[string]bool{}
	for _, m := range modules {
		wanted[m+".ko"] = true
	}
	err := filepath.WalkDir(filepath.Join(tree, "lib", "modules"), func(p string, d fs.DirEntry, err error) error {
		if err == nil && wanted[d.Name()] {
			delete(wanted, d.Name())
			return os.Rename(p, filepath.Join(into, d.Name()))
		}
		return err
	})
	if err == nil && len(wanted) > 0 {
		return fmt.Errorf("the kernel package lacks the modules %v", wanted)
	}
	return err
}

// debianTree holds busybox and runc with the libraries that runc is linked to.
func (b *builder) debianTree(ctx context.Context) (string, error) {
	packages := []string{"busybox-static", "runc", "libseccomp2", "libc6"}
	return b.once("debian-tree-1", func(tmp string) error {
		b.say("download %s", strings.Join(packages, ", "))
		if err := b.download(ctx, tmp, packages...); err != nil {
			return err
		}
		return extractAll(ctx, tmp, tmp)
	})
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

func tail(data []byte, n int) string {
	if len(data) > n {
		data = data[len(data)-n:]
	}
	return strings.TrimSpace(string(data))
}

// base writes the archive that all machines share.
func (b *builder) base(kernel, tree, runtime string) (string, error) {
	files, err := baseFiles(kernel, tree, runtime)
	if err != nil {
		return "", err
	}
	var buf bytes.Buffer
	c := newCpio(&buf)
	for _, d := range []string{"dev", "proc", "sys", "run", "tmp", "root", "var/log", "var/run", "opt/nri/plugins", "etc/nri/conf.d", "newroot"} {
		c.dir(d)
	}
	c.char("dev/console", deviceNumber{5, 1})
	c.char("dev/null", deviceNumber{1, 3})
	for _, f := range files {
		if f.link != "" {
			c.link(f.name, f.link)
			continue
		}
		c.file(f.name, fs.FileMode(f.mode), f.data)
	}
	c.files(0o644, guestEtc)
	if err := c.close(); err != nil {
		return "", err
	}
	sum := sha256.Sum256(buf.Bytes())
	name := filepath.Join(b.dir, fmt.Sprintf("base-%x.cpio", sum[:8]))
	if info, err := os.Stat(name); err == nil && info.Size() == int64(buf.Len()) {
		return name, nil
	}
	b.say("write the base archive, %d MB", buf.Len()>>20)
	old, _ := filepath.Glob(filepath.Join(b.dir, "base-*.cpio"))
	for _, o := range old {
		_ = os.Remove(o) // an archive of former versions only takes space
	}
	return name, os.WriteFile(name, buf.Bytes(), 0o644)
}

// baseFiles reads what goes into the base under the names that it has there.
func baseFiles(kernel, tree, runtime string) ([]tarFile, error) {
	from := map[string]string{
		"usr/bin/busybox":                 filepath.Join(tree, "bin/busybox"),
		"usr/bin/runc":                    filepath.Join(tree, "usr/sbin/runc"),
		"lib64/ld-linux-x86-64.so.2":      filepath.Join(tree, "lib64/ld-linux-x86-64.so.2"),
		"usr/lib/libc.so.6":               filepath.Join(tree, "lib/x86_64-linux-gnu/libc.so.6"),
		"usr/lib/libseccomp.so.2":         filepath.Join(tree, "usr/lib/x86_64-linux-gnu/libseccomp.so.2"),
		"usr/bin/containerd":              filepath.Join(runtime, "containerd"),
		"usr/bin/containerd-shim-runc-v2": filepath.Join(runtime, "containerd-shim-runc-v2"),
		"usr/bin/ctr":                     filepath.Join(runtime, "ctr"),
	}
	for _, m := range modules {
		from["lib/modules/"+m+".ko"] = filepath.Join(kernel, m+".ko")
	}
	names := make([]string, 0, len(from))
	for n := range from {
		names = append(names, n)
	}
	sort.Strings(names)
	var out []tarFile
	for _, n := range names {
		data, err := readThroughLinks(tree, from[n])
		if err != nil {
			return nil, err
		}
		out = append(out, tarFile{name: n, mode: 0o755, data: data})
		if n == "usr/bin/busybox" {
			image, err := imageTarball(data)
			if err != nil {
				return nil, err
			}
			out = append(out, tarFile{name: "usr/share/image.tar", mode: 0o644, data: image})
		}
	}
	links, err := appletLinks(from["usr/bin/busybox"])
	return append(out, links...), err
}

// readThroughLinks resolves a package's absolute links inside the tree, where
// they would point if it were installed.
func readThroughLinks(tree, name string) ([]byte, error) {
	for range 10 {
		target, err := os.Readlink(name)
		if err != nil {
			return os.ReadFile(name)
		}
		if filepath.IsAbs(target) {
			name = filepath.Join(tree, target)
		} else {
			name = filepath.Join(filepath.Dir(name), target)
		}
	}
	return nil, fmt.Errorf("%s: too many links", name)
}

func appletLinks(busybox string) ([]tarFile, error) {
	out, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("busybox --list: %w", err)
	}
	var links []tarFile
	for _, a := range strings.Fields(string(out)) {
		if a != "busybox" && a != "runc" {
			links = append(links, tarFile{name: "usr/bin/" + a, link: "busybox"})
		}
	}
	return append(links,
		tarFile{name: "bin", link: "usr/bin"},
		tarFile{name: "sbin", link: "usr/bin"},
		tarFile{name: "lib/x86_64-linux-gnu", link: "/usr/lib"}), nil
}
