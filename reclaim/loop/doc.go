// Package loop lends a node's idle CPUs. A [Loop] reads what pods use. Every second
// reclaim.Suppressor says how many CPUs best effort may use; every few seconds
// reclaim.Estimator says what may be promised and which pods to evict. The Loop carries
// these decisions out by the functions of its [Options] and reports a [Status]. It
// decides nothing itself.
//
// Invariants: use that could not be read counts as in use, and in observe mode no pod
// is evicted.
package loop
