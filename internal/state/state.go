// Package state keeps what the daemon could not find out otherwise after a restart: which pod owns
// which CPUs, and which caps have to be undone.
//
// The file is a hint. Without it the kernel and the runtime are read, so a file that is missing,
// damaged, of another node or of a later format loses information but never prevents a start: Load
// renames it, says why, and returns an empty snapshot.
//
// Fields may be added within a format: older daemons ignore them, newer ones do without. A change
// that an older daemon would misunderstand requires a new format, and every format that was ever
// released stays readable
// (testdata/v*.json):
//
//   - 1 has pods and caps.
//   - 2 also has owners of kinds that came later (Owner), such as containers that own CPUs. A daemon that reads it
//     keeps the CPUs of a kind that it does not know; one that reads only format 1
//     would give them to others, so it must not read the file at all.
//   - 3 also has claims of our own DRA driver. A daemon that reads only earlier ones would give their CPUs to others.
//
// A file is written in the lowest format that can hold it.
package state

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

// The known formats of files. Files of a later one are renamed.
const (
	formatPods   = 1
	formatOwners = 2
	formatClaims = 3
)

// format is the lowest one that can hold a snapshot.
func (s *Snapshot) format() int {
	switch {
	case len(s.Claims) > 0:
		return formatClaims
	case len(s.Owners) > 0:
		return formatOwners
	}
	return formatPods
}

// maxBytes bounds the size that is read: 1,000 pods take a third of a megabyte.
const maxBytes = 16 << 20

// Snapshot is the content of the file.
type Snapshot struct {
	Revision uint64 `json:"revision"` // the policy's, for people who compare files
	Pods     []Pod  `json:"pods"`
	Caps     []Cap  `json:"caps"`
	// Owners are owners of kinds that came after format 1.
	Owners []Owner `json:"owners,omitempty"`
	// Claims are the prepared claims of our own DRA driver.
	Claims []policy.RecoveredClaim `json:"claims,omitempty"`
	// CapsUnknown means that running containers may have caps that Caps lacks: an earlier file was lost, and their
	// limits were not read before this was saved.
	CapsUnknown bool `json:"capsUnknown,omitempty"`
	// Uptime is the machine's uptime when this was saved; Store fills it in. 0: unknown.
	Uptime time.Duration `json:"uptime,omitzero"`
}

// Pod is one pod whose place must be restored.
type Pod struct {
	UID       string       `json:"uid"`
	Sandbox   string       `json:"sandbox"`
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	Class     policy.Class `json:"class,omitempty"`
	CPUs      cpuset.Set   `json:"cpus"`
	Withheld  cpuset.Set   `json:"withheld"`
	Request   int          `json:"request,omitempty"` // CPUs asked for; 0: as many as CPUs has
	// NUMA node ID of an LS pod's pool, policy.AnyNode for all of it
	BoundNode *int `json:"boundNode,omitempty"`
	// BoundNodes are the nodes if there are several. An older daemon does not know them and runs
	// the pod in the whole pool.
	BoundNodes *cpuset.Set `json:"boundNodes,omitempty"`
	Degraded   string      `json:"degraded,omitempty"` // why it runs in the shared pool although it asked for more
	Reasons    string      `json:"reasons,omitempty"`  // which policy of the node decided
	// Demoted and Since are set for a pod that waits for CPUs, LostNodes for one that lost some. An
	// older daemon does not know them: it leaves the pod as it is.
	Demoted   bool        `json:"demoted,omitempty"`
	Since     time.Time   `json:"since,omitzero"`
	LostNodes *cpuset.Set `json:"lostNodes,omitempty"`
	Several   bool        `json:"several,omitempty"` // more than one container ran at the same time
	CreatedAt time.Time   `json:"createdAt"`
	// Narrowed lists the containers, "" for the pod itself, whose memory nodes were set by us. An
	// older daemon does not know them, and leaves memory as it is.
	Narrowed []string `json:"narrowed,omitempty"`
	// Reservation and Containers are set by Places only: the file has them in Owners. For a pod
	// whose containers own CPUs, CPUs is the union of them.
	Reservation *policy.Reservation         `json:"-"`
	Containers  []policy.RecoveredContainer `json:"-"`
}

