package doctor

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/quietcore/quietcore/internal/printable"
	"github.com/quietcore/quietcore/policy"
)

// leastFree is what a state file of a full node and its successor take.
const leastFree = 16 << 20

func checkState(f *Facts, found *findings) {
	s := &f.State
	if s.Err != "" {
		found.warn("unreadable", s.Err, "make state.dir a directory of its own for root, mode 0700")
	}
	if s.Bad != "" {
		found.warn("damaged",
			fmt.Sprintf(
				"the state file %s: the next start renames it, and reads the kernel and the runtime instead", s.Bad),
			"nothing: pins are read from the kernel; caps in it are not undone by their deadline, so look at "+
				"`quietcore diff` afterwards")
	}
	if s.Rebooted {
		found.note("earlier-boot", "the state file is of an earlier boot: what ran then is gone",
			"nothing: the next start replaces it")
	}
	if len(s.Aside) > 0 {
		found.warn("aside", fmt.Sprintf("bad state files were renamed: %s", strings.Join(s.Aside, ", ")),
			"attach them to a bug report, then remove them from "+s.Dir)
	}
	if s.Overdue > 0 && !f.Daemon.Answers {
		found.warn("overdue", fmt.Sprintf("%d caps have expired, and no daemon runs to undo them", s.Overdue),
			"start the daemon, or run `quietcore restore` if it is not to run again")
	}
	if s.Open != "" {
		found.warn("open", fmt.Sprintf("%s has mode %s: others can read what runs here", s.Dir, s.Open), "chmod 0700 "+
			s.Dir+"; the next start does it if the directory has no other files")
	}
	switch {
	case s.Known && s.ReadOnly:
		found.warn("read-only", s.Dir+" is on a read-only file system: pinning works, caps are not applied",
			"mount it writable: a hostPath volume in a pod")
	case s.Known && s.Free < leastFree:
		found.warn("full",
			fmt.Sprintf("%d KiB are free in %s: pinning works, caps are not applied while the state cannot be saved",
				s.Free>>10, s.Dir), "make room on that file system")
	}
	switch {
	case s.There && !s.SavedAt.IsZero():
		found.ok(fmt.Sprintf("%s, saved %s", filepath.Join(s.Dir, "state.json"), s.SavedAt.UTC().Format(time.RFC3339)))
	default:
		found.ok("none yet in " + s.Dir)
	}
}

func checkInstances(f *Facts, found *findings) {
	if len(f.Daemons) > 1 {
		var list []string
		for _, p := range f.Daemons {
			list = append(list, fmt.Sprintf("pid %d (%s)", p.PID, orDefault(p.Config, "no --config")))
		}
		found.fail("several",
			fmt.Sprintf(
				"%d daemons run on this node: %s. Both claim every container, and the runtime refuses what two "+
					"plugins set", len(f.Daemons), strings.Join(list, ", ")),
			"end all but one: an old DaemonSet, a unit file next to it, a daemon started by hand")
	}
	if f.Lock.Known && f.Lock.Held && !f.Daemon.Answers && f.Daemon.Err != "" {
		found.warn("silent",
			fmt.Sprintf("the state directory is in use by another quietcore, %s, and nothing answers at %s",
				f.Lock.Holder, f.Daemon.Socket),
			"look at that process: it has another socket, or hangs (its /livez says so)")
	}
	switch {
	case f.Lock.Known && f.Lock.Held: // a process of that name may be one that is about to end
		found.ok("one daemon, " + f.Lock.Holder)
	case len(f.Daemons) == 1:
		found.ok(fmt.Sprintf("one daemon, pid %d", f.Daemons[0].PID))
	case f.AllProcesses:
		found.ok("no daemon runs")
	default:
		found.note("unseen", "only processes of this pod are seen, so that a second daemon outside of it may not be",
			"run this on the node itself, or in a pod with hostPID")
	}
}

