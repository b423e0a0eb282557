package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/quietcore/quietcore/e2e/kubelet"
	"github.com/quietcore/quietcore/e2e/machine"
	"github.com/quietcore/quietcore/e2e/wire"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/script"
)

// Guest is the node that is played on: a machine with the runtime up, and the
// daemon if there is one.
type Guest struct {
	*machine.Machine
	Daemon bool   // false: no pinning, which tests the harness itself
	Binary string // of the daemon that is started next
	tree   hierarchy
}

// Player is kubelet with a script instead of an API server.
type Player struct {
	g      *Guest
	cri    cri.RuntimeServiceClient
	script *Script
	static bool
	state  script.KubeletState
	labels map[string]string
	pods   map[string]*podState
	last   []script.State
	step   int
	// advanced is how far the script has put the daemon's clock forward.
	advanced float64
}

type podState struct {
	spec       *kubelet.Pod
	sandbox    string
	config     *cri.PodSandboxConfig
	containers map[string]*containerState
}

type containerState struct {
	id      string
	attempt uint32
	spec    *kubelet.Container
	running bool
}

func key(namespace, pod string) string { return namespace + "/" + pod }

// NewPlayer makes the guest the node of the script: nothing runs on it, and the
// daemon is new.
func NewPlayer(ctx context.Context, g *Guest, s *Script) (*Player, error) {
	p := &Player{g: g, cri: g.CRI(), script: s, pods: map[string]*podState{}, labels: map[string]string{}}
	p.readNode()
	if err := g.Wipe(ctx); err != nil {
		return nil, fmt.Errorf("clear the node: %w", err)
	}
	if err := p.prepareNode(ctx); err != nil {
		return nil, fmt.Errorf("prepare the node: %w", err)
	}
	if !g.Daemon {
		return p, nil
	}
	return p, p.StartDaemon(ctx)
}

// StartDaemon gives the daemon the node's labels in its configuration: it finds
// there what an API server would have sent it.
func (p *Player) StartDaemon(ctx context.Context) error {
	config, err := daemonConfig(p.script, p.labels)
	if err != nil {
		return err
	}
	if err := p.g.WriteFile(ctx, configPath, config); err != nil {
		return err
	}
	return p.g.StartDaemon(ctx)
}

// restartDaemon is kill -9. The clock of the new one starts at the real time, so
// it is put forward again.
func (p *Player) restartDaemon(ctx context.Context, changed *config.Config) error {
	if !p.g.Daemon {
		return nil
	}
	if changed != nil {
		file := *p.script.File
		file.Config = *changed
		p.script = &Script{Path: p.script.Path, File: &file}
	}
	if err := p.g.KillDaemon(ctx); err != nil {
		return err
	}
	if err := p.StartDaemon(ctx); err != nil || p.advanced == 0 {
		return err
	}
	return p.g.Inject(ctx, map[string]any{"advance": script.Advance{Seconds: p.advanced}})
}

func (p *Player) readNode() {
	p.static = p.script.File.Node.Kubelet.CPUManagerPolicy == config.CPUManagerStatic
	maps.Copy(p.labels, p.script.File.Node.Labels)
}

// Play performs the steps and hands each line out as soon as it is known.
func (p *Player) Play(ctx context.Context, emit func(script.Line) error) error {
	for i := range p.script.File.Steps {
		line, err := p.Step(ctx, &p.script.File.Steps[i])
		if err != nil {
			return fmt.Errorf("%s: step %d (%s): %w", p.script.Path, i+1, p.script.File.Steps[i].Op(), err)
		}
		if err := emit(*line); err != nil {
			return err
		}
	}
	return nil
}

// Do plays steps written as in a scenario file, for a show that goes on from what
// it saw. The last line is returned:
//
//	line, err := p.Do(ctx, "create: {pod: web, containers: [{name: main, requestMilli: 2000, limitMilli: 2000}]}")
func (p *Player) Do(ctx context.Context, steps ...string) (*script.Line, error) {
	text := "topology: {grid: {}}\nsteps:\n"
	for _, s := range steps {
		text += "  - " + s + "\n"
	}
	parsed, err := Parse("step", []byte(text))
	if err != nil {
		return nil, err
	}
	var line *script.Line
	for i := range parsed.File.Steps {
		if line, err = p.Step(ctx, &parsed.File.Steps[i]); err != nil {
			return nil, fmt.Errorf("%s: %w", steps[i], err)
		}
	}
	return line, nil
}

