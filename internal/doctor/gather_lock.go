package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func (g *gatherer) now() time.Time { return g.f.Now }

// lock finds in the kernel's list whether a process holds the lock of the state
// directory. Trying to take the lock would keep a daemon from starting at that moment.
// A holder outside of this process' PID namespace is not in the list.
func (g *gatherer) lock(dir string) {
	l := &g.f.Lock
	list, err := g.text("/proc/locks")
	if err != nil {
		return
	}
	l.Known = true
	held := inodes(dir, filepath.Join(dir, "lock"))
	// "1: FLOCK  ADVISORY  WRITE 1234 08:01:131 0 EOF"
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[1] != "FLOCK" {
			continue
		}
		_, inode, _ := cutLast(fields[5], ':')
		if held[inode] {
			l.Held, l.Holder = true, "pid "+fields[4]
		}
	}
	// What the daemon wrote about itself has its own pid in it, and its host.
	if text := g.read(filepath.Join(g.f.State.Dir, "lock")); l.Held && strings.HasPrefix(text, "pid ") &&
		len(text) < 300 && !strings.ContainsFunc(text, unprintable) {
		l.Holder = text
	}
}

func unprintable(r rune) bool { return r < ' ' || r > '~' }

func cutLast(text string, sep byte) (before, after string, found bool) {
	at := strings.LastIndexByte(text, sep)
	if at < 0 {
		return text, "", false
	}
	return text[:at], text[at+1:], true
}

func inodes(names ...string) map[string]bool {
	set := map[string]bool{}
	for _, name := range names {
		if info, err := os.Stat(name); err == nil {
			if stat, ok := info.Sys().(*syscall.Stat_t); ok {
				set[fmt.Sprint(stat.Ino)] = true
			}
		}
	}
	return set
}
