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

// kubeletNotices is how long kubelet gets to ask a daemon that is not there.
const kubeletNotices = 5 * time.Second

// crashes: a container that ends again and again comes back on the CPUs of its claim.
func (c *claiming) crashes(ctx context.Context) error {
	const times = 3
	pod, err := c.startClaiming(ctx, "crashing", "main")
	if err != nil {
		return err
	}
	before, err := c.place(ctx, append(c.pods(), pod)...)
	if err != nil {
		return err
	}
	for n := 1; n <= times; n++ {
		dir := c.node.ContainerDir(pod, &pod.Status.ContainerStatuses[0])
		if _, err := c.node.Exec(ctx, "busybox", "sh", "-c", "echo 1 > "+dir+"/cgroup.kill"); err != nil {
			return err
		}
		if pod, err = c.WaitPod(ctx, namespace, "crashing", func(p *cluster.Pod) bool {
			return p.Running() && p.Status.ContainerStatuses[0].RestartCount >= n
		}); err != nil {
			return err
		}
		now, err := c.place(ctx, append(c.pods(), pod)...)
		if err == nil {
			err = before.Moved(now)
		}
		if err != nil {
			return fmt.Errorf("start %d of a container with a claim: %w", n+1, err)
		}
	}
	c.note("CPUs of a claim through crashes of its container", "%s, %d times", before[pod.Key()+"/main"], times)
	return c.DeletePod(ctx, namespace, "crashing")
}

// deletedMeanwhile: a pod that is deleted while the daemon is dead leaves nothing behind.
func (c *claiming) deletedMeanwhile(ctx context.Context) error {
	pod, err := c.startClaiming(ctx, "going", "main")
	if err != nil {
		return err
	}
	place, err := c.place(ctx, pod, c.web)
	if err != nil {
		return err
	}
	cpus, err := cpuset.Parse(place[pod.Key()+"/main"])
	if err != nil {
		return err
	}
	if err := c.killDaemon(ctx); err != nil {
		return err
	}
	if err := c.Delete(ctx, cluster.PodsPath(namespace)+"/going"); err != nil {
		return err
	}
	if err := pass(kubeletNotices)(ctx); err != nil {
		return err
	}
	if err := c.startDaemonOn(ctx, c.node, claimConfig); err != nil {
		return err
	}
	began := time.Now()
	if err := c.untilShared(ctx, cpus); err != nil {
		return err
	}
	c.note("daemon back to the CPUs of a pod that was deleted meanwhile in the shared pool", "%s",
		seconds(time.Since(began)))
	status, err := c.settle(ctx)
	if err == nil && givenTo(status, "going") != "" {
		err = fmt.Errorf("pod going is gone and its claim still has CPUs %s", givenTo(status, "going"))
	}
	return err
}

// untilShared waits until pod web may run on CPUs that a claim had.
func (c *claiming) untilShared(ctx context.Context, cpus cpuset.Set) error {
	return cluster.Until(ctx, freeLimit, func(ctx context.Context) error {
		now, err := c.node.CPUs(ctx, c.web)
		if err != nil {
			return err
		}
		shared, err := cpuset.Parse(now[c.web.Key()+"/main"])
		if err == nil && !cpus.SubsetOf(&shared) {
			err = fmt.Errorf("the shared pool is %s, CPUs %s of the claim are not back", shared, cpus)
		}
		return err
	})
}

// floor: where claims may have the whole node, the one that would leave the shared pool less than its floor is refused
// with the numbers, and nobody else loses anything.
func (c *claiming) floor(ctx context.Context) error {
	for _, p := range []*cluster.Pod{c.two, c.lsr} {
		if err := c.DeletePod(ctx, namespace, p.Metadata.Name); err != nil {
			return err
		}
	}
	c.two, c.lsr = nil, nil
	if err := c.DeletePod(ctx, namespace, "app"); err != nil {
		return err
	}
	if err := c.restartDaemon(ctx, map[string]any{"dra": map[string]any{"mode": "on", "share": "100%"}}); err != nil {
		return err
	}
	if _, err := c.offered(ctx, "numa-0 with 4 CPUs, numa-1 with 4 CPUs"); err != nil {
		return err
	}
	if err := c.template(ctx, "quad", 4); err != nil {
		return err
	}
	create := func(name string) error {
		return c.Create(ctx, cluster.PodsPath(namespace), fromTemplate(claimPod(name, "main"), "quad"), nil)
	}
	if err := create("first"); err != nil {
		return err
	}
	first, err := c.WaitRunning(ctx, namespace, "first")
	if err != nil {
		return err
	}
	before, err := c.place(ctx, first, c.web)
	if err != nil {
		return err
	}
	if err := create("second"); err != nil {
		return err
	}
	line, err := c.describeRefusal(ctx, namespace, "second", "FailedPrepareDynamicResources", "its floor is")
	if err != nil {
		return err
	}
	c.note("a claim below the floor of the shared pool", "%s", line)
	now, err := c.place(ctx, first, c.web)
	if err != nil {
		return err
	}
	return errors.Join(before.Moved(now), c.DeletePod(ctx, namespace, "second"), c.DeletePod(ctx, namespace, "first"))
}

