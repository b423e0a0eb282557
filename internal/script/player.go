package script

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// Line is the whole state after one step, as `-o json` prints it.
type Line struct {
	Step       int              `json:"step"`
	Op         string           `json:"op"`
	Error      *Error           `json:"error"`
	Containers []State          `json:"containers"`
	Pools      Pools            `json:"pools"`
	Changed    []string         `json:"changed"`
	Notices    []string         `json:"notices,omitempty"`
	At         time.Time        `json:"-"`
	View       *policy.Snapshot `json:"-"`
}

// Error is a refusal.
type Error struct {
	Code    policy.Code `json:"code"`
	Message string      `json:"message"`
}

// State is one running container.
type State struct {
	Pod        string          `json:"pod"`
	Namespace  string          `json:"namespace"`
	Container  string          `json:"container"`
	Class      policy.Class    `json:"class"`
	Pool       policy.PoolKind `json:"pool"`
	CPUs       string          `json:"cpus"`
	Mems       string          `json:"mems"`
	Withheld   string          `json:"withheld"`
	QuotaMilli int64           `json:"quotaMilli"`
	Shares     int64           `json:"shares"`
	Weight     *int64          `json:"weight,omitempty"` // read back from a real node only
	CapMilli   *int64          `json:"capMilli"`
	ByKubelet  bool            `json:"managedByKubelet,omitempty"`
	Why        string          `json:"why"`
}

func (s State) key() string { return s.Namespace + "/" + s.Pod + "/" + s.Container }

// Pools are the CPUs of each pool.
type Pools struct {
	Shared    string `json:"shared"`
	BE        string `json:"be"`
	Reserved  string `json:"reserved"`
	Exclusive string `json:"exclusive"`
}

// StateOf turns a snapshot into the states and pools that the CLI prints.
func StateOf(s *policy.Snapshot) ([]State, Pools) {
	states := make([]State, 0, len(s.Containers))
	for _, c := range s.Containers {
		st := State{
			Pod: c.Pod, Namespace: c.Namespace, Container: c.Name, Class: c.Class, Pool: c.Pool,
			CPUs: s.CPUs(c).String(), Mems: s.MemsOf(c).String(),
			QuotaMilli: c.QuotaMilli, Shares: c.Shares, ByKubelet: c.ByKubelet, Why: c.Why,
		}
		if c.Withheld != nil {
			st.Withheld = c.Withheld.String()
		}
		if c.CapMilli > 0 {
			limit := c.CapMilli
			st.CapMilli = &limit
		}
		states = append(states, st)
	}
	return states, Pools{Shared: s.Shared.String(), BE: s.BE.String(), Reserved: s.Reserved.String(),
		Exclusive: s.Exclusive.String()}
}

// Changed names the containers whose CPUs, memory nodes, quota or cap differ between two states,
// including new ones.
func Changed(before, after []State) []string {
	was := make(map[string]State, len(before))
	for _, s := range before {
		was[s.key()] = s
	}
	changed := []string{}
	for _, s := range after {
		old, ok := was[s.key()]
		sameCap := (old.CapMilli == nil) == (s.CapMilli == nil) && (s.CapMilli == nil || *old.CapMilli == *s.CapMilli)
		if !ok || old.CPUs != s.CPUs || old.Mems != s.Mems || old.QuotaMilli != s.QuotaMilli || !sameCap {
			changed = append(changed, s.key())
		}
	}
	slices.Sort(changed)
	return changed
}

// Player plays a script on the state machine.
type Player struct {
	config     config.Config // of the running daemon
	machine    *policy.Machine
	topo       *topology.Topology
	now        time.Time
	step       int
	labels     map[string]string
	configured *policy.KubeletConfigured // kubelet's configuration file; nil: none
	kubelet    *policy.KubeletState
	pods       map[string]*created // by namespace/pod
	attempt    int
	record     *policy.Recorder
}

// Observe records every event from now on.
func (p *Player) Observe(r *policy.Recorder) { p.record = r }

// created is a pod that a script has created and not removed.
type created struct {
	spec       Create
	sandbox    string
	containers map[string]string // running container IDs by name
	current    map[string]Container
}

