// Package resctrl holds containers back from memory: their threads may use the least memory bandwidth, and the least of
// the L3, that the kernel's resource control can give (https://docs.kernel.org/filesystems/resctrl.html).
//
// One group of ours is all that it makes, writes and removes. Threads come from the default group and return there;
// those that are in another group or in a monitoring group stay as they are. What is held is written nowhere: to remove
// the group returns all its threads, so that a crash is undone by the next [Open], and by [Clear].
//
// github.com/intel/goresctrl is not used: it keeps what it knows in variables of its package, asks /proc/mounts where
// the folder is, and to configure it removes groups and monitoring groups that its configuration does not have.
package resctrl

import (
	"os"
	"path/filepath"
)

// Group is the name of our group.
const Group = "quietcore-held"

// Folder is where resctrl is mounted. Names are below it.
type Folder interface {
	Read(name string) (string, error)
	List(name string) ([]string, error) // the folders in a folder
	Write(name, text string) error      // to a file that is there
	Make(name string) error             // a folder
	Remove(name string) error
}

// Dir is a Folder by its path.
type Dir string

func (d Dir) path(name string) string { return filepath.Join(string(d), name) }

func (d Dir) Read(name string) (string, error) {
	text, err := os.ReadFile(d.path(name))
	return string(text), err
}

func (d Dir) List(name string) ([]string, error) {
	entries, err := os.ReadDir(d.path(name))
	if err != nil {
		return nil, err
	}
	var list []string
	for _, e := range entries {
		if e.IsDir() {
			list = append(list, e.Name())
		}
	}
	return list, nil
}

// Write writes in one call: the kernel takes each for a command.
func (d Dir) Write(name, text string) error {
	f, err := os.OpenFile(d.path(name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}

func (d Dir) Make(name string) error { return os.Mkdir(d.path(name), 0o755) }

// Remove takes a folder away, with the files in it, which are the kernel's.
func (d Dir) Remove(name string) error { return os.Remove(d.path(name)) }
