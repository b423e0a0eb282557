// Package driver is the part of Quietcore's own DRA driver that does I/O: it answers kubelet, writes CDI specs, and
// publishes ResourceSlices.
//
//	d := driver.New(driver.Options{Policy: plugin, API: driver.NewAPI(rest), Node: node, Foreign: foreign, …})
//	d.Run(ctx)
//
// It speaks kubelet's two gRPC services itself and not by k8s.io/dynamic-resource-allocation/kubeletplugin, which wants
// a whole clientset: with it the daemon's binary was 103 MB instead of 62, and `quietcore version` took 50 MB of memory
// instead of 27. This package and what it needs add 1.6 MB to the binary.
//
// A claim is prepared in this order: the API server is asked for it, the policy gives it CPUs and has that on disk and
// all others off them, its CDI spec is written, kubelet gets its answer. Unprepare goes the other way. A daemon that is
// killed in between is asked again by kubelet, and every step may be repeated.
package driver
