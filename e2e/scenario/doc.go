// Package scenario plays a script of `quietcore simulate` on a virtual machine,
// as kubelet would: pod cgroups, sandboxes and containers over CRI, and reads the
// outcome back from the kernel.
//
// The lines that come out have the form of `quietcore simulate -o json`, so the
// two can be compared; a difference is a defect of one of them. For example
//
//   - create: {pod: web, namespace: default, labels: {koordinator.sh/qosClass: LSR}, containers: [...]}
//
// becomes a pod cgroup with its cpu.max, RunPodSandbox, CreateContainer and
// StartContainer, and the line's "cpus" is cpuset.cpus.effective of the result.
//
// Invariant: the player decides nothing about CPUs; it plays kubelet and looks.
package scenario
