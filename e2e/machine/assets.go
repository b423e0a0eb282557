package machine

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"syscall"

	"github.com/quietcore/quietcore/e2e/kubelet"
)

// Assets are the cached parts of a machine.
type Assets struct {
	Kernel string   // path of the bzImage
	Base   []string // paths of cpio archives, in the order in which they unpack
}

// builder makes what is missing below dir and says so.
type builder struct {
	dir      string
	progress io.Writer
	apt      []string // options of apt, for packages of another architecture
}

func (b *builder) say(format string, args ...any) {
	fmt.Fprintf(b.progress, "e2e: "+format+"\n", args...)
}

// Kind is what guests share the base archive of.
type Kind struct {
	Driver  kubelet.Driver
	Runtime Runtime
	Suite   Suite
}

// Build makes the cache complete for guests of a kind. Two runs at once wait for
// each other.
func Build(ctx context.Context, dir string, kind Kind, progress io.Writer) (*Assets, error) {
	return locked(dir, progress, func(b *builder) (*Assets, error) { return b.build(ctx, kind) })
}

// locked gives the cache to one builder at a time, of this run and of others.
func locked[T any](dir string, progress io.Writer, do func(*builder) (T, error)) (out T, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return out, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return out, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return out, err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return out, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	b := &builder{dir: dir, progress: progress}
	if err := b.clear(); err != nil {
		return out, err
	}
	return do(b)
}

func (b *builder) build(ctx context.Context, kind Kind) (*Assets, error) {
	kernel, err := b.kernelOf(ctx, kind.Suite)
	if err != nil {
		return nil, err
	}
	tree, err := b.debianTree(ctx)
	if err != nil {
		return nil, err
	}
	programs, err := kind.Runtime.kit().programs(ctx, b, kind.Driver)
	if err != nil {
		return nil, err
	}
	assets := &Assets{Kernel: filepath.Join(kernel, "vmlinuz")}
	if kind.Driver == kubelet.Systemd {
		root, err := b.systemdRoot(ctx)
		if err != nil {
			return nil, err
		}
		assets.Base = append(assets.Base, filepath.Join(root, rootArchive))
	}
	base, err := b.base(kind, parts{kernel: kernel, tree: tree, programs: programs})
	if err != nil {
		return nil, err
	}
	assets.Base = append(assets.Base, base)
	return assets, nil
}

const making = "making-"

// clear removes what a killed run was making: while the lock is held, no run is.
func (b *builder) clear() error {
	left, err := filepath.Glob(filepath.Join(b.dir, making+"*"))
	if err != nil {
		return err
	}
	for _, l := range left {
		if err := os.RemoveAll(l); err != nil {
			return err
		}
	}
	return nil
}

// once makes a directory in the cache by filling a temporary one and renaming it,
// so that an interrupted build leaves nothing that looks complete.
func (b *builder) once(name string, fill func(tmp string) error) (string, error) {
	final := filepath.Join(b.dir, name)
	if _, err := os.Stat(final); err == nil {
		return final, nil
	}
	tmp, err := os.MkdirTemp(b.dir, making+name+"-")
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
	argv := slices.Concat([]string{"apt-get", "download", "-q"}, b.apt, packages)
	if _, err := command(ctx, dir, argv...); err == nil {
		return nil
	}
	if err := b.refresh(ctx); err != nil {
		return err
	}
	_, err := command(ctx, dir, argv...)
	return err
}

func (b *builder) refresh(ctx context.Context) error {
	b.say("apt-get update")
	_, err := command(ctx, b.dir, slices.Concat([]string{"apt-get", "update", "-q"}, b.apt)...)
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

// Architectures of the guests' kernels, in Debian's and Go's words.
const (
	AMD64 = "amd64"
	ARM64 = "arm64"
)

// Suite is a release of Debian.
type Suite string

// The suites whose cloud kernels guests boot.
const (
	Bullseye Suite = "bullseye" // Linux 5.10
	Bookworm Suite = "bookworm" // 6.1, the kernel of all other guests
	Trixie   Suite = "trixie"   // 6.12
)

// Flag defines -kernel, which is Bookworm's unless it is given.
func (s *Suite) Flag(f *flag.FlagSet) {
	*s = Bookworm
	f.Func("kernel", "boot the kernel of Debian's `suite`: bullseye (5.10), bookworm (6.1, the default) or trixie "+
		"(6.12)",
		func(text string) error {
			if all := []Suite{Bullseye, Bookworm, Trixie}; !slices.Contains(all, Suite(text)) {
				return fmt.Errorf("must be one of %v", all)
			}
			*s = Suite(text)
			return nil
		})
}

// kernelPackage matches the names of a suite's signed cloud kernels. What counts them up is the
// only group.
func kernelPackage(suite Suite, arch string) *regexp.Regexp {
	version := `6\.1\.0-(\d+)`
	switch suite {
	case Bullseye:
		version = `5\.10\.0-(\d+)`
	case Trixie:
		version = `6\.12\.(\d+)\+deb13`
	}
	return regexp.MustCompile(`^linux-image-` + version + `-cloud-` + arch + `$`)
}

// newestKernel is the signed kernel with the highest number that apt knows.
func (b *builder) newestKernel(ctx context.Context, suite Suite, arch string) (string, error) {
	kernelPackage := kernelPackage(suite, arch)
	for attempt := range 2 {
		out, err := command(ctx, b.dir, slices.Concat([]string{"apt-cache", "pkgnames"}, b.apt,
			[]string{"linux-image-"})...)
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
			if err := b.refresh(ctx); err != nil {
				return "", err
			}
		}
	}
	return "", fmt.Errorf("apt knows no package %s: the guests need Debian's package lists (%s)", kernelPackage, suite)
}

