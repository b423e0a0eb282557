// Package plugin is the plugin Quietcore of kube-scheduler: it translates between the
// scheduler's framework and package placement, which decides.
//
// A pod that asks for CPUs is filtered by what each node itself would answer, and bound with
// the annotation that tells the node its CPUs in the same write. A pod that asks for nothing
// costs nothing, unless some node keeps CPUs idle that its sums have.
package plugin
