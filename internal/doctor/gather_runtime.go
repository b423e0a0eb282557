package doctor

import (
	"context"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/enablenri"
	"github.com/quietcore/quietcore/internal/kubelet"
	"github.com/quietcore/quietcore/plugin"
	"github.com/quietcore/quietcore/policy"
)

// where is the location of a runtime.
type where struct {
	runtime     enablenri.Runtime
	socket, dir string
}

// places are the locations of runtimes; k3s and RKE2 include a containerd of their own.
func places() []where {
	return []where{
		{enablenri.Containerd, "/run/containerd/containerd.sock", "/etc/containerd"},
		{enablenri.Containerd, "/run/k3s/containerd/containerd.sock", "/var/lib/rancher/k3s/agent/etc/containerd"},
		{enablenri.Containerd, "/run/k3s/containerd/containerd.sock", "/var/lib/rancher/rke2/agent/etc/containerd"},
		{enablenri.CRIO, "/run/crio/crio.sock", "/etc/crio"},
	}
}

// nriTable is the table of NRI in a runtime's configuration.
func nriTable(r enablenri.Runtime) []string {
	if r == enablenri.CRIO {
		return []string{"crio", "nri"}
	}
	return []string{"plugins", "io.containerd.nri.v1.nri"}
}

func (g *gatherer) runtime(ctx context.Context) {
	r := &g.f.Runtime
	r.Listening = g.accepts(g.f.Config.Config.NRI.Socket)
	w, names := g.find()
	r.Names = names
	if len(r.Names) != 1 {
		return
	}
	if g.o.Probes.RuntimeVersion != nil && g.there(w.socket) {
		if version, err := g.o.Probes.RuntimeVersion(ctx, g.at(w.socket)); err == nil {
			r.Version = version
		}
	}
	r.Dir = w.dir
	if g.o.RuntimeDir != "" {
		r.Dir = g.o.RuntimeDir
	}
	files, err := enablenri.ReadFiles(g.o.Root, r.Dir)
	if err != nil {
		r.Unclear = err.Error()
		return
	}
	r.WithoutFile = len(files) == 0
	o := enablenri.Options{Runtime: r.Names[0], Dir: r.Dir, Version: r.Version, On: r.Listening}
	if err := r.settings(files, o, nriTable(o.Runtime)); err != nil {
		r.Unclear = err.Error()
	}
}

// find returns the runtime's location, and the runtimes that exist.
func (g *gatherer) find() (found where, names []enablenri.Runtime) {
	for _, w := range places() {
		here := g.there(w.socket) && (g.there(w.dir) || !strings.Contains(w.dir, "/rancher/"))
		if g.o.Runtime != "" {
			here = g.o.Runtime == w.runtime && (here || !slices.Contains(names, w.runtime))
		}
		if !here {
			continue
		}
		if found.socket == "" || !g.there(found.socket) {
			found = w
		}
		if !slices.Contains(names, w.runtime) {
			names = append(names, w.runtime)
		}
	}
	return found, names
}

// probe is a request timeout that no configuration has: a plan for it reveals the file
// of NRI's table.
const probe = 24 * time.Hour

// settings interprets the configuration.
func (r *RuntimeFacts) settings(files enablenri.Files, o enablenri.Options, table []string) error {
	plan, err := enablenri.Look(files, o)
	if err != nil {
		return err
	}
	if plan != nil {
		was, becomes := tableOf(plan.Old, table), tableOf(plan.New, table)
		r.Closed = was["disable_connections"] == true
		r.Disabled = becomes["disable"] != was["disable"] || becomes["enable_nri"] != was["enable_nri"]
	}
	o.RequestTimeout = probe
	now := map[string]any{}
	if o.Runtime == enablenri.CRIO {
		// A later file wins, key by key.
		order := slices.Sorted(maps.Keys(files))
		slices.SortStableFunc(order, func(a, b string) int { return strings.Count(a, "/") - strings.Count(b, "/") })
		for _, f := range order {
			maps.Copy(now, tableOf(files[f], table))
		}
	} else if plan, err = enablenri.Look(files, o); err != nil {
		return err
	} else if plan != nil {
		now = tableOf(plan.Old, table)
	}
	r.Request = durationOf(now, []string{"plugin_request_timeout", "nri_plugin_request_timeout"}, leastRequest)
	r.Register = durationOf(now, []string{"plugin_registration_timeout", "nri_plugin_registration_timeout"},
		5*time.Second)
	return nil
}

// tableOf returns a table of a text that package enablenri has parsed already.
func tableOf(text []byte, table []string) map[string]any {
	doc := map[string]any{}
	if toml.Unmarshal(text, &doc) != nil {
		return nil
	}
	for _, key := range table {
		doc, _ = doc[key].(map[string]any)
	}
	return doc
}

