package cgroup

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"strings"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/systemd"
)

// Systemd is the Driver for cgroups that are units of systemd: values become runtime properties of
// the slice or scope (AllowedCPUs, AllowedMemoryNodes, CPUQuotaPerSecUSec, CPUWeight;
// systemd.resource-control(5), systemd 244 and later). Values written to the files of a unit
// instead are lost at its next property change or daemon-reload; properties last as long as the
// unit.
//
// A call takes two messages, or three if a mask is given up, whatever runs in the unit: systemd
// answers before it has written the kernel's files, and only the answer to another request proves
// that it has.
type Systemd struct {
	bus   *bus
	files *FS // checks that a cgroup exists: systemd would create a missing slice
}

// NewSystemd returns a driver that connects on first use, and reconnects after the connection was
// lost.
func NewSystemd(files *FS, o BusOptions) *Systemd {
	return &Systemd{bus: newBus(o), files: files}
}

// Close ends the connection.
func (s *Systemd) Close() error { return s.bus.close() }

// Ping checks that systemd answers.
func (s *Systemd) Ping(ctx context.Context) error {
	return s.bus.do(ctx, settled)
}

// IsUnit reports by its name whether the cgroup at path is a unit of systemd. Cgroups inside a
// delegated unit (a container's own ones) are not.
func IsUnit(cgroupPath string) bool {
	_, err := unitOf(cgroupPath)
	return err == nil
}

// unitOf is the name of the unit whose cgroup path is.
func unitOf(cgroupPath string) (string, error) {
	name := path.Base(strings.Trim(cgroupPath, "/"))
	for _, kind := range []string{".slice", ".scope", ".service"} {
		if strings.HasSuffix(name, kind) && len(name) > len(kind) {
			// Names that could be files of the kernel's have an underscore in front.
			return strings.TrimPrefix(name, "_"), nil
		}
	}
	return "", fmt.Errorf("cgroup %s is not a systemd unit: neither slice, scope nor service", cgroupPath)
}

// Apply sets properties and returns once the kernel has them.
func (s *Systemd) Apply(ctx context.Context, cgroupPath string, v Values) error {
	unit, err := unitOf(cgroupPath)
	if err != nil {
		return err
	}
	if err := v.idleError(); err != nil {
		return fmt.Errorf("unit %s: %w", unit, err)
	}
	steps, err := properties(v)
	if err != nil {
		return fmt.Errorf("unit %s: %w", unit, err)
	}
	if len(steps) == 0 {
		return nil
	}
	if err := s.files.exists(cgroupPath); err != nil {
		return err
	}
	err = s.bus.do(ctx, func(ctx context.Context, c *systemd.Conn) error {
		for _, step := range steps {
			if err := c.Set(ctx, unit, step); err != nil {
				if v.Idle != nil && *v.Idle && refusedValue(err) {
					return fmt.Errorf("unit %s: %w", unit, ErrNoIdle)
				}
				return unitError(unit, &step, err)
			}
		}
		return settled(ctx, c)
	})
	if err != nil {
		return err
	}
	// The unit may have ended in the meantime.
	return s.files.exists(cgroupPath)
}

// refusedValue reports that systemd knows the property but not the value.
func refusedValue(err error) bool {
	var answer *systemd.Refusal
	return errors.As(err, &answer) && answer.Name == "org.freedesktop.DBus.Error.InvalidArgs"
}

// settled returns when systemd has carried out what it has answered before.
func settled(ctx context.Context, c *systemd.Conn) error {
	if err := c.Settled(ctx); err != nil {
		return fmt.Errorf("ask systemd for its state: %w", err)
	}
	return nil
}

// Recorded returns the AllowedCPUs that systemd has recorded for a unit; empty: none. A reload of
// systemd would write them to the kernel.
func (s *Systemd) Recorded(ctx context.Context, cgroupPath string) (cpuset.Set, error) {
	unit, err := unitOf(cgroupPath)
	if err != nil {
		return cpuset.Set{}, err
	}
	var set cpuset.Set
	err = s.bus.do(ctx, func(ctx context.Context, c *systemd.Conn) error {
		bits, err := c.AllowedCPUs(ctx, unit)
		if err != nil {
			return unitError(unit, nil, err)
		}
		if len(bits) > cpuset.MaxCPUs/8 {
			return fmt.Errorf("unit %s: AllowedCPUs has %d bits, want at most %d", unit, 8*len(bits), cpuset.MaxCPUs)
		}
		set = fromBits(bits)
		return nil
	})
	return set, err
}

