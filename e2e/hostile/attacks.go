package main

import (
	"fmt"
	"net/http"
	"strings"
)

// Who attacks the API server. Each has a real token.
const (
	tenant    = "tenant: administrator of a namespace"
	binder    = "tenant that may bind its pods to nodes"
	stolen    = "stolen: a daemon's token, of node n1"
	unbound   = "stolen: a daemon's token that names no node"
	theEvicts = "stolen: the evictor's token"
)

// Namespaces and objects that an attack may name. own and trusted are the tenant's; trusted may claim exclusive CPUs.
// shop is another tenant's, and quiet is Quietcore's.
const (
	own     = "/api/v1/namespaces/mallory"
	trusted = "/api/v1/namespaces/trusted"
	shop    = "/api/v1/namespaces/shop"
	quiet   = "/api/v1/namespaces/quietcore-system"

	rbac       = "/apis/rbac.authorization.k8s.io/v1"
	admission  = "/apis/admissionregistration.k8s.io/v1"
	events     = "/apis/events.k8s.io/v1/namespaces/shop/events"
	topologies = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
	slicesPath = "/apis/resource.k8s.io/v1/resourceslices"
	rollouts   = "/apis/quietcore.dev/v1alpha1"
)

// request is one to the API server; its body is YAML.
type request struct{ method, path, kind, body string }

func create(path, body string) request {
	return request{http.MethodPost, path, "application/json", body}
}

func merge(path, body string) request {
	return request{http.MethodPatch, path, "application/merge-patch+json", body}
}

func strategic(path, body string) request {
	return request{http.MethodPatch, path, "application/strategic-merge-patch+json", body}
}

func remove(path string) request { return request{http.MethodDelete, path, "application/json", ""} }

func read(path string) request { return request{http.MethodGet, path, "application/json", ""} }

// attack is a request that has to be refused, in words that speak of says: one that fails for another reason is not
// held by what should hold it.
type attack struct {
	who, what string
	request
	says string
}

// attacks are all that are played against a real API server with the chart's rights and policies.
func attacks() []attack {
	var all []attack
	for _, list := range [][]attack{
		claims(), claimsByTemplates(), claimsLater(), tenantsElsewhere(), binders(),
		daemonsOnPods(), daemonsOnNodes(), daemonsElsewhere(), unbounds(), evictors(),
	} {
		all = append(all, list...)
	}
	return all
}

// pod is YAML of one of the tenant's, with more of its metadata.
func pod(name, metadata string) string {
	return fmt.Sprintf("{metadata: {name: %s, %s}, spec: {containers: [{name: a, image: a, resources: "+
		"{requests: {cpu: 1, memory: 1M}, limits: {cpu: 1, memory: 1M}}}]}}", name, metadata)
}

func labelled(class string) string { return "labels: {koordinator.sh/qosClass: " + class + "}" }

func annotated(key, value string) string { return fmt.Sprintf("annotations: {%s: '%s'}", key, value) }

const (
	statusKey = "scheduling.koordinator.sh/resource-status"
	aPolicy   = "ValidatingAdmissionPolicy 'quietcore-" // of several that refuse, any may answer
)