// Step performs one step, waits until the daemon is idle, and looks.
func (p *Player) Step(ctx context.Context, s *script.Step) (*script.Line, error) {
	p.step++
	err := p.perform(ctx, s)
	refusal := refusalOf(err)
	if err != nil && refusal == nil {
		return nil, err
	}
	line, err := p.Observe(ctx)
	if err != nil {
		return nil, err
	}
	line.Step, line.Op, line.Error = p.step, s.Op(), refusal
	line.Changed = script.Changed(p.last, line.Containers)
	p.last = line.Containers
	return line, nil
}

func (p *Player) perform(ctx context.Context, s *script.Step) error {
	play := p.plays()[s.Op()]
	if play == nil {
		return fmt.Errorf("no machine plays the step %q", s.Op())
	}
	return play(ctx, s)
}

// plays is what a machine does at each step, by its name in the script. What is not here
// checkSteps has to refuse.
func (p *Player) plays() map[string]func(context.Context, *script.Step) error {
	type c = context.Context
	type step = *script.Step
	return map[string]func(c, step) error{
		"create":           func(ctx c, s step) error { return p.create(ctx, podOf(s.Create)) },
		"resize":           func(ctx c, s step) error { return p.resize(ctx, s.Resize) },
		"kubeletUpdate":    func(ctx c, s step) error { return p.kubeletUpdate(ctx, s.KubeletUpdate) },
		"restartContainer": func(ctx c, s step) error { return p.restartContainer(ctx, s.RestartContainer) },
		"stop":             func(ctx c, s step) error { return p.stop(ctx, s.Stop) },
		"remove":           func(ctx c, s step) error { return p.removeStep(ctx, s.Remove) },
		"restartDaemon":    func(ctx c, s step) error { return p.restartDaemon(ctx, s.RestartDaemon.Config) },
		"nodeLabels":       func(ctx c, s step) error { return p.nodeLabels(ctx, s.NodeLabels) },
		"kubeletState":     func(ctx c, s step) error { return p.kubeletState(ctx, *s.KubeletState) },
		"kubeletConfig":    func(ctx c, s step) error { return p.kubeletConfig(ctx, s.KubeletConfig) },
		"offline":          func(ctx c, s step) error { return p.switchCPUs(ctx, s.Offline.CPUs, p.g.Offline) },
		"online":           func(ctx c, s step) error { return p.switchCPUs(ctx, s.Online.CPUs, p.g.Online) },
		"cap":              func(ctx c, s step) error { return p.cap(ctx, s.Cap) },
		"advance": func(ctx c, s step) error {
			p.advanced += s.Advance.Seconds
			return p.g.Inject(ctx, map[string]any{"advance": s.Advance})
		},
	}
}

// invalid is simulate's answer to a step about something that is not there, for
// example a pod that was refused.
func invalid(format string, args ...any) error {
	return fmt.Errorf("InvalidRequest: "+format, args...)
}

func (p *Player) find(namespace, pod, container string) (*podState, *containerState, error) {
	ps := p.pods[key(namespace, pod)]
	if ps == nil {
		return nil, nil, invalid("no pod %s/%s is on the node", namespace, pod)
	}
	cs := ps.containers[container]
	if cs == nil || !cs.running {
		return ps, nil, invalid("no container %s of pod %s/%s runs", container, namespace, pod)
	}
	return ps, cs, nil
}

// prepareNode makes what kubelet makes at its start: the QoS cgroups and its CPU
// manager's state.
func (p *Player) prepareNode(ctx context.Context) error {
	if err := p.g.tree.create(ctx, kubelet.Root(), p.root()); err != nil {
		return err
	}
	if err := p.g.tree.create(ctx, kubelet.ClassCgroup(kubelet.Burstable), kubelet.CPU{}); err != nil {
		return err
	}
	if err := p.g.tree.create(ctx, kubelet.ClassCgroup(kubelet.BestEffort), kubelet.BestEffortCPU()); err != nil {
		return err
	}
	if err := p.updateClasses(ctx); err != nil {
		return err
	}
	p.state = script.KubeletState{PolicyName: "none"}
	if p.static {
		p.state = script.KubeletState{PolicyName: "static", DefaultCPUSet: fmt.Sprintf("0-%d", p.g.Present()-1)}
	}
	return p.kubeletState(ctx, p.state)
}

