package simulate

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"

	"github.com/quietcore/quietcore/internal/ledger"
	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/scheduler/placement"
)

// Line is what a step did.
type Line struct {
	Step       int               `json:"step"`
	Op         string            `json:"op"`
	Pod        string            `json:"pod,omitempty"`
	Node       *string           `json:"node"`
	Reasons    map[string]string `json:"reasons"` // by node: why it did not take the pod
	Error      *script.Error     `json:"error"`
	Containers []script.State    `json:"containers"`
}

// node is one of the cluster.
type node struct {
	part
	player *script.Player
	stamp  ledger.Stamp
	pods   map[string]int64 // what each pod here requests, in thousandths of a CPU
}

// cluster is being played.
type cluster struct {
	known   *placement.Cluster
	decoder *ledger.Decoder
	nodes   []*node
	byName  map[string]*node
	where   map[string]*node // by namespace/pod
	pending []script.Create
	step    int
	emit    func(Line) error
}

// Run plays a file and writes a line of JSON a step, and one for each pod that a step let in.
func Run(text []byte, out io.Writer, openSysfs func(string) (fs.FS, error)) error {
	parts, steps, err := parse(text, openSysfs)
	if err != nil {
		return err
	}
	encode := json.NewEncoder(out)
	encode.SetEscapeHTML(false)
	c := &cluster{known: placement.NewCluster(nil), decoder: ledger.NewDecoder(), byName: map[string]*node{},
		where: map[string]*node{}, emit: func(l Line) error { return encode.Encode(l) }}
	for _, p := range parts {
		player, err := script.NewPlayer(p.file, p.topology)
		if err != nil {
			return fmt.Errorf("node %s: %w", p.name, err)
		}
		n := &node{part: p, player: player, pods: map[string]int64{}}
		c.nodes, c.byName[p.name] = append(c.nodes, n), n
		if err := c.publish(n); err != nil {
			return err
		}
	}
	for _, s := range steps {
		if err := c.play(s); err != nil {
			return err
		}
	}
	return nil
}

// publish has the scheduler read what a node says, as it reads the real thing.
func (c *cluster) publish(n *node) error {
	s := n.player.Machine().Snapshot()
	l, generation := n.stamp.Of(s)
	text, err := ledger.Encode(s.Topology, l, generation)
	if err != nil {
		return fmt.Errorf("node %s: %w", n.name, err)
	}
	read, err := c.decoder.Decode(text)
	if err != nil {
		return fmt.Errorf("node %s: %w", n.name, err)
	}
	return c.known.Publish(n.name, read)
}

func (c *cluster) play(s step) error {
	c.step++
	line := Line{Step: c.step, Op: s.Op(), Reasons: map[string]string{}, Containers: []script.State{}}
	switch {
	case s.Create != nil:
		line.Pod = s.Create.Pod
		if err := c.create(s, &line); err != nil {
			return err
		}
	case s.Advance != nil && s.node == "":
		for _, n := range c.nodes {
			if _, err := c.on(n, s.Step, &Line{}); err != nil {
				return err
			}
		}
	default:
		if err := c.other(s, &line); err != nil {
			return err
		}
	}
	if err := c.emit(line); err != nil {
		return err
	}
	return c.retry()
}

// other plays a step that is about one node: the one that it names, or where its pod is.
func (c *cluster) other(s step, line *Line) error {
	pod, gone := subject(&s.Step)
	n := c.byName[s.node]
	if n == nil && pod != "" {
		n = c.where[pod]
	}
	if n == nil && gone {
		for i, p := range c.pending {
			if p.Namespace+"/"+p.Pod == pod {
				c.pending = append(c.pending[:i:i], c.pending[i+1:]...)
				return nil
			}
		}
	}
	if n == nil {
		line.Error = &script.Error{Code: policy.InvalidRequest, Message: fmt.Sprintf("no pod %s is on a node", pod)}
		return nil
	}
	if gone {
		delete(c.where, pod)
		delete(n.pods, pod)
	}
	_, err := c.on(n, s.Step, line)
	return err
}

// subject is the pod that a step is about, and whether that ends.
func subject(s *script.Step) (pod string, gone bool) {
	switch {
	case s.Remove != nil:
		return s.Remove.Namespace + "/" + s.Remove.Pod, true
	case s.Resize != nil:
		return s.Resize.Namespace + "/" + s.Resize.Pod, false
	case s.RestartContainer != nil:
		return s.RestartContainer.Namespace + "/" + s.RestartContainer.Pod, false
	case s.Stop != nil:
		return s.Stop.Namespace + "/" + s.Stop.Pod, false
	case s.KubeletUpdate != nil:
		return s.KubeletUpdate.Namespace + "/" + s.KubeletUpdate.Pod, false
	case s.Cap != nil:
		return s.Cap.Namespace + "/" + s.Cap.Pod, false
	}
	return "", false
}

