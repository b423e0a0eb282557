package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
	"github.com/quietcore/quietcore/e2e/machine"
)

// endBoot leaves of the node what a reboot leaves: its disks. All containers end, those who watch them too, /run
// forgets them, and the kernel's boot has another ID. A guest cannot be rebooted: its disks are in its memory.
//
// The ID stays when the proof ends, as it would be.
const endBoot = `
for d in /sys/fs/cgroup/kubepods*; do echo 1 > $d/cgroup.kill; done
pkill -9 containerd-shim
sleep 1
for m in $(grep -E ' (/var)?/run/(containerd|netns)/' /proc/mounts | cut -d' ' -f2 | sort -r); do umount -l $m; done
rm -rf /run/containerd/io.containerd.* /run/netns/* ` + cdiDir + `/*
cat /proc/sys/kernel/random/uuid > /etc/boot_id
mount -o bind /etc/boot_id /proc/sys/kernel/random/boot_id`

// reboots: a node that is started anew between Prepare and Unprepare gives each claim CPUs once more when kubelet asks,
// and those of a pod that was deleted meanwhile to everybody.
func (c *claiming) reboots(ctx context.Context) error {
	going, err := c.startClaiming(ctx, "going", "main")
	if err != nil {
		return err
	}
	before, err := c.place(ctx, append(c.pods(), going)...)
	if err != nil {
		return err
	}
	if err := c.killDaemon(ctx); err != nil {
		return err
	}
	if err := c.node.StopKubelet(ctx); err != nil {
		return err
	}
	if err := c.node.KillRuntime(ctx); err != nil {
		return err
	}
	if err := c.shell(ctx, endBoot); err != nil {
		return err
	}
	if err := c.Delete(ctx, cluster.PodsPath(namespace)+"/going"); err != nil {
		return err
	}
	began := time.Now()
	if err := c.bootAgain(ctx); err != nil {
		return err
	}
	for _, p := range []**cluster.Pod{&c.web, &c.lsr, &c.two} {
		if err := c.backAgain(ctx, p); err != nil {
			return err
		}
	}
	if err := c.DeletePod(ctx, namespace, "going"); err != nil {
		return err
	}
	took := time.Since(began)
	now, err := c.place(ctx, c.pods()...)
	if err != nil {
		return err
	}
	two := c.two.Key() + "/main"
	c.note("a reboot to all pods running again", "%s; the claim's CPUs were %s and are %s", seconds(took), before[two],
		now[two])
	return c.nothingDoubled(ctx, now, before[going.Key()+"/main"])
}

// bootAgain starts what a boot starts; the daemon must have noticed that it is another one.
func (c *claiming) bootAgain(ctx context.Context) error {
	if err := c.node.StartRuntime(ctx); err != nil {
		return err
	}
	if err := c.startDaemonOn(ctx, c.node, claimConfig); err != nil {
		return err
	}
	if log := c.node.LogTail(ctx, machine.Daemon, 20_000); !strings.Contains(log, "the node was started anew") {
		return errors.New("the daemon has not noticed that the node was started anew:\n" + log)
	}
	if err := c.node.StartKubelet(ctx); err != nil {
		return err
	}
	return c.node.WaitReady(ctx)
}

// backAgain waits until a pod runs in other containers than before.
func (c *claiming) backAgain(ctx context.Context, p **cluster.Pod) error {
	old := map[string]bool{}
	for _, s := range (*p).Status.ContainerStatuses {
		old[s.ContainerID] = true
	}
	pod, err := c.WaitPod(ctx, namespace, (*p).Metadata.Name, func(now *cluster.Pod) bool {
		for _, s := range now.Status.ContainerStatuses {
			if old[s.ContainerID] {
				return false
			}
		}
		return now.Running()
	})
	if err != nil {
		return err
	}
	if pod.Metadata.UID != (*p).Metadata.UID {
		return fmt.Errorf("pod %s was replaced: its UID was %s and is %s", pod.Key(), (*p).Metadata.UID,
			pod.Metadata.UID)
	}
	*p = pod
	return nil
}

// nothingDoubled fails if pod going has CPUs, or another pod ones that it should not have; freed are going's, which
// must be free.
func (c *claiming) nothingDoubled(ctx context.Context, now cluster.Placement, freed string) error {
	two, web, lsr := now[c.two.Key()+"/main"], now[c.web.Key()+"/main"], now[c.lsr.Key()+"/main"]
	status, err := c.settle(ctx)
	if err != nil {
		return err
	}
	if given := givenTo(status, "two"); given != two || !wholeCore(two) {
		return fmt.Errorf("pod two runs on CPUs %s, its claim was given %s, want a core", two, given)
	}
	specs, err := c.node.Exec(ctx, "busybox", "ls", cdiDir)
	if err != nil {
		return err
	}
	if files := len(strings.Fields(specs.Stdout)); len(status.Claims) != 1 || files != 1 {
		return fmt.Errorf("one claim is left, and there are %+v with %d CDI specs", status.Claims, files)
	}
	free, err := cpuset.Parse(freed)
	if err != nil {
		return err
	}
	shared, err := cpuset.Parse(web)
	if err != nil {
		return err
	}
	given, err := cpuset.Parse(two)
	if free = free.Minus(given); err == nil && !free.SubsetOf(&shared) {
		err = fmt.Errorf("CPUs %s of a pod that is gone are in no pool: the shared one is %s", free, shared)
	}
	return errors.Join(err, disjoint(two, web, lsr))
}