// properties are the values as systemd properties, in steps that have to be applied one after the
// other.
func properties(v Values) ([]systemd.Properties, error) {
	var first, then systemd.Properties
	for _, m := range []struct {
		name        string
		mask        Mask
		first, then *[]byte
	}{{"AllowedCPUs", v.CPUs, &first.AllowedCPUs, &then.AllowedCPUs},
		{"AllowedMemoryNodes", v.Mems, &first.AllowedMemoryNodes, &then.AllowedMemoryNodes}} {
		if m.mask.IsZero() {
			continue
		}
		set := m.mask.Set()
		if set.IsEmpty() {
			return nil, fmt.Errorf("%s: %w", m.name, ErrEmptySet)
		}
		*m.first = toBits(set)
		if m.mask.Inherits() {
			*m.then = []byte{}
		}
	}
	if v.Quota != nil {
		setQuota(&first, *v.Quota)
	}
	if v.Weight > 10000 {
		return nil, fmt.Errorf("CPUWeight: %d is over 10000", v.Weight)
	}
	if v.Weight > 0 || v.Idle != nil {
		// 0 is systemd's value for idle. If cpu.idle were written to the file, systemd's next
		// change of the unit would reset it.
		first.CPUWeight = &v.Weight
	}
	var steps []systemd.Properties
	for _, step := range []systemd.Properties{first, then} {
		if !step.IsZero() {
			steps = append(steps, step)
		}
	}
	return steps, nil
}

// setQuota gives the quota as CPU time a second. It is exact until systemd reloads: its file keeps
// whole percents of a CPU (two decimals from 253 on).
func setQuota(p *systemd.Properties, q Quota) {
	perSecond := uint64(math.MaxUint64)
	if q.Micros >= 0 {
		of := q.Period
		if of <= 0 {
			of = defaultPeriod
		}
		perSecond = uint64(max(q.Micros/of*1_000_000+q.Micros%of*1_000_000/of, 1))
	}
	p.CPUQuotaPerSecUSec = &perSecond
	if q.Micros >= 0 && q.Period > 0 {
		period := uint64(q.Period)
		p.CPUQuotaPeriodUSec = &period
	}
}

// toBits is systemd's form of a set: CPU n is bit n%8 of byte n/8.
func toBits(set cpuset.Set) []byte {
	var bits []byte
	for cpu := range set.All() {
		for len(bits) <= cpu/8 {
			bits = append(bits, 0)
		}
		bits[cpu/8] |= 1 << (cpu % 8)
	}
	return bits
}

func fromBits(bits []byte) cpuset.Set {
	var set cpuset.Set
	for i, b := range bits {
		for j := range 8 {
			if b&(1<<j) != 0 {
				set.Add(i*8 + j)
			}
		}
	}
	return set
}

// unitError names the unit and the properties; a unit that does not exist is a cgroup that is gone.
func unitError(unit string, step *systemd.Properties, err error) error {
	var answer *systemd.Refusal
	if !errors.As(err, &answer) {
		return fmt.Errorf("unit %s: %w", unit, err)
	}
	switch answer.Name {
	case "org.freedesktop.systemd1.NoSuchUnit", "org.freedesktop.DBus.Error.UnknownObject":
		return fmt.Errorf("unit %s: %w", unit, ErrGone)
	case "org.freedesktop.DBus.Error.PropertyReadOnly":
		return fmt.Errorf("unit %s: systemd cannot set %s: %w; AllowedCPUs needs systemd 244 or later and cgroup v2",
			unit, step, err)
	case "org.freedesktop.DBus.Error.AccessDenied", "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired":
		return fmt.Errorf(
			"unit %s: systemd refuses to set %s: %w; run as root of the host with /run/systemd/private or the "+
				"system bus's socket mounted", unit, step, err)
	}
	if step == nil {
		return fmt.Errorf("unit %s: %w", unit, err)
	}
	return fmt.Errorf("unit %s: set %s: %w", unit, step, err)
}
