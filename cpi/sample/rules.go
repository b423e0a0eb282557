package sample

import "time"

// Rules bound what Judge accepts.
type Rules struct {
	// MinLength and MaxLength bound a window's length.
	MinLength, MaxLength time.Duration
	// MinCounted is the least share of a container's CPU time in which its events must
	// have been counted. Sample.Counted says how large it was.
	MinCounted float64
	// MinOnCPU is the least CPU time for a CPI.
	MinOnCPU time.Duration
	// A container's usage may differ from the kernel's own account by MaxOffShare of
	// the usage, or MaxOff CPUs. Without an account, MaxLostShare of its CPU time, or
	// MaxLost CPUs, may be missing.
	MaxOffShare, MaxOff float64
	// MaxBetween is the largest share of the account that may have run while the
	// readings were taken. Beyond it the account is too imprecise.
	MaxBetween            float64
	MaxLostShare, MaxLost float64
	// MinCPI and MaxCPI bound cycles per instruction; MinHertz and MaxHertz bound
	// cycles per second of CPU time. A maximum of 0 means unbounded, for stand-ins,
	// which do not count cycles.
	MinCPI, MaxCPI     float64
	MinHertz, MaxHertz float64
	// MaxMPKI bounds LLC misses per thousand instructions; 0: unbounded.
	MaxMPKI float64
}

const (
	// A window that ends late on a busy machine is valid, but smooths more.
	maxLate = 10 * time.Second
	// Shared counters count only part of the time. The rest may have differed: the sample
	// says how much was counted, and the detector weighs it. Of less than a tenth the
	// kernel's turns (4 ms) may have met the same phase of the work each time.
	minCounted = 0.1
	// CPI changes from reference cycles to core cycles below the first share of the window,
	// and back above the second, so that a machine does not change with every window: a job
	// learns what is normal for each apart.
	minReference, backToReference = 0.5, 0.9
	// A millisecond is a few million cycles. Below that, a few cache misses at the
	// start of a time slice dominate the ratio.
	minOnCPU = time.Millisecond
	// The kernel updates its account at ticks and switches.
	maxOffShare, maxOff = 0.03, 0.01
	// On a machine with a spare CPU the readings are about a millisecond apart.
	maxBetween = 0.2
	// So little may be missing without changing a verdict.
	maxLostShare, maxLost = 0.01, 0.001
	// No CPU retires 20 instructions a cycle. An instruction that waits for the memory of
	// an overloaded remote socket takes some hundred cycles.
	minCPI, maxCPI = 0.05, 1000
	// A virtual CPU may be descheduled by its host for most of the time it is charged,
	// so the lower bound is far below any clock rate.
	minHertz, maxHertz = 1e6, 10e9
	// More than one miss an instruction takes gathers from memory that is otherwise
	// untouched.
	maxMPKI = 1000
)

// Hardware returns the rules for PMU counters and windows of this length.
func Hardware(window time.Duration) Rules {
	r := StandIn(window)
	r.MinCPI, r.MaxCPI, r.MinHertz, r.MaxHertz, r.MaxMPKI = minCPI, maxCPI, minHertz, maxHertz, maxMPKI
	return r
}

// StandIn returns the rules for software events that stand in for cycles and
// instructions: their ratio has no natural bounds.
func StandIn(window time.Duration) Rules {
	return Rules{
		MinLength: window / 2, MaxLength: window + maxLate, MinCounted: minCounted, MinOnCPU: minOnCPU,
		MaxOffShare: maxOffShare, MaxOff: maxOff, MaxBetween: maxBetween, MaxLostShare: maxLostShare, MaxLost: maxLost,
	}
}
