package policy

import (
	"time"
)

// Record is an event with its time, in a form that can be stored as JSON or YAML: exactly one of
// the pointers is set. Records replay to the same decisions.
type Record struct {
	At                time.Time          `json:"at"`
	PodRun            *PodRun            `json:"podRun,omitempty"`
	PodResized        *PodResized        `json:"podResized,omitempty"`
	PodRemoved        *PodRemoved        `json:"podRemoved,omitempty"`
	PodVanished       *PodVanished       `json:"podVanished,omitempty"`
	PodFacts          *PodFacts          `json:"podFacts,omitempty"`
	ContainerCreate   *ContainerCreate   `json:"containerCreate,omitempty"`
	ContainerUpdate   *ContainerUpdate   `json:"containerUpdate,omitempty"`
	ContainerStopped  *ContainerStopped  `json:"containerStopped,omitempty"`
	Synchronized      *Synchronized      `json:"synchronized,omitempty"`
	Corrected         *Corrected         `json:"corrected,omitempty"`
	Unannounced       *Unannounced       `json:"unannounced,omitempty"`
	NodeLabels        *NodeLabels        `json:"nodeLabels,omitempty"`
	KubeletState      *KubeletState      `json:"kubeletState,omitempty"`
	KubeletConfigured *KubeletConfigured `json:"kubeletConfigured,omitempty"`
	ForeignClaims     *ForeignClaims     `json:"foreignClaims,omitempty"`
	ClaimPrepared     *ClaimPrepared     `json:"claimPrepared,omitempty"`
	ClaimUnprepared   *ClaimUnprepared   `json:"claimUnprepared,omitempty"`
	Hardware          *Hardware          `json:"hardware,omitempty"`
	CapVerdict        *CapVerdict        `json:"capVerdict,omitempty"`
	CapReleased       *CapReleased       `json:"capReleased,omitempty"`
	BESuppressed      *BESuppressed      `json:"beSuppressed,omitempty"`
	BEKeptOff         *BEKeptOff         `json:"beKeptOff,omitempty"`
	Idled             *Idled             `json:"idled,omitempty"`
	IdleRefused       *IdleRefused       `json:"idleRefused,omitempty"`
	Released          *Released          `json:"released,omitempty"`
	Tick              *Tick              `json:"tick,omitempty"`
}

// RecordOf wraps an event; a Reconfigured cannot be recorded.
func RecordOf(at time.Time, e Event) (Record, bool) {
	r := Record{At: at}
	switch e := e.(type) {
	case PodRun:
		r.PodRun = &e
	case PodResized:
		r.PodResized = &e
	case PodRemoved:
		r.PodRemoved = &e
	case PodVanished:
		r.PodVanished = &e
	case PodFacts:
		r.PodFacts = &e
	case ContainerCreate:
		r.ContainerCreate = &e
	case ContainerUpdate:
		r.ContainerUpdate = &e
	case ContainerStopped:
		r.ContainerStopped = &e
	case Synchronized:
		r.Synchronized = &e
	case Corrected:
		r.Corrected = &e
	case Unannounced:
		r.Unannounced = &e
	case NodeLabels:
		r.NodeLabels = &e
	case KubeletState:
		r.KubeletState = &e
	case KubeletConfigured:
		r.KubeletConfigured = &e
	case ForeignClaims:
		r.ForeignClaims = &e
	case ClaimPrepared:
		r.ClaimPrepared = &e
	case ClaimUnprepared:
		r.ClaimUnprepared = &e
	case Hardware:
		e.Online, e.Topology = e.onlineCPUs(), nil
		r.Hardware = &e
	case CapVerdict:
		r.CapVerdict = &e
	case CapReleased:
		r.CapReleased = &e
	case BESuppressed:
		r.BESuppressed = &e
	case BEKeptOff:
		r.BEKeptOff = &e
	case Idled:
		r.Idled = &e
	case IdleRefused:
		r.IdleRefused = &e
	case Released:
		r.Released = &e
	case Tick:
		r.Tick = &e
	default:
		return r, false
	}
	return r, true
}

// Event returns the recorded event, nil if the record is empty.
func (r Record) Event() Event {
	switch {
	case r.PodRun != nil:
		return *r.PodRun
	case r.PodResized != nil:
		return *r.PodResized
	case r.PodRemoved != nil:
		return *r.PodRemoved
	case r.PodVanished != nil:
		return *r.PodVanished
	case r.PodFacts != nil:
		return *r.PodFacts
	case r.ContainerCreate != nil:
		return *r.ContainerCreate
	case r.ContainerUpdate != nil:
		return *r.ContainerUpdate
	case r.ContainerStopped != nil:
		return *r.ContainerStopped
	case r.Synchronized != nil:
		return *r.Synchronized
	case r.Corrected != nil:
		return *r.Corrected
	case r.Unannounced != nil:
		return *r.Unannounced
	case r.NodeLabels != nil:
		return *r.NodeLabels
	case r.KubeletState != nil:
		return *r.KubeletState
	case r.KubeletConfigured != nil:
		return *r.KubeletConfigured
	case r.ForeignClaims != nil:
		return *r.ForeignClaims
	case r.ClaimPrepared != nil:
		return *r.ClaimPrepared
	case r.ClaimUnprepared != nil:
		return *r.ClaimUnprepared
	case r.Hardware != nil:
		return *r.Hardware
	case r.CapVerdict != nil:
		return *r.CapVerdict
	case r.CapReleased != nil:
		return *r.CapReleased
	case r.BESuppressed != nil:
		return *r.BESuppressed
	case r.BEKeptOff != nil:
		return *r.BEKeptOff
	case r.Idled != nil:
		return *r.Idled
	case r.IdleRefused != nil:
		return *r.IdleRefused
	case r.Released != nil:
		return *r.Released
	case r.Tick != nil:
		return *r.Tick
	}
	return nil
}

