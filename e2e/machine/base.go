package machine

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"

	"github.com/quietcore/quietcore/e2e/kubelet"
)

// parts are what a base archive is made from: directories of the cache, and what
// the runtime consists of, path in the guest -> path here.
type parts struct {
	kernel, tree string
	programs     map[string]string
}

// base writes the archive that all machines of a kind share.
func (b *builder) base(kind Kind, p parts) (string, error) {
	files, err := baseFiles(kind.Driver, p)
	if err != nil {
		return "", err
	}
	data, err := baseArchive(kind, files)
	if err != nil {
		return "", err
	}
	prefix := fmt.Sprintf("base-%s-%s-", kind.Runtime, kind.Driver)
	if kind.Suite != Bookworm {
		prefix = string(kind.Suite) + "-" + prefix
	}
	sum := sha256.Sum256(data)
	name := filepath.Join(b.dir, fmt.Sprintf("%s%x.cpio", prefix, sum[:8]))
	if info, err := os.Stat(name); err == nil && info.Size() == int64(len(data)) {
		return name, nil
	}
	b.say("write the base archive, %d MB", len(data)>>20)
	old, _ := filepath.Glob(filepath.Join(b.dir, prefix+"*.cpio"))
	for _, o := range old {
		_ = os.Remove(o) // an archive of former versions only takes space
	}
	return name, writeWhole(name, data)
}

// writeWhole leaves either the whole file or none under its name.
func writeWhole(name string, data []byte) error {
	if err := os.WriteFile(name+".part", data, 0o644); err != nil {
		return err
	}
	return os.Rename(name+".part", name)
}

func baseArchive(kind Kind, files []tarFile) ([]byte, error) {
	var buf bytes.Buffer
	c := newCpio(&buf)
	if kind.Driver == kubelet.Cgroupfs {
		for _, d := range []string{"dev", "proc", "sys", "run", "tmp", "root", "var/run"} {
			c.dir(d)
		}
		c.char("dev/console", deviceNumber{5, 1})
		c.char("dev/null", deviceNumber{1, 3})
	}
	for _, d := range []string{"opt/nri/plugins", "etc/nri/conf.d", "newroot", "var/log", "var/tmp"} {
		c.dir(d)
	}
	for _, f := range files {
		if f.link != "" {
			c.link(f.name, f.link)
			continue
		}
		c.file(f.name, fs.FileMode(f.mode), f.data)
	}
	c.files(0o644, guestEtc(kind))
	err := c.close()
	return buf.Bytes(), err
}

// baseFiles reads what goes into the base under the names that it has there. A
// systemd guest has its userland from its root tree; nothing here may name a
// directory that is a link in it, such as lib, since unpacking replaces the link.
func baseFiles(driver kubelet.Driver, p parts) ([]tarFile, error) {
	from := map[string]string{"usr/bin/busybox": filepath.Join(p.tree, "bin/busybox")}
	maps.Copy(from, p.programs)
	if driver == kubelet.Cgroupfs {
		from["usr/bin/runc"] = filepath.Join(p.tree, "usr/sbin/runc")
		from["lib64/ld-linux-x86-64.so.2"] = filepath.Join(p.tree, "lib64/ld-linux-x86-64.so.2")
		from["usr/lib/libc.so.6"] = filepath.Join(p.tree, "lib/x86_64-linux-gnu/libc.so.6")
		from["usr/lib/libseccomp.so.2"] = filepath.Join(p.tree, "usr/lib/x86_64-linux-gnu/libseccomp.so.2")
	}
	for _, m := range modules {
		file := filepath.Join(p.kernel, m+".ko")
		if _, err := os.Stat(file); err == nil { // what is missing is built in
			from[moduleDir+"/"+m+".ko"] = file
		}
	}
	names := make([]string, 0, len(from))
	for n := range from {
		names = append(names, n)
	}
	sort.Strings(names)
	var out []tarFile
	for _, n := range names {
		data, err := readThroughLinks(p.tree, from[n])
		if err != nil {
			return nil, err
		}
		out = append(out, tarFile{name: n, mode: 0o755, data: data})
		if n == "usr/bin/busybox" {
			image, err := imageTarball(data)
			if err != nil {
				return nil, err
			}
			out = append(out, tarFile{name: strings.TrimPrefix(imageFile, "/"), mode: 0o644, data: image})
		}
	}
	if driver == kubelet.Systemd {
		return append(out, unitLinks()...), nil
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
