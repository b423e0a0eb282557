package machine

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"sort"
	"strings"
)

// cpioWriter writes the "newc" format, the one that the kernel unpacks. The
// archives are not compressed: under emulation the guest copies faster than it
// decompresses. Directories must exist before their files, so add creates them.
type cpioWriter struct {
	w    io.Writer
	n    int64
	ino  uint32
	dirs map[string]bool
	err  error
}

func newCpio(w io.Writer) *cpioWriter { return &cpioWriter{w: w, dirs: map[string]bool{"": true}} }

const (
	modeDir  = 0o040000
	modeFile = 0o100000
	modeLink = 0o120000
	modeChar = 0o020000
)

func (c *cpioWriter) write(p []byte) {
	if c.err != nil {
		return
	}
	n, err := c.w.Write(p)
	c.n += int64(n)
	c.err = err
}

func (c *cpioWriter) pad() {
	if r := c.n % 4; r != 0 {
		c.write(make([]byte, 4-r))
	}
}

type deviceNumber struct{ major, minor uint32 }

func (c *cpioWriter) entry(name string, mode uint32, data []byte, dev deviceNumber) {
	c.ino++
	c.write(fmt.Appendf(nil, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		c.ino, mode, 0, 0, 1, 0, len(data), 0, 0, dev.major, dev.minor, len(name)+1, 0))
	c.write(append([]byte(name), 0))
	c.pad()
	c.write(data)
	c.pad()
}

func (c *cpioWriter) dir(name string) {
	name = strings.Trim(name, "/")
	if c.dirs[name] || name == "." {
		return
	}
	c.dir(path.Dir(name))
	c.dirs[name] = true
	c.entry(name, modeDir|0o755, nil, deviceNumber{})
}

func (c *cpioWriter) file(name string, mode fs.FileMode, data []byte) {
	name = strings.Trim(name, "/")
	c.dir(path.Dir(name))
	c.entry(name, modeFile|uint32(mode.Perm()), data, deviceNumber{})
}

func (c *cpioWriter) link(name, target string) {
	name = strings.Trim(name, "/")
	c.dir(path.Dir(name))
	c.entry(name, modeLink|0o777, []byte(target), deviceNumber{})
}

func (c *cpioWriter) char(name string, dev deviceNumber) {
	name = strings.Trim(name, "/")
	c.dir(path.Dir(name))
	c.entry(name, modeChar|0o600, nil, dev)
}

// close ends the archive; another may follow it in the same file.
func (c *cpioWriter) close() error {
	c.entry("TRAILER!!!", 0, nil, deviceNumber{})
	if r := c.n % 512; r != 0 {
		c.write(make([]byte, 512-r))
	}
	return c.err
}

// files writes a map in name order, so that equal inputs give equal bytes.
func (c *cpioWriter) files(mode fs.FileMode, content map[string]string) {
	names := make([]string, 0, len(content))
	for n := range content {
		names = append(names, n)
	}
	sort.Strings(names)
	for _, n := range names {
		c.file(n, mode, []byte(content[n]))
	}
}
