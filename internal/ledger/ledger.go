package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/quietcore/quietcore/cpuallocator"
	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// Annotations of a NodeResourceTopology.
const (
	AnnMachine = "quietcore.dev/machine"
	AnnRules   = "quietcore.dev/rules"
	AnnLedger  = "quietcore.dev/ledger"
)

const (
	// maxLedger bounds the text of a ledger: some 700 pods.
	maxLedger = 128 << 10
	// maxMilli bounds a sum of requests, so that sums of them do not overflow.
	maxMilli = 1 << 50
)

// ErrNone says that a node publishes nothing, as without the daemon or with one of before.
var ErrNone = errors.New("the node publishes no ledger")

// newer says that a text has a form that this version does not know.
func newer(form string) error {
	return fmt.Errorf("form %.20q is not known to this version, which reads %d", form, version)
}

type ledgerDoc struct {
	Version     int           `json:"v"`
	Generation  uint64        `json:"generation"`
	SharedMilli int64         `json:"sharedMilli"` // when something else last changed
	Waiting     int           `json:"waiting,omitempty"`
	Unread      bool          `json:"unread,omitempty"`
	Overlap     bool          `json:"overlap,omitempty"`
	Booked      cpuset.Packed `json:"booked,omitempty"`
	Kept        cpuset.Packed `json:"kept,omitempty"`
	Pods        []holdingDoc  `json:"pods"`
}

type holdingDoc struct {
	UID           string                 `json:"uid"`
	Namespace     string                 `json:"ns,omitempty"`
	Pod           string                 `json:"pod,omitempty"`
	Container     string                 `json:"container,omitempty"` // that owns; empty: the pod as a whole
	Class         policy.Class           `json:"class"`
	CPUs          cpuset.Packed          `json:"cpus,omitempty"`
	Withheld      cpuset.Packed          `json:"withheld,omitempty"`
	Requested     int32                  `json:"requested,omitempty"` // CPUs beyond it are surplus
	Exclusive     config.ExclusivePolicy `json:"exclusive,omitempty"`
	SMT           config.SMT             `json:"smt,omitempty"`
	NUMAExclusive policy.NUMAExclusive   `json:"apart,omitempty"` // 1: Preferred, 2: Required
	Nodes         cpuset.Packed          `json:"nodes,omitempty"`
	Milli         int64                  `json:"milli,omitempty"`
	Kind          string                 `json:"kind,omitempty"`
}

// Encode makes the annotations of a node.
func Encode(t *topology.Topology, l *policy.Ledger, generation uint64) (map[string]string, error) {
	machine, err := encodeMachine(t)
	if err != nil {
		return nil, err
	}
	rules, err := encodeRules(l.Rules)
	if err != nil {
		return nil, err
	}
	d := ledgerDoc{Version: version, Generation: generation, SharedMilli: min(max(l.SharedMilli, 0), maxMilli),
		Waiting: l.Waiting, Unread: l.Unread, Overlap: l.Overlap, Booked: l.Booked, Kept: l.Kept,
		Pods: make([]holdingDoc, 0, len(l.Holdings))}
	for i := range l.Holdings {
		h := &l.Holdings[i]
		d.Pods = append(d.Pods, holdingDoc{UID: h.UID, Namespace: h.Namespace, Pod: h.Pod, Container: h.Container,
			Class: h.Class, CPUs: h.CPUs, Withheld: h.Withheld, Requested: h.Requested,
			Exclusive: config.ExclusivePolicy(h.Exclusive),
			SMT:       config.SMT(h.SMT), NUMAExclusive: h.NUMAExclusive, Nodes: h.Nodes,
			Milli: min(max(h.Milli, 0), maxMilli), Kind: h.Kind})
	}
	text, err := json.Marshal(&d)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	all := map[string]string{AnnMachine: machine, AnnRules: rules, AnnLedger: string(text)}
	for key, most := range map[string]int{AnnMachine: maxMachine, AnnRules: maxRules, AnnLedger: maxLedger} {
		if len(all[key]) > most {
			return nil, fmt.Errorf("annotation %s would be %d bytes, at most %d are read", key, len(all[key]), most)
		}
	}
	return all, nil
}

// Node is what a node publishes. Nodes that are alike share Topology and Ledger.Rules.
type Node struct {
	Topology   *topology.Topology
	Ledger     *policy.Ledger
	Generation uint64
}

// maxKinds bounds the machines and the rules that a decoder keeps, maxWords the names and the sets
// of CPUs.
const (
	maxKinds = 512
	maxWords = 1 << 15
)

// Decoder reads annotations. It serves one goroutine.
type Decoder struct {
	machines map[string]*topology.Topology
	rules    map[string]*policy.Config
	words    map[string]string
}

// NewDecoder makes a decoder that knows no machine yet.
func NewDecoder() *Decoder {
	return &Decoder{machines: map[string]*topology.Topology{}, rules: map[string]*policy.Config{},
		words: map[string]string{}}
}

