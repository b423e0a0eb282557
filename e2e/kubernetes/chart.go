package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
	"github.com/quietcore/quietcore/e2e/wire"
)

// The chart, and what it is installed as.
const (
	chartDir = "charts/quietcore"
	// firstChart is the chart's first version.
	firstChart = "hack/chart/testdata/first/chart"
	release    = "quietcore"

	imageName   = "quietcore.dev/e2e/quietcore"
	imageSource = "hack/image"
	imageDir    = "/usr/share/quietcore"
	firstTag    = "1"
	secondTag   = "2"
)

// images builds two images of the daemon as a release does, if the chart is installed at
// all, that of an older version if it is upgraded from, and the scheduler's if it is deployed, and returns where they
// go in the guest. The versions of the two differ, and so do the binaries in them.
func images(ctx context.Context, o *options) (map[string]string, error) {
	files := map[string]string{}
	if !o.chart() {
		return files, nil
	}
	for _, tag := range []string{firstTag, secondTag} {
		if err := image(ctx, o, tag, files, "-name", imageName, "-version", tag); err != nil {
			return nil, err
		}
	}
	if o.runs(chartVersionsProof) {
		old, err := newestVersion()
		if err != nil {
			return nil, err
		}
		if files[archiveFile(old.Name)[1:]], err = old.Image(ctx, ".", imageName); err != nil {
			return nil, err
		}
	}
	if o.runs(schedulerProof) {
		return files, image(ctx, o, schedulerArchive, files, "-scheduler", "-name", schedulerImage, "-version",
			firstTag)
	}
	return files, nil
}

// image builds one, and adds its file to those of the guest.
func image(ctx context.Context, o *options, as string, files map[string]string, args ...string) error {
	dir, err := filepath.Abs(filepath.Join(o.Cache, "bin"))
	if err != nil {
		return err
	}
	archive := filepath.Join(dir, "quietcore-"+as+".tar")
	cmd := exec.CommandContext(ctx, "go", append([]string{"run", ".", "-platforms", "linux/amd64", "-o", archive},
		args...)...)
	cmd.Dir = imageSource
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, out)
	}
	files[archiveFile(as)[1:]] = archive
	return nil
}

// archiveFile is where an image is in the guest.
func archiveFile(name string) string { return imageDir + "/" + name + ".tar" }

// deploy installs the chart, or upgrades it, as users do, and returns when its pod is
// ready. The daemon next to containerd, if one runs, ends first.
func (b *bench) deploy(ctx context.Context, tag string, config, values map[string]any) error {
	return b.deployFrom(ctx, chartDir, tag, config, values)
}

func (b *bench) deployFrom(ctx context.Context, chart, tag string, config, values map[string]any) error {
	if err := b.killDaemon(ctx); err != nil {
		return err
	}
	if err := b.node.ImportArchive(ctx, archiveFile(tag)); err != nil {
		return err
	}
	all := map[string]any{
		"image":  map[string]any{"repository": imageName, "tag": tag, "pullPolicy": "Never"},
		"config": b.chartConfig(config), "socket": map[string]any{"hostDir": filepath.Dir(daemonSocket)},
	}
	for k, v := range values {
		all[k] = v
	}
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	file := filepath.Join(b.Dir(), "values.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	b.deployed = true
	if _, err := b.Helm(ctx, "upgrade", "--install", release, chart, "--namespace", release, "--create-namespace",
		"--values", file); err != nil {
		return err
	}
	return b.rolledOut(ctx)
}

// chartConfig adds what the guest without systemd needs.
func (b *bench) chartConfig(config map[string]any) map[string]any {
	out := map[string]any{}
	if b.node.Driver == kubelet.Cgroupfs {
		out["cgroup"] = map[string]any{"driver": "cgroupfs"}
	}
	for k, v := range config {
		out[k] = v
	}
	return out
}

func (b *bench) rolledOut(ctx context.Context) error {
	wait := fmt.Sprintf("--timeout=%s", 8*time.Minute)
	_, err := b.Kubectl(ctx, "", "rollout", "status", "-n", release, "daemonset/"+release, wait)
	if err == nil {
		_, err = b.settle(ctx)
	}
	if err != nil {
		why, _ := b.Kubectl(context.WithoutCancel(ctx), "", "describe", "pods", "-n", release) // explains, if it can
		return fmt.Errorf("the chart's release: %w\n%s\n%s", err, why, b.chartLog(context.WithoutCancel(ctx)))
	}
	return nil
}

// chartLog is the log of the chart's daemon; the API server cannot reach the guest for
// it.
func (b *bench) chartLog(ctx context.Context) string {
	out, err := b.node.Exec(ctx, "busybox", "sh", "-c", "tail -n 40 /var/log/pods/"+release+"_*/*/*.log")
	if err != nil {
		return err.Error()
	}
	return out.Stdout
}

// undeploy uninstalls the chart and waits until its pod is gone.
func (b *bench) undeploy(ctx context.Context) error {
	if !b.deployed {
		return nil
	}
	if _, err := b.Helm(ctx, "uninstall", release, "--namespace", release, "--ignore-not-found"); err != nil {
		return err
	}
	b.deployed = false
	return cluster.Until(ctx, refusalLimit, func(ctx context.Context) error {
		pods, err := b.Pods(ctx, release)
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("pod %s is still there", pods[0].Key())
		}
		return err
	})
}

