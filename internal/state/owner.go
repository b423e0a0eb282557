package state

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

// Owner is an owner of CPUs of a kind that came after format 1. This version knows the kind
// container. An entry of another kind is kept unchanged: its CPUs are given to no pod, and it is
// saved again.
//
// Every version may rely on this: kind and uid are not empty, cpus are all CPUs that no other pod
// may run on, and the pod has no entry in Snapshot.Pods. A pod may have several entries.
type Owner struct {
	Kind string     `json:"kind"`
	UID  string     `json:"uid"` // the pod's
	CPUs cpuset.Set `json:"cpus"`
	// Entry is the whole entry, including fields of other versions; nil: the fields above are all.
	Entry json.RawMessage `json:"-"`
}

// kindContainer is one container of a pod. A pod with this kind has no entries of other kinds, or
// the entries have a meaning that this version does not know.
const kindContainer = "container"

// containerOwner is the entry of a container; its CPUs are those that it owns and those kept idle
// for it. The fields about its pod are the same in all entries of that pod.
type containerOwner struct {
	Kind      string      `json:"kind"`
	UID       string      `json:"uid"`
	CPUs      cpuset.Set  `json:"cpus"`
	Container string      `json:"container"`
	Withheld  cpuset.Set  `json:"withheld"`
	Request   int         `json:"request"`
	Reasons   string      `json:"reasons,omitempty"`
	LostNodes *cpuset.Set `json:"lostNodes,omitempty"`
	Degraded  string      `json:"degraded,omitempty"`
	Demoted   bool        `json:"demoted,omitempty"`
	Since     time.Time   `json:"since,omitzero"`
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	Several   bool        `json:"several,omitempty"`
	CreatedAt time.Time   `json:"createdAt"`
	Narrowed  []string    `json:"narrowed,omitempty"`
}

// containersOf are the entries of a pod whose containers own CPUs.
func containersOf(p *policy.Pod) []Owner {
	r := p.Recovered
	var owners []Owner
	for i := range r.Owners {
		o := &r.Owners[i]
		own, withheld := orEmpty(o.CPUs), orEmpty(o.Withheld)
		entry := containerOwner{
			Kind: kindContainer, UID: p.UID, CPUs: own.Or(withheld), Container: o.Container, Withheld: withheld,
			Request: o.Request, Reasons: o.Reasons, LostNodes: o.LostNodes, Degraded: o.Degraded, Demoted: o.Demoted,
			Since: o.Since, Namespace: p.Namespace, Name: p.Name, Several: r.Several, CreatedAt: p.CreatedAt,
			Narrowed: r.Narrowed,
		}
		if text, err := json.Marshal(entry); err == nil { // no field of it can fail
			owners = append(owners, Owner{Kind: kindContainer, UID: p.UID, CPUs: entry.CPUs, Entry: text})
		}
	}
	return owners
}

// ownsContainers reports whether some container of a pod owns CPUs.
func ownsContainers(r *policy.Recovered) bool {
	return slices.ContainsFunc(r.Owners, func(o policy.RecoveredContainer) bool { return o.CPUs != nil })
}

// placeOf is the place of a pod that has only container entries; false: it is a reservation.
func placeOf(entries []Owner) (Pod, bool) {
	var p Pod
	for i := range entries {
		var o containerOwner
		text, err := entries[i].MarshalJSON()
		if err != nil || entries[i].Kind != kindContainer || json.Unmarshal(text, &o) != nil || o.Container == "" ||
			o.Request < 0 || o.Request > cpuset.MaxCPUs || !o.Withheld.SubsetOf(&o.CPUs) {
			return Pod{}, false
		}
		own := o.CPUs.Minus(o.Withheld)
		p.UID, p.Namespace, p.Name, p.Several, p.CreatedAt = o.UID, o.Namespace, o.Name, o.Several, o.CreatedAt
		p.Narrowed = o.Narrowed
		p.CPUs.AddSet(&o.CPUs)
		p.Containers = append(p.Containers, policy.RecoveredContainer{Container: o.Container,
			Recovered: policy.Recovered{CPUs: orNil(own), Withheld: orNil(o.Withheld), From: "state file",
				Request: o.Request, Reasons: o.Reasons, LostNodes: o.LostNodes, Degraded: o.Degraded,
				Demoted: o.Demoted, Since: o.Since}})
	}
	return p, len(entries) > 0
}

// known is an Owner without its methods.
type known Owner

// UnmarshalJSON keeps the entry, whatever is in it.
func (o *Owner) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, (*known)(o)); err != nil {
		return fmt.Errorf("owner: %w", err)
	}
	o.Entry = slices.Clone(text)
	return nil
}

// MarshalJSON writes the entry as it was read.
func (o Owner) MarshalJSON() ([]byte, error) {
	if o.Entry != nil {
		return o.Entry, nil
	}
	return json.Marshal(known(o))
}

func (o *Owner) check() error {
	if o.UID == "" || o.Kind == "" {
		return fmt.Errorf("has an owner of kind %.64q with UID %.64q", o.Kind, o.UID)
	}
	return nil
}

// ownersOf are the entries as which a reservation is saved.
func ownersOf(uid string, r *policy.Recovered) []Owner {
	var owners []Owner
	for _, entry := range r.Reservation.Entries {
		var o Owner
		if json.Unmarshal(entry, &o) == nil && o.check() == nil {
			owners = append(owners, o)
		}
	}
	if owners == nil { // it did not come from a state file
		owners = []Owner{{Kind: r.Reservation.Kind, UID: uid, CPUs: orEmpty(r.CPUs)}}
	}
	return owners
}

// Places are the pods whose places must be restored, by UID: those of Pods, and those of Owners,
// which have containers or reservations.
func (s *Snapshot) Places() map[string]Pod {
	places := make(map[string]Pod, len(s.Pods)+len(s.Owners))
	for _, p := range s.Pods {
		if _, twice := places[p.UID]; !twice {
			places[p.UID] = p
		}
	}
	kinds, entries := map[string]map[string]bool{}, map[string][]Owner{}
	for _, o := range s.Owners {
		entries[o.UID] = append(entries[o.UID], o)
	}
	for _, o := range s.Owners {
		p, listed := places[o.UID]
		if !listed {
			if p, ok := placeOf(entries[o.UID]); ok {
				places[o.UID] = p
				continue
			}
		}
		if p.Containers != nil {
			continue
		}
		if p.Reservation == nil {
			p = Pod{UID: o.UID, CPUs: p.CPUs.Or(p.Withheld), CreatedAt: p.CreatedAt, Reservation: &policy.Reservation{}}
			kinds[o.UID] = map[string]bool{}
		}
		p.CPUs.AddSet(&o.CPUs)
		kinds[o.UID][o.Kind] = true
		text, err := o.MarshalJSON()
		if err == nil {
			p.Reservation.Entries = append(p.Reservation.Entries, text)
		}
		p.Reservation.Kind = strings.Join(slices.Sorted(maps.Keys(kinds[o.UID])), ", ")
		places[o.UID] = p
	}
	return places
}
