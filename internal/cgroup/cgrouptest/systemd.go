package cgrouptest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/godbus/dbus/v5"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
)

// Systemd is the part of systemd that manages the cgroups of a Dir, behind a real D-Bus socket like
// /run/systemd/private. Like the real one it answers before it writes the kernel's files, and
// writes all properties of a unit each time.
type Systemd struct {
	Socket string
	Old    bool // before 252: set before the first unit starts

	dir      *Dir
	listener net.Listener
	parts    sync.WaitGroup

	mu      sync.Mutex
	conns   map[net.Conn]bool
	units   map[string]*unit
	queue   []*unit
	calls   []string
	refuse  *dbus.Error
	holding chan struct{} // not nil: no message is answered until it is closed
}

type unit struct {
	name, path string
	cpus, mems []byte
	quota      uint64
	period     uint64
	weight     uint64
	idle       bool
	old        bool // before systemd 252, without CPUWeight=idle
}

// NewSystemd serves at folder/private until Close.
func NewSystemd(folder string, d *Dir) (*Systemd, error) {
	s := &Systemd{Socket: filepath.Join(folder, "private"), dir: d, units: map[string]*unit{},
		conns: map[net.Conn]bool{}}
	return s, s.Listen()
}

// Listen serves again after Close.
func (s *Systemd) Listen() error {
	l, err := net.Listen("unix", s.Socket)
	if err != nil {
		return err
	}
	s.listener = l
	s.parts.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[c] = true
			s.mu.Unlock()
			s.parts.Go(func() { s.serve(c) })
		}
	})
	return nil
}

// Close ends the socket and every connection; units stay.
func (s *Systemd) Close() error {
	s.Release()
	err := s.listener.Close()
	s.mu.Lock()
	for c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.parts.Wait()
	s.settle()
	return err
}

// Hold makes systemd hang: nothing is answered until Release.
func (s *Systemd) Hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holding == nil {
		s.holding = make(chan struct{})
	}
}

// Release ends Hold.
func (s *Systemd) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holding != nil {
		close(s.holding)
		s.holding = nil
	}
}

// Refuse answers every change with an error of this D-Bus name; "" ends that.
func (s *Systemd) Refuse(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = nil
	if name != "" {
		s.refuse = dbus.NewError(name, []any{"refused by the test"})
	}
}

// Calls returns the messages answered so far, and clears the list.
func (s *Systemd) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// Start creates a unit with all slices above it, as a runtime or kubelet does.
func (s *Systemd) Start(cgroupPath string, tasks int) {
	s.dir.Mkdir(cgroupPath, tasks)
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := strings.Trim(cgroupPath, "/"); p != ""; p = cgroup.Parent(p) {
		if name := path.Base(p); s.units[name] == nil {
			s.units[name] = &unit{name: name, path: p, quota: ^uint64(0), old: s.Old}
		}
	}
}

// Stop ends a unit.
func (s *Systemd) Stop(cgroupPath string) {
	s.mu.Lock()
	delete(s.units, path.Base(cgroupPath))
	s.mu.Unlock()
	s.dir.Rmdir(cgroupPath)
}

// Reload is daemon-reload: every unit is written again.
func (s *Systemd) Reload() {
	s.mu.Lock()
	for _, u := range s.units {
		s.queue = append(s.queue, u)
	}
	s.mu.Unlock()
	s.settle()
}

// Set changes AllowedCPUs as `systemctl set-property` does.
func (s *Systemd) Set(unitName, cpus string) {
	set, err := cpuset.Parse(cpus)
	if err != nil {
		panic(err)
	}
	bits := make([]byte, 0)
	for c := range set.All() {
		for len(bits) <= c/8 {
			bits = append(bits, 0)
		}
		bits[c/8] |= 1 << (c % 8)
	}
	s.mu.Lock()
	u := s.units[unitName]
	u.cpus = bits
	s.queue = append(s.queue, u)
	s.mu.Unlock()
	s.settle()
}