// daemonPod is the chart's only pod.
func (b *bench) daemonPod(ctx context.Context) (*cluster.Pod, error) {
	pods, err := b.Pods(ctx, release)
	if err != nil {
		return nil, err
	}
	if len(pods) != 1 {
		return nil, fmt.Errorf("namespace %s has %d pods, want the daemon's only", release, len(pods))
	}
	return pods[0], nil
}

// rollout: upgrading the DaemonSet, losing its pod and uninstalling the chart move no
// pod. Restoring gives every pod what Kubernetes alone gives.
func rollout(ctx context.Context, b *bench) ([]figure, error) {
	began := time.Now()
	if err := b.deployFrom(ctx, firstChart, firstTag, nil, nil); err != nil {
		return nil, err
	}
	figures := []figure{{Name: "helm install of the chart's first version to ready", Value: seconds(time.Since(began))}}
	pods, err := b.startAll(ctx, everyKind()...)
	if err != nil {
		return figures, err
	}
	before, err := b.place(ctx, pods...)
	if err != nil {
		return figures, err
	}
	for _, step := range []struct {
		name  string
		do    func(context.Context) error
		after func(context.Context, *cluster.Pod) ([]figure, error)
	}{
		{"upgrade from the first version", b.upgrade, func(ctx context.Context, daemon *cluster.Pod) ([]figure, error) {
			asked, err := b.asked(ctx, daemon, pods)
			if err != nil {
				err = fmt.Errorf("asking through the API server: %w", err)
			}
			return asked, errors.Join(err, b.masked(ctx))
		}},
		{"loss of the daemon's pod", b.loseDaemon, func(ctx context.Context, daemon *cluster.Pod) ([]figure, error) {
			return nil, b.doctor(ctx, daemon, "has no such counter") // it was not allowed to look before
		}},
		{"uninstallation", b.undeploy, nil},
		{"installation next to running pods", func(ctx context.Context) error {
			return b.deploy(ctx, secondTag, nil, nil)
		}, nil},
	} {
		began := time.Now()
		looks, err := b.hold(ctx, before, pods, step.do)
		if err != nil {
			return figures, fmt.Errorf("%s: %w", step.name, err)
		}
		figures = append(figures, figure{Name: "looks over the " + step.name + ", no pod moved",
			Value: fmt.Sprintf("%d in %s", looks, seconds(time.Since(began)))})
		if step.after == nil {
			continue
		}
		daemon, err := b.daemonPod(ctx)
		if err != nil {
			return figures, err
		}
		more, err := step.after(ctx, daemon)
		figures = append(figures, more...)
		if err != nil {
			return figures, fmt.Errorf("after the %s: %w", step.name, err)
		}
	}
	more, err := b.restored(ctx, pods)
	return append(figures, more...), err
}

