package state

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

// Owner is an owner of CPUs of a kind that came after format 1. This version knows none:
// it keeps each entry as it is, gives its CPUs to nobody, and saves it again.
//
// What every version may rely on: kind and uid are not empty, cpus are all CPUs that no
// other pod may run on, and the pod has no entry in Snapshot.Pods. A pod may have several
// entries.
type Owner struct {
	Kind string     `json:"kind"`
	UID  string     `json:"uid"` // the pod's
	CPUs cpuset.Set `json:"cpus"`
	// Entry is all of it, with what other versions wrote; nil: the fields above are all.
	Entry json.RawMessage `json:"-"`
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

// ownersOf is what a reservation is saved as.
func ownersOf(uid string, r *policy.Recovered) []Owner {
	var owners []Owner
	for _, entry := range r.Reservation.Entries {
		var o Owner
		if json.Unmarshal(entry, &o) == nil && o.check() == nil {
			owners = append(owners, o)
		}
	}
	if owners == nil { // no state file was its origin
		owners = []Owner{{Kind: r.Reservation.Kind, UID: uid, CPUs: orEmpty(r.CPUs)}}
	}
	return owners
}

// Places are the pods that must find their places again, by UID: those of Pods, and those
// of Owners, whose places are reservations.
func (s *Snapshot) Places() map[string]Pod {
	places := make(map[string]Pod, len(s.Pods)+len(s.Owners))
	for _, p := range s.Pods {
		if _, twice := places[p.UID]; !twice {
			places[p.UID] = p
		}
	}
	kinds := map[string]map[string]bool{}
	for _, o := range s.Owners {
		p := places[o.UID]
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
