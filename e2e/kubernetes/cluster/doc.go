// Package cluster is a Kubernetes of one node for tests: etcd, the API server, the
// scheduler and the controllers are processes of this host on its loopback, the
// node is a virtual machine with kubelet and containerd. Everything is built from Go
// modules or comes from Debian packages, and no registry of images is asked.
//
//	bin, err := cluster.Build(ctx, ".cache/e2e", os.Stderr)
//	plane, err := cluster.Start(ctx, cluster.Options{Binaries: bin, Dir: dir})
//	node, err := plane.Join(ctx, cluster.NodeOptions{...})
//
// Invariant: whatever is waited for is a condition (a pod that is running, an address
// that answers); no process outlives the program, however it ends.
package cluster
