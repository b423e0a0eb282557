package main

// elsewhere is an attack that a test of the package plays that holds it. cost is what the attacker has to spend
// in that test.
type elsewhere struct {
	who, what, by, cost string
	module, pkg, test   string
}

// Who attacks a node.
const (
	pods       = "tenant: its pods"
	network    = "whoever reaches the node's ports"
	local      = "a user of the node who is not root"
	noisy      = "tenant: a pod that disturbs"
	liar       = "tenant: a pod that invents its CPI"
	prometheus = "who writes into Prometheus"
)

// plays are those on a node, its listeners, its records and its screens.
func plays() []elsewhere {
	var all []elsewhere
	for _, list := range [][]elsewhere{onTheDecider(), onListeners(), onFairness(), onScreens(), onDetection()} {
		all = append(all, list...)
	}
	for i := range all {
		if all[i].module == "" {
			all[i].module = "."
		}
	}
	return all
}

func onTheDecider() []elsewhere {
	return []elsewhere{
		{who: pods, what: "powers beyond its request, past the API server", by: "`authority` on the node",
			cost: "a pod each", pkg: "./policy", test: "TestPowers"},
		{who: pods, what: "29 annotations that are wrong, huge, or move the cursor",
			by: "strict decoding, InvalidAnnotation", cost: "a pod each",
			pkg: "./policy", test: "TestHostileAnnotations"},
		{who: pods, what: "CPUs of others by a resource-status", by: "it is ignored, or compared with the book",
			cost: "a pod each", pkg: "./policy", test: "TestResourceStatus"},
		{who: pods, what: "annotations of a megabyte on a real NRI connection", by: "bounds before decoding",
			cost: "4 pods, 2 MB each", pkg: "./plugin", test: "TestHostileAnnotationsAreRefusedFastAndKeptNowhere"},
		{who: pods, what: "a pod that is refused and tried again for ever", by: "a refusal writes nothing",
			cost: "1,000 attempts", pkg: "./plugin", test: "TestAPodThatIsRefusedAThousandTimesCostsNothing"},
		{who: pods, what: "sandboxes that are refused for ever", by: "bounded memory of refusals", cost: "a pod each",
			pkg: "./policy", test: "TestRefusedSandboxesForEver"},
		{who: pods, what: "documents that are cheap to write and dear to read", by: "bounded depth and size",
			cost: "a document each", pkg: "./internal/strict", test: "TestHostileDocumentsAreCheap"},
		{who: pods, what: "256 KiB of annotations on 250 pods, for the daemon's memory", by: "unread keys are skipped",
			cost: "64 MiB in the API server", pkg: "./internal/kube", test: "TestAnnotationsOfTenantsCostLittle"},
		{who: pods, what: "requests that add up beyond 64 bits", by: "bounded sums", cost: "a pod each",
			pkg: "./internal/kube", test: "TestSumsAreBounded"},
		{who: pods, what: "a pod that calls itself the mirror of another", by: "a UID has one pod", cost: "a pod each",
			pkg: "./internal/kube", test: "TestNobodyTakesAnothersPlace"},
		{who: pods, what: "a forged resource-status for the scheduler", by: "it is not read", cost: "a pod",
			module: "scheduler", pkg: "./plugin", test: "TestForgedStatus"},
		{who: stolen, what: "all pods of its node marked at once", by: "the evictor's rate, budgets, class",
			cost: "a request each", module: "scheduler", pkg: "./evictor", test: "TestRealAPIServer"},
		{who: local, what: "a CDI file in the driver's name", by: "only what the driver wrote counts", cost: "a file",
			pkg: "./internal/cdi", test: "TestAForgedOwnSpecReservesNothing"},
		{who: local, what: "a CDI file that root did not write", by: "owner and mode", cost: "a file",
			pkg: "./internal/cdi", test: "TestOnlyRootsSpecsAreBelieved"},
		{who: local, what: "a link or folder in place of the state file", by: "it is opened without following",
			cost: "a link", pkg: "./internal/state", test: "TestLinksAndFoldersAreRefused"},
		{who: local, what: "the control socket", by: "its mode, 0600", cost: "a connection",
			pkg: "./internal/control", test: "TestSocketsAreForRootAlone"},
	}
}

