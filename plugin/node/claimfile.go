package node

import (
	"maps"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
)

// claimFile is what claims of our own driver have in the state file. No cgroup has it, so a daemon that finds a claim
// in the file believes it, before what runs on its CPUs. So CPUs that a claim has given back serve no owner before the
// file has that; how long a disk takes is no matter.
type claimFile struct {
	now map[string]cpuset.Set // by claim UID, as decided
	// file is what the file has, saving what the save in flight has: either may be what a new daemon finds.
	file, saving map[string]cpuset.Set
}

func newClaimFile(saved state.Snapshot) claimFile {
	return claimFile{now: map[string]cpuset.Set{}, file: claimsIn(&saved)}
}

// claimsIn are the CPUs of the claims in a snapshot.
func claimsIn(s *state.Snapshot) map[string]cpuset.Set {
	if len(s.Claims) == 0 {
		return nil
	}
	all := make(map[string]cpuset.Set, len(s.Claims))
	for i := range s.Claims {
		var cpus cpuset.Set
		for j := range s.Claims[i].Given {
			if given := s.Claims[i].Given[j].CPUs; given != nil {
				cpus.AddSet(given)
			}
		}
		all[s.Claims[i].UID] = cpus
	}
	return all
}

// decided records decisions; full: they are the whole state.
func (f *claimFile) decided(decisions []policy.Decision, full bool) {
	if full {
		clear(f.now)
	}
	for _, d := range decisions {
		switch d := d.(type) {
		case policy.ClaimGiven:
			var cpus cpuset.Set
			for i := range d.CPUs {
				cpus.AddSet(&d.CPUs[i])
			}
			f.now[d.UID] = cpus
		case policy.DropClaim:
			delete(f.now, d.UID)
		}
	}
}

// begin records what the save that starts contains.
func (f *claimFile) begin(s *state.Snapshot) { f.saving = claimsIn(s) }

// end records that the save in flight has succeeded.
func (f *claimFile) end() { f.file, f.saving = f.saving, nil }

// stale are CPUs that a new daemon may take for a claim's although it has given them back.
func (f *claimFile) stale() (cpus cpuset.Set) {
	if len(f.file) == 0 && len(f.saving) == 0 { // as on nodes without claims
		return cpus
	}
	for _, found := range []map[string]cpuset.Set{f.file, f.saving} {
		for uid, had := range maps.All(found) {
			old := had.Minus(f.now[uid])
			cpus.AddSet(&old)
		}
	}
	return cpus
}
