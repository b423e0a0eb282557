package deptest

// anything is for the daemon, which is where parts meet.
const anything = "*"

// mayImport lists for every package which packages of this module it imports,
// tests left out. A new arrow is a decision: write it here in the commit that
// needs it.
var mayImport = map[string]string{
	// What decides: pure, and open to other modules.
	"cpuset":         "",
	"topology":       "cpuset",
	"cpuallocator":   "cpuset topology",
	"policy":         "cpuallocator cpuset topology",
	"cpi":            "cpuset",
	"cpi/sample":     "cpi",
	"cpi/detect":     "cpi",
	"cpi/experiment": "cpi cpuset",
	"reclaim":        "cpuset topology",

	// Public packages that meet the kernel and the runtime.
	"cpi/counter":       "cpuset",
	"cpi/detect/replay": "cpi cpi/detect cpi/experiment",
	"cpi/loop":          "cpi cpi/detect cpi/experiment cpi/sample cpi/sampler cpuset policy topology",
	"cpi/record":        "cpi cpi/detect cpi/loop cpi/sample cpi/sampler internal/incidents",
	"cpi/sampler":       "cpi cpi/counter cpi/sample cpuset topology",
	"plugin": "cpuset internal/cdi internal/cgroup internal/dirwatch internal/failpoint internal/metrics " +
		"internal/state plugin/node policy sysfs topology",
	"plugin/node":     "cpuset internal/cgroup internal/failpoint internal/metrics internal/state policy topology",
	"reclaim/loop":    "cpuset internal/cgroup internal/usage policy reclaim",
	"reclaim/replay":  "reclaim",
	"sysfs":           "cpuset topology",
	"sysfs/sysfstest": "cpuset topology",

	// Packages of the daemon and its commands.
	"internal/access":            "internal/kube internal/serve",
	"internal/cgroup":            "cpuset internal/systemd",
	"internal/cgroup/cgrouptest": "cpuset internal/cgroup",
	"internal/clusterspec":       "cpi/detect internal/prom",
	"internal/cli":               "",
	"internal/cli/man":           "",
	"internal/cmdtest":           "",
	"internal/confine":           "",
	"internal/config": "cpi/detect cpi/experiment cpuallocator cpuset internal/printable internal/strict policy " +
		"reclaim",
	"internal/control": "cpuset internal/cli internal/config internal/dayreport internal/incidents internal/script " +
		"internal/topodoc plugin policy topology",
	"internal/control/show": "internal/cli internal/control internal/dayreport internal/metrics internal/printable " +
		"internal/render internal/script internal/topodoc policy",
	"internal/cdi":        "cpuset internal/dirwatch policy",
	"internal/daemon":     anything,
	"internal/dashboards": "",
	"internal/dayreport":  "internal/incidents internal/printable",
	"internal/deptest":    "",
	"internal/dirwatch":   "",
	"internal/dra":        "cpuallocator cpuset internal/config internal/strict policy topology",
	"internal/dra/driver": "cpuset internal/cdi internal/dra internal/kube policy",
	"internal/doctext":    "",
	"internal/doctor": "cpuset internal/config internal/enablenri internal/kubelet internal/printable " +
		"internal/resctrl internal/state plugin policy sysfs",
	"internal/doctor/bundle": "internal/cli internal/config internal/control internal/doctor " +
		"internal/doctor/drift internal/doctor/probe internal/incidents internal/render internal/topodoc",
	"internal/doctor/drift": "cpuset internal/cgroup internal/control internal/doctor internal/printable " +
		"internal/script policy",
	"internal/doctor/probe": "cpi/counter internal/config internal/control internal/daemon internal/doctor " +
		"internal/kube internal/metrics internal/script internal/topodoc policy",
	"internal/enablenri": "",
	"internal/failpoint": "internal/state",
	"internal/faults":    "internal/failpoint internal/script internal/state plugin policy",
	"internal/fleet": "cpuset internal/access internal/cli internal/control internal/control/show internal/dayreport " +
		"internal/doctor internal/incidents internal/incidents/export internal/incidents/report internal/top",
	"internal/hub": "cpuset internal/cli internal/control internal/fleet internal/incidents internal/page/site " +
		"internal/printable internal/prom internal/serve internal/top policy",
	"internal/incidents":         "",
	"internal/incidents/export":  "internal/incidents",
	"internal/incidents/otlp":    "internal/cli internal/incidents",
	"internal/incidents/parquet": "internal/incidents",
	"internal/incidents/plot":    "internal/incidents",
	"internal/incidents/report": "internal/cli internal/control internal/incidents internal/incidents/export " +
		"internal/incidents/plot internal/printable",
	"internal/kube":           "policy",
	"internal/kube/kubetest":  "",
	"internal/kube/planetest": "",
	"internal/kubelet":        "cpuset policy",
	"internal/ledger":         "cpuallocator cpuset internal/config policy topology",
	"internal/lend":           "internal/kube",
	"internal/metrics":        "cpi cpi/detect cpi/experiment cpi/sample internal/printable policy",
	"internal/nrt":            "cpuset internal/kube internal/ledger policy topology",
	"internal/page": "cpi/sample cpuset internal/control internal/dayreport internal/incidents " +
		"internal/incidents/plot internal/page/site internal/printable internal/render internal/topodoc " +
		"policy topology",
	"internal/page/pagetest": "",
	"internal/page/site":     "internal/control internal/serve",
	"internal/paper": "cpi/detect cpi/detect/replay cpi/experiment cpuallocator cpuset internal/cli internal/config " +
		"internal/render internal/script internal/strict internal/topodoc reclaim reclaim/replay",
	"internal/printable":     "",
	"internal/prom":          "",
	"internal/promtest":      "",
	"internal/render":        "cpuset internal/printable topology",
	"internal/resctrl":       "",
	"internal/rollout":       "",
	"internal/rollout/agent": "internal/kube internal/rollout",
	"internal/script": "cpuallocator cpuset internal/config internal/render internal/strict internal/topodoc policy " +
		"topology",
	"internal/serve":        "",
	"internal/soak":         "",
	"internal/startuptaint": "internal/kube",
	"internal/state":        "cpuset policy",
	"internal/strict":       "",
	"internal/systemd":      "",
	"internal/top": "cpuset internal/cli internal/config internal/control internal/printable internal/script " +
		"internal/topodoc policy topology",
	"internal/topodoc": "cpuset sysfs topology",
	"internal/usage":   "internal/cgroup",
	"internal/world":   "cpuset internal/cgroup internal/cgroup/cgrouptest internal/state policy topology",

	// Commands: flags, and one call each.
	"cmd/kubectl-quietcore": "internal/cli internal/control internal/fleet internal/incidents " +
		"internal/incidents/export internal/incidents/otlp internal/incidents/parquet internal/incidents/report " +
		"internal/top",
	"cmd/quietcore": "internal/cli internal/cli/man internal/config internal/control internal/control/show " +
		"internal/daemon " +
		"internal/doctor internal/doctor/bundle internal/doctor/drift internal/doctor/probe internal/enablenri " +
		"internal/faults internal/hub internal/incidents internal/incidents/export internal/incidents/report " +
		"internal/metrics " +
		"internal/paper internal/render internal/top internal/topodoc policy sysfs",

	// The scheduler, a module of its own.
	"scheduler/cmd/quietcore-scheduler": "scheduler/evictor scheduler/plugin scheduler/simulate",
	"scheduler/evictor":                 "internal/kube internal/lend internal/serve policy",
	"scheduler/placement":               "cpuallocator cpuset internal/ledger policy topology",
	"scheduler/plugin":                  "internal/kube internal/ledger internal/strict policy scheduler/placement",
	"scheduler/simulate": "internal/config internal/ledger internal/script internal/strict internal/topodoc policy " +
		"scheduler/placement topology",

	// Tests on nodes and clusters.
	"e2e":                  "e2e/command e2e/kubelet e2e/machine e2e/scenario internal/script",
	"e2e/bench":            "e2e/bench/figures e2e/command e2e/kubelet e2e/machine",
	"e2e/bench/figures":    "",
	"e2e/bench/load":       "cpuset e2e/bench/figures e2e/kubelet",
	"e2e/bench/sleeper":    "",
	"e2e/command":          "e2e/kubelet",
	"e2e/counters":         "e2e/counters/ability e2e/counters/report e2e/machine",
	"e2e/counters/ability": "cpi/counter e2e/counters/report",
	"e2e/counters/guest":   "cpi/counter e2e/counters/ability e2e/counters/report e2e/tracepoints",
	"e2e/counters/report":  "",
	"e2e/demo": "cpi/detect/replay e2e/kubelet e2e/machine e2e/scenario internal/cli internal/paper internal/render " +
		"internal/script topology",
	"e2e/guest":   "cpuset e2e/tracepoints e2e/wire",
	"e2e/hostile": "",
	"e2e/kubelet": "e2e/wire",
	"e2e/kubernetes": "cpuset e2e/command e2e/kubelet e2e/kubernetes/cluster e2e/machine e2e/sampler/sweep " +
		"e2e/scenario e2e/upgrade e2e/wire internal/control internal/script internal/soak",
	"e2e/kubernetes/cluster": "e2e/kubelet e2e/machine e2e/wire",
	"e2e/machine":            "e2e/kubelet e2e/wire",
	"e2e/proof": "cpi/counter cpuset e2e/command e2e/kubelet e2e/machine e2e/sampler/sweep e2e/scenario " +
		"e2e/upgrade e2e/wire internal/control internal/failpoint internal/incidents internal/incidents/plot " +
		"internal/script policy",
	"e2e/sampler":       "cpuset e2e/sampler/sweep",
	"e2e/sampler/sweep": "cpuset",
	"e2e/scenario": "cpuset e2e/kubelet e2e/machine e2e/wire internal/config internal/control internal/script " +
		"policy",
	"e2e/tracepoints": "",
	"e2e/upgrade":     "",
	"e2e/wire":        "",

	// Tools of the repository.
	"hack/bench":                "",
	"hack/campaign":             "",
	"hack/cast":                 "",
	"hack/chart":                "internal/config internal/rollout reclaim",
	"hack/evalcpi":              "cpi cpi/detect cpi/experiment cpi/sample hack/evalcpi/world",
	"hack/evalcpi/world":        "",
	"hack/evalreclaim":          "reclaim reclaim/replay",
	"hack/image":                "hack/image/build hack/image/licences",
	"hack/image/build":          "",
	"hack/image/licences":       "hack/image/build",
	"hack/corpus":               "",
	"hack/mutate":               "",
	"hack/pmucheck":             "cpi/counter cpi/detect cpi/loop cpi/sample cpi/sampler policy sysfs",
	"hack/prose":                "internal/doctext",
	"hack/release":              "hack/image/build hack/image/licences",
	"hack/tools/crio/loadimage": "",
}

