package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/quietcore/quietcore/e2e/sampler/sweep"
)

// held is what the process with this folder below /proc holds.
func held(proc string) (*sweep.Held, error) {
	h := &sweep.Held{Entries: map[string]int{}}
	open, err := os.ReadDir(filepath.Join(proc, "fdinfo"))
	if err != nil {
		return nil, err
	}
	h.Descriptors = len(open)
	seen := map[ebpf.MapID]bool{} // a map may be open twice
	for _, fd := range open {
		text, err := os.ReadFile(filepath.Join(proc, "fdinfo", fd.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // closed meanwhile
		}
		if err != nil {
			return nil, err
		}
		id, isMap, err := mapOf(string(text))
		if err != nil {
			return nil, err
		}
		if !isMap || seen[id] {
			continue
		}
		seen[id] = true
		if err := count(h.Entries, id); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// mapOf reads which BPF map a descriptor is of, if it is one's.
func mapOf(fdinfo string) (id ebpf.MapID, isMap bool, err error) {
	for line := range strings.Lines(fdinfo) {
		if text, found := strings.CutPrefix(line, "map_id:"); found {
			n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
			return ebpf.MapID(n), true, err
		}
	}
	return 0, false, nil
}

// count adds a map's entries, if it is one whose number of entries changes.
func count(to map[string]int, id ebpf.MapID) error {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return fmt.Errorf("BPF map %d: %w", id, err)
	}
	defer m.Close()
	if m.Type() != ebpf.Hash {
		return nil
	}
	info, err := m.Info()
	if err != nil {
		return fmt.Errorf("BPF map %d: %w", id, err)
	}
	n := 0
	key, err := m.NextKeyBytes(nil)
	for ; err == nil && key != nil; key, err = m.NextKeyBytes(key) {
		// A key that is deleted under it makes the kernel begin anew.
		if n++; n > int(info.MaxEntries) {
			return fmt.Errorf("BPF map %s changes too fast to be counted", info.Name)
		}
	}
	if err != nil {
		return fmt.Errorf("BPF map %s: %w", info.Name, err)
	}
	to[info.Name] += n
	return nil
}
