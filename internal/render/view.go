// Package render draws a machine for people: which CPUs there are, what they
// share and which owner has them, on a terminal, as SVG, and before against after.
//
//	render.Text(os.Stdout, render.View{Title: "node-a", Topology: t, CPUs: owners}, false)
//
// Names come from tenants. Whatever they hold, no output contains a control
// character, an escape sequence or markup from them, and every name is cut to
// a bounded length.
package render

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/printable"
	"github.com/quietcore/quietcore/topology"
)

// What a CPU is used for. Other strings are drawn as unknown, under their name.
const (
	LSE       = "lse"       // one owner, not shared
	LSR       = "lsr"       // one owner, shared with best-effort pods only
	Exclusive = "exclusive" // one owner, class not shown
	Kubelet   = "kubelet"   // given by kubelet's static policy
	Shared    = "shared"
	BE        = "be" // best-effort pods only
	Reserved  = "reserved"
	System    = "system"
	Withheld  = "withheld" // kept idle for the owner of its sibling
	Offline   = "offline"
)

// CPUInfo is which owner has a CPU.
type CPUInfo struct {
	Pool  string
	Owner string // namespace/pod/container; empty for a pool of many
}

// View is a machine at one moment. A CPU without an entry is drawn as unknown;
// one that is offline as offline, whatever its entry says.
type View struct {
	Title    string
	Topology *topology.Topology
	CPUs     map[int]CPUInfo
	Notes    []string // lines below the legend
}

var errNoTopology = errors.New("draw the machine: the view has no topology")

// look is how a pool is drawn.
type look struct {
	pool, name string
	symbol     rune
	ansi       string // SGR parameters
	fill, ink  string // SVG colours; their contrast is at least 4.5
}

// looks are in the order of the legend; the last is for what is not known.
func looks() []look {
	return []look{
		{LSE, "LSE, exclusive", '!', "1;97;45", "#8e2a6d", "#ffffff"},
		{LSR, "LSR, exclusive", '*', "1;97;44", "#0b5aa0", "#ffffff"},
		{Exclusive, "exclusive", '@', "1;97;44", "#0b5aa0", "#ffffff"},
		{Kubelet, "kubelet's static policy", '%', "1;97;46", "#1d6a72", "#ffffff"},
		{System, "SYSTEM", '+', "36", "#c9d3f2", "#1c2333"},
		{Shared, "shared pool", '.', "32", "#cdebd3", "#1c2333"},
		{BE, "best effort only", '~', "33", "#fbdf9d", "#1c2333"},
		{Reserved, "reserved", '=', "34", "#d8dbe3", "#1c2333"},
		{Withheld, "withheld (kept idle)", 'x', "90", "#ffffff", "#1c2333"},
		{Offline, "offline", '-', "2;90", "#f6f6f7", "#6a6f7a"},
		{"", "unknown", '?', "35", "#ffffff", "#1c2333"},
	}
}

func lookOf(pool string) look {
	all := looks()
	for _, l := range all {
		if l.pool == pool {
			return l
		}
	}
	l := all[len(all)-1]
	if name := printable.Clip(pool, 24); name != "" {
		l.pool, l.name = pool, name
	}
	return l
}

func hasOwners(pool string) bool {
	switch pool {
	case LSE, LSR, Exclusive, Kubelet:
		return true
	}
	return false
}

// info is what a CPU is drawn as.
func (v View) info(cpu int) CPUInfo {
	if offline := v.Topology.Offline(); offline.Has(cpu) {
		return CPUInfo{Pool: Offline}
	}
	return v.CPUs[cpu]
}

// owner is one entry of the legend of owners.
type owner struct {
	CPUInfo
	index int
	cpus  cpuset.Set
}

// letters are the symbols of owners; those past the end share the last one.
const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwyz0123456789#"

// symbol is the owner's character on a terminal.
func (o *owner) symbol() rune { return rune(letters[min(o.index, len(letters)-1)]) }

// tag is the owner's label in a drawing, where there is room for more: A … Z, AA …
func (o *owner) tag() string {
	tag := ""
	for i := o.index; i >= 0; i = i/26 - 1 {
		tag = string(rune('A'+i%26)) + tag
	}
	return tag
}

// owners numbers the exclusive owners of several views alike, by their first
// appearance.
func owners(views ...View) map[CPUInfo]*owner {
	all := map[CPUInfo]*owner{}
	for _, v := range views {
		for _, c := range v.Topology.CPUs() {
			i := v.info(c.ID)
			if !hasOwners(i.Pool) || i.Owner == "" {
				continue
			}
			if all[i] == nil {
				all[i] = &owner{CPUInfo: i, index: len(all)}
			}
			all[i].cpus.Add(c.ID)
		}
	}
	return all
}

func byIndex(all map[CPUInfo]*owner) []*owner {
	list := make([]*owner, 0, len(all))
	for _, o := range all {
		list = append(list, o)
	}
	slices.SortFunc(list, func(a, b *owner) int { return cmp.Compare(a.index, b.index) })
	return list
}

// poolSets are the CPUs of every pool that is drawn without owners' letters.
func (v View) poolSets() (order []look, sets map[string]cpuset.Set) {
	sets = map[string]cpuset.Set{}
	add := func(cpu int) {
		i := v.info(cpu)
		if hasOwners(i.Pool) && i.Owner != "" {
			return
		}
		s := sets[i.Pool]
		s.Add(cpu)
		sets[i.Pool] = s
	}
	offline := v.Topology.Offline()
	for _, c := range v.Topology.CPUs() {
		add(c.ID)
	}
	for cpu := range offline.All() { // also those whose place is not known
		add(cpu)
	}
	known := map[string]bool{}
	for _, l := range looks() {
		known[l.pool] = true
		if _, used := sets[l.pool]; used {
			order = append(order, l)
		}
	}
	var rest []string
	for pool := range sets {
		if !known[pool] {
			rest = append(rest, pool)
		}
	}
	slices.Sort(rest)
	for _, pool := range rest {
		order = append(order, lookOf(pool))
	}
	return order, sets
}

// brief is a list of CPUs that fits into the given number of columns.
func brief(s cpuset.Set, most int) string {
	text := s.String()
	if len(text) <= most {
		return text
	}
	cut := strings.LastIndexByte(text[:most-1], ',')
	if cut < 0 {
		cut = most - 2
	}
	return text[:cut+1] + "…"
}
