package cgrouptest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
)

// Dir is a Kernel whose cgroups are also a folder of files, for a daemon that is started with its
// cgroup root there. Reads and writes go through cgroup.FS, and after each write the files of the
// whole subtree are updated to what the kernel would show.
type Dir struct {
	Kernel *Kernel
	fs     *cgroup.FS
	root   string
	mu     sync.Mutex
	shown  map[string]string // last text of each file
}

// NewDir makes dir (say t.TempDir()) a cgroup v2 root with these CPUs online.
func NewDir(dir string, online cpuset.Set) (*Dir, error) {
	if err := os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte("cpuset cpu\n"), 0o644); err != nil {
		return nil, err
	}
	fs, err := cgroup.Open(dir)
	if err != nil {
		return nil, err
	}
	return &Dir{Kernel: New(online), fs: fs, root: dir, shown: map[string]string{}}, nil
}

// Root is the folder; FS the driver on it, without the update after writes.
func (d *Dir) Root() string   { return d.root }
func (d *Dir) FS() *cgroup.FS { return d.fs }

// Close releases the folder.
func (d *Dir) Close() error { return d.fs.Close() }

// Mkdir creates a cgroup with all above it and puts tasks into it.
func (d *Dir) Mkdir(path string, tasks int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.Kernel.Mkdir(path, tasks)
	if err := os.MkdirAll(filepath.Join(d.root, path), 0o755); err != nil {
		panic(err)
	}
	for p := strings.Trim(path, "/"); p != ""; p = cgroup.Parent(p) {
		if err := d.show(p); err != nil {
			panic(err)
		}
	}
}

// Rmdir removes a cgroup with all below it.
func (d *Dir) Rmdir(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.Kernel.Rmdir(path)
	if err := os.RemoveAll(filepath.Join(d.root, path)); err != nil {
		panic(err)
	}
	for file := range d.shown {
		if strings.HasPrefix(file, strings.Trim(path, "/")+"/") {
			delete(d.shown, file)
		}
	}
}

// Apply applies the values to the kernel, writes the files as the daemon does, and then updates
// them to the result.
func (d *Dir) Apply(ctx context.Context, path string, v cgroup.Values) error {
	if err := d.Kernel.Apply(ctx, path, v); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.fs.Apply(ctx, path, v); err != nil {
		return err
	}
	clean := strings.Trim(path, "/")
	for _, file := range []string{"cpuset.cpus", "cpuset.mems", "cpu.max", "cpu.weight", "cpu.idle"} {
		delete(d.shown, clean+"/"+file)
	}
	return d.refresh(clean)
}

// Refresh rewrites the files below path after a change made on Kernel directly.
func (d *Dir) Refresh(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refresh(strings.Trim(path, "/"))
}

func (d *Dir) refresh(path string) error {
	if err := d.show(path); err != nil {
		return err
	}
	kids, err := d.Kernel.Children(path)
	for _, kid := range kids {
		if err := d.refresh(path + "/" + kid); err != nil {
			return err
		}
	}
	return err
}

func (d *Dir) show(path string) error {
	e, err := d.Kernel.Effective(path)
	if err != nil {
		return err
	}
	files := map[string]string{
		"cpuset.cpus":           e.OwnCPUs.String(),
		"cpuset.cpus.effective": e.CPUs.String(),
		"cpuset.mems":           e.OwnMems.String(),
		"cpuset.mems.effective": e.Mems.String(),
		"cpu.max":               e.Quota.String(),
		"cpu.weight":            fmt.Sprint(e.Weight),
	}
	if e.HasIdle {
		files["cpu.idle"] = "0"
		if e.Idle {
			files["cpu.idle"] = "1"
		}
	}
	if !d.Kernel.HasCpuset(path) {
		for file := range files {
			if strings.HasPrefix(file, "cpuset.") {
				if err := os.Remove(filepath.Join(d.root, path, file)); err != nil && !os.IsNotExist(err) {
					return err
				}
				delete(files, file)
				delete(d.shown, path+"/"+file)
			}
		}
	}
	for file, text := range files {
		name := path + "/" + file
		if old, ok := d.shown[name]; ok && old == text {
			continue
		}
		if err := os.WriteFile(filepath.Join(d.root, name), []byte(text+"\n"), 0o644); err != nil {
			return err
		}
		d.shown[name] = text
	}
	return nil
}

// Effective, CPUs and Children read the files.
func (d *Dir) Effective(path string) (cgroup.Effective, error) { return d.fs.Effective(path) }
func (d *Dir) CPUs(path string) (cgroup.Effective, error)      { return d.fs.CPUs(path) }
func (d *Dir) Allowed(path string) (cpuset.Set, error)         { return d.fs.Allowed(path) }
func (d *Dir) Children(path string) ([]string, error)          { return d.fs.Children(path) }
