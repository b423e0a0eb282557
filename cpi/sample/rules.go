package sample

import "time"

// Rules are the bounds of what is believed.
type Rules struct {
	// MinLength and MaxLength bound a window.
	MinLength, MaxLength time.Duration
	// MinCounted is the least share of its time in which a container's events must
	// have been counted.
	MinCounted float64
	// MinOnCPU is the least CPU time that makes a ratio.
	MinOnCPU time.Duration
	// MaxOffShare of its usage, or MaxOff CPUs, is by how much a container's usage may
	// differ from the kernel's own account. Where there is no account, MaxLostShare of
	// its CPU time, or MaxLost CPUs, may be missing from it.
	MaxOffShare, MaxOff float64
	// MaxBetween is the most share of the account that may have run while the readings
	// were taken: beyond it the account says too little.
	MaxBetween            float64
	MaxLostShare, MaxLost float64
	// MinCPI and MaxCPI bound cycles per instruction, MinHertz and MaxHertz cycles
	// per second of CPU time. A maximum of 0 does not bound: stand-ins count
	// something else than cycles.
	MinCPI, MaxCPI     float64
	MinHertz, MaxHertz float64
	// MaxMPKI bounds LLC misses per thousand instructions; 0: no bound.
	MaxMPKI float64
}

const (
	// A window that a busy machine ends late is as true as any, but smooths more.
	maxLate = 10 * time.Second
	// Where counters have to be shared with others, the ratio of what was counted is
	// still exact, but of that part of the time; beyond a tenth it is not sure that
	// the rest was like it.
	minCounted = 0.9
	// A millisecond is a few million cycles; below, a handful of cache misses at the
	// start of a time slice is the whole ratio.
	minOnCPU = time.Millisecond
	// The kernel brings its account up to date at ticks and switches.
	maxOffShare, maxOff = 0.03, 0.01
	// On a machine with a CPU to spare a millisecond of a window is in between.
	maxBetween = 0.2
	// What may be missing without anybody judging otherwise.
	maxLostShare, maxLost = 0.01, 0.001
	// No CPU retires 20 instructions a cycle; and where each instruction waits for the
	// memory of another socket that is overloaded, it is some hundred cycles.
	minCPI, maxCPI = 0.05, 1000
	// Virtual CPUs may be off their host's CPU for most of the time that counts as
	// theirs, so the lower bound is far below any clock.
	minHertz, maxHertz = 1e6, 10e9
	// More than a miss an instruction takes a gather of memory that nothing else of
	// the program touches.
	maxMPKI = 1000
)

// Hardware are the rules for counters of a PMU and windows of this length.
func Hardware(window time.Duration) Rules {
	r := StandIn(window)
	r.MinCPI, r.MaxCPI, r.MinHertz, r.MaxHertz, r.MaxMPKI = minCPI, maxCPI, minHertz, maxHertz, maxMPKI
	return r
}

// StandIn are the rules where software events were declared to stand for cycles
// and instructions: their ratio has no natural bounds.
func StandIn(window time.Duration) Rules {
	return Rules{
		MinLength: window / 2, MaxLength: window + maxLate, MinCounted: minCounted, MinOnCPU: minOnCPU,
		MaxOffShare: maxOffShare, MaxOff: maxOff, MaxBetween: maxBetween, MaxLostShare: maxLostShare, MaxLost: maxLost,
	}
}
