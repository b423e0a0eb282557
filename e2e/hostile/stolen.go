package main

import "fmt"

// mark is what a daemon writes to have a pod evicted.
const mark = `{status: {conditions: [{type: quietcore.dev/EvictionRequested, status: "True", reason: a, message: b,
  lastTransitionTime: "2026-01-01T00:00:00Z"}]}}`

// event is YAML of an Event in the name of a daemon.
func event(instance, kind, name string) string {
	return fmt.Sprintf(`{metadata: {name: e}, eventTime: "2026-01-01T00:00:00.000000Z", type: Normal, reason: a,
  action: a, reportingController: quietcore.dev/quietcore, reportingInstance: %q, note: forged,
  regarding: {apiVersion: v1, kind: %s, name: %s, namespace: shop}}`, instance, kind, name)
}

// topology is YAML of a NodeResourceTopology.
func topology(node string) string {
	return "{apiVersion: topology.node.k8s.io/v1alpha2, kind: NodeResourceTopology, metadata: {name: " + node +
		"}, topologyPolicies: [none], zones: []}"
}

// slice is YAML of a ResourceSlice.
func slice(name, node, driver string) string {
	return fmt.Sprintf("{metadata: {name: %s}, spec: {driver: %s, nodeName: %s, pool: {name: %s, generation: 1, "+
		"resourceSliceCount: 1}, devices: [{name: a}]}}", name, driver, node, node)
}

// daemonsOnPods: the token of n1's daemon marks pods of n1. own-1 is one of them, web is on n2.
func daemonsOnPods() []attack {
	const onlyMarks, cannot = "EvictionRequested only", "cannot "
	on := func(what string, r request, says string) attack { return attack{stolen, what, r, says} }
	return []attack{
		on("a pod of another node marked", strategic(shop+"/pods/web/status", mark),
			"may not mark a pod of node n2"),
		on("a pod of its node made unready", strategic(shop+"/pods/own-1/status",
			`{status: {conditions: [{type: Ready, status: "False"}]}}`), onlyMarks),
		on("a pod's conditions taken away", merge(shop+"/pods/own-1/status", "{status: {conditions: []}}"), onlyMarks),
		on("a pod ended by its status", merge(shop+"/pods/own-1/status", "{status: {phase: Failed}}"),
			"a condition only"),
		on("a pod given another's address", merge(shop+"/pods/own-1/status",
			"{status: {podIP: 10.0.0.9, podIPs: [{ip: 10.0.0.9}]}}"), "a condition only"),
		on("a pod's label changed", merge(shop+"/pods/own-1/status", "{metadata: {labels: {app: x}}}"),
			"writes nothing"),
		on("a pod's spec changed", merge(shop+"/pods/own-1", "{spec: {activeDeadlineSeconds: 1}}"), cannot),
		on("a pod evicted", create(shop+"/pods/own-1/eviction",
			"{apiVersion: policy/v1, kind: Eviction, metadata: {name: own-1, namespace: shop}}"), cannot),
		on("a pod deleted", remove(shop+"/pods/own-1"), cannot),
		on("a pod created", create(shop+"/pods", pod("a", "")), cannot),
		on("a command in another pod", create(shop+"/pods/own-1/exec?command=sh", "{}"), cannot),
		on("an Event in another daemon's name", create(events, event("quietcore-n2", "Pod", "web")),
			"of another reportingInstance than quietcore-n1"),
		on("an Event in kubelet's name", create(events, event("kubelet", "Pod", "web")),
			"of another reportingInstance than quietcore-n1"),
		on("an Event about another Node", create(events, event("quietcore-n1", "Node", "n2")), "of another Node"),
		on("another daemon's Event changed", merge(events+"/of-n2",
			`{series: {count: 2, lastObservedTime: "2026-01-01T00:00:01.000000Z"}}`),
			"of another reportingInstance than quietcore-n1"),
		on("an Event deleted", remove(events+"/of-n2"), cannot),
	}
}

