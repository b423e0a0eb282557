// Package detect learns what is normal for a job, notices when a container is
// slower than that, says who is to blame, and checks whether quieting the
// suspect helped. It is the detector of CPI² (Zhang et al., "CPI²: CPU
// performance isolation for shared compute clusters", EuroSys 2013) and what the
// years since have added to it.
//
// A Detector is a state machine without a clock, a lock or I/O: Observe takes
// the samples of one round and the time, Tick the time alone, and both answer
// with Events. Commands among them are wishes; whoever owns the containers
// decides. The order of the samples in a round does not matter, a sample that
// comes twice counts once, and one that comes late is put where it belongs.
//
//	sample  -> window.go   the last hour of a container
//	        -> spec.go     what is normal: job x platform x usage band
//	        -> outlier.go  slower than that, and often enough
//	        -> score.go    the paper's score; contrast.go: what it lacks
//	        -> action.go   quiet the suspect, verify, release, remember
//
// Mode Classic is the paper; Default is what hack/evalcpi shows to be better.
// docs/detection.md explains both and holds the figures.
package detect
