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

// groups know which slot is whose.
type groups struct {
	sorted []group           // by id
	byID   map[uint64]string // cgroup to group
	free   []uint32
	used   int      // slots below this one have been in use
	going  []uint32 // slots of forgotten groups, until their rows are empty
	max    int
}

func newGroups(n int) groups { return groups{byID: map[uint64]string{}, used: other + 1, max: n} }

func (g *groups) find(id string) (int, bool) {
	return slices.BinarySearchFunc(g.sorted, id, func(a group, id string) int { return cmp.Compare(a.id, id) })
}

// slot gives a slot out.
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

// retired hands over the slots that nobody writes any more; they are free then.
func (g *groups) retired() []uint32 {
	going := g.going
	g.free = append(g.free, going...)
	g.going = nil
	return going
}

// Follow counts the cgroup at cgroupPath (below Options.Root) from now on, with
// those below it that are not followed themselves. An id that is followed
// already is moved: its totals go on. The error is a *FullError when MaxGroups
// are followed. A cgroup that is removed stays followed, at no cost, until Forget.
//
// While counting is enabled this makes every CPU charge what runs, a few
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
	if !ok && len(c.groups.going) > 0 && c.attachment != nil {
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

// move makes a group's slot another cgroup's.
func (c *Counter) move(g *group, cgroup uint64) error {
	if err := c.assign(cgroup, g.slot); err != nil {
		return fmt.Errorf("count %s: %w", g.id, err)
	}
	if err := c.objects.collection.Maps[programMapSlots].Delete(g.cgroup); err != nil &&
		!errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("count %s: forget its former cgroup: %w", g.id, err)
	}
	delete(c.groups.byID, g.cgroup)
	c.groups.byID[cgroup] = g.id
	g.cgroup = cgroup
	return c.changed()
}

// assign tells the program a cgroup's slot. What runs there has been charged to
// where it belonged until now.
func (c *Counter) assign(cgroup uint64, slot uint32) error {
	if c.attachment != nil {
		for cpu, in := range c.takesPart {
			if !in {
				continue
			}
			if err := c.kernel.flush(c.objects.flush, cpu, flushCharge); err != nil && !errors.Is(err, syscall.ENXIO) {
				return fmt.Errorf("charge what runs on CPU %d: %w", cpu, err)
			}
		}
	}
	if err := c.objects.collection.Maps[programMapSlots].Update(cgroup, slot, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("tell the program of cgroup %d: %w", cgroup, err)
	}
	return c.changed()
}

// changed voids what CPUs have remembered of slots.
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

// Forget ends Follow. What the group did since the last Read becomes Other's,
// as its totals do, so that nothing of the machine's is lost.
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
		// The slot stays taken: it must not become somebody else's.
		if c.options.Log != nil {
			c.options.Log.Warn("a cgroup is still counted", "id", id, "err", err)
		}
		return
	}
	delete(c.groups.byID, g.cgroup)
	c.groups.sorted = slices.Delete(c.groups.sorted, at, at+1)
	c.groups.going = append(c.groups.going, g.slot)
	if c.attachment == nil {
		c.retire()
	}
}

// cgroupID finds the kernel's id of a cgroup, the inode of its directory.
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

// retire gives the slots of forgotten groups back. Nothing may be left of them
// in a bank: every CPU that takes part has been flushed and taken since.
func (c *Counter) retire() {
	going := c.groups.retired()
	if len(going) == 0 {
		return
	}
	for _, slot := range going {
		c.total.slots[other].add(&c.total.slots[slot])
		c.total.slots[slot] = Counts{}
	}
	if c.options.Waits == WaitsByCause {
		c.forgetWaits(going)
	}
}

func (c *Counter) forgetWaits(going []uint32) {
	m := c.objects.collection.Maps[programMapWaits]
	var pairs []programPair
	var pair programPair
	var sum uint64
	for i := m.Iterate(); i.Next(&pair, &sum); {
		if slices.Contains(going, pair.Victim) || slices.Contains(going, pair.By) {
			pairs = append(pairs, pair)
		}
	}
	for _, p := range pairs {
		_ = m.Delete(p) // it is there, and nobody adds to it any more
	}
}

// readWaits fills in who waited for whom.
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
		return fmt.Errorf("read who waited for whom: %w", err)
	}
	slices.SortFunc(dst.Waits, func(a, b Wait) int {
		return cmp.Or(cmp.Compare(a.Victim, b.Victim), cmp.Compare(a.By, b.By))
	})
	return nil
}