// another: our driver does not serve where another one for CPUs is, and says so; owners get what was kept for claims,
// and our driver is back when the other one is gone.
func (c *claiming) another(ctx context.Context) error {
	const socket = "/var/lib/kubelet/plugins_registry/dra.cpu-reg.sock"
	if _, err := c.node.Exec(ctx, "busybox", "touch", socket); err != nil {
		return err
	}
	err := c.beside(ctx)
	if _, away := c.node.Exec(context.WithoutCancel(ctx), "busybox", "rm", "-f", socket); err != nil || away != nil {
		return errors.Join(err, away)
	}
	began := time.Now()
	if err := c.DeletePod(ctx, namespace, "greedy"); err != nil {
		return err
	}
	what, err := c.published(ctx)
	c.note("another driver gone to our ResourceSlice", "%s: %s", seconds(time.Since(began)), what)
	return err
}

func (c *claiming) beside(ctx context.Context) error {
	if err := c.restartDaemon(ctx, claimConfig); err != nil {
		return err
	}
	var said string
	if err := cluster.Until(ctx, refusalLimit, func(ctx context.Context) error {
		out, err := c.node.Exec(ctx, "busybox", "sh", "-c", daemonBinary+" doctor --all || true")
		if err == nil && !strings.Contains(out.Stdout, "another driver for CPUs is on this node") {
			err = fmt.Errorf("doctor says nothing of another driver: %s", out.Stdout)
		}
		for l := range strings.Lines(out.Stdout) {
			if strings.Contains(l, "another driver") {
				said = strings.Join(strings.Fields(l), " ")
			}
		}
		return err
	}); err != nil {
		return err
	}
	c.note("doctor beside another driver", "%s", said)
	greedy, err := c.start(ctx, owner("greedy", "LSR", 4))
	if err != nil {
		return err
	}
	place, err := c.place(ctx, greedy)
	if err != nil {
		return err
	}
	c.note("an owner of what was kept for claims", "CPUs %s", place[greedy.Key()+"/main"])
	return nil
}

// cdiDir is where the daemon writes CDI specs of claims; cdiDirIs sets a shell's dir to it as /proc/mounts has it.
const (
	cdiDir   = "/var/run/cdi"
	cdiDirIs = "dir=$(readlink -f " + cdiDir + ")"
)

// duringUnprepare: the daemon dies when it has given a claim's CPUs back and kubelet has had no answer. No CPUs are
// the claim's afterwards, nobody moves, and kubelet's next attempt ends it.
//
// In a directory that is read only the daemon cannot remove the claim's spec, which is its last step.
func (c *claiming) duringUnprepare(ctx context.Context) error {
	pod, err := c.startClaiming(ctx, "leaving", "main")
	if err != nil {
		return err
	}
	place, err := c.place(ctx, append(c.pods(), pod)...)
	if err != nil {
		return err
	}
	cpus, err := cpuset.Parse(place[pod.Key()+"/main"])
	if err != nil {
		return err
	}
	if err := c.shell(ctx, cdiDirIs+"; mount -o bind $dir $dir && mount -o remount,ro,bind $dir"); err != nil {
		return err
	}
	err = c.diesUnanswered(ctx, cpus)
	if back := c.shell(context.WithoutCancel(ctx), cdiDirIs+"; umount $dir"); err != nil || back != nil {
		return errors.Join(err, back)
	}
	began := time.Now()
	if err := cluster.Until(ctx, freeLimit, func(ctx context.Context) error {
		switch err := c.Get(ctx, cluster.PodsPath(namespace)+"/leaving", nil); {
		case cluster.Refused(err, 404):
			return nil
		case err != nil:
			return err
		}
		return errors.New("pod leaving is still there")
	}); err != nil {
		return err
	}
	c.note("the daemon could answer to the end of a pod whose Unprepare it did not survive", "%s",
		seconds(time.Since(began)))
	status, err := c.settle(ctx)
	if err == nil && givenTo(status, "leaving") != "" {
		err = fmt.Errorf("pod leaving is gone and its claim still has CPUs %s", givenTo(status, "leaving"))
	}
	return err
}

