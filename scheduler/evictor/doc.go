// Package evictor evicts the pods that nodes' daemons have marked. A daemon may not evict:
// with the condition [lend.EvictionRequested] it asks for the eviction of a pod of its own
// node, and policies of the chart keep it from asking for another node's. One evictor of a
// cluster, the leader, evicts what is marked through the Eviction API, oldest mark first and
// at a limited rate for each node. It ignores marks that were withdrawn or are old, and pods
// that are not best effort. A refusal by a disruption budget is written into the mark, and
// tried again as long as the mark stands.
//
// It is a part of quietcore-scheduler, which is linked with what it needs anyway: the
// daemon would be 15 MB larger, and take 16 MB more memory on every node.
package evictor
