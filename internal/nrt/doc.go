// Package nrt publishes to schedulers what a node has left: it builds the node's
// NodeResourceTopology object out of a snapshot and keeps it up to date in the
// API server.
//
// Build is a function of its input alone. A Publisher writes what Build makes:
// at most once a second, the latest only, nothing while nothing differs, and
// never over another manager of the object. Nobody ever waits for it.
//
//	source := func() *v1alpha2.NodeResourceTopology { return nrt.Build(input()) }
//	p := nrt.New(nrt.Options{API: api, Source: source, Log: log})
//	go p.Run(ctx)
//	p.Changed()
//
// docs/node-resource-topology.md says what every field means to which scheduler.
package nrt