// settle writes queued units, slices before their members.
func (s *Systemd) settle() {
	s.mu.Lock()
	queue := s.queue
	s.queue = nil
	s.mu.Unlock()
	slices.SortStableFunc(queue, func(a, b *unit) int {
		return strings.Count(a.path, "/") - strings.Count(b.path, "/")
	})
	for _, u := range queue {
		s.realize(u)
	}
}

func (s *Systemd) realize(u *unit) {
	v := cgroup.Values{CPUs: maskOf(u.cpus), Mems: maskOf(u.mems), Weight: u.weight}
	if u.period == 0 {
		u.period = 100_000
	}
	q := cgroup.Quota{Micros: -1, Period: int64(u.period)}
	if u.quota != ^uint64(0) {
		q.Micros = int64(u.quota * u.period / 1_000_000)
	}
	v.Quota = &q
	if idle := u.idle; (idle || u.weight > 0) && !s.dir.Kernel.NoIdle && !s.dir.Kernel.V1 {
		v.Idle = &idle
	}
	if err := s.dir.Apply(context.Background(), u.path, v); err != nil && !errors.Is(err, cgroup.ErrGone) {
		panic(fmt.Sprintf("the fake systemd cannot write %s: %v", u.path, err))
	}
	for file, bits := range map[string][]byte{"cpuset.cpus": u.cpus, "cpuset.mems": u.mems} {
		if len(bits) == 0 { // attempted every time; a populated cgroup refuses it
			_ = s.dir.Kernel.writeSet(u.path, file, cpuset.Set{})
		}
	}
	_ = s.dir.Refresh(u.path) // the unit may have ended
}

func maskOf(bits []byte) cgroup.Mask {
	var set cpuset.Set
	for i, b := range bits {
		for j := range 8 {
			if b>>j&1 == 1 {
				set.Add(i*8 + j)
			}
		}
	}
	if set.IsEmpty() {
		return cgroup.Mask{}
	}
	return cgroup.Only(set)
}

// --- the wire ---

func (s *Systemd) serve(c net.Conn) {
	defer func() {
		c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	in := bufio.NewReader(c)
	if s.shakeHands(in, c) != nil {
		return
	}
	peer := &authenticated{in: in, Conn: c}
	conn, err := dbus.NewConn(peer)
	if err != nil {
		return
	}
	const root = "/org/freedesktop/systemd1"
	for _, err := range []error{
		conn.Export(manager{s}, root, "org.freedesktop.systemd1.Manager"),
		conn.Export(manager{s}, root, "org.freedesktop.DBus.Properties"),
		conn.ExportSubtree(unitObjects{s}, root+"/unit", "org.freedesktop.DBus.Properties"),
	} {
		if err != nil {
			panic(err)
		}
	}
	if conn.Auth([]dbus.Auth{dbus.AuthAnonymous()}) == nil { // from here on it is served
		<-conn.Context().Done()
	}
}

// shakeHands is the server side of D-Bus authentication.
func (s *Systemd) shakeHands(in *bufio.Reader, out io.Writer) error {
	if _, err := in.ReadByte(); err != nil { // the null byte
		return err
	}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		s.wait()
		answer := "REJECTED EXTERNAL\r\n"
		switch {
		case strings.HasPrefix(line, "BEGIN"):
			return nil
		case strings.HasPrefix(line, "AUTH EXTERNAL"):
			answer = "OK 0123456789abcdef0123456789abcdef\r\n"
		case strings.HasPrefix(line, "NEGOTIATE_UNIX_FD"):
			answer = "ERROR\r\n"
		}
		if _, err := io.WriteString(out, answer); err != nil {
			return err
		}
	}
}

// authenticated makes the library's client side believe that the handshake is done, so that it can
// be used as a server.
type authenticated struct {
	net.Conn
	in    *bufio.Reader
	mu    sync.Mutex
	talk  bytes.Buffer
	begun bool
}