// goroutines lists the files that start goroutines, and what for.
var goroutines = map[string]string{
	"cpi/loop/loop.go":                      "what runs next to the windows",
	"e2e/bench/load/life.go":                "clients of a load",
	"e2e/bench/sleeper/main.go":             "a thread that sleeps",
	"e2e/counters/guest/instructions.go":    "a load of processes",
	"e2e/guest/forward.go":                  "copies both directions of a connection",
	"e2e/guest/main.go":                     "answers requests concurrently",
	"e2e/guest/process.go":                  "waits for a process",
	"e2e/kubernetes/bench.go":               "a measurement during a load",
	"e2e/kubernetes/cluster/child.go":       "starts and waits for a process on one thread",
	"e2e/kubernetes/cluster/egress.go":      "a proxy",
	"e2e/kubernetes/lendingrecord.go":       "a record during a run",
	"e2e/kubernetes/report.go":              "a watch during a run",
	"e2e/machine/boot.go":                   "a virtual machine: its start, its end and its pulse",
	"e2e/machine/client.go":                 "receives answers of a guest",
	"e2e/machine/monitor.go":                "ends a connection with its context",
	"e2e/machine/shell.go":                  "copies both directions of a terminal",
	"e2e/sampler/load.go":                   "threads that use CPUs",
	"e2e/scenario/guest.go":                 "removes sandboxes concurrently",
	"e2e/suite.go":                          "guests run concurrently",
	"hack/evalcpi/cells.go":                 "trials run concurrently",
	"hack/pmucheck/load.go":                 "threads that use memory",
	"hack/pmucheck/run.go":                  "detection next to counting",
	"hack/release/trust.go":                 "a registry on loopback",
	"internal/cgroup/bus.go":                "connects to systemd, which may not answer",
	"internal/cgroup/cgrouptest/systemd.go": "a model of systemd behind a socket",
	"internal/control/server.go":            "ends the server with its context",
	"internal/daemon/start.go":              "the parts of the daemon",
	"internal/dra/driver/serve.go":          "answers kubelet beside what is published",
	"internal/fleet/ask.go":                 "asks the nodes concurrently",
	"internal/hub/serve.go":                 "the page, the probes and the rounds",
	"internal/incidents/write.go":           "closes a damaged file, which may hang",
	"internal/kube/client.go":               "follows pods, node and events concurrently",
	"internal/kube/follow.go":               "bounds how long a watch takes to open",
	"internal/kube/kubetest/kubetest.go":    "an API server for tests",
	"internal/serve/serve.go":               "ends the server with its context",
	"internal/promtest/promtest.go":         "waits for a Prometheus that tests start",
	"plugin/connect.go":                     "starts the stub, and reads what it reports",
	"plugin/runner.go":                      "the effects of the core, each of which may hang",
	"plugin/plugin.go":                      "the parts of the plugin",
	"reclaim/loop/evict.go":                 "evicts while the loop goes on",
	"reclaim/loop/save.go":                  "saves while the loop goes on",
	"scheduler/plugin/follow.go":            "follows what nodes publish",
	"sysfs/watch_linux.go":                  "receives the kernel's messages",
	"scheduler/evictor/metrics.go":          "answers beside what it does",
	"scheduler/evictor/evictor.go":          "workers, each with one node at a time",
	"scheduler/evictor/run.go":              "what follows pods, and answers probes",
}

// exception is a place that breaks a rule today.
type exception struct {
	rule  string // by its name in rules, or "walk"
	where string // the file, package, type or function that the finding names
	why   string // or whose it is to mend
}

// exceptions are mended one by one: an entry that is no longer needed fails the
// tests.
var exceptions = []exception{}
