package reclaim

import "math"

// Member is a cgroup of batch pods that has a part of a quota of its own.
type Member struct {
	ID     string
	Weight float64 // CPUs that its pods were promised
	Use    float64 // CPUs
	Held   bool    // a quota kept it from using more
	// Most is what it can use by a limit of its own, in thousandths of a CPU; 0: there is none.
	Most int64
}

const (
	// leastWeight is what a member weighs that was promised nothing, in CPUs.
	leastWeight = 0.1
	// ahead is how much more than it uses a member is left that is not held.
	ahead = 1.25
	// needStep is the step, in units of leastQuota, of what a member is taken to need, so that
	// small changes of its use change no quota.
	needStep = 10
)

// Divide divides a quota, in thousandths of a CPU, over cgroups that cannot have one together. The
// parts never add up to more. Each is at least the kernel's least; only where that is too much for
// all together do they add up to more. Whoever is held has at least its share by weight, and what
// others do not need of theirs.
func Divide(milli int64, members []Member) []int64 {
	n := int64(len(members))
	units := make([]int64, n)
	need := make([]int64, n)
	weight := make([]float64, n)
	left := max(milli/leastQuota, n) - n // one for each
	for i, m := range members {
		units[i], weight[i], need[i] = 1, leastWeight, left
		if amount(m.Weight) {
			weight[i] = max(m.Weight, leastWeight)
		}
		if !m.Held && amount(m.Use) {
			need[i] = min(left, int64(math.Ceil(m.Use*ahead*1000/leastQuota/needStep))*needStep)
		}
		if m.Most > 0 {
			need[i] = min(need[i], max(m.Most/leastQuota-1, 0))
		}
	}
	left = fill(left, units, need, weight)
	// Nobody needs the rest now. It is room for whoever is next.
	for i := range need {
		need[i] = left
	}
	fill(left, units, need, weight)
	for i := range units {
		units[i] *= leastQuota
	}
	return units
}

// fill gives out up to left by weight, to nobody more than it needs, and returns what is over.
func fill(left int64, units, need []int64, weight []float64) int64 {
	for {
		total := 0.0
		for i := range need {
			if need[i] > 0 {
				total += weight[i]
			}
		}
		if left == 0 || total == 0 {
			return left
		}
		given := int64(0)
		for i, w := range weight {
			if need[i] > 0 {
				share := min(int64(float64(left)*w/total), need[i])
				units[i], need[i], given = units[i]+share, need[i]-share, given+share
			}
		}
		if left -= given; given > 0 {
			continue
		}
		for i := range need { // too little to share
			if need[i] > 0 && left > 0 {
				units[i], left = units[i]+1, left-1
			}
		}
		return left
	}
}