// on plays a step on a node and lets the scheduler know.
func (c *cluster) on(n *node, s script.Step, line *Line) (ok bool, err error) {
	played, err := n.player.Play(s)
	if err != nil {
		return false, err
	}
	line.Node, line.Error, line.Containers = &n.name, played.Error, played.Containers
	return played.Error == nil, c.publish(n)
}

// create places a pod, or binds it where the file says.
func (c *cluster) create(s step, line *Line) error {
	if n := c.byName[s.node]; n != nil {
		return c.start(n, *s.Create, line)
	}
	placed, err := c.schedule(*s.Create, line)
	if err == nil && !placed {
		c.pending = append(c.pending, *s.Create)
	}
	return err
}

// retry tries the pods again that no node took.
func (c *cluster) retry() error {
	list := c.pending
	c.pending = nil
	for _, p := range list {
		line := Line{Step: c.step, Op: "placed", Pod: p.Pod, Reasons: map[string]string{}, Containers: []script.State{}}
		placed, err := c.schedule(p, &line)
		if err != nil {
			return err
		}
		if !placed {
			c.pending = append(c.pending, p)
			continue
		}
		if err := c.emit(line); err != nil {
			return err
		}
	}
	return nil
}

// start starts a pod on a node.
func (c *cluster) start(n *node, p script.Create, line *Line) error {
	ok, err := c.on(n, script.Step{Create: &p}, line)
	if err == nil && ok {
		key := p.Namespace + "/" + p.Pod
		c.where[key], n.pods[key] = n, script.Sums(p.Containers).RequestMilli
	}
	return err
}

// schedule finds a node for a pod and starts it there.
func (c *cluster) schedule(p script.Create, line *Line) (bool, error) {
	w := placement.NewWish(podOf(&p))
	line.Reasons = map[string]string{}
	var best *node
	var place placement.Place
	for _, n := range c.nodes {
		offer, refusal := c.ask(n, w)
		if refusal != nil {
			line.Reasons[n.name] = refusal.Error()
			continue
		}
		if d := offer.Cost.Compare(place.Cost); best == nil || d < 0 || d == 0 && n.requested() < best.requested() {
			best, place = n, offer
		}
	}
	if best == nil {
		return false, nil
	}
	if place.Trusted && place.Status() != "" {
		p.Annotations = maps.Clone(p.Annotations)
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[policy.AnnStatus] = place.Status()
	}
	return true, c.start(best, p, line)
}

func (n *node) requested() (sum int64) {
	for _, milli := range n.pods {
		sum += milli
	}
	return sum
}

// ask is what a node would answer, the sums that every scheduler compares first.
func (c *cluster) ask(n *node, w *placement.Wish) (placement.Place, *policy.Refusal) {
	if w.Bad != nil {
		return placement.Place{}, w.Bad
	}
	s, online := c.known.Node(n.name), n.player.Machine().Topology().Online()
	kubelets := n.player.Machine().Snapshot().Ledger.Rules.Kubelet.Reserved
	left := int64(online.Count()-online.CountAnd(&kubelets))*1000 - n.requested()
	if asked := w.Pod.Resources.RequestMilli; asked > left {
		return placement.Place{}, &policy.Refusal{Code: "InsufficientCPUs", Message: fmt.Sprintf(
			"%dm are asked for and %dm of what the node allocates are not requested", asked, max(left, 0))}
	}
	if !w.Says.Owns() {
		if refusal := s.Glance().Fits(w, n.requested()); refusal != nil || w.Plain() && !s.Glance().Confines() {
			return placement.Place{}, refusal
		}
	}
	return s.Ask(w, placement.Load{SharedMilli: n.player.Machine().Snapshot().Ledger.SharedMilli})
}

func podOf(c *script.Create) *policy.Pod {
	r := script.Sums(c.Containers)
	return &policy.Pod{UID: c.UID, Sandbox: c.UID, Namespace: c.Namespace, Name: c.Pod, QoS: c.KubernetesQoS,
		Labels: policy.Relevant(c.Labels, ""), Annotations: policy.Relevant(c.Annotations, ""), Resources: &r}
}
