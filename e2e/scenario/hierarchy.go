package scenario

import (
	"context"
	"path"
	"strings"

	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/machine"
	"github.com/quietcore/quietcore/e2e/wire"
)

// hierarchy is the tree of cgroups as kubelet keeps it through one of its drivers.
type hierarchy interface {
	// create makes a cgroup below one that exists; one that exists is only set.
	create(ctx context.Context, name kubelet.CgroupName, cpu kubelet.CPU) error
	set(ctx context.Context, name kubelet.CgroupName, cpu kubelet.CPU) error
	// destroy removes a cgroup in which nothing runs; one that is gone is no error.
	destroy(ctx context.Context, name kubelet.CgroupName) error
	// wipe removes what any cgroup of the tree left anywhere.
	wipe(ctx context.Context) error
}

func newHierarchy(m *machine.Machine, d kubelet.Driver) hierarchy {
	if d == kubelet.Systemd {
		return &units{m}
	}
	return &folders{m}
}

const controllers = "+cpuset +cpu +memory +pids"

// enable gives every child of the directory all controllers, as libcontainer does
// on the way down to a cgroup that it makes.
func enable(dir string) wire.FileAction { return write(dir+"/cgroup.subtree_control", controllers) }

func limits(dir string, cpu kubelet.CPU) []wire.FileAction {
	var actions []wire.FileAction
	for _, f := range cpu.Files() {
		actions = append(actions, write(dir+"/"+f.Name, f.Content))
	}
	return actions
}

// folders is the cgroupfs driver.
type folders struct{ m *machine.Machine }

func (h *folders) dir(name kubelet.CgroupName) string {
	return cgroupRoot + kubelet.Cgroupfs.Path(name)
}

func (h *folders) create(ctx context.Context, name kubelet.CgroupName, cpu kubelet.CPU) error {
	dir := h.dir(name)
	actions := []wire.FileAction{enable(path.Dir(dir)), mkdir(dir)}
	_, err := h.m.Files(ctx, append(actions, limits(dir, cpu)...)...)
	return err
}

func (h *folders) set(ctx context.Context, name kubelet.CgroupName, cpu kubelet.CPU) error {
	_, err := h.m.Files(ctx, limits(h.dir(name), cpu)...)
	return err
}

func (h *folders) destroy(ctx context.Context, name kubelet.CgroupName) error {
	_, err := h.m.Files(ctx, wire.FileAction{Do: wire.FileRmdirTree, Path: h.dir(name), Optional: true})
	return err
}

func (h *folders) wipe(ctx context.Context) error { return h.destroy(ctx, kubelet.Root()) }

// units is the systemd driver: units, and after them the files that libcontainer
// writes next to systemd.
type units struct{ m *machine.Machine }

func (h *units) dir(name kubelet.CgroupName) string {
	return cgroupRoot + kubelet.Systemd.Path(name)
}

func (h *units) create(ctx context.Context, name kubelet.CgroupName, cpu kubelet.CPU) error {
	start := wire.UnitAction{Do: wire.UnitStart, Name: name.Unit(), Properties: kubelet.SliceProperties(name)}
	if _, err := h.m.Units(ctx, start); err != nil {
		return err
	}
	// From the root down, and without the cgroup itself.
	var actions []wire.FileAction
	dir := cgroupRoot
	for i := range name {
		actions = append(actions, enable(dir))
		dir = h.dir(name[:i+1])
		actions = append(actions, mkdir(dir))
	}
	if _, err := h.m.Files(ctx, actions...); err != nil {
		return err
	}
	return h.set(ctx, name, cpu)
}

func (h *units) set(ctx context.Context, name kubelet.CgroupName, cpu kubelet.CPU) error {
	set := wire.UnitAction{Do: wire.UnitSet, Name: name.Unit(), Properties: cpu.Properties()}
	if _, err := h.m.Units(ctx, set); err != nil {
		return err
	}
	if files := limits(h.dir(name), cpu.Rounded()); len(files) > 0 {
		_, err := h.m.Files(ctx, files...)
		return err
	}
	return nil
}

func (h *units) destroy(ctx context.Context, name kubelet.CgroupName) error {
	if _, err := h.m.Units(ctx, wire.UnitAction{Do: wire.UnitStop, Name: name.Unit()}); err != nil {
		return err
	}
	_, err := h.m.Files(ctx, wire.FileAction{Do: wire.FileRmdirTree, Path: h.dir(name), Optional: true})
	return err
}

// whereUnits are the folders in which systemd keeps units and properties that were
// made at run time; those of a slice that was made implicitly outlive it.
var whereUnits = []string{"/run/systemd/transient", "/run/systemd/system.control"}

func (h *units) wipe(ctx context.Context) error {
	if err := h.destroy(ctx, kubelet.Root()); err != nil {
		return err
	}
	var list []wire.FileAction
	for _, dir := range whereUnits {
		list = append(list, wire.FileAction{Do: wire.FileList, Path: dir, Optional: true})
	}
	found, err := h.m.Files(ctx, list...)
	if err != nil {
		return err
	}
	var remove []wire.FileAction
	for i, dir := range whereUnits {
		for _, name := range found[i].Names {
			if ofPods(name) {
				remove = append(remove, wire.FileAction{Do: wire.FileRemoveTree, Path: dir + "/" + name})
			}
		}
	}
	if len(remove) == 0 {
		return nil
	}
	if _, err := h.m.Files(ctx, remove...); err != nil {
		return err
	}
	_, err = h.m.Units(ctx, wire.UnitAction{Do: wire.UnitReload})
	return err
}

// ofPods recognises the units of kubelet and of the runtime, and their drop-in folders,
// from the machine's own.
func ofPods(name string) bool {
	return strings.HasPrefix(name, "kubepods.slice") || strings.HasPrefix(name, "kubepods-") ||
		machine.OfContainers(name)
}