// root is what kubelet gives all pods together at its start.
func (p *Player) root() kubelet.CPU {
	cpus := p.g.Present()
	root := kubelet.CPU{Shares: kubelet.Shares(int64(cpus) * 1000)}
	if !p.static {
		root.CPUs = cpus
	}
	return root
}

// RestartKubelet gives the pods the CPUs of the machine as it is now: kubelet learns of none while it runs.
func (p *Player) RestartKubelet(ctx context.Context) error {
	return p.g.tree.set(ctx, kubelet.Root(), p.root())
}

func (p *Player) kubeletState(ctx context.Context, s script.KubeletState) error {
	entries := map[string]map[string]string{}
	for k, v := range s.Entries {
		entries[entryUID(k)] = v
	}
	s.Entries = entries
	p.state = s
	return p.g.WriteFile(ctx, kubeletStatePath, kubelet.StateFile(s.PolicyName, s.DefaultCPUSet, entries))
}

// kubeletConfig writes kubelet's configuration file, which the daemon follows.
func (p *Player) kubeletConfig(ctx context.Context, k *config.Kubelet) error {
	text, err := json.Marshal(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"cpuManagerPolicy": k.CPUManagerPolicy, "cpuManagerPolicyOptions": k.Options,
		"reservedSystemCPUs":    k.ReservedCPUs.String(),
		"topologyManagerPolicy": k.TopologyManagerPolicy, "topologyManagerScope": k.TopologyManagerScope,
	})
	if err != nil {
		return err
	}
	return p.g.WriteFile(ctx, kubeletConfigPath, string(text))
}

// updateClasses is what kubelet does every minute and before each new pod.
func (p *Player) updateClasses(ctx context.Context) error {
	var pods []*kubelet.Pod
	for _, ps := range p.pods {
		pods = append(pods, ps.spec)
	}
	err := p.g.tree.set(ctx, kubelet.ClassCgroup(kubelet.Burstable), kubelet.CPU{Shares: kubelet.BurstableShares(pods)})
	if err != nil {
		return err
	}
	return p.g.tree.set(ctx, kubelet.ClassCgroup(kubelet.BestEffort), kubelet.BestEffortCPU())
}

func (p *Player) cap(ctx context.Context, c *script.Cap) error {
	if _, _, err := p.find(c.Namespace, c.Pod, c.Container); err != nil {
		return err
	}
	return p.g.Inject(ctx, map[string]any{"cap": c})
}

func (p *Player) nodeLabels(ctx context.Context, patch map[string]*string) error {
	for k, v := range patch {
		if v == nil {
			delete(p.labels, k)
		} else {
			p.labels[k] = *v
		}
	}
	return p.g.Inject(ctx, map[string]any{"nodeLabels": patch})
}

func (p *Player) switchCPUs(ctx context.Context, list string, do func(context.Context, int) error) error {
	cpus, err := cpuList(list)
	if err != nil {
		return err
	}
	for _, c := range cpus {
		if err := do(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// create starts a pod as kubelet does: cgroup, sandbox, init containers one after
// the other to their end, then the others. What was refused leaves nothing.
func (p *Player) create(ctx context.Context, spec *kubelet.Pod) error {
	if p.pods[key(spec.Namespace, spec.Name)] != nil {
		return invalid("pod %s is on the node already", key(spec.Namespace, spec.Name))
	}
	ps := &podState{spec: spec, containers: map[string]*containerState{},
		config: sandboxConfig(spec, p.g.Driver.Path(spec.CgroupName()))}
	p.pods[key(spec.Namespace, spec.Name)] = ps
	if err := p.admit(ctx, ps); err != nil {
		return errors.Join(err, p.remove(ctx, key(spec.Namespace, spec.Name)))
	}
	return nil
}

// admit writes the classes once more at the end, as kubelet does in its next round:
// that is when systemd writes over what it does not know of.
func (p *Player) admit(ctx context.Context, ps *podState) error {
	if err := p.updateClasses(ctx); err != nil {
		return err
	}
	if err := p.g.tree.create(ctx, ps.spec.CgroupName(), p.podCPU(ps.spec)); err != nil {
		return err
	}
	if err := p.startPod(ctx, ps); err != nil {
		return err
	}
	return p.updateClasses(ctx)
}

func (p *Player) startPod(ctx context.Context, ps *podState) error {
	resp, err := p.cri.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: ps.config})
	if err != nil {
		return fmt.Errorf("RunPodSandbox: %w", err)
	}
	ps.sandbox = resp.PodSandboxId
	for _, c := range ps.spec.StartOrder() {
		cs, err := p.startContainer(ctx, ps, c, 0)
		if err != nil {
			return err
		}
		if c.Kind == kubelet.Init {
			if err := p.waitExited(ctx, cs.id); err != nil {
				return err
			}
			continue
		}
		cs.running = true
		ps.containers[c.Name] = cs
	}
	return nil
}

func (p *Player) startContainer(ctx context.Context, ps *podState, c *kubelet.Container,
	attempt uint32) (*containerState, error) {
	resp, err := p.cri.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId: ps.sandbox, SandboxConfig: ps.config,
		Config: containerConfig(ps.spec, c, attempt, p.containerCPU(ps.spec, c), p.cpusetOf(ps.spec, c)),
	})
	if err != nil {
		return nil, fmt.Errorf("CreateContainer %s: %w", c.Name, err)
	}
	if _, err := p.cri.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: resp.ContainerId}); err != nil {
		return nil, fmt.Errorf("StartContainer %s: %w", c.Name, err)
	}
	return &containerState{id: resp.ContainerId, attempt: attempt, spec: c}, nil
}

