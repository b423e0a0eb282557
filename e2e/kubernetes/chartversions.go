package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quietcore/quietcore/e2e/kubernetes/cluster"
	"github.com/quietcore/quietcore/e2e/upgrade"
)

// chartVersionsProof is the name of the proof, which needs the image of a version from history.
const chartVersionsProof = "chart-versions"

// newestVersion is the version that was cut last.
func newestVersion() (upgrade.Version, error) {
	all, err := upgrade.Versions()
	if err != nil {
		return upgrade.Version{}, err
	}
	return all[len(all)-1], nil
}

// turns are a release of the chart that goes from the version that was cut last to this one, back, and forth again.
type turns struct {
	*bench
	old    upgrade.Version
	pods   []*cluster.Pod
	before cluster.Placement
	owners string    // of the daemon's status
	began  time.Time // when the first daemon began to measure what pods use
	out    []figure
}

// chartVersions: chart and daemon of the version that was cut last are upgraded to these, rolled back and upgraded
// again, while pods run. Nobody moves, and each daemon goes on from what the other one saved.
func chartVersions(ctx context.Context, b *bench) ([]figure, error) {
	old, err := newestVersion()
	if err != nil {
		return nil, err
	}
	t := &turns{bench: b, old: old}
	err = t.install(ctx)
	for _, turn := range []struct {
		name, version, forecast string
		do                      func(context.Context) error
	}{
		// What is saved while a daemon ends is the former one's.
		{"upgrade from " + old.Name, secondTag, "peak(1.1)", t.toThis},
		{"rollback to " + old.Name, old.Name, "forecast", t.back},
		{"second upgrade from " + old.Name, secondTag, "peak(1.1)", t.toThis},
	} {
		if err == nil {
			err = t.turn(ctx, turn.name, turn.do)
		}
		if err == nil {
			err = t.goesOn(ctx, turn.version, turn.forecast)
		}
		if err != nil {
			return t.out, fmt.Errorf("%s: %w", turn.name, err)
		}
	}
	return t.out, b.sameContainers(ctx, t.pods)
}

// lends has both versions keep a checkpoint of what pods use.
func lends() map[string]any { return map[string]any{"reclaim": map[string]any{"mode": "observe"}} }