func onListeners() []elsewhere {
	return []elsewhere{
		{who: network, what: "idle, slow and deaf connections to each listener: probes, metrics, page",
			by: "budgets, fair shares, the node's own places", cost: "500 connections each, of 32 addresses",
			pkg: "./cmd/quietcore", test: "TestAFloodOfConnections"},
		{who: network, what: "all connections from one address", by: "its share", cost: "116 connections",
			pkg: "./internal/serve", test: "TestAFloodFromOneSource"},
		{who: network, what: "connections from many addresses", by: "who holds most loses the oldest",
			cost: "200 connections, 20 addresses", pkg: "./internal/serve", test: "TestAFloodFromManySources"},
		{who: network, what: "one connection after the other", by: "a rate for each address", cost: "connections",
			pkg: "./internal/serve", test: "TestRates"},
		{who: network, what: "addresses of one IPv6 network", by: "a network counts as one", cost: "a /64",
			pkg: "./internal/serve", test: "TestSources"},
		{who: network, what: "requests whose answers are not read", by: "time to write", cost: "a connection",
			pkg: "./internal/serve", test: "TestAReaderThatTakesNothingIsDisconnected"},
		{who: network, what: "headers and bodies that do not end", by: "time to read", cost: "a connection each",
			pkg: "./internal/serve", test: "TestSlowClientsAreDisconnected"},
		{who: network, what: "metrics without a token, with another's, in plain text", by: "TokenReview, TLS",
			cost: "a request each", pkg: "./cmd/quietcore", test: "TestMetricsTakeAToken"},
		{who: network, what: "tokens that are none", by: "a budget of reviews for each address", cost: "tokens",
			pkg: "./internal/access", test: "TestAFloodOfTokens"},
		{who: network, what: "a login shown as a token for Quietcore, and the reverse", by: "the audience",
			cost: "a request each", pkg: "./internal/access", test: "TestTokensThroughTheProxy"},
		{who: network, what: "the page by another site's name or script", by: "Host, Origin, Content-Security-Policy",
			cost: "a request each", pkg: "./internal/page", test: "TestWhoIsAnswered"},
		{who: network, what: "all streams of the page, so that nobody reads it", by: "streams have places of their own",
			cost: "16 streams",
			pkg:  "./internal/page", test: "TestTooManyStreams"},
		{who: network, what: "the hub's page by another name", by: "Host, only reads", cost: "a request each",
			pkg: "./internal/hub", test: "TestWhoIsAnswered"},
	}
}

func onFairness() []elsewhere {
	return []elsewhere{
		{who: pods, what: "notices that push another tenant's Events out", by: "a lane for each namespace",
			cost: "up to 5 times the queue", pkg: "./internal/kube", test: "TestAFloodPushesNobodyOut"},
		{who: pods, what: "a quota or webhook that refuses Events", by: "its lane waits alone", cost: "a webhook",
			pkg: "./internal/kube", test: "TestANamespaceThatDeniesHoldsUpNoOther"},
		{who: pods, what: "Events of one pod without end", by: "a rate for each pod", cost: "a pod",
			pkg: "./internal/kube", test: "TestEventsOfOnePodAreLimited"},
		{who: pods, what: "refused pods that hide another tenant's", by: "a share of the list",
			cost: "up to 20,000 pods", pkg: "./plugin", test: "TestACrowdOfRefusedPodsHidesNoOther"},
		{who: pods, what: "small containers that crowd others out of counting", by: "a share for each namespace",
			cost: "containers", pkg: "./cpi/sample", test: "TestACrowdTakesItsShare"},
		{who: pods, what: "jobs and pairs without end in the detector", by: "bounded tables", cost: "pods",
			pkg: "./cpi/detect", test: "TestPairsAreBounded"},
		{who: pods, what: "series without end in the metrics", by: "bounded series", cost: "pods",
			pkg: "./internal/metrics", test: "TestJobSeriesAreBounded"},
		{who: pods, what: "a misspelt annotation that pages the operator", by: "alerts count what is not a tenant's",
			cost: "a pod", pkg: "./internal/dashboards", test: "TestATenantsTypoPagesNobody"},
	}
}

func onScreens() []elsewhere {
	const by, cost = "it is printed as text", "a pod"
	return []elsewhere{
		{who: pods, what: "names that move the cursor of `status` and `explain`", by: by, cost: cost,
			pkg: "./internal/control/show", test: "TestHostileNamesReachNoTerminal"},
		{who: pods, what: "the same for `doctor`", by: by, cost: cost,
			pkg: "./internal/doctor", test: "TestHostileTextReachesNoTerminal"},
		{who: pods, what: "names that are script on the page", by: by, cost: cost,
			pkg: "./internal/page", test: "TestHostileNamesAreCleanText"},
		{who: pods, what: "names that are script in drawings", by: by, cost: cost,
			pkg: "./internal/render", test: "TestHostileNames"},
		{who: pods, what: "names that are script in plots of incidents", by: by, cost: cost,
			pkg: "./internal/incidents/plot", test: "TestHostileIncidents"},
		{who: pods, what: "names that break the format of metrics", by: "they are escaped", cost: cost,
			pkg: "./internal/metrics", test: "TestHostileNamesInASeries"},
	}
}

func onDetection() []elsewhere {
	suspect := func(what, name string) elsewhere {
		return elsewhere{who: noisy, what: "escape by " + what, by: "the experiment is on the whole job",
			cost: "pods, four hours", pkg: "./hack/evalcpi", test: "TestAttacksOfSuspects/" + name}
	}
	return []elsewhere{
		suspect("four times the threads", "threads"),
		suspect("restarts", "restarts"),
		suspect("work that rotates over eight containers", "rotation_over_eight_containers"),
		suspect("pods that live three minutes", "pods_of_three_minutes"),
		suspect("a new pod under each cap", "recreated_under_a_cap"),
		suspect("newborn containers", "newborn_containers"),
		suspect("a thousand containers", "a_thousand_containers"),
		{who: liar, what: "have a rival throttled", by: "a budget for each namespace that asks", cost: "pods, hours",
			pkg: "./hack/evalcpi", test: "TestLiars"},
		{who: prometheus, what: "specs that cannot be", by: "bounds around what the node has seen", cost: "a series",
			pkg: "./cpi/detect", test: "TestForeignSpecsThatCannotBe"},
		{who: prometheus, what: "lies that last over a restart", by: "the node's own samples", cost: "a series",
			pkg: "./cpi/detect", test: "TestLyingSpecsAreGivenUpAfterARestart"},
	}
}