// waitExited asks again and again because CRI has no call that waits; each
// question is a round trip to the guest, and the context bounds them.
func (p *Player) waitExited(ctx context.Context, id string) error {
	for {
		st, err := p.cri.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id})
		if err != nil {
			return fmt.Errorf("ContainerStatus: %w", err)
		}
		if st.Status.State == cri.ContainerState_CONTAINER_EXITED {
			if st.Status.ExitCode != 0 {
				return fmt.Errorf("init container %s ended with %d: %s", st.Status.Metadata.Name, st.Status.ExitCode,
					st.Status.Message)
			}
			return nil
		}
	}
}

// exclusive says whether kubelet's static policy gave the container CPUs.
func (p *Player) exclusive(pod *kubelet.Pod, c *kubelet.Container) string {
	if p.state.PolicyName != "static" {
		return ""
	}
	return p.state.Entries[pod.UID][c.Name]
}

func (p *Player) cpusetOf(pod *kubelet.Pod, c *kubelet.Container) string {
	if own := p.exclusive(pod, c); own != "" {
		return own
	}
	return p.state.DefaultCPUSet
}

// containerCPU and podCPU lift the quota where kubelet gave exclusive CPUs, as
// it does since 1.33.
func (p *Player) containerCPU(pod *kubelet.Pod, c *kubelet.Container) kubelet.CPU {
	cpu := c.CPU()
	if p.exclusive(pod, c) != "" {
		cpu.Quota = -1
	}
	return cpu
}

func (p *Player) podCPU(pod *kubelet.Pod) kubelet.CPU {
	cpu := pod.PodCPU()
	for i := range pod.Containers {
		if p.exclusive(pod, &pod.Containers[i]) != "" {
			cpu.Quota, cpu.Period = -1, kubelet.Period
		}
	}
	return cpu
}

// resize follows kubelet's order (kubelet.ResizePlan) and reports to the runtime each
// write to the pod's cgroup. Kubelet ignores errors of those calls; the last one
// is kept as the answer in case no container's update fails.
func (p *Player) resize(ctx context.Context, r *script.Resize) error {
	ps, cs, err := p.find(r.Namespace, r.Pod, r.Container)
	if err != nil {
		return err
	}
	specified, from := *cs.spec, p.podSet(ps.spec)
	cs.spec.RequestMilli, cs.spec.LimitMilli = r.RequestMilli, r.LimitMilli
	before, after := kubelet.ResizePlan(from, p.podSet(ps.spec))
	reported, err := p.resizePod(ctx, ps, before)
	if err != nil {
		return err
	}
	err = p.update(ctx, cs.id, resources(p.containerCPU(ps.spec, cs.spec)))
	if err == nil && len(after) > 0 {
		reported, err = p.resizePod(ctx, ps, after)
	}
	if err == nil && refusalOf(reported) != nil {
		err = reported
	}
	if err != nil {
		*cs.spec = specified
		return err
	}
	return p.updateClasses(ctx)
}