// Decode reads what a node publishes. The annotations may be anything.
func (d *Decoder) Decode(annotations map[string]string) (*Node, error) {
	text, ok := annotations[AnnLedger]
	if !ok {
		return nil, ErrNone
	}
	t, err := once(d.machines, annotations[AnnMachine], decodeMachine)
	if err != nil {
		return nil, err
	}
	rules, err := once(d.rules, annotations[AnnRules], decodeRules)
	if err != nil {
		return nil, err
	}
	if len(text) > maxLedger {
		return nil, fmt.Errorf("ledger: %d bytes, at most %d are read", len(text), maxLedger)
	}
	var doc ledgerDoc
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	if doc.Version != version {
		return nil, fmt.Errorf("ledger: %w", newer(fmt.Sprint(doc.Version)))
	}
	d.intern(&doc)
	n := &Node{Topology: t, Generation: doc.Generation, Ledger: &policy.Ledger{Rules: rules, Booked: doc.Booked,
		Kept:        doc.Kept,
		SharedMilli: doc.SharedMilli, Waiting: doc.Waiting, Unread: doc.Unread, Overlap: doc.Overlap}}
	if err := n.check(&doc); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	return n, nil
}

// intern has many nodes share what many pods have in common, and a node's pods one text for their
// UIDs: there are many nodes. Names of pods are not kept, since nothing is decided by them.
func (d *Decoder) intern(doc *ledgerDoc) {
	size := 0
	for i := range doc.Pods {
		size += len(doc.Pods[i].UID)
	}
	var b strings.Builder
	b.Grow(size)
	for i := range doc.Pods {
		b.WriteString(doc.Pods[i].UID)
	}
	all := b.String()
	for i := range doc.Pods {
		h := &doc.Pods[i]
		h.UID, all = all[:len(h.UID)], all[len(h.UID):]
		h.Pod = ""
		for _, text := range [...]*string{&h.Namespace, &h.Container, (*string)(&h.Class), &h.Kind,
			(*string)(&h.CPUs), (*string)(&h.Withheld), (*string)(&h.Nodes)} {
			*text = d.word(*text)
		}
	}
}

func (d *Decoder) word(text string) string {
	if known, ok := d.words[text]; ok {
		return known
	}
	if len(d.words) >= maxWords {
		clear(d.words)
	}
	d.words[text] = text
	return text
}

// once decodes a text that was not decoded before.
func once[T any](known map[string]*T, text string, decode func(string) (*T, error)) (*T, error) {
	if v, ok := known[text]; ok {
		return v, nil
	}
	v, err := decode(text)
	if err != nil {
		return nil, err
	}
	if len(known) >= maxKinds {
		clear(known)
	}
	known[text] = v
	return v, nil
}

// check takes over what pods hold, if the machine can have it.
func (n *Node) check(d *ledgerDoc) error {
	known := n.Topology.Known().Or(n.Topology.Offline())
	on := func(p cpuset.Packed) bool { s := p.Set(); return s.SubsetOf(&known) }
	var nodes cpuset.Set
	for i := range n.Topology.Nodes() {
		nodes.Add(n.Topology.Nodes()[i].ID)
	}
	if !on(d.Booked) || !on(d.Kept) || d.Waiting < 0 || d.SharedMilli < 0 || d.SharedMilli > maxMilli {
		return errors.New("the machine cannot be as it says")
	}
	seen := make(map[[2]string]bool, len(d.Pods))
	n.Ledger.Holdings = make([]policy.Holding, 0, len(d.Pods))
	for i := range d.Pods {
		h := &d.Pods[i]
		bound, owner := h.Nodes.Set(), [2]string{h.UID, h.Container}
		if h.UID == "" || seen[owner] || !on(h.CPUs) || !on(h.Withheld) || !bound.SubsetOf(&nodes) ||
			h.Requested < 0 || h.Requested > cpuset.MaxCPUs || h.Milli < 0 || h.Milli > maxMilli ||
			h.NUMAExclusive > policy.NUMAExclusiveRequired || h.CPUs == "" && h.Withheld == "" && h.Nodes == "" {
			return fmt.Errorf("pod %.40q cannot hold what it says", h.UID)
		}
		seen[owner] = true
		n.Ledger.Holdings = append(n.Ledger.Holdings, policy.Holding{UID: h.UID, Namespace: h.Namespace, Pod: h.Pod,
			Container: h.Container, Class: h.Class, CPUs: h.CPUs, Withheld: h.Withheld, Requested: h.Requested,
			Exclusive: cpuallocator.ExclusivePolicy(h.Exclusive), SMT: cpuallocator.SMT(h.SMT),
			NUMAExclusive: h.NUMAExclusive, Nodes: h.Nodes, Milli: h.Milli, Kind: h.Kind})
	}
	return nil
}