// Cap is a hard cap that is in force, or is about to be. It is saved before it is written to the
// cgroup, so that a crash in between leaves no unknown cap. A cap that has ended is kept as long as
// the cgroup or the runtime's store may still have it.
type Cap struct {
	PodUID             string    `json:"podUID"`
	Container          string    `json:"container"`
	CapMilli           int64     `json:"capMilli"`
	Until              time.Time `json:"until"`
	PreviousQuotaMilli *int64    `json:"previousQuotaMilli,omitempty"` // policy.NoLimit: none; nil: the policy's own
	// RequestMilli is the request that came with PreviousQuotaMilli; 0: none, or an older daemon saved it.
	RequestMilli int64 `json:"requestMilli,omitempty"`
	// Left is how long it still had to run when it was saved; Store fills it in. Unlike Until, it
	// stays right when the clock is set.
	Left time.Duration `json:"left,omitzero"`
}

// Of selects the part of a checkpoint of the machine that is kept.
func Of(c policy.Synchronized, revision uint64) Snapshot {
	s := Snapshot{Revision: revision, Pods: []Pod{}, Caps: []Cap{}, Claims: c.Claims}
	for i, p := range c.Pods {
		r := p.Recovered
		if r == nil {
			continue
		}
		if r.Reservation != nil {
			// A pod may have several sandboxes, and is then listed several times.
			if !slices.ContainsFunc(s.Owners, func(o Owner) bool { return o.UID == p.UID }) {
				s.Owners = append(s.Owners, ownersOf(p.UID, r)...)
			}
			continue
		}
		if ownsContainers(r) {
			if !slices.ContainsFunc(s.Owners, func(o Owner) bool { return o.UID == p.UID }) {
				s.Owners = append(s.Owners, containersOf(&c.Pods[i])...)
			}
			continue
		}
		degraded, demoted := r.Degraded, r.Demoted
		for _, o := range r.Owners { // none of them owns anything
			degraded, demoted = cmp.Or(degraded, o.Degraded), demoted || o.Demoted
		}
		s.Pods = append(s.Pods, Pod{
			UID: p.UID, Sandbox: p.Sandbox, Namespace: p.Namespace, Name: p.Name,
			Class: policy.Class(p.Labels[policy.LabelClass]),
			CPUs:  orEmpty(r.CPUs), Withheld: orEmpty(r.Withheld), Reasons: r.Reasons, Request: r.Request,
			BoundNode: r.BoundNode, BoundNodes: r.BoundNodes, Degraded: degraded, Several: r.Several,
			Demoted: demoted, Since: r.Since, LostNodes: r.LostNodes, CreatedAt: p.CreatedAt,
			Narrowed: r.Narrowed,
		})
	}
	for _, l := range c.Caps {
		s.Caps = append(s.Caps, Cap{
			PodUID: l.PodUID, Container: l.Container, CapMilli: l.Milli, Until: l.Until, PreviousQuotaMilli: l.Limit,
			RequestMilli: l.Request,
		})
	}
	return s
}

// Recovered converts the pod to the policy's form.
func (p *Pod) Recovered() *policy.Recovered {
	if p.Containers != nil {
		return &policy.Recovered{From: "state file", Several: p.Several, Owners: p.Containers}
	}
	return &policy.Recovered{
		CPUs: orNil(p.CPUs), Withheld: orNil(p.Withheld), From: "state file", Request: p.Request, Reasons: p.Reasons,
		BoundNode: p.BoundNode, BoundNodes: p.BoundNodes, Degraded: p.Degraded, Several: p.Several,
		Demoted: p.Demoted, Since: p.Since, LostNodes: p.LostNodes, Reservation: p.Reservation,
	}
}

func orEmpty(s *cpuset.Set) cpuset.Set {
	if s == nil {
		return cpuset.Set{}
	}
	return *s
}

func orNil(s cpuset.Set) *cpuset.Set {
	if s.IsEmpty() {
		return nil
	}
	return &s
}

