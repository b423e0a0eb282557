package cgroup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/cpuset"
)

// folder is a cgroup v2 root with one cgroup kubepods/pod1, as plain files.
func folder(t *testing.T) (*FS, string) {
	t.Helper()
	dir := t.TempDir()
	put(t, dir, "cgroup.controllers", "cpuset cpu\n")
	put(t, dir, "cpuset.cpus.effective", "0-15\n")
	put(t, dir, "cpuset.mems.effective", "0-1\n")
	for _, path := range []string{"kubepods", "kubepods/pod1"} {
		for file, text := range map[string]string{"cpuset.cpus": "\n", "cpuset.cpus.effective": "0-7\n",
			"cpuset.mems": "\n", "cpuset.mems.effective": "0\n"} {
			put(t, dir, filepath.Join(path, file), text)
		}
	}
	fs, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fs.Close() })
	return fs, dir
}

func put(t *testing.T, dir, file, text string) {
	t.Helper()
	name := filepath.Join(dir, file)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, dir, file string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, file)); err != nil {
		t.Fatal(err)
	}
}

func one() Values { return Values{CPUs: Only(cpuset.Of(1))} }

// What a hostile or broken tree holds, for reading and for writing.
func TestBadFiles(t *testing.T) {
	const path = "kubepods/pod1"
	gone := ErrGone.Error()
	for _, c := range []struct {
		what        string
		spoil       func(t *testing.T, dir string)
		read, write string // in the error's text; empty: works
	}{
		{"as it should be", func(*testing.T, string) {}, "", ""},
		{"vanished", func(t *testing.T, dir string) { remove(t, dir, path) }, gone, gone},
		{"vanished with its parent", func(t *testing.T, dir string) { remove(t, dir, "kubepods") }, gone, gone},
		{"a file", func(t *testing.T, dir string) {
			remove(t, dir, path)
			put(t, dir, path, "0-3")
		}, "a symbolic link or a file", "a symbolic link or a file"},
		{"below a file", func(t *testing.T, dir string) {
			remove(t, dir, "kubepods")
			put(t, dir, "kubepods", "")
		}, "a symbolic link or a file", "a symbolic link or a file"},
		{"a link to another cgroup", func(t *testing.T, dir string) {
			if err := os.Rename(filepath.Join(dir, path), filepath.Join(dir, "other")); err != nil {
				t.Fatal(err)
			}
			link(t, "../other", filepath.Join(dir, path))
		}, "a symbolic link", "a symbolic link"},
		{"the set's file is a link", func(t *testing.T, dir string) {
			remove(t, dir, path+"/cpuset.cpus")
			link(t, "../cpuset.cpus", filepath.Join(dir, path, "cpuset.cpus"))
		}, "open cpuset.cpus of cgroup kubepods/pod1", "open cpuset.cpus of cgroup kubepods/pod1"},
		{"the effective set's file is a link", func(t *testing.T, dir string) {
			remove(t, dir, path+"/cpuset.cpus.effective")
			link(t, "/proc/self/environ", filepath.Join(dir, path, "cpuset.cpus.effective"))
		}, "open cpuset.cpus.effective of cgroup kubepods/pod1", ""},
		{"the set's file is a folder", func(t *testing.T, dir string) {
			remove(t, dir, path+"/cpuset.cpus")
			put(t, dir, path+"/cpuset.cpus/x", "")
		}, "cpuset.cpus of cgroup kubepods/pod1: is a directory",
			"cpuset.cpus of cgroup kubepods/pod1: is a directory"},
		{"a huge file", func(t *testing.T, dir string) {
			put(t, dir, path+"/cpuset.cpus.effective", strings.Repeat("1,", 1<<20))
		}, "longer than 65536 bytes", ""},
		{"a long list", func(t *testing.T, dir string) {
			var b bytes.Buffer
			for cpu := 0; cpu < 2*700; cpu += 2 {
				fmt.Fprintf(&b, "%d,", cpu)
			}
			put(t, dir, path+"/cpuset.cpus.effective", b.String()+"1500\n")
		}, "", ""},
		{"nonsense", func(t *testing.T, dir string) {
			put(t, dir, path+"/cpuset.cpus.effective", "0-3\x00;rm -rf\n")
		}, "read cpuset.cpus.effective of cgroup kubepods/pod1", ""},
		{"CPUs that cannot be", func(t *testing.T, dir string) {
			put(t, dir, path+"/cpuset.cpus", "0-10000000\n")
		}, "CPU numbers end at", ""},
		{"the controller not enabled", func(t *testing.T, dir string) {
			for _, file := range []string{"cpuset.cpus", "cpuset.cpus.effective", "cpuset.mems",
				"cpuset.mems.effective"} {
				remove(t, dir, path+"/"+file)
			}
		}, "", `controller "cpuset" is not enabled`},
	} {
		t.Run(c.what, func(t *testing.T) {
			fs, dir := folder(t)
			c.spoil(t, dir)
			_, readErr := fs.CPUs(path)
			_, allErr := fs.Effective(path)
			for what, got := range map[string]struct {
				err  error
				want string
			}{
				"CPUs":      {readErr, c.read},
				"Effective": {allErr, c.read},
				"Apply":     {fs.Apply(context.Background(), path, one()), c.write},
			} {
				switch {
				case got.want == "" && got.err != nil:
					t.Errorf("%s: %v", what, got.err)
				case got.want != "" && (got.err == nil || !strings.Contains(got.err.Error(), got.want)):
					t.Errorf("%s: %v, want %q", what, got.err, got.want)
				case got.want == gone && !errors.Is(got.err, ErrGone):
					t.Errorf("%s: %v is not ErrGone", what, got.err)
				}
				if got.err != nil && len(got.err.Error()) > 500 {
					t.Errorf("%s: an error of %d bytes", what, len(got.err.Error()))
				}
			}
			if text, err := os.ReadFile(filepath.Join(dir, "kubepods/cpuset.cpus")); err == nil &&
				string(text) != "\n" {
				t.Errorf("another cgroup was written: %q", text)
			}
		})
	}
}

