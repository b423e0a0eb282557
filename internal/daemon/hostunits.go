package daemon

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/quietcore/quietcore/cpi"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/internal/usage"
)

// hostUnits are what runs on the node and is no container: the services of systemd, the slices
// beside them, and the kernel's threads. Each may disturb a container, and nothing is done about
// it but to name it. It is used by the sampler's goroutine alone.
type hostUnits struct {
	counted string // the hierarchy whose cgroups are counted
	usage   func(cgroups map[string]string) []usage.Reading
	taken   func() []sample.Taken
	v1      bool

	known   map[string]*cpi.Container // by cgroup
	top     []string                  // names of the cgroups below the root
	threads time.Duration             // what the kernel's threads had used when it was last asked
}

const (
	systemSlice = "system.slice"
	kernelID    = "host:/"
	// mostUnits bounds them; those that have used most since they began are taken.
	mostUnits = 64
)

// with returns the containers and the units of now.
func (h *hostUnits) with(containers []*cpi.Container) []*cpi.Container {
	h.top = foldersIn(h.counted)
	var units []string
	for _, name := range h.top {
		if name != systemSlice {
			units = append(units, "/"+name)
		}
	}
	for _, name := range foldersIn(filepath.Join(h.counted, systemSlice)) {
		units = append(units, "/"+systemSlice+"/"+name)
	}
	units = h.largest(slices.DeleteFunc(units, func(unit string) bool { return holds(unit, containers) }))
	was := h.known
	h.known = make(map[string]*cpi.Container, len(units)+1)
	for _, unit := range append(units, "/") {
		c := was[unit]
		if c == nil {
			c = unitOf(unit)
		}
		h.known[unit] = c
		containers = append(containers, c)
	}
	return containers
}

// unitOf is a cgroup that is no container's.
func unitOf(cgroup string) *cpi.Container {
	c := &cpi.Container{ID: "host:" + cgroup, Namespace: cpi.HostNamespace, Class: cpi.Host, Cgroup: cgroup,
		Capping: cpi.NeverCapped}
	switch dir, name := filepath.Split(strings.TrimPrefix(cgroup, "/")); {
	case cgroup == "/":
		c.Pod, c.Name = "kernel", "threads"
	case dir == "":
		c.Pod, c.Name = "slices", name
	default:
		c.Pod, c.Name = filepath.Clean(dir), name
	}
	c.Job = c.String()
	return c
}

// holds says that containers run in a cgroup: what they use would be the unit's, too.
func holds(unit string, containers []*cpi.Container) bool {
	if strings.HasPrefix(unit, "/kubepods") {
		return true
	}
	return slices.ContainsFunc(containers, func(c *cpi.Container) bool {
		return strings.HasPrefix("/"+strings.TrimPrefix(c.Cgroup, "/"), unit+"/")
	})
}

// foldersIn lists the folders in a folder; none where it cannot be read.
func foldersIn(dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// largest are those of more than mostUnits cgroups that have used most.
func (h *hostUnits) largest(units []string) []string {
	if len(units) <= mostUnits {
		return units
	}
	used := map[string]time.Duration{}
	for _, r := range h.read(units) {
		used[r.ID] = r.CPU
	}
	slices.SortFunc(units, func(a, b string) int { return cmp.Or(cmp.Compare(used[b], used[a]), cmp.Compare(a, b)) })
	return units[:mostUnits]
}

func (h *hostUnits) read(cgroups []string) []usage.Reading {
	byID := make(map[string]string, len(cgroups))
	for _, c := range cgroups {
		byID[c] = c
	}
	return h.usage(byID)
}

// kernel is what the kernel's threads have used: what was used on the host and in none of the
// cgroups below its root, but for the time that nobody had. The host's own figure is the sum of
// the kernel's ticks, and off by some milliseconds a second and CPU. It never shrinks.
func (h *hostUnits) kernel() (time.Duration, bool) {
	list := []string{"/"}
	for _, name := range h.top {
		list = append(list, "/"+name)
	}
	readings := h.read(list)
	if len(readings) != len(list) {
		return 0, false // one has just ended: its time would be the kernel's
	}
	var used time.Duration
	for _, r := range readings {
		if r.ID == "/" {
			used += r.CPU
		} else {
			used -= r.CPU
		}
	}
	for _, t := range h.taken() {
		if h.v1 {
			break // there the root's figure is of tasks alone
		}
		used -= time.Duration((t.Steal + t.Interrupts) * float64(time.Second))
	}
	h.threads = max(h.threads, used)
	return h.threads, true
}
