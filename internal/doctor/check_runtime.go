package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/enablenri"
)

func checkConfig(f *Facts, found *findings) {
	c := &f.Config
	name := "the defaults"
	if c.File != "" {
		name = c.File
	}
	if c.Err != "" {
		found.fail("invalid", c.Err, "correct the file; `quietcore config validate "+c.File+
			"` says whether it is right. A running daemon keeps the one before; one that starts ends")
	}
	if c.Machine != "" {
		found.fail("machine", fmt.Sprintf("this machine cannot have the configuration of %s: %s", name, c.Machine),
			"correct the CPUs in it; `quietcore topology` shows those that there are")
	}
	if c.Err == "" && c.Config.Mode == config.Observe {
		found.note("observe", "mode is observe: everything is decided and reported, and nothing is written",
			"set mode: enforce once what `quietcore status` shows is what you want")
	}
	found.ok(name + ": valid")
}

// Containers from which on the runtime's two seconds for an event are short: its
// synchronisation of the whole node has the same time.
const (
	dense        = 200
	denseRequest = 5 * time.Second
	leastRequest = 2 * time.Second
)

func checkNRI(f *Facts, found *findings) {
	r := &f.Runtime
	socket := f.Config.Config.NRI.Socket
	connected := f.Daemon.Answers && f.Daemon.Connected
	works := r.Listening || connected
	if len(r.Names) == 0 && !works {
		found.fail("runtime", fmt.Sprintf("no runtime is visible below %s, and nothing listens at %s", f.Root,
			socket),
			"install containerd or CRI-O and turn NRI on; where one is here, run this on the node itself, or with the "+
				"node's file system mounted: --root /host; k3s and RKE2: --config-dir")
		return
	}
	if len(r.Names) > 1 {
		found.note("runtime", "both containerd and CRI-O are here; which one kubelet uses is not known",
			"name it with --runtime")
	}
	checkVersion(r, found)
	switch {
	case len(r.Names) != 1 && !works:
		found.fail("not-listening", fmt.Sprintf("nothing listens at %s", socket),
			"turn NRI on in the runtime that kubelet uses (quietcore enable-nri --runtime), and restart it")
	case works:
		// What runs is right; the next restart reads what is on disk.
		if r.Disabled {
			found.warn("disabled",
				fmt.Sprintf(
					"NRI is on now, and the configuration in %s has it off: it ends with the next restart of the "+
						"runtime", r.Dir), "quietcore enable-nri --apply")
		}
		if r.Closed {
			found.warn("disable-connections", fmt.Sprintf(
				"plugins connect now, and the configuration in %s has disable_connections = true: none does after "+
					"the next restart of the runtime", r.Dir),
				"set disable_connections = false, or run `quietcore enable-nri --apply`")
		}
	case r.Unclear != "":
		found.fail("unclear", fmt.Sprintf("nothing listens at %s, and the configuration is not understood: %s", socket,
			r.Unclear), "turn NRI on by hand as docs/install.md says, and restart the runtime")
	case r.Closed && !r.Disabled:
		found.fail("disable-connections", fmt.Sprintf(
			"NRI is on and disable_connections = true in %s keeps every plugin out that the runtime did not start "+
				"itself", r.Dir),
			"set disable_connections = false, or run `quietcore enable-nri --apply`; then restart "+nameOf(r))
	case r.Disabled:
		found.fail("disabled", fmt.Sprintf("NRI is off in %s: no pod gets CPUs", r.Dir),
			"quietcore enable-nri --apply, then restart "+nameOf(r))
	default:
		found.fail("not-listening", fmt.Sprintf("the configuration has NRI on, and nothing listens at %s", socket),
			fmt.Sprintf("restart %s, or set nri.socket to where it listens", nameOf(r)))
	}
	checkTimeouts(f, found)
	if connected {
		found.ok("registered with the runtime")
	} else {
		found.ok(socket + " takes plugins")
	}
}

func nameOf(r *RuntimeFacts) string {
	if len(r.Names) == 1 {
		return string(r.Names[0])
	}
	return "the runtime"
}

func checkTimeouts(f *Facts, found *findings) {
	r := &f.Runtime
	if r.Request == 0 {
		return // not known
	}
	n := max(f.Cgroup.Containers, f.Daemon.Containers)
	fix := fmt.Sprintf("quietcore enable-nri --apply --request-timeout %s, then restart %s", denseRequest, nameOf(r))
	switch {
	case r.Request < leastRequest:
		found.warn("timeout",
			fmt.Sprintf(
				"the runtime gives a plugin %s for an event; past it the plugin is dropped and containers start "+
					"unpinned", r.Request), fix)
	case n >= dense && r.Request < denseRequest:
		found.warn("timeout",
			fmt.Sprintf(
				"%d containers run here and the runtime gives a plugin %s, also for taking all of them over; past "+
					"it the plugin is dropped", n, r.Request), fix)
	}
	if r.Register <= r.Request {
		found.warn("registration-timeout", fmt.Sprintf(
			"the runtime's time for registering, %s, is not above the one for an event, %s: registering has events "+
				"in it", r.Register, r.Request),
			"raise plugin_registration_timeout (CRI-O: nri_plugin_registration_timeout) above it")
	}
}