func (a *authenticated) Write(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.begun {
		return a.Conn.Write(b)
	}
	switch text := string(b); {
	case strings.Contains(text, "BEGIN"):
		a.begun = true
	case strings.Contains(text, "AUTH ANONYMOUS"):
		a.talk.WriteString("OK 0123456789abcdef0123456789abcdef\r\n")
	case strings.Contains(text, "AUTH"):
		a.talk.WriteString("REJECTED ANONYMOUS\r\n")
	}
	return len(b), nil
}

func (a *authenticated) Read(b []byte) (int, error) {
	a.mu.Lock()
	if !a.begun {
		defer a.mu.Unlock()
		return a.talk.Read(b)
	}
	a.mu.Unlock()
	return a.in.Read(b)
}

func (s *Systemd) wait() {
	s.mu.Lock()
	holding := s.holding
	s.mu.Unlock()
	if holding != nil {
		<-holding
	}
}

// begin runs before any message is answered.
func (s *Systemd) begin(call string) {
	s.wait()
	s.settle()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, call)
}

type manager struct{ s *Systemd }

type prop struct {
	Name  string
	Value dbus.Variant
}

// SetUnitProperties is org.freedesktop.systemd1.Manager's.
func (m manager) SetUnitProperties(name string, runtime bool, props []prop) *dbus.Error {
	var words []string
	for _, p := range props {
		words = append(words, p.Name+"="+p.Value.String())
	}
	m.s.begin("SetUnitProperties " + name + " " + strings.Join(words, " "))
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	u := m.s.units[name]
	switch {
	case m.s.refuse != nil:
		return m.s.refuse
	case u == nil:
		return dbus.NewError("org.freedesktop.systemd1.NoSuchUnit", []any{"Unit " + name + " not loaded."})
	case !runtime:
		return dbus.NewError("org.freedesktop.DBus.Error.InvalidArgs", []any{"the test wants runtime properties"})
	}
	for _, p := range props {
		if err := u.set(p); err != nil {
			return err
		}
	}
	m.s.queue = append(m.s.queue, u)
	return nil
}

func (u *unit) set(p prop) *dbus.Error {
	value := p.Value.Value()
	bits, isBits := value.([]byte)
	number, isNumber := value.(uint64)
	switch {
	case p.Name == "AllowedCPUs" && isBits:
		u.cpus = bits
	case p.Name == "AllowedMemoryNodes" && isBits:
		u.mems = bits
	case p.Name == "CPUQuotaPerSecUSec" && isNumber && number > 0:
		u.quota = number
	case p.Name == "CPUQuotaPeriodUSec" && isNumber:
		u.period = number
	case p.Name == "CPUWeight" && isNumber && number >= 1 && number <= 10000:
		u.weight, u.idle = number, false
	case p.Name == "CPUWeight" && isNumber && number == 0 && !u.old:
		u.weight, u.idle = 0, true
	default:
		return dbus.NewError("org.freedesktop.DBus.Error.InvalidArgs",
			[]any{fmt.Sprintf("%s of type %s", p.Name, p.Value.Signature())})
	}
	return nil
}

// Get is org.freedesktop.DBus.Properties' for the manager.
func (m manager) Get(_, name string) (dbus.Variant, *dbus.Error) {
	m.s.begin("Get " + name)
	return dbus.MakeVariant("running"), nil
}

type unitObjects struct{ s *Systemd }

// Get is the same for a unit, whose name is in the object's path.
func (o unitObjects) Get(msg dbus.Message, _, name string) (dbus.Variant, *dbus.Error) {
	object, _ := msg.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
	o.s.begin("Get " + path.Base(string(object)) + " " + name)
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	for _, u := range o.s.units {
		if strings.HasSuffix(string(object), "/"+escaped(u.name)) && name == "AllowedCPUs" {
			return dbus.MakeVariant(slices.Clone(append([]byte{}, u.cpus...))), nil
		}
	}
	return dbus.Variant{}, dbus.NewError("org.freedesktop.DBus.Error.UnknownObject", []any{string(object)})
}

// escaped is a unit's name in an object path.
func escaped(name string) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' && i > 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "_%x", c)
		}
	}
	return b.String()
}