func link(t *testing.T, to, name string) {
	t.Helper()
	if err := os.Symlink(to, name); err != nil {
		t.Fatal(err)
	}
}

// Without the controller a cgroup has what the nearest one above has, up to the
// root, which has no cpuset.cpus of its own.
func TestCPUsWithoutTheController(t *testing.T) {
	fs, dir := folder(t)
	for _, path := range []string{"kubepods/pod1", "kubepods"} {
		want := map[string]string{"kubepods/pod1": "0-7", "kubepods": "0-15"}[path]
		for _, file := range []string{"cpuset.cpus", "cpuset.cpus.effective", "cpuset.mems", "cpuset.mems.effective"} {
			remove(t, dir, path+"/"+file)
		}
		e, err := fs.Effective("kubepods/pod1")
		if err != nil || e.CPUs.String() != want || !e.OwnCPUs.IsEmpty() || !e.OwnMems.IsEmpty() || e.Mems.IsEmpty() {
			t.Errorf("without the files of %s: %+v, %v; want %s of the one above", path, e, err, want)
		}
	}
	if e, err := fs.CPUs("/"); err != nil || e.CPUs.String() != "0-15" || !e.OwnCPUs.IsEmpty() {
		t.Errorf("the root: %+v, %v", e, err)
	}
	remove(t, dir, "cpuset.cpus.effective")
	var missing *NoControllerError
	if _, err := fs.CPUs("kubepods/pod1"); !errors.As(err, &missing) || missing.Path != "kubepods/pod1" {
		t.Errorf("nobody has the controller: %v", err)
	}
	if err := fs.Apply(context.Background(), "/", one()); err == nil ||
		!strings.Contains(err.Error(), "never touched") {
		t.Errorf("the root was written: %v", err)
	}
}

// A cgroup vanishes between being listed and being used.
func TestVanishedBetweenListAndUse(t *testing.T) {
	fs, dir := folder(t)
	kids, err := fs.Children("kubepods")
	if err != nil || len(kids) != 1 {
		t.Fatalf("%v, %v", kids, err)
	}
	g, err := fs.cpusets.group("kubepods/" + kids[0]) // open when it vanishes
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	remove(t, dir, "kubepods/pod1")
	path := "kubepods/" + kids[0]
	_, cpus := fs.CPUs(path)
	_, all := fs.Effective(path)
	_, below := fs.Children(path)
	_, read := g.read("cpuset.cpus")
	for what, err := range map[string]error{
		"CPUs": cpus, "Effective": all, "Children": below, "read": read,
		"Apply": fs.Apply(context.Background(), path, one()), "exists": fs.exists(path),
		"write": g.write("cpuset.cpus", "1"), "quota": fs.Apply(context.Background(), path, Values{Quota: NoQuota()}),
	} {
		if !errors.Is(err, ErrGone) {
			t.Errorf("%s: %v, want ErrGone", what, err)
		}
	}
}

// Every answer of the kernel's names file, cgroup, value, meaning and way out.
func TestKernelErrorsAreExplained(t *testing.T) {
	fs, _ := folder(t)
	g, err := fs.cpusets.group("kubepods/pod1")
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	for errno, want := range map[unix.Errno]string{
		unix.EROFS:  "mounted read-only here; mount the host's /sys/fs/cgroup writable",
		unix.EACCES: "it needs root",
		unix.EPERM:  "it needs root",
		unix.EBUSY:  "a cgroup below holds CPUs outside this set",
		unix.EINVAL: "the machine does not have",
		unix.ERANGE: "beyond what this kernel was built for",
		unix.ENOSPC: "refuses to empty the set of a populated cgroup",
		unix.ENODEV: "gone",
		unix.EIO:    "input/output error",
	} {
		err := g.ioError("write", "cpuset.cpus", "0-3", fmt.Errorf("write: %w", errno))
		if errno == unix.ENODEV {
			if !errors.Is(err, ErrGone) {
				t.Errorf("%v: %v", errno, err)
			}
			continue
		}
		if text := err.Error(); !errors.Is(err, errno) || !strings.Contains(text, want) ||
			!strings.HasPrefix(text, `write "0-3" to cpuset.cpus of cgroup kubepods/pod1: `) {
			t.Errorf("%v: %v, want %q", errno, err, want)
		}
	}
}

// A pod that mounts /sys/fs/cgroup read-only, for real.
func TestReadOnlyCgroups(t *testing.T) {
	fs, dir := folder(t)
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		if os.Getenv("QUIETCORE_CI") == "1" {
			t.Fatal(err)
		}
		t.Skipf("needs root, to mount a folder read-only: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	// Opened again: the folder below the mount is still writable.
	fs.Close()
	fs, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fs.Close() })
	if _, err := fs.CPUs("kubepods/pod1"); err != nil {
		t.Errorf("reading: %v", err)
	}
	err = fs.Apply(context.Background(), "kubepods/pod1", one())
	if !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), "cpuset.cpus of cgroup kubepods/pod1") ||
		!strings.Contains(err.Error(), "mounted read-only") {
		t.Errorf("writing: %v", err)
	}
}
