// Package simulate is a cluster on paper: the scheduler's own placement over one policy
// machine a node, played from a file.
//
//	nodes:
//	  - {name: node-a, topology: {grid: {sockets: 2, coresPerL3: 8, threadsPerCore: 2}}, node: {}, config: {}}
//	steps:
//	  - create: {pod: web, labels: {koordinator.sh/qosClass: LSR}, containers: [{name: main, requestMilli: 4000,
//	      limitMilli: 4000}]}
//	  - offline: {node: node-a, cpus: "3"}
//
// Topology, node, config and steps are those of `quietcore simulate`; what concerns one node
// names it, and a pod that names one is bound there by hand. Of nodes that cost a pod the same,
// the one with the fewest requests is taken, and then the first.
package simulate
