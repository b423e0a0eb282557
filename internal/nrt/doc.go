// Package nrt publishes a node's free CPUs and devices to schedulers: it builds the
// node's NodeResourceTopology object from a snapshot of the policy and keeps it up to
// date in the API server.
//
// [Build] is a pure function of its [Input]. A [Publisher] writes the result: at most
// once a second, only the latest, only if it differs, and never over another manager of
// the object. No caller ever waits for it.
//
//	source := func() *v1alpha2.NodeResourceTopology { return nrt.Build(input()) }
//	p := nrt.New(nrt.Options{API: api, Source: source, Log: log})
//	go p.Run(ctx)
//	p.Changed()
//
// docs/node-resource-topology.md says what every field means to which scheduler.
package nrt