func checkDaemon(f *Facts, found *findings) {
	d := &f.Daemon
	if !d.Answers {
		why := d.Err
		if why == "" {
			why = "no daemon runs here: there is no socket " + d.Socket
		}
		found.warn("absent", why, "start it (`quietcore run`, or the DaemonSet), or give this the daemon's --config")
		return
	}
	switch {
	case !d.Connected:
		found.fail("disconnected", "the daemon is not registered with the runtime: pods that start are not placed",
			"see the findings about nri above; the daemon's log has the reason of the last attempt")
	case !d.Synchronised:
		found.fail("unsynchronised", "the daemon has not taken over the running pods yet",
			"wait some seconds; if that persists, raise the runtime's timeout (nri above) and look at the log")
	}
	for _, feature := range slices.Sorted(maps.Keys(d.Degraded)) {
		found.warn("degraded", feature+": "+d.Degraded[feature],
			"pods get their CPUs without it; the findings above may explain it")
	}
	if n := len(d.Unannounced); n > 0 {
		way := "recreate them; or set unannounced: mask, which keeps them off CPUs that other pods own"
		if len(d.Masked) == n {
			way = "nothing: they are kept off CPUs that other pods own; recreate them to have them placed"
		}
		found.warn("unannounced", fmt.Sprintf("%d pods run here that the runtime never announced: cgroups %s", n,
			strings.Join(d.Unannounced, ", ")), way)
	}
	if d.Unjudged != "" {
		found.note("judged", "who is disturbed is not known of every job: "+d.Unjudged, "time brings samples; specs "+
			"of the cluster (cpi.specs.prometheus) bring what is normal for jobs with few containers here")
	}
	if d.Uncounted != "" {
		found.note("watchlist", d.Uncounted, "nothing, while those in question are among them; a larger cpi.budget or "+
			"cpi.maxContainers counts more at once")
	}
	checkProfile(f, found)
	for _, s := range d.Short {
		found.warn("short", s.String(),
			"nothing is given away there until it fits; move pods of the shared pool to other nodes, or owners")
	}
	if len(d.RestartRequired) > 0 {
		found.note("restart", "the configuration file has changed, and the daemon does not run with its "+
			strings.Join(d.RestartRequired, ", "), "restart the daemon; no container moves")
	}
	if d.Unconfined != "" {
		found.note("unconfined", "the kernel would let the daemon write wherever root may: "+d.Unconfined,
			"nothing has to be done; Landlock (Linux 5.13) with confine: auto takes that right from it")
	}
	if d.Undenied != "" {
		found.note("undenied", "the kernel would take any call from the daemon: "+d.Undenied,
			"nothing has to be done; seccomp filters with confine: auto deny it what it never asks for")
	}
	held := ""
	if len(d.Writes) > 0 {
		held = "; the kernel lets it write below " + strings.Join(d.Writes, ", ") + " alone, and execute nothing"
	}
	if len(d.Denied) > 0 {
		held += "; it denies calls about " + strings.Join(d.Denied, ", ")
	}
	found.ok(fmt.Sprintf("it answers, with %d containers%s", d.Containers, held))
}

// checkProfile names the pods that a profile would refuse if they came again.
func checkProfile(f *Facts, found *findings) {
	if f.Profile == "" {
		return
	}
	if why := f.Daemon.PowersErr; why != "" {
		found.warn("powers", "it is not known which pods ask for powers: "+why, "see the daemon's log")
		return
	}
	cfg := f.Config.Config.Policy()
	cfg.Authority.Profile = f.Profile
	refused := 0
	for _, p := range f.Daemon.Powers {
		for _, power := range p.Powers {
			if cfg.Allows(p.Namespace, power) {
				continue
			}
			refused++
			key := "authority." + string(power)
			if power == policy.PowerSystem {
				key = "system"
			}
			found.warn("unauthorized", fmt.Sprintf("with authority.profile: %s pod %s/%s would be refused if it came "+
				"again: %s", f.Profile, printable.Text(p.Namespace), printable.Text(p.Pod), power),
				fmt.Sprintf("list its namespace in %s.namespaces, or change the pod; what runs keeps it", key))
		}
	}
	if refused == 0 {
		found.ok(fmt.Sprintf("with authority.profile: %s no pod that runs here would be refused", f.Profile))
	}
}

func checkAPI(f *Facts, found *findings) {
	a := &f.API
	switch {
	case a.Off:
		found.ok("not used: kubernetes.api is off")
		return
	case !a.Asked:
		found.note("unseen", "there are no credentials here (neither a service account nor kubernetes.kubeconfig)",
			"run this in the daemon's pod, or set kubernetes.kubeconfig, to have its rights checked")
		return
	case a.Err != "":
		found.warn("unreachable", "the API server does not answer: "+a.Err,
			"pinning is unaffected; check the address, the network policy and the token")
		return
	}
	if f.Config.Node == "" {
		found.warn("node-name", "the Node's name is not known, so nothing is read from or written to the API server",
			"set NODE_NAME from spec.nodeName (the chart does), or node.name")
	}
	if a.NoNode {
		found.warn("node", fmt.Sprintf("there is no Node %q", f.Config.Node),
			"set NODE_NAME from spec.nodeName, or node.name, to the Node's name")
	}
	if a.NoCRD {
		found.warn("crd",
			"NodeResourceTopology is not installed in the cluster: schedulers do not see the node's CPUs",
			"install the CRD (the chart: crds.install=true), or set kubernetes.nodeResourceTopology.enabled: false")
	}
	for _, r := range a.Denied {
		found.warn("rights", fmt.Sprintf("not allowed: %s (%s)", r, r.For),
			"grant it to the daemon's service account (the chart: rbac.create=true), or turn that part off in "+
				"kubernetes")
	}
	found.ok(fmt.Sprintf("it answers; it has %d permissions", a.Checked-len(a.Denied)))
}