// install has the old chart installed with its own daemon, and pods of every kind.
func (t *turns) install(ctx context.Context) error {
	dir := filepath.Join(t.Dir(), t.old.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := t.old.Extract(ctx, ".", dir, chartDir); err != nil {
		return err
	}
	if err := t.deployFrom(ctx, filepath.Join(dir, chartDir), t.old.Name, lends(), nil); err != nil {
		return err
	}
	var err error
	if t.pods, err = t.startAll(ctx, everyKind()...); err != nil {
		return err
	}
	if t.before, err = t.place(ctx, t.pods...); err != nil {
		return err
	}
	t.owners, err = t.owned(ctx)
	return err
}

func (t *turns) toThis(ctx context.Context) error { return t.deploy(ctx, secondTag, lends(), nil) }

// back is what an operator does whom the new version disappoints.
func (t *turns) back(ctx context.Context) error {
	if _, err := t.Helm(ctx, "rollback", release, "1", "--namespace", release); err != nil {
		return err
	}
	return t.rolledOut(ctx)
}

// turn replaces the daemon by another one while pods are looked at.
func (t *turns) turn(ctx context.Context, name string, do func(context.Context) error) error {
	former, err := t.daemonPod(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	looks, err := t.hold(ctx, t.before, t.pods, do)
	if err != nil {
		return err
	}
	t.out = append(t.out, figure{Name: "looks over the " + name + ", no pod moved",
		Value: fmt.Sprintf("%d in %s", looks, seconds(time.Since(began)))})
	now, err := t.daemonPod(ctx)
	if err == nil && now.Metadata.UID == former.Metadata.UID {
		err = fmt.Errorf("the daemon's pod is the one of before")
	}
	return err
}

// goesOn: the daemon is of that version and has read what the one before it saved. Owners that come find their CPUs.
func (t *turns) goesOn(ctx context.Context, version, forecast string) error {
	daemon, err := t.daemonPod(ctx)
	if err != nil {
		return err
	}
	said, err := t.Kubectl(ctx, "", "exec", "-n", release, daemon.Metadata.Name, "--", "/quietcore", "version")
	if err != nil {
		return err
	}
	if !strings.HasPrefix(said, "quietcore "+version+" ") {
		return fmt.Errorf("the daemon is %q, want version %s", said, version)
	}
	t.out = append(t.out, figure{Name: "then the daemon says", Value: strings.TrimSpace(said)})
	if now, err := t.owned(ctx); err != nil || now != t.owners {
		return fmt.Errorf("owners are %q, and were %q before: %w", now, t.owners, err)
	}
	if err := t.understands(ctx, daemon); err != nil {
		return err
	}
	if err := t.resumed(ctx, forecast); err != nil {
		return err
	}
	return t.newcomer(ctx)
}

// owned are the owners and their CPUs, as the daemon says.
func (t *turns) owned(ctx context.Context) (string, error) {
	status, err := t.settle(ctx)
	if err != nil {
		return "", err
	}
	var all []string
	for _, o := range status.Owners {
		all = append(all, o.Pod+" "+o.CPUs)
	}
	if slices.Sort(all); len(all) == 0 {
		return "", fmt.Errorf("no pod owns CPUs")
	}
	return strings.Join(all, ", "), nil
}

// understands: the daemon refuses no file that the one before it left.
func (t *turns) understands(ctx context.Context, daemon *cluster.Pod) error {
	const refusals = "corrupt|put aside|cannot be read|reads up to|is not used|damaged"
	log := "/var/log/pods/" + release + "_" + daemon.Metadata.Name + "_*/*/*.log"
	said, err := t.node.Exec(ctx, "busybox", "sh", "-c", "cat "+log+" | grep -c synchronized; cat "+log+
		" | grep -E '"+refusals+"'; ls /var/lib/quietcore | grep corrupt; true")
	if err != nil {
		return err
	}
	if times, err := strconv.Atoi(strings.TrimSpace(said.Stdout)); err != nil || times == 0 {
		return fmt.Errorf("the daemon's log and folder, want a synchronisation and no refusal: %s", said.Stdout)
	}
	return nil
}

// resumed: the former daemon, which forecast as that says, went on from the checkpoint of the one before it.
func (t *turns) resumed(ctx context.Context, forecast string) error {
	text, err := t.node.ReadFile(ctx, lendingFile)
	if err != nil {
		return err
	}
	var saved struct {
		At, Epoch time.Time
		Predictor string
	}
	if err := json.Unmarshal([]byte(text), &saved); err != nil {
		return err
	}
	if t.began.IsZero() {
		t.began = saved.Epoch
	}
	if saved.At.Sub(saved.Epoch) <= 0 || saved.Epoch.Sub(t.began).Abs() > time.Second || saved.Predictor != forecast {
		return fmt.Errorf("%s is of %s to %s by %s, want from %s by %s", lendingFile, saved.Epoch, saved.At,
			saved.Predictor, t.began, forecast)
	}
	t.out = append(t.out, figure{Name: "checkpoint of the daemon before, by " + forecast,
		Value: "of " + seconds(saved.At.Sub(saved.Epoch)) + " without a break"})
	return nil
}

// newcomer starts another owner, which takes nobody's CPUs, and deletes it.
func (t *turns) newcomer(ctx context.Context) error {
	late, err := t.start(ctx, owner("late", "LSR", 2))
	if err != nil {
		return err
	}
	now, err := t.place(ctx, append(slices.Clone(t.pods), late)...)
	if err != nil {
		return err
	}
	own := now[late.Key()+"/main"]
	for _, p := range t.pods {
		key := p.Key() + "/main"
		if !strings.HasPrefix(p.Metadata.Name, "batch") {
			if err := disjoint(own, now[key]); err != nil {
				return fmt.Errorf("%s and %s: %w", late.Key(), p.Key(), err)
			}
		}
		if strings.HasPrefix(p.Metadata.Name, "ls") && now[key] != t.before[key] {
			return fmt.Errorf("%s moved from %s to %s for a newcomer", p.Key(), t.before[key], now[key])
		}
	}
	if err := t.DeletePod(ctx, namespace, "late"); err != nil {
		return err
	}
	return cluster.Until(ctx, refusalLimit, func(ctx context.Context) error {
		now, err := t.place(ctx, t.pods...)
		if err == nil {
			err = t.before.Moved(now)
		}
		return err
	})
}
