package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/quietcore/quietcore/e2e/bench/figures"
	"github.com/quietcore/quietcore/e2e/kubelet"
)

const (
	// runcDir is not below /run, which may forbid to run programs.
	runcDir = "/var/lib/bench"
	runcFS  = runcDir + "/rootfs"
)

// runcContainer is one that the real runc made.
type runcContainer struct {
	pod *kubelet.Pod
	id  string
}

func (n *node) runc(ctx context.Context, stdin []byte, args ...string) error {
	base := []string{"--root", filepath.Join(runcDir, "state")}
	if n.driver == kubelet.Systemd {
		base = append(base, "--systemd-cgroup")
	}
	cmd := exec.CommandContext(ctx, "runc", append(base, args...)...)
	var out bytes.Buffer
	cmd.Stdin = bytes.NewReader(stdin)
	if args[0] == "run" {
		// A detached container keeps what it gets.
		log, err := os.Create(filepath.Join(runcDir, "run.log"))
		if err != nil {
			return err
		}
		defer log.Close()
		cmd.Stdin, cmd.Stderr = nil, log
	} else {
		cmd.Stdout, cmd.Stderr = &out, &out
	}
	if err := cmd.Run(); err != nil {
		said, _ := os.ReadFile(filepath.Join(runcDir, "run.log"))
		return fmt.Errorf("runc %v: %w: %s%s", args, err, out.String(), said)
	}
	return nil
}

// updates measures the runtime's own way to another cpuset: what containerd's
// shim runs for every container that a plugin updates.
func (n *node) updates(ctx context.Context) (figures.Update, error) {
	u := figures.Update{Sample: n.o.runc}
	if err := makeRootFS(); err != nil {
		return u, err
	}
	var made []runcContainer
	began := time.Now()
	for i := range u.Sample {
		c, err := n.runcStart(ctx, i)
		if err != nil {
			return u, err
		}
		made = append(made, c)
	}
	say("runc made %d containers in %.0f s", len(made), time.Since(began).Seconds())
	all, err := n.allCPUs()
	if err != nil {
		return u, err
	}
	var took []time.Duration
	for _, cpus := range []string{fmt.Sprintf("%d-%d", ownerCPUs, all.Count()-1), all.String()} {
		for _, c := range made {
			one, err := n.runcUpdate(ctx, c, cpus)
			if err != nil {
				return u, err
			}
			took = append(took, one)
		}
	}
	var sum time.Duration
	for _, t := range took {
		sum += t
	}
	u.Updates, u.Mean, u.Times = len(took), figures.Millis(sum/time.Duration(len(took))), figures.TimesOf(took)
	say("runc update: %+v ms", u.Times)
	return u, nil
}

func makeRootFS() error {
	for _, dir := range []string{"proc", "dev"} {
		if err := os.MkdirAll(filepath.Join(runcFS, dir), 0o755); err != nil {
			return err
		}
	}
	program, err := os.ReadFile(sleeperPath)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(runcFS, "sleeper"), program, 0o755)
}

func (n *node) runcStart(ctx context.Context, i int) (runcContainer, error) {
	c := runcContainer{pod: web(1_000_000 + i), id: hex64(5, i)}
	if err := n.tree.make(ctx, c.pod.CgroupName(), c.pod.PodCPU()); err != nil {
		return c, err
	}
	path := n.driver.ContainerPath(c.pod, c.id)
	if n.driver == kubelet.Systemd {
		path = c.pod.CgroupName().Unit() + ":cri-containerd:" + c.id
	}
	spec, err := json.Marshal(spec(path, n.o.threads))
	if err != nil {
		return c, err
	}
	bundle := filepath.Join(runcDir, c.id)
	if err := os.MkdirAll(bundle, 0o755); err != nil {
		return c, err
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), spec, 0o644); err != nil {
		return c, err
	}
	return c, n.runc(ctx, nil, "run", "--detach", "--bundle", bundle, c.id)
}

type object = map[string]any

// spec is a container in the words of OCI's runtime specification.
func spec(cgroupsPath string, threads int) object {
	return object{
		"ociVersion": "1.0.2",
		"process": object{"user": object{"uid": 0, "gid": 0}, "args": []string{"/sleeper", fmt.Sprint(threads)},
			"env": sleeperEnv(), "cwd": "/"},
		"root":   object{"path": runcFS},
		"mounts": []object{{"destination": "/proc", "type": "proc", "source": "proc"}},
		"linux": object{
			"cgroupsPath": cgroupsPath,
			"namespaces":  []object{{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}},
			"resources":   object{"cpu": object{"shares": 10, "period": kubelet.Period}},
		},
	}
}

// runcUpdate runs what the shim does, which hands over the resources as JSON.
func (n *node) runcUpdate(ctx context.Context, c runcContainer, cpus string) (time.Duration, error) {
	resources, err := json.Marshal(object{"cpu": object{"shares": 10, "period": kubelet.Period, "cpus": cpus}})
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := n.runc(ctx, resources, "update", "--resources", "-", c.id); err != nil {
		return 0, err
	}
	took := time.Since(start)
	got, err := readWord(cgroupRoot, n.driver.ContainerPath(c.pod, c.id), "cpuset.cpus")
	if err != nil {
		return 0, err
	}
	if got != cpus {
		return 0, fmt.Errorf("runc update %s: the kernel has CPUs %q, want %q", c.id, got, cpus)
	}
	return took, nil
}
