// Package detect learns the normal CPI of a job, notices when a container is slower,
// finds the antagonist, and verifies whether acting on it helped. It implements the
// detector of CPI² (Zhang et al., "CPI²: CPU performance isolation for shared compute
// clusters", EuroSys 2013) and extends it.
//
// A [Detector] is a state machine without clock, lock or I/O. [Detector.Observe] takes
// a round of samples and the time, [Detector.Tick] the time alone. Both return
// [Event]s: outliers, anomalies, a [Verdict] on an anomaly, a [Command] to execute, the
// [Outcome] of an action. The caller executes commands, and calls [Detector.Refuse] for
// one that it cannot execute.
//
// The order of the samples in a round does not matter. A duplicate counts once, and a
// late sample is inserted where it belongs.
//
//	sample  -> window.go   the last hour of a container
//	        -> spec.go     normal: job x platform x usage band
//	        -> outlier.go  slower than that, and often enough
//	        -> score.go    the paper's score; contrast.go: what it lacks
//	        -> action.go   act on the suspect, verify, release, remember
//
// Mode Classic is the paper. Contrast is better than it: docs/evidence/detector.md
// explains both and has the figures.
package detect