// claims are what a pod asks for that its request does not pay for.
func claims() []attack {
	claim := func(what, metadata, says string) attack {
		return attack{tenant, what, create(own+"/pods", pod("a", metadata)), says}
	}
	const exclusive = "may not claim exclusive CPUs"
	return []attack{
		claim("a pod of class LSE", labelled("LSE"), exclusive),
		claim("a pod of class LSR", labelled("LSR"), exclusive),
		claim("a pod of class SYSTEM", labelled("SYSTEM"), "may not use class SYSTEM"),
		claim("a class in another case", labelled("lse"), "it must be LSE, LSR, LS, BE or SYSTEM"),
		{tenant, "a class with the annotation of a mirror pod", create(own+"/pods", strings.Replace(pod("a",
			labelled("LSE")+", annotations: {kubernetes.io/config.mirror: x}"), "spec: {", "spec: {nodeName: n1, ", 1)),
			exclusive},
		claim("CPUs in a forged resource-status", annotated(statusKey, `{"cpuset":"0-7"}`), "only schedulers do"),
		claim("exemption from caps", annotated("quietcore.dev/cap", "exempt"), "be exempt from caps"),
		claim("leaving its pod unmanaged", annotated("quietcore.dev/managed", "false"), "leave pods unmanaged"),
		claim("NUMA nodes for itself", annotated("scheduling.koordinator.sh/numa-topology-spec",
			`{"singleNUMANodeExclusive":"Required"}`), "keep other pods off its NUMA nodes"),
		claim("the same, its word hidden by an escape", annotated("scheduling.koordinator.sh/numa-topology-spec",
			`{"singleNUMANodeExclusive":"\u0052equired"}`), "keep other pods off its NUMA nodes"),
		{tenant, "class LS for a pod that requests nothing", create(own+"/pods",
			"{metadata: {name: a, "+labelled("LS")+"}, spec: {containers: [{name: a, image: a}]}}"),
			"use class LS for BestEffort pods"},
		{tenant, "whole cores, by who may own CPUs", create(trusted+"/pods", pod("a", labelled("LSE")+", "+
			annotated("quietcore.dev/smt", "isolate"))), "keep siblings idle"},
		{tenant, "CPUs that the kernel isolates, by who may own CPUs", create(trusted+"/pods", pod("a",
			labelled("LSR")+", "+annotated("quietcore.dev/isolated-cpus", "required"))),
			"own CPUs that the kernel isolates"},
		{tenant, "a forged resource-status, by who may own CPUs", create(trusted+"/pods", pod("a", labelled("LSE")+", "+
			annotated(statusKey, `{"cpuset":"0-7"}`))), "only schedulers do"},
		{tenant, "many pods under one generated name", create(own+"/pods", "{metadata: {generateName: a-, "+
			labelled("LSE")+"}, spec: {containers: [{name: a, image: a}]}}"), exclusive},
	}
}

// claimsByTemplates ask in the template of a workload.
func claimsByTemplates() []attack {
	template := "template: {metadata: {labels: {app: a, koordinator.sh/qosClass: LSR}}, spec: {%s" +
		"containers: [{name: a, image: a}]}}"
	always, once := fmt.Sprintf(template, ""), fmt.Sprintf(template, "restartPolicy: Never, ")
	selector := "selector: {matchLabels: {app: a}}, "
	of := func(kind, path, spec string) attack {
		return attack{tenant, "class LSR in the template of a " + kind,
			create(path, "{metadata: {name: a}, spec: {"+spec+"}}"), "may not claim exclusive CPUs"}
	}
	const apps, batch = "/apis/apps/v1/namespaces/mallory/", "/apis/batch/v1/namespaces/mallory/"
	return []attack{
		of("Deployment", apps+"deployments", selector+always),
		of("StatefulSet", apps+"statefulsets", selector+"serviceName: a, "+always),
		of("DaemonSet", apps+"daemonsets", selector+always),
		of("ReplicaSet", apps+"replicasets", selector+always),
		of("ReplicationController", own+"/replicationcontrollers", "selector: {app: a}, "+always),
		of("Job", batch+"jobs", once),
		of("CronJob", batch+"cronjobs", "schedule: '* * * * *', jobTemplate: {spec: {"+once+"}}"),
	}
}

// claimsLater change a pod that is on a node already.
func claimsLater() []attack {
	later := func(what, path, metadata, says string) attack {
		return attack{tenant, what, merge(own+"/pods/innocent"+path, "{metadata: {"+metadata+"}}"), says}
	}
	const frozen = "can no longer be changed"
	return []attack{
		later("a class for a pod that runs", "", labelled("BE"), frozen),
		later("exclusive CPUs for a pod that runs", "", labelled("LSE"), aPolicy),
		later("a resource-status for a pod that runs", "", annotated(statusKey, `{"cpuset":"0-7"}`), aPolicy),
		later("a pod that runs opts out of healing", "", annotated("quietcore.dev/heal", "off"), frozen),
		later("a class through the pod's status", "/status", labelled("LSE"), "cannot patch resource"),
		{tenant, "an annotation taken from a pod that runs", merge(own+"/pods/innocent",
			"{metadata: {annotations: {quietcore.dev/smt: null}}}"), frozen},
	}
}

