// Package kubelet reads what kubelet of this node is configured to do and what
// devices it gave to which pods. It only ever reads.
//
// A Watcher follows kubelet's configuration file and its drop-in directory:
//
//	w := &kubelet.Watcher{File: "/var/lib/kubelet/config.yaml", Take: take, Log: log}
//	go w.Watch(ctx)
//
// Devices asks the PodResources API, bounded in time whatever becomes of kubelet.
package kubelet