// upgrade replaces the daemon's pod.
func (b *bench) upgrade(ctx context.Context) error {
	first, err := b.daemonPod(ctx)
	if err != nil {
		return err
	}
	if err := b.deploy(ctx, secondTag, nil, readers()); err != nil {
		return err
	}
	second, err := b.daemonPod(ctx)
	if err == nil && second.Metadata.UID == first.Metadata.UID {
		err = errors.New("the daemon's pod is the one of before")
	}
	return err
}

// restored installs the chart once more to undo its effects before uninstalling, and
// compares the pods with new ones.
func (b *bench) restored(ctx context.Context, pods []*cluster.Pod) ([]figure, error) {
	ours, err := b.effect(ctx, pods)
	if err != nil {
		return nil, err
	}
	if err := b.deploy(ctx, secondTag, nil, map[string]any{"restore": map[string]any{"enabled": true}}); err != nil {
		return nil, fmt.Errorf("restore.enabled: %w", err)
	}
	given, err := b.effect(ctx, pods)
	if err != nil {
		return nil, err
	}
	if err := b.sameContainers(ctx, pods); err != nil {
		return nil, err
	}
	if err := b.undeploy(ctx); err != nil {
		return nil, err
	}
	if err := b.DeletePods(ctx, namespace); err != nil {
		return nil, err
	}
	anew, err := b.startAll(ctx, everyKind()...)
	if err != nil {
		return nil, err
	}
	never, err := b.effect(ctx, anew)
	if err != nil {
		return nil, err
	}
	changed := 0
	var errs []error
	for name, want := range never {
		if given[name] != want {
			errs = append(errs, fmt.Errorf("%s is %q after restoring and %q where there was no daemon", name,
				given[name], want))
		}
		if ours[name] != want {
			changed++
		}
	}
	if len(errs) == 0 && changed == 0 {
		errs = append(errs, fmt.Errorf("the daemon had changed nothing: %v", ours))
	}
	return []figure{{Name: "restore.enabled: files as without a daemon",
		Value: fmt.Sprintf("%d, of which it had changed %d", len(never), changed)}}, errors.Join(errs...)
}

// effect is what the kernel lets pods do, by their names.
func (b *bench) effect(ctx context.Context, pods []*cluster.Pod) (map[string]string, error) {
	var names []string
	var actions []wire.FileAction
	for _, p := range pods {
		dir := b.node.ContainerDir(p, &p.Status.ContainerStatuses[0])
		for role, at := range map[string]string{"slice": path.Dir(path.Dir(dir)), "pod": path.Dir(dir),
			"container": dir} {
			for _, file := range []string{"cpuset.cpus.effective", "cpu.max"} {
				names = append(names, p.Metadata.Name+" "+role+" "+file)
				actions = append(actions, wire.FileAction{Do: wire.FileRead, Path: at + "/" + file, Optional: true})
			}
		}
	}
	files, err := b.node.Files(ctx, actions...)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for i, name := range names {
		text := strings.TrimSpace(string(files[i].Data))
		// without the controller it has what all have
		if files[i].Missing && strings.HasSuffix(name, "cpuset.cpus.effective") {
			text = fmt.Sprintf("0-%d", grid.CPUs()-1)
		}
		out[name] = text
	}
	return out, nil
}

func (b *bench) loseDaemon(ctx context.Context) error {
	p, err := b.daemonPod(ctx)
	if err != nil {
		return err
	}
	if err := b.Delete(ctx, cluster.PodsPath(release)+"/"+p.Metadata.Name); err != nil {
		return err
	}
	err = cluster.Until(ctx, refusalLimit, func(ctx context.Context) error {
		now, err := b.daemonPod(ctx)
		if err == nil && now.Metadata.UID == p.Metadata.UID {
			err = fmt.Errorf("pod %s is still there", p.Key())
		}
		return err
	})
	if err != nil {
		return err
	}
	return b.rolledOut(ctx)
}
