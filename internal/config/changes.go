package config

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/quietcore/quietcore/internal/printable"
)

// atStart is a part of the configuration that a running daemon does not change.
type atStart struct {
	key  string
	part func(*Config) any // a pointer to it
}

func readAtStart() []atStart {
	return []atStart{
		{"node.name", func(c *Config) any { return &c.Node.Name }},
		{"node.kubelet.stateFile", func(c *Config) any { return &c.Node.Kubelet.StateFile }},
		{"node.kubelet.configFile", func(c *Config) any { return &c.Node.Kubelet.ConfigFile }},
		{"node.kubelet.configDir", func(c *Config) any { return &c.Node.Kubelet.ConfigDir }},
		{"node.kubelet.podResources", func(c *Config) any { return &c.Node.Kubelet.PodResources }},
		{"inject.cpusEnv", func(c *Config) any { return &c.Inject }},
		{"kubernetes.api", func(c *Config) any { return &c.Kubernetes.API }},
		{"kubernetes.kubeconfig", func(c *Config) any { return &c.Kubernetes.Kubeconfig }},
		{"kubernetes.pods", func(c *Config) any { return &c.Kubernetes.Pods }},
		{"kubernetes.labels", func(c *Config) any { return &c.Kubernetes.Labels }},
		{"kubernetes.events", func(c *Config) any { return &c.Kubernetes.Events }},
		{"kubernetes.policy", func(c *Config) any { return &c.Kubernetes.Policy }},
		{"kubernetes.startupTaint", func(c *Config) any { return &c.Kubernetes.StartupTaint }},
		{"kubernetes.nodeResourceTopology", func(c *Config) any { return &c.Kubernetes.Topology }},
		{"cpi.resctrl", func(c *Config) any { return &c.CPI.Resctrl }},
		{"dra", func(c *Config) any { return &c.DRA }},
		{"nri", func(c *Config) any { return &c.NRI }},
		{"cgroup", func(c *Config) any { return &c.Cgroup }},
		{"sysfs.root", func(c *Config) any { return &c.Sysfs }},
		{"state.dir", func(c *Config) any { return &c.State }},
		{"socket", func(c *Config) any { return &c.Socket }},
		{"listen", func(c *Config) any { return &c.Listen }},
		{"metrics", func(c *Config) any { return &c.Metrics }},
		{"confine", func(c *Config) any { return &c.Confine }},
		{"health", func(c *Config) any { return &c.Health }},
		{"page", func(c *Config) any { return &c.Page }},
		{"log.format", func(c *Config) any { return &c.Log.Format }},
	}
}

// NeedsRestart names the parts that differ between two configurations and that a
// running daemon does not change.
func NeedsRestart(old, new *Config) []string {
	var keys []string
	for _, p := range readAtStart() {
		if !reflect.DeepEqual(p.part(old), p.part(new)) {
			keys = append(keys, p.key)
		}
	}
	if lendsUnseen(old, new) {
		keys = append(keys, "reclaim.mode")
	}
	return keys
}

// lendsUnseen reports whether lending is to begin on a Node that is not followed: without kubernetes.labels it is
// from the start alone, and then only where CPUs are lent.
func lendsUnseen(old, new *Config) bool {
	return !old.Kubernetes.Labels && old.Reclaim.Mode != SwitchEnforce && new.Reclaim.Mode == SwitchEnforce
}

// Reloaded is next as a daemon that runs with c can have it: what is read at a start
// alone stays as it is. It shares memory with both.
func (c *Config) Reloaded(next *Config) *Config {
	merged := *next
	for _, p := range readAtStart() {
		reflect.ValueOf(p.part(&merged)).Elem().Set(reflect.ValueOf(p.part(c)).Elem())
	}
	if lendsUnseen(c, next) {
		merged.Reclaim.Mode = c.Reclaim.Mode
	}
	return &merged
}

// SamePolicy reports whether two configurations decide alike about CPUs: a level of
// the log, say, decides nothing.
func SamePolicy(a, b *Config) bool { return reflect.DeepEqual(a.Policy(), b.Policy()) }

// SameCounting reports whether two configurations count, detect and act alike.
func SameCounting(a, b *Config) bool { return a.Mode == b.Mode && reflect.DeepEqual(a.CPI, b.CPI) }

// SameLending reports whether two configurations lend CPUs and take them back alike.
func SameLending(a, b *Config) bool {
	return a.Mode == b.Mode && a.Kubernetes.BatchSlice == b.Kubernetes.BatchSlice &&
		reflect.DeepEqual(a.Reclaim, b.Reclaim) && reflect.DeepEqual(a.Suppress, b.Suppress)
}

// Change is a key whose value differs between two configurations.
type Change struct {
	Key     string          `json:"key"`
	Old     json.RawMessage `json:"old"`
	New     json.RawMessage `json:"new"`
	Restart bool            `json:"restart"` // it takes effect at a start alone
}

// Changes are the keys whose values differ, sorted.
func Changes(old, next *Config) ([]Change, error) {
	was, err := values(old)
	if err != nil {
		return nil, err
	}
	is, err := values(next)
	if err != nil {
		return nil, err
	}
	restart := NeedsRestart(old, next)
	keys := maps.Clone(was)
	maps.Copy(keys, is)
	changes := []Change{}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if string(was[key]) == string(is[key]) {
			continue
		}
		c := Change{Key: key, Old: was[key], New: is[key]}
		for _, k := range restart {
			c.Restart = c.Restart || key == k || strings.HasPrefix(key, k+".")
		}
		changes = append(changes, c)
	}
	return changes, nil
}

// values are those of a configuration by their whole key. Lists, and maps whose keys
// are not ours, are one value where they are empty.
func values(c *Config) (map[string]json.RawMessage, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	all := map[string]json.RawMessage{}
	return all, flatten(all, "", text)
}

func flatten(all map[string]json.RawMessage, key string, text json.RawMessage) error {
	var inner map[string]json.RawMessage
	if text[0] != '{' {
		all[key] = text
		return nil
	}
	if err := json.Unmarshal(text, &inner); err != nil {
		return err
	}
	for k, v := range inner {
		if key != "" {
			k = key + "." + k
		}
		if err := flatten(all, k, v); err != nil {
			return err
		}
	}
	return nil
}

// WriteChanges writes changes for people.
func WriteChanges(w io.Writer, changes []Change) error {
	if len(changes) == 0 {
		_, err := fmt.Fprintln(w, "they mean the same")
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range changes {
		note := ""
		if c.Restart {
			note = "restart"
		}
		fmt.Fprintf(table, "%s\t%s -> %s\t%s\n", printable.Text(c.Key), valueText(c.Old), valueText(c.New), note)
	}
	return table.Flush()
}

func valueText(v json.RawMessage) string {
	if v == nil {
		return "(none)"
	}
	return printable.Text(string(v))
}