// modules are what the agent's port needs, in the order in which they depend on
// each other.
var modules = []string{"virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci",
	"virtio_console"}

// modulesOf5x10 are those of 5.10, where virtio_pci is one module.
var modulesOf5x10 = []string{"virtio_ring", "virtio", "virtio_pci", "virtio_console"}

// kernelOf is a suite's kernel with the modules that are not built in. 6.12 has all built in.
func (b *builder) kernelOf(ctx context.Context, suite Suite) (string, error) {
	switch suite {
	case Bookworm:
		return b.kernel(ctx)
	case Bullseye:
		return b.foreignKernel(ctx, suite, AMD64, modulesOf5x10)
	}
	return b.foreignKernel(ctx, suite, AMD64, nil)
}

// kernel keeps using the one that is cached: asking apt takes longer than a boot
// step and would make a run depend on the network.
func (b *builder) kernel(ctx context.Context) (string, error) {
	have, err := b.cached("linux-image-*")
	if err != nil || have != "" {
		return have, err
	}
	name, err := b.newestKernel(ctx, Bookworm, AMD64)
	if err != nil {
		return "", err
	}
	return b.once(name, func(tmp string) error { return b.unpackKernel(ctx, tmp, name, modules) })
}

// cached is the newest of what is in the cache by such names, or empty.
func (b *builder) cached(pattern string) (string, error) {
	have, err := filepath.Glob(filepath.Join(b.dir, pattern))
	if err != nil || len(have) == 0 {
		return "", err
	}
	sort.Strings(have)
	return have[len(have)-1], nil
}

func (b *builder) unpackKernel(ctx context.Context, tmp, name string, modules []string) error {
	b.say("download %s", name)
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
	return pickModules(tree, tmp, modules)
}

// foreignKernel is a kernel of another architecture or suite than the host's. apt has lists of its own for it: those of
// the host stay as they are.
func (b *builder) foreignKernel(ctx context.Context, suite Suite, arch string, modules []string) (string, error) {
	prefix := arch + "-"
	if len(modules) > 0 {
		prefix = "modules-" + prefix
	}
	if suite != Bookworm {
		prefix += string(suite) + "-"
	}
	have, err := b.cached(prefix + "linux-image-*")
	if err != nil || have != "" {
		return have, err
	}
	lists, err := os.MkdirTemp(b.dir, making+"apt-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(lists)
	if err := os.MkdirAll(filepath.Join(lists, "lists", "partial"), 0o755); err != nil {
		return "", err
	}
	apt := []string{
		"-o", "APT::Architecture=" + arch, "-o", "APT::Architectures::=" + arch, "-o", "Acquire::Languages=none",
		"-o", "Dir::State=" + lists, "-o", "Dir::State::status=/dev/null", "-o", "Dir::Cache=" + lists,
	}
	if suite != Bookworm {
		source, err := b.source(ctx, suite)
		if err != nil {
			return "", err
		}
		file := filepath.Join(lists, "sources.list")
		if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
			return "", err
		}
		apt = append(apt, "-o", "Dir::Etc::sourcelist="+file, "-o", "Dir::Etc::sourceparts=/dev/null")
	}
	b.apt = apt
	name, err := b.newestKernel(ctx, suite, arch)
	if err != nil {
		return "", err
	}
	return b.once(prefix+name, func(tmp string) error { return b.unpackKernel(ctx, tmp, name, modules) })
}

// source is a line for apt that names a suite at the mirror which the host has its own from.
func (b *builder) source(ctx context.Context, suite Suite) (string, error) {
	out, err := command(ctx, b.dir, "apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)",
		"Created-By: Packages")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) == 3 && strings.HasSuffix(f[0], "/debian/") && !strings.Contains(f[1], "-") && f[2] == "main" {
			return fmt.Sprintf("deb %s %s main\n", f[0], suite), nil
		}
	}
	return "", fmt.Errorf("apt has no mirror of Debian's main archive, which the kernel of %s comes from", suite)
}

func pickModules(tree, into string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	wanted := map[string]bool{}
	for _, m := range names {
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

func tail(data []byte, n int) string {
	if len(data) > n {
		data = data[len(data)-n:]
	}
	return strings.TrimSpace(string(data))
}