// daemonsOnNodes: it writes two resources of its own Node.
func daemonsOnNodes() []attack {
	on := func(what, node, body, says string) attack {
		return attack{stolen, what, merge("/api/v1/nodes/"+node+"/status", body), says}
	}
	return []attack{
		on("what another Node lends", "n2", `{status: {capacity: {quietcore.dev/batch-cpu: "1"}}}`,
			"may not write Node n2"),
		on("more CPUs for its Node", "n1", `{status: {capacity: {cpu: "64"}}}`, "batch-cpu only"),
		on("CPUs taken from its Node", "n1", `{status: {allocatable: {cpu: null}}}`, "batch-cpu only"),
		on("a device for its Node", "n1", `{status: {allocatable: {example.com/gpu: "4"}}}`, "batch-cpu only"),
		on("its Node made unready", "n1", `{status: {conditions: [{type: Ready, status: "False"}]}}`,
			"capacity and allocatable only"),
		on("a label on its Node", "n1", `{metadata: {labels: {zone: b}}}`, "quietcore.dev/lending only"),
		on("an annotation on its Node", "n1", `{metadata: {annotations: {volumes: x}}}`, "quietcore.dev/lending only"),
		{stolen, "its Node cordoned", merge("/api/v1/nodes/n1", `{spec: {unschedulable: true}}`), "cannot "},
		{stolen, "its Node deleted", remove("/api/v1/nodes/n1"), "cannot "},
		{stolen, "another node's NodeResourceTopology made", create(topologies, topology("n3")),
			"may not write the NodeResourceTopology of n3"},
		{stolen, "another node's NodeResourceTopology changed", merge(topologies+"/n2", "{topologyPolicies: [x]}"),
			"may not write the NodeResourceTopology of n2"},
		{stolen, "another node's ResourceSlice made", create(slicesPath, slice("a", "n2", "cpu.quietcore.dev")),
			"may not write a ResourceSlice of another node"},
		{stolen, "another node's ResourceSlice deleted", remove(slicesPath + "/of-n2"),
			"may not write a ResourceSlice of another node"},
		{stolen, "a ResourceSlice of another driver", create(slicesPath, slice("a", "n1", "gpu.example.com")),
			"of driver cpu.quietcore.dev only"},
		{stolen, "another node's turn in a rollout", create(rollouts+"/quietcoreturns",
			"{apiVersion: quietcore.dev/v1alpha1, kind: QuietcoreTurn, metadata: {name: p.0}, spec: {policy: p, "+
				`place: "0", node: n2, revision: 1}}`), "may not write quietcoreturns of another node"},
		{stolen, "another node's answer to a rollout", create(rollouts+"/quietcorenodes",
			"{apiVersion: quietcore.dev/v1alpha1, kind: QuietcoreNode, metadata: {name: n2}}"),
			"may not write quietcorenodes of another node"},
	}
}

// daemonsElsewhere: it reads pods and nodes, and nothing that helps to get further.
func daemonsElsewhere() []attack {
	const cannot = "cannot "
	return []attack{
		{stolen, "all Secrets read", read("/api/v1/secrets"), cannot},
		{stolen, "the ConfigMaps of its namespace read", read(quiet + "/configmaps"), cannot},
		{stolen, "another token of its own account", create(quiet+"/serviceaccounts/quietcore/token", "{spec: {}}"),
			cannot},
		{stolen, "a claim's status written", merge("/apis/resource.k8s.io/v1/namespaces/shop/resourceclaims/c/status",
			"{status: {}}"), cannot},
		{stolen, "a QuietcorePolicy for all nodes", create(rollouts+"/quietcorepolicies",
			"{apiVersion: quietcore.dev/v1alpha1, kind: QuietcorePolicy, metadata: {name: a}, spec: {config: {}}}"),
			cannot},
		{stolen, "the evictor's Lease taken", create(
			"/apis/coordination.k8s.io/v1/namespaces/quietcore-system/leases", "{metadata: {name: quietcore-evictor}}"),
			cannot},
		{stolen, "the policy that binds it deleted", remove(admission +
			"/validatingadmissionpolicybindings/quietcore-own-node"), cannot},
		{stolen, "its own rights widened", create(rbac+"/clusterrolebindings", "{metadata: {name: a}, roleRef: "+
			"{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, subjects: [{kind: "+
			"ServiceAccount, name: quietcore, namespace: quietcore-system}]}"), cannot},
	}
}

// unbounds: a token that names no node is good for reading alone.
func unbounds() []attack {
	return []attack{
		{unbound, "a pod marked", strategic(shop+"/pods/own-1/status", mark), "names no node"},
		{unbound, "an Event", create(events, event("quietcore-", "Pod", "web")), "names no node"},
		{unbound, "a NodeResourceTopology", create(topologies, topology("n3")), "names no node"},
		{unbound, "what a Node lends", merge("/api/v1/nodes/n1/status",
			`{status: {capacity: {quietcore.dev/batch-cpu: "1"}}}`), "names no node"},
		{unbound, "a ResourceSlice", create(slicesPath, slice("a", "n1", "cpu.quietcore.dev")), "names no node"},
	}
}

// evictors: the evictor's token evicts, and does nothing else.
func evictors() []attack {
	return []attack{
		{theEvicts, "a mark of its own", strategic(shop+"/pods/own-1/status", mark), "neither makes one"},
		{theEvicts, "a pod made unready", strategic(shop+"/pods/own-1/status",
			`{status: {conditions: [{type: Ready, status: "False"}]}}`), aPolicy},
		{theEvicts, "a pod deleted", remove(shop + "/pods/own-1"), "cannot "},
		{theEvicts, "all Secrets read", read("/api/v1/secrets"), "cannot "},
		{theEvicts, "a pod evicted beyond its disruption budget", create(shop+"/pods/guarded/eviction",
			"{apiVersion: policy/v1, kind: Eviction, metadata: {name: guarded, namespace: shop}}"),
			"disruption budget"},
	}
}
