package counter

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/cilium/ebpf"
)

// group is one followed cgroup.
type group struct {
	id     string
	cgroup uint64 // the directory's inode, which is the kernel's id of the cgroup
	slot   uint32
}

// groups assigns slots to followed cgroups.
type groups struct {
	sorted   []group           // by id
	byID     map[uint64]string // by cgroup id
	free     []uint32
	used     int      // slots below this one have been in use
	retiring []uint32 // slots of forgotten groups, until their rows are empty
	max      int
}

func newGroups(n int) groups { return groups{byID: map[uint64]string{}, used: other + 1, max: n} }

func (g *groups) find(id string) (int, bool) {
	return slices.BinarySearchFunc(g.sorted, id, func(a group, id string) int { return cmp.Compare(a.id, id) })
}

// slot allocates a slot.
func (g *groups) slot() (uint32, bool) {
	if n := len(g.free); n > 0 {
		slot := g.free[n-1]
		g.free = g.free[:n-1]
		return slot, true
	}
	if g.used > g.max {
		return 0, false
	}
	g.used++
	return uint32(g.used - 1), true
}

// takeRetiring frees the slots that the program does not write any more, and returns
// them.
func (g *groups) takeRetiring() []uint32 {
	retiring := g.retiring
	g.free = append(g.free, retiring...)
	g.retiring = nil
	return retiring
}

// Follow counts the cgroup at cgroupPath (below Options.Root) from now on, including
// cgroups below it that are not followed themselves. An id that is followed already
// moves to the new cgroup and keeps its totals. The error is a *FullError when
// MaxGroups cgroups are followed. A removed cgroup stays followed, at no cost, until
// Forget.
//
// While counting is enabled, this makes every CPU charge its running task, at a few
// microseconds each.
func (c *Counter) Follow(id string, cgroupPath string) error {
	cgroup, err := c.cgroupID(cgroupPath)
	if err != nil {
		return fmt.Errorf("count %s: %w", id, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	at, known := c.groups.find(id)
	if by, taken := c.groups.byID[cgroup]; taken {
		if by == id {
			return nil
		}
		return fmt.Errorf("count %s: its cgroup %s is counted as %s; forget that first", id, cgroupPath, by)
	}
	if known {
		return c.move(&c.groups.sorted[at], cgroup)
	}
	slot, ok := c.groups.slot()
	if !ok && len(c.groups.retiring) > 0 && c.window.open {
		if err := c.collect(); err != nil {
			return fmt.Errorf("count %s: %w", id, err)
		}
		slot, ok = c.groups.slot()
	}
	if !ok {
		return &FullError{ID: id, MaxGroups: c.options.MaxGroups}
	}
	if err := c.assign(cgroup, slot); err != nil {
		c.groups.free = append(c.groups.free, slot)
		return fmt.Errorf("count %s: %w", id, err)
	}
	c.groups.byID[cgroup] = id
	c.groups.sorted = slices.Insert(c.groups.sorted, at, group{id: id, cgroup: cgroup, slot: slot})
	return nil
}

// move reassigns a group's slot to another cgroup.
func (c *Counter) move(g *group, cgroup uint64) error {
	if err := c.assign(cgroup, g.slot); err != nil {
		return fmt.Errorf("count %s: %w", g.id, err)
	}
	if err := c.objects.collection.Maps[programMapSlots].Delete(g.cgroup); err != nil &&
		!errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("count %s: forget its previous cgroup: %w", g.id, err)
	}
	delete(c.groups.byID, g.cgroup)
	c.groups.byID[cgroup] = g.id
	g.cgroup = cgroup
	return c.changed()
}

// assign maps a cgroup to a slot. Running tasks are charged first, to the group they
// belonged to.
func (c *Counter) assign(cgroup uint64, slot uint32) error {
	if c.window.open {
		for cpu, in := range c.active {
			if !in {
				continue
			}
			if err := c.call(cpu, flushCharge); err != nil && !errors.Is(err, syscall.ENXIO) {
				return fmt.Errorf("charge the running task of CPU %d: %w", cpu, err)
			}
		}
	}
	if err := c.objects.collection.Maps[programMapSlots].Update(cgroup, slot, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("assign a slot to cgroup %d: %w", cgroup, err)
	}
	return c.changed()
}

// changed invalidates the slots that CPUs have cached.
func (c *Counter) changed() error {
	var n uint32
	if err := c.objects.generation.Get(&n); err != nil {
		return fmt.Errorf("read the program's generation: %w", err)
	}
	if err := c.objects.generation.Set(n + 1); err != nil {
		return fmt.Errorf("raise the program's generation: %w", err)
	}
	return nil
}

// Forget ends Follow. The group's totals, and its counts since the last Read, move to
// Other, so that Machine stays the sum.
func (c *Counter) Forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, known := c.groups.find(id)
	if !known || c.closed {
		return
	}
	g := c.groups.sorted[at]
	err := c.objects.collection.Maps[programMapSlots].Delete(g.cgroup)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		err = nil
	}
	if err = errors.Join(err, c.changed()); err != nil {
		// The slot must not be reused: the program may still charge it.
		if c.options.Log != nil {
			c.options.Log.Warn("cannot stop counting a cgroup", "id", id, "err", err)
		}
		return
	}
	delete(c.groups.byID, g.cgroup)
	c.groups.sorted = slices.Delete(c.groups.sorted, at, at+1)
	c.groups.retiring = append(c.groups.retiring, g.slot)
	if !c.window.open {
		c.retire()
	}
}