func (p *Player) podSet(pod *kubelet.Pod) kubelet.PodSet {
	return kubelet.PodSet{Cgroup: p.podCPU(pod).Unlimited(), Sandbox: pod.SandboxCPU()}
}

// resizePod returns what the runtime said to the last write.
func (p *Player) resizePod(ctx context.Context, ps *podState, plan []kubelet.PodSet) (reported, err error) {
	for _, s := range plan {
		if err := p.g.tree.set(ctx, ps.spec.CgroupName(), s.Cgroup); err != nil {
			return nil, err
		}
		_, reported = p.cri.UpdatePodSandboxResources(ctx, &cri.UpdatePodSandboxResourcesRequest{
			PodSandboxId: ps.sandbox, Overhead: &cri.LinuxContainerResources{}, Resources: resources(s.Sandbox)})
	}
	return reported, nil
}

func (p *Player) update(ctx context.Context, id string, r *cri.LinuxContainerResources) error {
	_, err := p.cri.UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{ContainerId: id, Linux: r})
	if err != nil {
		return fmt.Errorf("UpdateContainerResources: %w", err)
	}
	return nil
}

// kubeletUpdate is the reconcile loop of the static policy: the cpuset and
// nothing else.
func (p *Player) kubeletUpdate(ctx context.Context, u *script.KubeletUpdate) error {
	_, cs, err := p.find(u.Namespace, u.Pod, u.Container)
	if err != nil {
		return err
	}
	return p.update(ctx, cs.id, &cri.LinuxContainerResources{CpusetCpus: u.CPUs})
}

// restartContainer is a crash as kubelet sees it: the old container has ended,
// a new one with the next attempt starts, the old one is collected.
func (p *Player) restartContainer(ctx context.Context, r *script.Subject) error {
	ps := p.pods[key(r.Namespace, r.Pod)]
	if ps == nil {
		return invalid("no pod %s/%s is on the node", r.Namespace, r.Pod)
	}
	cs := ps.containers[r.Container]
	if cs == nil {
		return invalid("pod %s/%s has no container %s that restarts", r.Namespace, r.Pod, r.Container)
	}
	if err := p.stopContainer(ctx, cs); err != nil {
		return err
	}
	next, err := p.startContainer(ctx, ps, cs.spec, cs.attempt+1)
	if err != nil {
		return err
	}
	next.running = true
	ps.containers[r.Container] = next
	_, err = p.cri.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: cs.id})
	return err
}

func (p *Player) stop(ctx context.Context, r *script.Subject) error {
	_, cs, err := p.find(r.Namespace, r.Pod, r.Container)
	if err != nil {
		return err
	}
	return p.stopContainer(ctx, cs)
}

func (p *Player) stopContainer(ctx context.Context, cs *containerState) error {
	if !cs.running {
		return nil
	}
	if _, err := p.cri.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: cs.id}); err != nil {
		return fmt.Errorf("StopContainer: %w", err)
	}
	cs.running = false
	return nil
}

func (p *Player) removeStep(ctx context.Context, r *script.PodName) error {
	name := key(r.Namespace, r.Pod)
	if p.pods[name] == nil {
		return invalid("no pod %s is on the node", name)
	}
	return p.remove(ctx, name)
}

// remove also clears up after a pod that was refused: its sandbox is found by
// the label, since the refused call returned no id.
func (p *Player) remove(ctx context.Context, name string) error {
	ps := p.pods[name]
	for _, c := range slices.Sorted(maps.Keys(ps.containers)) {
		if err := p.stopContainer(ctx, ps.containers[c]); err != nil {
			return err
		}
	}
	delete(p.pods, name)
	if err := p.g.removeSandboxes(ctx, map[string]string{uidLabel: ps.spec.UID}); err != nil {
		return err
	}
	if err := p.g.tree.destroy(ctx, ps.spec.CgroupName()); err != nil {
		return err
	}
	return p.updateClasses(ctx)
}

func mkdir(path string) wire.FileAction { return wire.FileAction{Do: wire.FileMkdir, Path: path} }

func write(path, data string) wire.FileAction {
	return wire.FileAction{Do: wire.FileWrite, Path: path, Data: []byte(data)}
}

func read(path string) wire.FileAction {
	return wire.FileAction{Do: wire.FileRead, Path: path, Optional: true}
}

func trimmed(r wire.FileResult) string { return strings.TrimSpace(string(r.Data)) }