// checkVersion knows from when on a runtime has NRI.
func checkVersion(r *RuntimeFacts, found *findings) {
	if len(r.Names) != 1 || r.Version == "" {
		return
	}
	least := map[enablenri.Runtime][2]int{enablenri.Containerd: {1, 7}, enablenri.CRIO: {1, 26}}[r.Names[0]]
	if v, ok := majorMinor(r.Version); ok && (v[0] < least[0] || v[0] == least[0] && v[1] < least[1]) {
		found.fail("version", fmt.Sprintf("%s is version %s, NRI with what Quietcore needs begins at %d.%d",
			r.Names[0], r.Version, least[0], least[1]), "upgrade the runtime")
	}
}

func majorMinor(version string) (v [2]int, ok bool) {
	parts := strings.FieldsFunc(strings.TrimPrefix(version, "v"), func(r rune) bool { return r < '0' || r > '9' })
	if len(parts) < 2 {
		return v, false
	}
	for i := range v {
		n, err := strconv.Atoi(parts[i])
		if err != nil {
			return v, false
		}
		v[i] = n
	}
	return v, true
}

func checkPlugins(f *Facts, found *findings) {
	for _, o := range f.Others {
		if !o.Known {
			found.note("unknown",
				fmt.Sprintf("the runtime starts the NRI plugin %s (%s); whether it sets cpusets is not known", o.Name,
					o.Where),
				"where it does, only one of the two can run: NRI refuses a container whose cpuset two plugins set")
			continue
		}
		found.fail("conflict",
			fmt.Sprintf(
				"%s places containers on CPUs too (%s): NRI refuses a container whose cpuset two plugins set, and "+
					"without NRI the two undo each other", o.Name, o.Where),
			"run one of the two on a node: keep them apart by node labels; docs/migrating.md says which annotations "+
				"carry over")
	}
	if !f.AllProcesses {
		found.note("unseen",
			"only processes of this pod are seen, so that another program that places containers on CPUs may not be",
			"run this on the node itself, or in a pod with hostPID")
		return
	}
	found.ok("nothing else was found that places containers on CPUs")
}

func checkKubelet(f *Facts, found *findings) {
	k := &f.Kubelet
	file := f.Config.Config.Node.Kubelet.ConfigFile
	if k.ConfigErr != "" {
		found.warn("unreadable", k.ConfigErr,
			"set node.kubelet.configFile to kubelet's --config (k3s and MicroK8s keep it elsewhere), or to \"\" and "+
				"name policy and options in node.kubelet")
	}
	if k.StateErr != "" {
		found.warn("state", k.StateErr,
			"look at it with kubelet; where CPUs are pinned by kubelet without our knowing, both give them away")
	}
	if k.Config == nil {
		if k.ConfigErr == "" {
			found.note("unseen", "kubelet's configuration is not visible: "+
				orDefault(file, "node.kubelet.configFile is empty"),
				"policy and options of kubelet's CPU manager are then those of node.kubelet in the configuration")
		}
		found.ok("kubelet is taken for what the configuration says")
		return
	}
	checkStatic(f, found)
	driver, tree := k.Config.CgroupDriver, f.Cgroup
	if driver == "cgroupfs" && tree.Systemd && !tree.Plain || driver == "systemd" && tree.Plain && !tree.Systemd {
		found.note("cgroup-driver",
			fmt.Sprintf(
				"kubelet's configuration says cgroupDriver %s, and the tree is of the other one: kubelet took the "+
					"runtime's", driver), "write the same in both, so that the next restart changes nothing")
	}
	found.ok(fmt.Sprintf("CPU manager policy %s, topology manager policy %s", k.Config.CPUManagerPolicy,
		k.Config.TopologyPolicy))
}

func orDefault(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// knownOptions are those of kubelet's static policy.
func knownOptions() []string {
	return []string{
		"align-by-socket", "distribute-cpus-across-cores", "distribute-cpus-across-numa", "full-pcpus-only",
		"prefer-align-cpus-by-uncorecache", "strict-cpu-reservation",
	}
}

func checkStatic(f *Facts, found *findings) {
	k := &f.Kubelet
	if s := k.State; s != nil && s.PolicyName != k.Config.CPUManagerPolicy {
		found.warn("state", fmt.Sprintf("kubelet is configured with the CPU manager policy %s, and its state is of %s",
			k.Config.CPUManagerPolicy, s.PolicyName),
			"kubelet does not start so: drain the node, remove cpu_manager_state and start kubelet; or it was not "+
				"restarted since the change")
	}
	if !k.Config.Static() {
		return
	}
	pinned := 0
	if k.State != nil {
		pinned = len(k.State.Entries)
	}
	found.note("static",
		fmt.Sprintf(
			"kubelet's CPU manager is static and pins Guaranteed pods with whole CPUs itself (%d now): they keep "+
				"kubelet's CPUs, and LSE and LSR pods get CPUs from here", pinned),
		"set cpuManagerPolicy: none, drained, where Quietcore is to place all of them")
	for option := range k.Config.Options {
		if !slices.Contains(knownOptions(), option) {
			found.warn("options",
				fmt.Sprintf("kubelet's CPU manager option %q is not known here, so it is not followed", option),
				"look into the release notes whether a newer Quietcore follows it")
		}
	}
	if !k.Reserved {
		found.warn("reserved", fmt.Sprintf("kubelet reserves %d CPUs and nothing says which",
			k.Config.ReservedCount()),
			"name them: reservedSystemCPUs in kubelet's configuration, or reserved.cpus in Quietcore's")
	}
}
