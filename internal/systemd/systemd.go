// Package systemd asks systemd for what enforcement needs, and can ask for nothing else: to set five properties of a
// slice or a scope until it ends, what one of them is on record as, and whether what was set is in the kernel. Whoever
// holds the socket could start units as root; this package has no way to say so, and no other one has the socket.
package systemd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/godbus/dbus/v5"
)

// The sockets on which systemd is contacted, in this order: its own, which works without a message bus, then the system
// bus.
const (
	PrivateBus = "/run/systemd/private"
	SystemBus  = "/run/dbus/system_bus_socket"
)

// Properties are runtime properties of a unit (systemd.resource-control(5)). nil: it stays as it is.
type Properties struct {
	// AllowedCPUs and AllowedMemoryNodes have bit n%8 of byte n/8 for number n; empty and not nil: no mask.
	AllowedCPUs, AllowedMemoryNodes []byte
	CPUQuotaPerSecUSec              *uint64 // the greatest: no quota
	CPUQuotaPeriodUSec              *uint64
	CPUWeight                       *uint64 // 0: idle
}

// list are the properties by name, as systemd takes them.
func (p *Properties) list() (list []property) {
	for _, m := range []struct {
		name string
		bits []byte
	}{{"AllowedCPUs", p.AllowedCPUs}, {"AllowedMemoryNodes", p.AllowedMemoryNodes}} {
		if m.bits != nil {
			list = append(list, property{m.name, dbus.MakeVariant(m.bits)})
		}
	}
	for _, n := range []struct {
		name  string
		value *uint64
	}{{"CPUQuotaPerSecUSec", p.CPUQuotaPerSecUSec}, {"CPUQuotaPeriodUSec", p.CPUQuotaPeriodUSec},
		{"CPUWeight", p.CPUWeight}} {
		if n.value != nil {
			list = append(list, property{n.name, dbus.MakeVariant(*n.value)})
		}
	}
	return list
}

// property has the layout of systemd's (sv).
type property struct {
	Name  string
	Value dbus.Variant
}

// IsZero reports that nothing is to be set.
func (p *Properties) IsZero() bool { return len(p.list()) == 0 }

// String has the properties as names and values, separated by spaces.
func (p *Properties) String() string {
	if p == nil {
		return ""
	}
	var words []string
	for _, q := range p.list() {
		words = append(words, q.Name+"="+q.Value.String())
	}
	return strings.Join(words, " ")
}

// ErrUnit is a unit that this package asks nothing about, or sets nothing of.
var ErrUnit = errors.New("this unit is left alone")

// Refusal is an answer of systemd's that is an error, by its D-Bus name.
type Refusal struct{ Name, Message string }

func (r *Refusal) Error() string {
	if r.Message == "" {
		return r.Name
	}
	return r.Message
}

// Conn is a connection. Its methods are safe for concurrent use.
type Conn struct{ bus *dbus.Conn }

// Dial connects until life ends. Parts of it have no deadline of their own.
func Dial(life context.Context, socket string) (*Conn, error) {
	c, err := dbus.Dial("unix:path="+dbus.EscapeBusAddressValue(socket), dbus.WithContext(life))
	if err != nil {
		return nil, err
	}
	if err = c.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Getuid()))}); err == nil &&
		filepath.Base(socket) != filepath.Base(PrivateBus) {
		err = c.Hello() // required on a bus, unknown to systemd itself
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return &Conn{c}, nil
}

// Close ends the connection.
func (c *Conn) Close() { _ = c.bus.Close() }

const (
	service = "org.freedesktop.systemd1"
	object  = "/org/freedesktop/systemd1"
	manager = "org.freedesktop.systemd1.Manager"
)

// Set sets properties of a slice or a scope, as long as it lives. systemd answers before the kernel has them.
func (c *Conn) Set(ctx context.Context, unit string, p Properties) error {
	if err := pods(unit); err != nil {
		return err
	}
	if p.IsZero() {
		return nil
	}
	return c.call(ctx, object, manager+".SetUnitProperties", nil, unit, true, p.list())
}

// Settled returns when systemd has carried out what it has answered before: it processes its queue of cgroup writes
// between any two messages.
func (c *Conn) Settled(ctx context.Context) error {
	var state dbus.Variant
	return c.call(ctx, object, "org.freedesktop.DBus.Properties.Get", &state, manager, "SystemState")
}

// AllowedCPUs returns what systemd has on record for a unit.
func (c *Conn) AllowedCPUs(ctx context.Context, unit string) ([]byte, error) {
	kind, err := kindOf(unit)
	if err != nil {
		return nil, err
	}
	var value dbus.Variant
	err = c.call(ctx, object+"/unit/"+escaped(unit), "org.freedesktop.DBus.Properties.Get", &value, service+"."+kind,
		"AllowedCPUs")
	if err != nil {
		return nil, err
	}
	bits, ok := value.Value().([]byte)
	if !ok {
		return nil, &Refusal{Name: "org.freedesktop.DBus.Error.InvalidSignature",
			Message: fmt.Sprintf("AllowedCPUs has the type %s, want ay", value.Signature())}
	}
	return bits, nil
}

// call is the one place where a message leaves. A nil answer has no value.
func (c *Conn) call(ctx context.Context, at, method string, answer *dbus.Variant, args ...any) error {
	call := c.bus.Object(service, dbus.ObjectPath(at)).CallWithContext(ctx, method, 0, args...)
	err := call.Err
	if err == nil && answer != nil {
		err = call.Store(answer)
	}
	var refused dbus.Error
	if errors.As(err, &refused) {
		return &Refusal{Name: refused.Name, Message: refused.Error()}
	}
	return err
}

// kindOf is the kind of a unit that has cgroups, as in the name of its interface.
func kindOf(unit string) (string, error) {
	kind := strings.TrimPrefix(path.Ext(unit), ".")
	if !slices.Contains([]string{"slice", "scope", "service"}, kind) || strings.Contains(unit, "/") {
		return "", fmt.Errorf("%q is neither slice, scope nor service: %w", unit, ErrUnit)
	}
	return strings.ToUpper(kind[:1]) + kind[1:], nil
}

// machine are the units that hold the whole machine, or all of its services.
var machine = []string{"-.slice", "init.scope", "system.slice", "user.slice"}

// pods refuses what cannot be pods': services, and the units of the machine itself.
func pods(unit string) error {
	kind, err := kindOf(unit)
	if err == nil && (kind == "Service" || slices.Contains(machine, unit)) {
		err = fmt.Errorf("%s is not of pods: %w", unit, ErrUnit)
	}
	return err
}

// escaped is a unit's name in the path of its object.
func escaped(unit string) string {
	var b strings.Builder
	for i := range len(unit) {
		c := unit[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' && i > 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "_%02x", c)
		}
	}
	return b.String()
}
