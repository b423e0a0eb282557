package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// systemdRootVersion names the root tree in the cache. Raise it when what
// systemdRoot does changes.
const systemdRootVersion = "systemd-root-1"

// rootArchive is the tree's name within its directory of the cache.
const rootArchive = "root.cpio"

// rootPackages are what a node has in addition to a minimal Debian 12: systemd 252, the
// system bus that kubelet and runc speak to it over, and runc.
var rootPackages = []string{"systemd", "dbus", "runc"}

// systemdRoot is a Debian tree as an archive.
func (b *builder) systemdRoot(ctx context.Context) (string, error) {
	return b.once(systemdRootVersion, func(tmp string) error {
		b.say("debootstrap a root tree with %s (about a minute, once)", strings.Join(rootPackages, ", "))
		tree := filepath.Join(tmp, "tree")
		if err := debootstrap(ctx, tmp, tree); err != nil {
			return err
		}
		out, err := os.Create(filepath.Join(tmp, rootArchive))
		if err != nil {
			return err
		}
		defer out.Close()
		c := newCpio(out)
		if err := c.tree(tree, keepInRoot); err != nil {
			return err
		}
		if err := c.close(); err != nil {
			return err
		}
		b.say("wrote the root tree, %d MB", c.n>>20)
		return errors.Join(out.Close(), os.RemoveAll(tree))
	})
}

// debootstrap runs in namespaces of its own: what it mounts into the tree is gone
// with it, however it ends, so that removing the tree can never reach the host's
// /proc and /sys.
func debootstrap(ctx context.Context, dir, tree string) error {
	mirror, err := debianMirror(ctx, dir)
	if err != nil {
		return err
	}
	argv := []string{"unshare", "--mount", "--pid", "--fork", "--kill-child", "debootstrap", "--variant=minbase",
		"--include=" + strings.Join(rootPackages, ","), "bookworm", tree, mirror}
	if os.Geteuid() == 0 {
		_, err = command(ctx, dir, argv...)
		return err
	}
	if _, err := command(ctx, dir, append([]string{"sudo"}, argv...)...); err != nil {
		return err
	}
	// Everything belongs to root again in the archive.
	if _, err := command(ctx, dir, "sudo", "chown", "-R", fmt.Sprint(os.Geteuid()), tree); err != nil {
		return err
	}
	_, err = command(ctx, dir, "chmod", "-R", "u+rwX", tree)
	return err
}

// debianMirror is the one that this host's apt is configured with.
func debianMirror(ctx context.Context, dir string) (string, error) {
	out, err := command(ctx, dir, "apt-get", "indextargets", "--format", "$(REPO_URI)",
		"Created-By: Packages", "Codename: bookworm", "Origin: Debian", "Component: main")
	if err != nil {
		return "", err
	}
	if uris := strings.Fields(out); len(uris) > 0 {
		return uris[0], nil
	}
	return "", errors.New("apt is configured with no source of Debian 12's main packages: the guests need one")
}

// dropped are the parts of the tree that no guest needs: the kernel unpacks the
// rest at every boot, under emulation. Generators and the targets' Wants= go, since
// each unit that they bring is a process or two to start.
var dropped = []string{
	"boot", "home", "media", "mnt", "srv", "usr/games", "usr/include", "usr/local", "usr/src",
	"var/backups", "var/cache", "var/lib/apt", "var/lib/dpkg", "var/log",
	"etc/apt", "etc/dpkg", "etc/systemd/system/*", "etc/init.d", "etc/rc?.d",
	"usr/lib/apt", "usr/lib/dpkg", "usr/lib/udev", "usr/lib/init",
	"usr/lib/systemd/system-generators", "usr/lib/systemd/system/*.wants", "usr/lib/systemd/user*",
	"usr/lib/systemd/catalog",
	"usr/lib/x86_64-linux-gnu/gconv", "usr/lib/x86_64-linux-gnu/perl-base", "usr/lib/x86_64-linux-gnu/security",
	"usr/lib/x86_64-linux-gnu/libapt-*", "usr/lib/x86_64-linux-gnu/libgnutls*", "usr/lib/x86_64-linux-gnu/libdb-*",
	"usr/bin/perl*", "usr/bin/apt*", "usr/bin/dpkg*", "usr/bin/gpgv", "usr/bin/localedef",
	"usr/sbin/e2*", "usr/sbin/mke2fs", "usr/sbin/*fs", "usr/sbin/mkfs*", "usr/sbin/fsck*",
	"run/*", "tmp/*", "proc/*", "sys/*", "dev/*",
}

// keepInRoot decides by the path within the tree. Of the shared files, which are
// mostly documents and locales, only the bus's are used.
func keepInRoot(name string) bool {
	if rest, ok := strings.CutPrefix(name, "usr/share/"); ok {
		return rest == "dbus-1" || strings.HasPrefix(rest, "dbus-1/")
	}
	for _, pattern := range dropped {
		if ok, err := filepath.Match(pattern, name); ok || err != nil {
			return false
		}
	}
	return true
}

// tree adds what is below dir; keep is asked once for everything, and what is
// below a directory that is not kept is not looked at.
func (c *cpioWriter) tree(dir string, keep func(name string) bool) error {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		name, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		if !keep(name) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return c.copy(name, p, d)
	})
}

func (c *cpioWriter) copy(name, from string, d fs.DirEntry) error {
	switch {
	case d.IsDir():
		c.dir(name)
	case d.Type()&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		c.link(name, target)
	case d.Type().IsRegular():
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		c.file(name, info.Mode(), data)
	}
	return c.err
}