// Recorder keeps the latest events of a machine in bounded space. It holds two segments, each a
// checkpoint with the events after it, so that the last max events always come with the state from
// which they started.
type Recorder struct {
	max      int
	old, new segment
	added    bool // the last Add added an event
}

type segment struct {
	base   []Record
	events []recorded
}

// recorded is an event as it is stored here: a Record is five times as large.
type recorded struct {
	at    time.Time
	event Event
}

// NewRecorder keeps at least max events and at most four times as many.
func NewRecorder(max int) *Recorder { return &Recorder{max: max} }

// Add records an event before m processes it.
func (r *Recorder) Add(m *Machine, at time.Time, e Event) {
	r.added = false
	e, ok := recordable(e)
	if !ok || r.new.base == nil || len(r.new.events) >= 2*r.max {
		r.Rebase(m, at)
	}
	if r.added = ok; ok {
		r.new.events = append(r.new.events, recorded{at, e})
	}
}

// recordable is an event in the form in which it is recorded; false: it cannot be recorded.
func recordable(e Event) (Event, bool) {
	switch e := e.(type) {
	case Hardware:
		e.Online, e.Topology = e.onlineCPUs(), nil
		return e, true
	case Reconfigured:
		return nil, false
	}
	return e, true
}

// Turn starts a new checkpoint if the current segment is long enough. It reads the whole machine,
// which takes a millisecond with 1,000 containers, so call it when no request is waiting for an
// answer; if it is never called, Add does it.
func (r *Recorder) Turn(m *Machine, at time.Time) {
	if len(r.new.events) >= r.max {
		r.Rebase(m, at)
	}
}

// Undo removes the event of the last Add, which m did not process.
func (r *Recorder) Undo() {
	if r.added {
		r.new.events = r.new.events[:len(r.new.events)-1]
		r.added = false
	}
}

// Rebase starts a new segment with the state of m. The previous segment is kept until the next one.
func (r *Recorder) Rebase(m *Machine, at time.Time) {
	r.old, r.new, r.added = r.new, segment{base: m.baseRecords(at)}, false
}

// Latest is the shortest record that brings an empty machine to the current state.
func (r *Recorder) Latest() []Record { return r.new.appendTo(nil) }

// Records returns what to replay on an empty machine of the same node.
func (r *Recorder) Records() []Record {
	if r.old.base == nil {
		return r.Latest()
	}
	all := r.old.appendTo(nil)
	for _, e := range r.new.events {
		all = appendRecord(all, e)
	}
	return all
}

func (s *segment) appendTo(all []Record) []Record {
	all = append(all, s.base...)
	for _, e := range s.events {
		all = appendRecord(all, e)
	}
	return all
}

func appendRecord(all []Record, e recorded) []Record {
	record, _ := RecordOf(e.at, e.event)
	return append(all, record)
}

// baseRecords brings an empty machine to the current state.
func (m *Machine) baseRecords(at time.Time) []Record {
	var all []Record
	events := []Event{Hardware{Online: m.topo.Online()}, NodeLabels{Labels: m.cfg.NodeLabels}}
	if m.fromKubelet != nil {
		events = append(events, KubeletConfigured{Kubelet: *m.fromKubelet})
	}
	before, after := m.foreignRecords()
	events = append(append(append(events, m.kubelet), before...), m.Checkpoint())
	events = append(events, after...)
	if len(m.found) > 0 {
		events = append(events, Unannounced{Pods: m.foundPods()})
	}
	if !m.be.suppressed.IsEmpty() || m.be.quota > 0 {
		events = append(events, BESuppressed{CPUs: m.be.suppressed, QuotaMilli: m.be.quota,
			Grouped: m.be.grouped, PodMilli: m.be.parts})
	}
	for _, victim := range sortedKeys(m.be.keptOff) {
		k := m.be.keptOff[victim]
		events = append(events, BEKeptOff{Victim: victim, CPUs: k.cpus, For: k.until.Sub(at)})
	}
	for _, uid := range sortedKeys(m.be.away) {
		k := m.be.away[uid]
		events = append(events, BEKeptOff{Victim: k.victim, CPUs: k.cpus, For: k.until.Sub(at), Pod: uid,
			Least: k.least})
	}
	for _, uid := range sortedKeys(m.be.idled) {
		events = append(events, Idled{Pod: uid, For: m.be.idled[uid].Sub(at)})
	}
	if m.be.noIdle {
		events = append(events, IdleRefused{})
	}
	for _, e := range events {
		r, _ := RecordOf(at, e)
		all = append(all, r)
	}
	return all
}