// diesUnanswered deletes pod leaving and kills the daemon once its claim's CPUs are given back.
func (c *claiming) diesUnanswered(ctx context.Context, cpus cpuset.Set) error {
	if err := c.Delete(ctx, cluster.PodsPath(namespace)+"/leaving"); err != nil {
		return err
	}
	const failure = "a claim is not unprepared"
	if err := cluster.Until(ctx, freeLimit, func(ctx context.Context) error {
		if log := c.node.LogTail(ctx, machine.Daemon, 3000); !strings.Contains(log, failure) {
			return errors.New("the daemon's log does not say: " + failure)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := c.untilShared(ctx, cpus); err != nil {
		return err
	}
	looks, err := c.unmoved(ctx, func(ctx context.Context) error { return c.restartDaemon(ctx, claimConfig) })
	if err != nil {
		return err
	}
	c.note("looks over the daemon's death during Unprepare, nothing moved", "%d", looks)
	specs, err := c.node.Exec(ctx, "busybox", "ls", cdiDir)
	if err != nil {
		return err
	}
	status, err := c.settle(ctx)
	if err != nil {
		return err
	}
	claims := len(status.Claims)
	if files := len(strings.Fields(specs.Stdout)); files != claims+1 || givenTo(status, "leaving") != "" {
		return fmt.Errorf("%d claims have CPUs, that of pod leaving %q, and there are %d CDI specs: want one more",
			claims, givenTo(status, "leaving"), files)
	}
	return nil
}

// shell runs a line of busybox's shell in the guest.
func (c *claiming) shell(ctx context.Context, line string) error {
	_, err := c.node.Exec(ctx, "busybox", "sh", "-c", line)
	return err
}

// health: kubelet says in a pod's status that its device has a CPU offline, and when it no longer has.
func (c *claiming) health(ctx context.Context) error {
	place, err := c.place(ctx, c.pods()...)
	if err != nil {
		return err
	}
	shared, err := cpuset.Parse(place[c.web.Key()+"/main"])
	if err != nil {
		return err
	}
	cpu, near := -1, (*cluster.Pod)(nil)
	for _, pod := range []*cluster.Pod{c.one, c.two} {
		cpus, err := cpuset.Parse(place[pod.Key()+"/main"])
		if err != nil {
			return err
		}
		for one := range shared.All() {
			if one/nodeSize == cpus.First()/nodeSize {
				cpu, near = one, pod
			}
		}
	}
	if near == nil {
		return fmt.Errorf("no pod with a claim is on a NUMA node with CPUs of the shared pool: %v", place)
	}
	if err := c.untilHealth(ctx, near, "Healthy", ""); err != nil {
		return err
	}
	if err := c.node.Offline(ctx, cpu); err != nil {
		return err
	}
	began := time.Now()
	err = c.untilHealth(ctx, near, "Unhealthy", fmt.Sprintf("CPUs %d are offline", cpu))
	took := time.Since(began)
	if err := errors.Join(err, c.node.Online(context.WithoutCancel(ctx), cpu)); err != nil {
		return err
	}
	began = time.Now()
	if err := c.untilHealth(ctx, near, "Healthy", ""); err != nil {
		return err
	}
	c.note("a CPU offline, and online again, to the health of a claim's device in the pod's status", "%s and %s",
		seconds(took), seconds(time.Since(began)))
	return nil
}

// untilHealth waits until kubelet says that the device of a pod's first container is so.
func (c *claiming) untilHealth(ctx context.Context, pod *cluster.Pod, health, message string) error {
	return cluster.Until(ctx, refusalLimit, func(ctx context.Context) error {
		var now struct {
			Status struct {
				ContainerStatuses []struct {
					AllocatedResourcesStatus []struct {
						Resources []struct{ Health, Message string }
					}
				}
			}
		}
		if err := c.Get(ctx, cluster.PodsPath(namespace)+"/"+pod.Metadata.Name, &now); err != nil {
			return err
		}
		for _, container := range now.Status.ContainerStatuses {
			for _, claim := range container.AllocatedResourcesStatus {
				for _, r := range claim.Resources {
					if r.Health == health && r.Message == message {
						return nil
					}
				}
			}
		}
		return fmt.Errorf("the device of pod %s is not %s, %q: %+v", pod.Metadata.Name, health, message, now.Status)
	})
}