func durationOf(table map[string]any, keys []string, otherwise time.Duration) time.Duration {
	for _, key := range keys {
		text, _ := table[key].(string)
		if d, err := time.ParseDuration(text); err == nil && d > 0 {
			return d
		}
	}
	return otherwise
}

// rivals are programs that set cpusets of containers, by file name.
func rivals() map[string]string {
	return map[string]string{
		"koordlet": "Koordinator's koordlet", "katalyst-agent": "Katalyst's agent",
		"dracpu": "the DRA driver for CPUs", "crane-agent": "Crane's agent",
		"nri-resource-policy-topology-aware": "nri-plugins' topology-aware policy",
		"nri-resource-policy-balloons":       "nri-plugins' balloons policy",
		"nri-resource-policy-template":       "nri-plugins' template policy", "cri-resmgr": "CRI Resource Manager",
		"cpusetter": "CPU Pooler", "cmk": "CMK",
	}
}

const (
	prelaunched = "/opt/nri/plugins"
	draPlugin   = "/var/lib/kubelet/plugins/dra.cpu"
)

// others looks for other programs that set cpusets, and for daemons of ours.
func (g *gatherer) others() {
	known := rivals()
	g.processes(known)
	entries, err := os.ReadDir(g.at(prelaunched))
	if err == nil {
		for _, e := range entries {
			// The runtime starts "NN-name".
			name := e.Name()
			if _, rest, ok := strings.Cut(name, "-"); ok {
				name = rest
			}
			title, rival := known[name]
			if !rival {
				title = name
			}
			g.f.Others = append(g.f.Others, Other{Name: title, Where: path.Join(prelaunched, e.Name()), Known: rival})
		}
	}
	if g.there(draPlugin) {
		title := known["dracpu"]
		if !slices.ContainsFunc(g.f.Others, func(o Other) bool { return o.Name == title }) {
			g.f.Others = append(g.f.Others, Other{Name: title, Where: draPlugin, Known: true})
		}
	}
}

// initialPIDs is the namespace of the machine's own processes, by the kernel's number.
const initialPIDs = "pid:[4026531836]"

func (g *gatherer) processes(known map[string]string) {
	namespace, err := os.Readlink(g.at("/proc/self/ns/pid"))
	g.f.AllProcesses = err == nil && namespace == initialPIDs
	entries, err := os.ReadDir(g.at("/proc"))
	if err != nil {
		return
	}
	for _, e := range entries {
		pid := number(e.Name())
		if pid <= 0 {
			continue
		}
		args := strings.Split(strings.TrimRight(g.read(filepath.Join("/proc", e.Name(), "cmdline")), "\x00"), "\x00")
		name := path.Base(args[0])
		if title, rival := known[name]; rival {
			g.f.Others = append(g.f.Others, Other{Name: title, Where: "pid " + e.Name(), Known: true})
		}
		if name == "quietcore" && len(args) > 1 && args[1] == "run" {
			g.f.Daemons = append(g.f.Daemons, Process{PID: pid, Config: flagOf(args, "--config")})
		}
	}
}

func flagOf(args []string, flag string) string {
	for i, a := range args {
		if value, ok := strings.CutPrefix(a, flag+"="); ok {
			return value
		}
		if a == flag && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}

func hexadecimal(text string) (uint64, bool) {
	n, err := strconv.ParseUint(text, 16, 64)
	return n, err == nil
}

func (g *gatherer) kubelet() {
	k, cfg := &g.f.Kubelet, g.f.Config.Config.Node.Kubelet
	if cfg.StateFile != "" {
		if text, err := g.text(cfg.StateFile); err == nil {
			if state, err := plugin.ParseKubeletState([]byte(text)); err != nil {
				k.StateErr = err.Error()
			} else {
				k.State = &state
			}
		} else if !missing(err) {
			k.StateErr = err.Error()
		}
	}
	if cfg.ConfigFile == "" || !g.there(filepath.Dir(cfg.ConfigFile)) {
		return // in a pod without the host's directory nothing can be said
	}
	dropIns := cfg.ConfigDir
	if dropIns != "" {
		dropIns = g.at(dropIns)
	}
	sources, err := kubelet.Read(g.at(cfg.ConfigFile), dropIns)
	if err == nil {
		var found kubelet.Config
		if found, err = kubelet.Parse(sources...); err == nil {
			k.Config = &found
		}
	}
	if err != nil {
		k.ConfigErr = "kubelet's configuration: " + err.Error()
		return
	}
	var state policy.KubeletState
	if k.State != nil {
		state = *k.State
	}
	_, known := k.Config.Reserved(g.f.Cgroup.Online, cpuset.Set{}, state)
	k.Reserved = known || !g.f.Config.Config.Reserved.CPUs.IsEmpty()
}
