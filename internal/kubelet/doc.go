// Package kubelet reads the configuration of this node's kubelet, and which devices it
// gave to which pods. It never writes.
//
// A [Watcher] follows kubelet's configuration file and its drop-in directory:
//
//	w := &kubelet.Watcher{File: "/var/lib/kubelet/config.yaml", Take: take, Log: log}
//	go w.Watch(ctx)
//
// [Devices] is a client of the PodResources API whose requests are bounded in time, and
// a [Poller] follows its [Inventory]. A [Reconciler] combines configuration, state and
// inventory for the policy.
package kubelet