// cgroupID returns the kernel's id of a cgroup: the inode of its directory.
func (c *Counter) cgroupID(path string) (uint64, error) {
	below := filepath.Clean("/" + path)
	if below == "/" {
		return 0, errors.New("the root cgroup cannot be followed: all CPUs idle there")
	}
	info, err := os.Lstat(filepath.Join(c.options.Root, below))
	if err != nil {
		return 0, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() {
		return 0, &fs.PathError{Op: "follow", Path: filepath.Join(c.options.Root, below), Err: syscall.ENOTDIR}
	}
	return stat.Ino, nil
}

// retire frees the slots of forgotten groups. No bank may still hold counts of them:
// every active CPU has been flushed and taken since.
func (c *Counter) retire() {
	retiring := c.groups.takeRetiring()
	if len(retiring) == 0 {
		return
	}
	for _, slot := range retiring {
		c.total.slots[other].add(&c.total.slots[slot])
		c.total.slots[slot] = Counts{}
	}
	for i := range c.window.rows {
		if r := &c.window.rows[i]; slices.Contains(retiring, uint32(r.Group)) {
			r.Group = other // another group may have the slot before the next reading
		}
	}
	if c.options.Waits == WaitsByCause {
		c.forgetWaits(retiring)
	}
}

func (c *Counter) forgetWaits(retiring []uint32) {
	m := c.objects.collection.Maps[programMapWaits]
	var pairs []programPair
	var pair programPair
	var sum uint64
	for i := m.Iterate(); i.Next(&pair, &sum); {
		if slices.Contains(retiring, pair.Victim) || slices.Contains(retiring, pair.By) {
			pairs = append(pairs, pair)
		}
	}
	for _, p := range pairs {
		_ = m.Delete(p) // it exists, and the program does not write it any more
	}
}

// clearWaits empties the table of causes before a window, so that its room is for pairs of this
// window, whoever waited for whom before.
func (c *Counter) clearWaits() error {
	if c.options.Waits != WaitsByCause {
		return nil
	}
	m := c.objects.collection.Maps[programMapWaits]
	pairs, sums := make([]programPair, m.MaxEntries()), make([]uint64, m.MaxEntries())
	var cursor ebpf.MapBatchCursor
	_, err := m.BatchLookupAndDelete(&cursor, pairs, sums, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) { // which says that these were all
		return fmt.Errorf("empty the table of causes: %w", err)
	}
	return nil
}

// readWaits fills in the waits by cause.
func (c *Counter) readWaits(dst *Reading) error {
	dst.Waits = dst.Waits[:0]
	if c.options.Waits != WaitsByCause {
		return nil
	}
	ids := make(map[uint32]string, len(c.groups.sorted))
	for _, g := range c.groups.sorted {
		ids[g.slot] = g.id
	}
	var pair programPair
	var sum uint64
	i := c.objects.collection.Maps[programMapWaits].Iterate()
	for i.Next(&pair, &sum) {
		victim, followed := ids[pair.Victim]
		by, known := ids[pair.By]
		if followed && (known || pair.By == other) {
			dst.Waits = append(dst.Waits, Wait{Victim: victim, By: by, Nanoseconds: sum})
		}
	}
	if err := i.Err(); err != nil {
		return fmt.Errorf("read waits by cause: %w", err)
	}
	slices.SortFunc(dst.Waits, func(a, b Wait) int {
		return cmp.Or(cmp.Compare(a.Victim, b.Victim), cmp.Compare(a.By, b.By))
	})
	return nil
}
