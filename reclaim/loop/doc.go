// Package loop runs the lending of idle CPUs on a node: it reads what pods use,
// has reclaim's Suppressor say every second how many CPUs best effort may have, and
// its Estimator every few seconds what may be promised and who has to go. The
// policy narrows the best-effort pool, others publish and evict. It decides nothing
// itself.
//
// Invariant: what could not be read counts as in use, and in observe mode nothing
// is asked of anybody.
package loop