// start is the time at which every script begins: the same script gives the same output.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// NewPlayer makes an empty node on the machine t.
func NewPlayer(f *File, t *topology.Topology) (*Player, error) {
	cfg := f.Config.Policy()
	m, err := policy.New(t, cfg)
	if err != nil {
		return nil, err
	}
	labels := maps.Clone(f.Node.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	return &Player{config: f.Config, machine: m, topo: t, now: start, labels: labels, pods: map[string]*created{}}, nil
}

// Machine is the state machine that the script runs on.
func (p *Player) Machine() *policy.Machine { return p.machine }

// Play executes one step. A refusal is part of the line; an error means that the script itself is
// invalid.
func (p *Player) Play(s Step) (Line, error) {
	p.step++
	p.now = p.now.Add(time.Second)
	before, _ := StateOf(p.machine.Snapshot())
	line := Line{Step: p.step, Op: s.Op()}
	notices, err := p.do(s)
	if err == nil && s.Event == nil {
		var more []string
		more, err = p.settle()
		notices = append(notices, more...)
	}
	var refusal *policy.Refusal
	switch {
	case errors.As(err, &refusal):
		line.Error = &Error{Code: refusal.Code, Message: refusal.Message}
	case err != nil:
		return line, fmt.Errorf("step %d: %s: %w", p.step, line.Op, err)
	}
	line.Notices = notices
	line.Containers, line.Pools = StateOf(p.machine.Snapshot())
	line.Changed = Changed(before, line.Containers)
	line.At, line.View = p.now, p.machine.Snapshot()
	return line, nil
}

// settle ticks until nothing changes any more, as the daemon does every second: each tick gives
// CPUs to at most one waiting pod.
func (p *Player) settle() ([]string, error) {
	var notices []string
	for range len(p.pods) + 1 {
		rev := p.machine.Rev()
		more, err := p.feed(policy.Tick{})
		notices = append(notices, more...)
		if err != nil || p.machine.Rev() == rev {
			return notices, err
		}
	}
	return notices, nil
}

func (p *Player) do(s Step) ([]string, error) {
	switch {
	case s.Create != nil:
		return p.create(*s.Create)
	case s.Resize != nil:
		return p.resize(*s.Resize)
	case s.KubeletUpdate != nil:
		u := s.KubeletUpdate
		_, id, err := p.find(u.Namespace, u.Pod, u.Container)
		if err != nil {
			return nil, err
		}
		return p.feed(policy.ContainerUpdate{ID: id, CPUs: u.CPUs})
	case s.RestartContainer != nil:
		return p.restart(*s.RestartContainer)
	case s.Stop != nil:
		pod, id, err := p.find(s.Stop.Namespace, s.Stop.Pod, s.Stop.Container)
		if err != nil {
			return nil, err
		}
		delete(pod.containers, s.Stop.Container)
		return p.feed(policy.ContainerStopped{ID: id})
	case s.Remove != nil:
		key := s.Remove.Namespace + "/" + s.Remove.Pod
		pod := p.pods[key]
		if pod == nil {
			return nil, unknown("no pod %s is on the node", key)
		}
		delete(p.pods, key)
		return p.feed(policy.PodRemoved{Sandbox: pod.sandbox})
	case s.RestartDaemon != nil:
		return p.restartDaemon(s.RestartDaemon)
	case s.NodeLabels != nil:
		return p.nodeLabels(s.NodeLabels)
	case s.KubeletState != nil:
		return p.kubeletState(*s.KubeletState)
	case s.KubeletConfig != nil:
		e := policy.KubeletConfigured{Kubelet: s.KubeletConfig.Policy()}
		notices, err := p.feed(e)
		if err == nil {
			p.configured = &e
		}
		return notices, err
	case s.Offline != nil:
		return p.power(s.Offline.CPUs, false)
	case s.Online != nil:
		return p.power(s.Online.CPUs, true)
	case s.Cap != nil:
		_, id, err := p.find(s.Cap.Namespace, s.Cap.Pod, s.Cap.Container)
		if err != nil {
			return nil, err
		}
		return p.feed(policy.CapVerdict{ID: id, Milli: int64(math.Round(s.Cap.CPU * 1000)),
			For: seconds(s.Cap.Seconds)})
	case s.Advance != nil:
		p.now = p.now.Add(seconds(s.Advance.Seconds))
		return p.feed(policy.Tick{})
	case s.Prepare != nil:
		return p.prepare(s.Prepare)
	case s.Unprepare != nil:
		return p.feed(policy.ClaimUnprepared{UID: claimUID(s.Unprepare.Namespace, s.Unprepare.Claim)})
	case s.Event != nil:
		e := s.Event.Event()
		if e == nil {
			return nil, errors.New("the record holds no event")
		}
		p.now = s.Event.At
		return p.feed(e)
	}
	return nil, errors.New("the step does nothing")
}

func unknown(format string, args ...any) error {
	return &policy.Refusal{Code: policy.InvalidRequest, Message: fmt.Sprintf(format, args...)}
}

// feed steps the machine and returns its notices.
func (p *Player) feed(events ...policy.Event) ([]string, error) {
	var notices []string
	for _, e := range events {
		if p.record != nil {
			p.record.Add(p.machine, p.now, e)
		}
		decisions, err := p.machine.Step(p.now, e)
		if err != nil {
			return notices, err
		}
		for _, d := range decisions {
			if n, ok := d.(policy.Notice); ok {
				notices = append(notices, n.Reason+": "+n.Message)
			}
		}
	}
	return notices, nil
}

func (p *Player) find(namespace, pod, ctr string) (*created, string, error) {
	c := p.pods[namespace+"/"+pod]
	if c == nil {
		return nil, "", unknown("no pod %s/%s is on the node", namespace, pod)
	}
	id, ok := c.containers[ctr]
	if !ok {
		return c, "", unknown("no container %s of pod %s/%s runs", ctr, namespace, pod)
	}
	return c, id, nil
}

func (p *Player) create(c Create) ([]string, error) {
	key := c.Namespace + "/" + c.Pod
	if p.pods[key] != nil {
		return nil, unknown("pod %s is on the node already", key)
	}
	p.attempt++
	sums := Sums(c.Containers)
	pod := policy.Pod{
		UID: c.UID, Sandbox: fmt.Sprintf("%s#%d", key, p.attempt), Namespace: c.Namespace, Name: c.Pod,
		Labels: policy.Relevant(c.Labels, p.config.CPI.JobLabel), Annotations: policy.Relevant(c.Annotations, ""),
		QoS:       c.KubernetesQoS,
		Resources: &sums, CreatedAt: p.now,
	}
	if c.Annotations[policy.AnnContainers] != "" {
		pod.Facts = &policy.PodFacts{UID: c.UID, Resources: sums, Containers: c.facts()}
	}
	if nodes, err := cpuset.Parse(c.DeviceNodes); err == nil && !nodes.IsEmpty() {
		pod.DeviceNodes = &nodes
	}
	state := &created{spec: c, sandbox: pod.Sandbox, containers: map[string]string{}, current: map[string]Container{}}
	notices, err := p.feed(policy.PodRun{Pod: pod})
	for _, ctr := range StartOrder(c.Containers) {
		if err != nil {
			break
		}
		var more []string
		more, err = p.startContainer(state, pod, ctr)
		notices = append(notices, more...)
	}
	if err != nil {
		p.feed(policy.PodRemoved{Sandbox: pod.Sandbox})
		return nil, err
	}
	p.pods[key] = state
	return notices, nil
}

// facts are the containers as the API server has them, in the order in which they start.
func (c *Create) facts() []policy.ContainerFacts {
	var list []policy.ContainerFacts
	for _, ctr := range StartOrder(c.Containers) {
		list = append(list, policy.ContainerFacts{Name: ctr.Name, Resources: ctr.Limits(), Init: ctr.Kind == Init})
	}
	return list
}

// startContainer creates a container; an init container has ended when the next
// one is created.
func (p *Player) startContainer(state *created, pod policy.Pod, ctr Container) ([]string, error) {
	p.attempt++
	id := fmt.Sprintf("%s/%s/%s#%d", pod.Namespace, pod.Name, ctr.Name, p.attempt)
	limits := ctr.Limits()
	if p.kubelet != nil && p.kubelet.PolicyName == "static" {
		if _, pinned := p.kubelet.Entries[pod.UID][ctr.Name]; pinned {
			limits.LimitMilli = policy.NoLimit // kubelet sets no quota where it gives exclusive CPUs, since 1.33
		}
	}
	events := []policy.Event{policy.ContainerCreate{Pod: pod, Container: policy.Container{
		ID: id, Sandbox: pod.Sandbox, Name: ctr.Name, Resources: limits, Shares: Shares(ctr.RequestMilli),
		CreatedAt: p.now,
	}}}
	state.current[ctr.Name] = ctr
	if ctr.Kind == Init {
		events = append(events, policy.ContainerStopped{ID: id})
	}
	notices, err := p.feed(events...)
	if err == nil && ctr.Kind != Init {
		state.containers[ctr.Name] = id
	}
	return notices, err
}

func (p *Player) restart(s Subject) ([]string, error) {
	pod := p.pods[s.Namespace+"/"+s.Pod]
	if pod == nil {
		return nil, unknown("no pod %s/%s is on the node", s.Namespace, s.Pod)
	}
	ctr, ok := pod.current[s.Container]
	if !ok || ctr.Kind == Init {
		return nil, unknown("pod %s/%s has no container %s that restarts", s.Namespace, s.Pod, s.Container)
	}
	var notices []string
	if id, running := pod.containers[s.Container]; running {
		delete(pod.containers, s.Container)
		stopped, err := p.feed(policy.ContainerStopped{ID: id})
		if err != nil {
			return nil, err
		}
		notices = stopped
	}
	c := pod.spec
	more, err := p.startContainer(pod, policy.Pod{UID: c.UID, Sandbox: pod.sandbox, Namespace: c.Namespace,
		Name: c.Pod}, ctr)
	return append(notices, more...), err
}

func (p *Player) resize(r Resize) ([]string, error) {
	pod, id, err := p.find(r.Namespace, r.Pod, r.Container)
	if err != nil {
		return nil, err
	}
	next := maps.Clone(pod.current)
	ctr := next[r.Container]
	ctr.RequestMilli, ctr.LimitMilli = r.RequestMilli, r.LimitMilli
	next[r.Container] = ctr
	var all []Container
	for _, c := range pod.spec.Containers {
		all = append(all, next[c.Name])
	}
	limits, sums := ctr.Limits(), Sums(all)
	notices, err := p.feed(policy.ContainerUpdate{ID: id, Resources: &limits, Shares: Shares(ctr.RequestMilli),
		Pod: &sums})
	if err == nil {
		pod.current = next
	}
	return notices, err
}

// restartDaemon is kill -9 and a new start: the daemon keeps only what is in the kernel and the
// state file.
func (p *Player) restartDaemon(r *Restart) ([]string, error) {
	checkpoint := p.machine.Checkpoint()
	if r.Config != nil {
		p.config = *r.Config
	}
	cfg := p.config.Policy()
	cfg.NodeLabels = maps.Clone(p.labels)
	m, err := policy.New(p.topo, cfg)
	if err != nil {
		return nil, err
	}
	p.machine = m
	var events []policy.Event
	if p.configured != nil {
		events = append(events, *p.configured)
	}
	if p.kubelet != nil {
		events = append(events, *p.kubelet)
	}
	return p.feed(append(events, checkpoint)...)
}

func (p *Player) nodeLabels(changes map[string]*string) ([]string, error) {
	for k, v := range changes {
		if v == nil {
			delete(p.labels, k)
		} else {
			p.labels[k] = *v
		}
	}
	return p.feed(policy.NodeLabels{Labels: maps.Clone(p.labels)})
}

func (p *Player) kubeletState(k KubeletState) ([]string, error) {
	e, err := k.Event()
	if err != nil {
		return nil, err
	}
	p.kubelet = &e
	return p.feed(e)
}

// Event converts the state to the policy's event.
func (k KubeletState) Event() (policy.KubeletState, error) {
	e := policy.KubeletState{PolicyName: k.PolicyName, Entries: map[string]map[string]cpuset.Set{}}
	var err error
	if e.Default, err = cpuset.Parse(k.DefaultCPUSet); err != nil {
		return e, err
	}
	for uid, containers := range k.Entries {
		e.Entries[uid] = map[string]cpuset.Set{}
		for name, list := range containers {
			cpus, err := cpuset.Parse(list)
			if err != nil {
				return e, err
			}
			e.Entries[uid][name] = cpus
		}
	}
	return e, nil
}

func (p *Player) power(list string, on bool) ([]string, error) {
	cpus, err := cpuset.Parse(list)
	if err != nil {
		return nil, err
	}
	known := p.topo.Known()
	if missing := cpus.Minus(known); !missing.IsEmpty() {
		return nil, unknown("this machine has no CPU %s, it has %s", missing, known)
	}
	online := p.topo.Online().Minus(cpus)
	if on {
		online = p.topo.Online().Or(cpus)
	}
	t, err := p.topo.WithOnline(online)
	if err != nil {
		return nil, unknown("%v", err)
	}
	notices, err := p.feed(policy.Hardware{Topology: t})
	if err == nil {
		p.topo = t
	}
	return notices, err
}