// tenantsElsewhere reach for what is not the tenant's.
func tenantsElsewhere() []attack {
	const cannot = "cannot "
	rule := "rules: [{apiGroups: [quietcore.dev], resources: [exclusivecpus], verbs: [claim]}]"
	return []attack{
		{tenant, "a Role that lets its account claim", create(rbac+"/namespaces/mallory/roles",
			"{metadata: {name: a}, "+rule+"}"), "attempting to grant RBAC permissions not currently held"},
		{tenant, "its own account made cluster-admin of its namespace", create(rbac+"/namespaces/mallory/rolebindings",
			"{metadata: {name: a}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, "+
				"name: cluster-admin}, subjects: [{kind: ServiceAccount, name: mallory, namespace: mallory}]}"),
			"attempting to grant RBAC permissions not currently held"},
		{tenant, "a label on its own namespace", merge(own,
			"{metadata: {labels: {quietcore.dev/exclusive: allowed}}}"), cannot},
		{tenant, "the policy on claims deleted", remove(admission +
			"/validatingadmissionpolicies/quietcore-claims"), cannot},
		{tenant, "the binding of a policy deleted", remove(admission +
			"/validatingadmissionpolicybindings/quietcore-frozen"), cannot},
		{tenant, "a label on the Node", merge("/api/v1/nodes/n1", "{metadata: {labels: {a: b}}}"), cannot},
		{tenant, "CPUs that the Node does not have", merge("/api/v1/nodes/n1/status",
			"{status: {capacity: {quietcore.dev/batch-cpu: 64k}}}"), cannot},
		{tenant, "the NodeResourceTopology deleted", remove(topologies + "/n1"), cannot},
		{tenant, "a QuietcorePolicy for all nodes", create(rollouts+"/quietcorepolicies",
			"{apiVersion: quietcore.dev/v1alpha1, kind: QuietcorePolicy, metadata: {name: a}, "+
				"spec: {config: {mode: observe}}}"), cannot},
		{tenant, "the daemons' ConfigMap changed", merge(quiet+"/configmaps/quietcore", "{data: {config.yaml: ''}}"),
			cannot},
		{tenant, "a token of the daemons' account", create(quiet+"/serviceaccounts/quietcore/token",
			"{spec: {}}"), cannot},
		{tenant, "a pod in Quietcore's namespace", create(quiet+"/pods", pod("a", "")), cannot},
		{tenant, "a command in the daemon's pod", create(quiet+"/pods/daemon-n1/exec?command=sh", "{}"), cannot},
		{tenant, "the daemon's pod deleted", remove(quiet + "/pods/daemon-n1"), cannot},
		{tenant, "another tenant's pod deleted", remove(shop + "/pods/web"), cannot},
		{tenant, "another tenant's pod evicted", create(shop+"/pods/web/eviction",
			"{apiVersion: policy/v1, kind: Eviction, metadata: {name: web, namespace: shop}}"), cannot},
		{tenant, "another tenant's pod marked for eviction", strategic(shop+"/pods/web/status", mark), cannot},
		{tenant, "an Event in a daemon's name in another namespace", create(events,
			event("quietcore-n1", "Pod", "web")), cannot},
	}
}

// binders give a pod by its Binding what it may not ask for.
func binders() []attack {
	binding := func(what, path, metadata string) attack {
		return attack{binder, what, create(own+path, "{apiVersion: v1, kind: Binding, metadata: {name: waiting, "+
			metadata+"}, target: {apiVersion: v1, kind: Node, name: n1}}"), "by binding it"}
	}
	return []attack{
		binding("CPUs in the annotations of a Binding", "/pods/waiting/binding",
			annotated(statusKey, `{"cpuset":"0-7"}`)),
		binding("a class in the labels of a Binding", "/pods/waiting/binding", labelled("LSE")),
		binding("the same by the old resource", "/bindings", annotated(statusKey, `{"cpuset":"0-7"}`)),
	}
}
