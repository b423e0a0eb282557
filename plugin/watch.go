package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/dirwatch"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/sysfs"
	"github.com/quietcore/quietcore/topology"
)

// Kubelet follows kubelet's cpu_manager_state. It is only ever read: kubelet
// checks its checksum and refuses to start over one that is not its own.
type Kubelet struct {
	Path string
	Take func(context.Context, policy.KubeletState) error
	Log  *slog.Logger

	mu   sync.Mutex
	seen []byte // what was read last, good or not
}

const maxKubeletState = 4 << 20

// ParseKubeletState reads policyName, defaultCpuSet and entries, and no more.
func ParseKubeletState(text []byte) (policy.KubeletState, error) {
	var s policy.KubeletState
	if len(text) > maxKubeletState {
		return s, fmt.Errorf("kubelet's CPU manager state is larger than %d bytes", maxKubeletState)
	}
	var doc struct {
		PolicyName    string                       `json:"policyName"`
		DefaultCPUSet string                       `json:"defaultCpuSet"`
		Entries       map[string]map[string]string `json:"entries"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return s, fmt.Errorf("kubelet's CPU manager state: %w", err)
	}
	switch doc.PolicyName {
	case "none", "static":
	default:
		return s, fmt.Errorf("kubelet's CPU manager state: policyName is %.40q, want none or static", doc.PolicyName)
	}
	s.PolicyName, s.Entries = doc.PolicyName, make(map[string]map[string]cpuset.Set, len(doc.Entries))
	var err error
	if s.Default, err = cpuset.Parse(doc.DefaultCPUSet); err != nil {
		return s, fmt.Errorf("kubelet's CPU manager state: defaultCpuSet: %w", err)
	}
	for uid, containers := range doc.Entries {
		sets := make(map[string]cpuset.Set, len(containers))
		for name, list := range containers {
			if sets[name], err = cpuset.Parse(list); err != nil {
				return s, fmt.Errorf("kubelet's CPU manager state: entry of pod %.64q: %w", uid, err)
			}
		}
		s.Entries[uid] = sets
	}
	return s, nil
}

// Look reads the file if it changed. A file that is half written is bad now and
// good at its next change: until then the state from before stays.
func (k *Kubelet) Look(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	text, err := k.read()
	if err != nil || k.seen != nil && bytes.Equal(text, k.seen) {
		return
	}
	state, err := ParseKubeletState(text)
	if err != nil {
		k.seen = text // it stays invalid until it changes
	} else if err = k.Take(ctx, state); err == nil {
		k.seen = text
	}
	if err != nil {
		k.Log.Warn("kubelet's CPU manager state is not taken over; the previous one stays in effect", "file", k.Path,
			"err", err)
	}
}

func (k *Kubelet) read() ([]byte, error) {
	f, err := os.Open(k.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		k.Log.Warn("kubelet's CPU manager state cannot be read; the previous one stays in effect", "file", k.Path,
			"err", err)
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxKubeletState+1))
}

// Fresh reports whether what the file holds now has been looked at.
func (k *Kubelet) Fresh() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	text, err := k.read()
	return err != nil || k.seen != nil && bytes.Equal(text, k.seen)
}

// Watch looks at every change until ctx ends.
func (k *Kubelet) Watch(ctx context.Context) {
	dirwatch.Watch(ctx, []string{filepath.Dir(k.Path)}, k.Look, func(err error) {
		k.Log.Warn("kubelet's CPU manager state is polled instead of watched", "err", err)
	})
}

// Hardware follows the CPUs of the machine going on and off.
type Hardware struct {
	Root   string // of /sys
	Plugin *Plugin
	Log    *slog.Logger
}

// Watch takes over every change until ctx ends.
func (h *Hardware) Watch(ctx context.Context) {
	sysfs.Watch(ctx, h.Root, func() { h.look(ctx) }, func(err error) {
		h.Log.Warn("CPUs that go online or offline are polled instead of watched", "err", err)
	})
}

func (h *Hardware) look(ctx context.Context) {
	h.quick(ctx)
	known := h.Plugin.Snapshot().Topology
	fresh, warnings, err := sysfs.Read(os.DirFS(h.Root))
	if err == nil {
		fresh, err = fresh.Remembering(known)
	}
	if err == nil && !same(fresh, known) {
		err = h.Plugin.Submit(ctx, policy.Hardware{Topology: fresh})
	}
	if err != nil {
		h.Log.Error("the machine's CPUs changed and cannot be read; the last known ones stay in effect", "online",
			known.Online().String(), "err", err)
		return
	}
	for _, w := range warnings {
		h.Log.Debug("topology", "warning", w.String())
	}
}

// quick takes over which CPUs are on, where their places are known. Reading all of
// /sys takes a hundred times as long, and meanwhile the kernel may have put an
// owner on CPUs of others.
func (h *Hardware) quick(ctx context.Context) {
	online, err := h.online()
	known := h.Plugin.Snapshot().Topology
	places := known.Known()
	if err != nil || online.IsEmpty() || !online.SubsetOf(&places) || online == known.Online() {
		return
	}
	if err := h.Plugin.Submit(ctx, policy.Hardware{Online: online}); err != nil {
		h.Log.Error("the policy refuses a change of the online CPUs; it keeps the previous ones", "online",
			online.String(), "was", known.Online().String(), "err", err)
	}
}

func same(a, b *topology.Topology) bool {
	return a.Online() == b.Online() && a.Offline() == b.Offline() && a.Isolated() == b.Isolated() &&
		slices.Equal(a.CPUs(), b.CPUs())
}

func (h *Hardware) online() (cpuset.Set, error) {
	text, err := os.ReadFile(filepath.Join(h.Root, "devices/system/cpu/online"))
	if err != nil {
		return cpuset.Set{}, err
	}
	return cpuset.Parse(strings.TrimSpace(string(text)))
}

// Fresh reports whether the CPUs that are on are those that the policy knows.
func (h *Hardware) Fresh() bool {
	online, err := h.online()
	return err != nil || online == h.Plugin.Snapshot().Topology.Online()
}
