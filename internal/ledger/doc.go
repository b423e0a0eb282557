// Package ledger is what a daemon tells schedulers of its node beyond what others tell
// them: three annotations of its NodeResourceTopology, written and read by this one package.
//
//	quietcore.dev/machine  the CPUs with cores, L3s, NUMA nodes, sockets and kinds
//	quietcore.dev/rules    the configuration that new pods are judged by
//	quietcore.dev/ledger   what pods hold, with a generation
//
// The three change at very different rates, and most nodes of a cluster have the first two
// in common: a [Decoder] makes one machine and one set of rules of equal texts. A text of a
// newer version is refused; fields that are not known are not.
//
//	annotations, err := ledger.Encode(topology, snapshot.Ledger, generation)
//	node, err := decoder.Decode(annotations)
package ledger