// Policy converts the cap to the policy's form.
func (c *Cap) Policy() policy.Cap {
	return policy.Cap{
		PodUID: c.PodUID, Container: c.Container, Milli: c.CapMilli, Until: c.Until, Limit: c.PreviousQuotaMilli,
		Request: c.RequestMilli,
	}
}

// envelope is the file. The checksum covers all of it.
type envelope struct {
	Version  int             `json:"version"`
	BootID   string          `json:"bootID"`
	Node     string          `json:"node"`
	SavedAt  time.Time       `json:"savedAt"`
	Checksum string          `json:"checksum"`
	Body     json.RawMessage `json:"body"`
}

func (e *envelope) sum() string {
	h := sha256.New()
	head := []string{fmt.Sprint(e.Version), e.BootID, e.Node, e.SavedAt.UTC().Format(time.RFC3339Nano)}
	for _, s := range head {
		// The lengths make sure that no two heads have the same bytes.
		fmt.Fprintf(h, "%d:", len(s))
		_, _ = io.WriteString(h, s)
	}
	_, _ = h.Write(e.Body)
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// encode returns the file's text: one line of JSON.
func encode(s Snapshot, node, bootID string, at time.Time) ([]byte, error) {
	body, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode state: %w", err)
	}
	e := envelope{Version: s.format(), BootID: bootID, Node: node, SavedAt: at.UTC(), Body: body}
	e.Checksum = e.sum()
	e.Body = nil // encoded already: Marshal would compact it again, in as much time as encoding took
	head, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode state: %w", err)
	}
	head = bytes.TrimSuffix(head, []byte("null}"))
	return slices.Concat(head, body, []byte("}\n")), nil
}

// decode parses a file's text; the error says why it cannot be used.
func decode(text []byte) (envelope, Snapshot, error) {
	var e envelope
	var s Snapshot
	switch {
	case len(text) == 0:
		return e, s, fmt.Errorf("is empty")
	case len(text) > maxBytes:
		return e, s, fmt.Errorf("is larger than %d bytes", maxBytes)
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return e, s, fmt.Errorf("is truncated or not JSON: %w", err)
	}
	switch {
	case e.Version > formatClaims:
		return e, s, fmt.Errorf("has format %d, this daemon reads up to %d", e.Version, formatClaims)
	case e.Version < 1:
		return e, s, fmt.Errorf("has format %d, there is none below 1", e.Version)
	case e.Checksum != e.sum():
		return e, s, fmt.Errorf("does not match its checksum")
	}
	if err := json.Unmarshal(e.Body, &s); err != nil {
		return e, Snapshot{}, fmt.Errorf("has a body that is not understood: %w", err)
	}
	return e, s, s.check()
}

// check refuses what a checksum does not detect: a file that was written by hand.
func (s *Snapshot) check() error {
	for _, p := range s.Pods {
		if p.UID == "" {
			return fmt.Errorf("has a pod without a UID")
		}
		if p.Request < 0 || p.Request > cpuset.MaxCPUs {
			return fmt.Errorf("has pod %.64q with a request of %d CPUs", p.UID, p.Request)
		}
		if n := p.BoundNode; n != nil && (*n < policy.AnyNode || *n >= cpuset.MaxCPUs) {
			return fmt.Errorf("has pod %.64q bound to NUMA node %d", p.UID, *n)
		}
	}
	for i := range s.Owners {
		if err := s.Owners[i].check(); err != nil {
			return err
		}
	}
	for i := range s.Claims {
		if c := &s.Claims[i]; c.UID == "" || len(c.Given) != len(c.Requests) {
			return fmt.Errorf("has claim %.64q with %d requests, of which %d were given CPUs", c.UID, len(c.Requests),
				len(c.Given))
		}
	}
	for _, c := range s.Caps {
		if c.PodUID == "" || c.Container == "" || c.CapMilli <= 0 {
			return fmt.Errorf("has a cap of %d milli-CPUs on container %.64q of pod %.64q", c.CapMilli, c.Container,
				c.PodUID)
		}
	}
	return nil
}
