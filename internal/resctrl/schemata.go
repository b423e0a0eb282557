package resctrl

import (
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"path"
	"slices"
	"strconv"
	"strings"
)

// resource is a line of schemata.
type resource struct {
	name    string
	domains []string // one for each cache that has a value of its own
	values  []string
}

// parse reads schemata. Lines in a form that is not known are left out.
func parse(text string) (list []resource) {
	for line := range strings.Lines(text) {
		name, values, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			continue
		}
		r := resource{name: name}
		for one := range strings.SplitSeq(values, ";") {
			domain, value, ok := strings.Cut(one, "=")
			if !ok {
				r.domains = nil
				break
			}
			r.domains = append(r.domains, strings.TrimSpace(domain))
			r.values = append(r.values, strings.TrimSpace(value))
		}
		if len(r.domains) > 0 {
			list = append(list, r)
		}
	}
	return list
}

// String is the line as it is written.
func (r *resource) String() string {
	var b strings.Builder
	b.WriteString(r.name)
	b.WriteByte(':')
	for i := range r.domains {
		if i > 0 {
			b.WriteByte(';')
		}
		b.WriteString(r.domains[i] + "=" + r.values[i])
	}
	b.WriteByte('\n')
	return b.String()
}

// least is the schemata of a group that gets as little of memory and L3 as can be, on every domain. It is part of what
// the default group has, so that nobody loses what is kept for others.
func least(f Folder) (string, error) {
	text, err := f.Read("schemata")
	if errors.Is(err, fs.ErrNotExist) {
		return "", errors.New("resctrl is not mounted there: mount -t resctrl resctrl /sys/fs/resctrl")
	}
	if err != nil {
		return "", err
	}
	var wanted strings.Builder
	limits := false
	for _, r := range parse(text) {
		switch r.name {
		case "MB":
			limits = true
			err = r.narrow(f)
		case "L3", "L3CODE", "L3DATA": // in two halves where the mount has the option cdp
			err = r.shrink(f)
		default:
			continue
		}
		if err != nil {
			return "", fmt.Errorf("resctrl: %s: %w", r.name, err)
		}
		wanted.WriteString(r.String())
	}
	if !limits {
		// A smaller share of the cache alone would have it read more from memory.
		return "", errors.New("the machine cannot limit memory bandwidth: schemata has no line MB")
	}
	return wanted.String(), nil
}

const (
	oneGB  = 8    // in eighths of a GB/s, which is AMD's unit
	oneGiB = 1024 // in MiB/s, which is the unit with the mount option mba_MBps
	whole  = 100  // percent, which is Intel's
)

// narrow a line of bandwidths: to the least percentage that there is. Where they are no percentages there is no least
// one that lets a program go on, and it is one GB/s.
func (r *resource) narrow(f Folder) error {
	text, err := f.Read("info/MB/min_bandwidth")
	if err != nil {
		return err
	}
	floor, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
	if err != nil {
		return err
	}
	values := make([]uint64, len(r.values))
	for i, v := range r.values {
		if values[i], err = strconv.ParseUint(v, 10, 64); err != nil {
			return err
		}
	}
	_, err = f.Read("mba_MBps_event")
	switch {
	case floor == 0: // AMD has none
		floor = oneGB
	case err == nil || slices.Max(values) > whole: // older kernels have no such file
		floor = oneGiB
	}
	for i, v := range values {
		r.values[i] = strconv.FormatUint(min(v, floor), 10)
	}
	return nil
}

// shrink a line of masks to the lowest bits. Others may use the same.
func (r *resource) shrink(f Folder) error {
	text, err := f.Read(path.Join("info", r.name, "min_cbm_bits"))
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 6)
	if err != nil {
		return err
	}
	for i, v := range r.values {
		mask, err := strconv.ParseUint(v, 16, 64)
		if err != nil {
			return err
		}
		r.values[i] = strconv.FormatUint(lowest(mask, max(int(n), 1)), 16)
	}
	return nil
}

// lowest are the lowest n bits of a mask that are neighbours; the mask where it has none.
func lowest(mask uint64, n int) uint64 {
	run := uint64(1)<<n - 1
	for at := bits.TrailingZeros64(mask); at < bits.Len64(mask); at++ {
		if mask>>at&run == run {
			return run << at
		}
	}
	return mask
}
