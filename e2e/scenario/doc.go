// Package scenario plays a script of `quietcore simulate` on a virtual machine. It acts
// as kubelet does, with pod cgroups, sandboxes and containers over CRI, and reads the
// result from the kernel.
//
// [Load] reads a [Script], [Boot] starts a [Guest], and a [Player] plays the script on
// it. The resulting lines have the form of `quietcore simulate -o json`, and [Compare]
// compares the two; a difference is a defect of one of them. For example
//
//   - create: {pod: web, namespace: default, labels: {koordinator.sh/qosClass: LSR}, containers: [...]}
//
// becomes a pod cgroup with its cpu.max, RunPodSandbox, CreateContainer and
// StartContainer, and the line's "cpus" is cpuset.cpus.effective of the result.
//
// Invariant: the player decides nothing about CPUs; it plays kubelet and observes.
package scenario
