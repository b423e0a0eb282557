package systemd

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/godbus/dbus/v5"
)

// wire is a socket that answers every message, and keeps what it got: all that leaves the process.
type wire struct {
	t      *testing.T
	socket string
	got    chan string

	mu     sync.Mutex
	answer answer
}

type answer func(m *dbus.Message) (kind dbus.Type, body []any)

// answers has all messages to come answered so.
func (w *wire) answers(a answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = a
}

func listen(t *testing.T, name string) *wire {
	t.Helper()
	w := &wire{t: t, socket: filepath.Join(t.TempDir(), name), got: make(chan string, 100)}
	w.answers(func(*dbus.Message) (dbus.Type, []any) { return dbus.TypeMethodReply, nil })
	l, err := net.Listen("unix", w.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go w.serve(c)
		}
	}()
	return w
}

func (w *wire) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	if _, err := in.ReadByte(); err != nil { // the null byte
		return
	}
	for begun := false; !begun; {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		word, how, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case word == "AUTH" && how == "": // it asks for the ways
			_, err = io.WriteString(c, "REJECTED EXTERNAL\r\n")
		case word == "AUTH":
			_, err = io.WriteString(c, "OK 0123456789abcdef0123456789abcdef\r\n")
		case word == "BEGIN":
			begun = true
		default:
			_, err = io.WriteString(c, "ERROR\r\n")
		}
		if err != nil {
			return
		}
	}
	for {
		m, err := dbus.DecodeMessage(in)
		if err != nil {
			return
		}
		w.got <- text(m)
		w.mu.Lock()
		kind, body := w.answer(m)
		w.mu.Unlock()
		if m.Headers[dbus.FieldMember].Value() == "Hello" {
			body = []any{":1.7"}
		}
		if err := reply(m, kind, body).EncodeTo(c, binary.LittleEndian); err != nil {
			return
		}
	}
}

// text has all of a message that says what is asked for.
func text(m *dbus.Message) string {
	header := func(f dbus.HeaderField) string { return fmt.Sprint(m.Headers[f].Value()) }
	return fmt.Sprintf("%s %s %s %s.%s%v", m.Type, header(dbus.FieldDestination), header(dbus.FieldPath),
		header(dbus.FieldInterface), header(dbus.FieldMember), m.Body)
}

func reply(m *dbus.Message, kind dbus.Type, body []any) *dbus.Message {
	r := &dbus.Message{Type: kind, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldReplySerial: dbus.MakeVariant(m.Serial())}}
	if kind == dbus.TypeError {
		r.Headers[dbus.FieldErrorName] = dbus.MakeVariant("org.freedesktop.systemd1.NoSuchUnit")
	}
	if len(body) > 0 {
		r.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
	}
	return r
}

// left are the messages that left the process until now.
func (w *wire) left() (list []string) {
	for {
		select {
		case m := <-w.got:
			list = append(list, m)
		default:
			return list
		}
	}
}

func (w *wire) dial(ctx context.Context) *Conn {
	w.t.Helper()
	c, err := Dial(ctx, w.socket)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	return c
}

const unit = "kubepods-burstable-pod1.slice"

func number(n uint64) *uint64 { return &n }

// everything are all properties that can be set.
var everything = Properties{AllowedCPUs: []byte{0xf0}, AllowedMemoryNodes: []byte{}, CPUQuotaPerSecUSec: number(1),
	CPUQuotaPeriodUSec: number(2), CPUWeight: number(3)}

// TestEveryCallThatLeaves lists what this package can send, whatever is asked of it.
func TestEveryCallThatLeaves(t *testing.T) {
	ctx := t.Context()
	if n := reflect.TypeFor[Properties]().NumField(); n != 5 {
		t.Errorf("there are %d properties; all of them have to be tried here", n)
	}
	conn := reflect.TypeFor[*Conn]()
	var methods []string
	for i := range conn.NumMethod() {
		methods = append(methods, conn.Method(i).Name)
	}
	if want := []string{"AllowedCPUs", "Close", "Set", "Settled"}; !slices.Equal(methods, want) {
		t.Fatalf("Conn has the methods %q, want %q: all of them have to be tried here", methods, want)
	}
	const onUnit = "/org/freedesktop/systemd1/unit/kubepods_2dburstable_2dpod1_2eslice"
	const get = "org.freedesktop.DBus.Properties.Get"
	calls := []string{
		`method call org.freedesktop.systemd1 /org/freedesktop/systemd1 ` +
			`org.freedesktop.systemd1.Manager.SetUnitProperties[` + unit + ` true [[AllowedCPUs @ay [0xf0]] ` +
			`[AllowedMemoryNodes @ay []] [CPUQuotaPerSecUSec @t 1] [CPUQuotaPeriodUSec @t 2] [CPUWeight @t 3]]]`,
		`method call org.freedesktop.systemd1 /org/freedesktop/systemd1 ` + get +
			`[org.freedesktop.systemd1.Manager SystemState]`,
		`method call org.freedesktop.systemd1 ` + onUnit + ` ` + get + `[org.freedesktop.systemd1.Slice AllowedCPUs]`,
	}
	for name, first := range map[string][]string{
		"private": nil,
		"system_bus_socket": {
			`method call org.freedesktop.DBus /org/freedesktop/DBus org.freedesktop.DBus.Hello[]`},
	} {
		w := listen(t, name)
		w.answers(func(m *dbus.Message) (dbus.Type, []any) {
			switch text := text(m); {
			case strings.Contains(text, "SystemState"):
				return dbus.TypeMethodReply, []any{dbus.MakeVariant("running")}
			case strings.Contains(text, "AllowedCPUs]"):
				return dbus.TypeMethodReply, []any{dbus.MakeVariant([]byte{1, 2})}
			}
			return dbus.TypeMethodReply, nil
		})
		c := w.dial(ctx)
		for _, p := range []Properties{everything, {}} { // of nothing, nothing is sent
			if err := c.Set(ctx, unit, p); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Settled(ctx); err != nil {
			t.Fatal(err)
		}
		bits, err := c.AllowedCPUs(ctx, unit)
		if err != nil || !slices.Equal(bits, []byte{1, 2}) {
			t.Errorf("recorded %v, %v", bits, err)
		}
		c.Close()
		want := slices.Concat(first, calls)
		if got := w.left(); !slices.Equal(got, want) {
			t.Errorf("%s: what left was\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// TestUnitsThatAreLeftAlone: nothing leaves about what is no unit of pods.
func TestUnitsThatAreLeftAlone(t *testing.T) {
	ctx := t.Context()
	w := listen(t, "private")
	c := w.dial(ctx)
	for _, unit := range []string{"-.slice", "init.scope", "system.slice", "user.slice", "sshd.service", "a.mount",
		"a/b.slice", "slice", ""} {
		if err := c.Set(ctx, unit, everything); !errors.Is(err, ErrUnit) {
			t.Errorf("Set of %q: %v", unit, err)
		}
	}
	for _, unit := range []string{"a.mount", "a/b.slice", "slice", ""} {
		if _, err := c.AllowedCPUs(ctx, unit); !errors.Is(err, ErrUnit) {
			t.Errorf("AllowedCPUs of %q: %v", unit, err)
		}
	}
	if got := w.left(); len(got) > 0 {
		t.Errorf("what left was %q", got)
	}
}

func TestRefusals(t *testing.T) {
	ctx := t.Context()
	w := listen(t, "private")
	c := w.dial(ctx)
	w.answers(func(*dbus.Message) (dbus.Type, []any) { return dbus.TypeError, []any{"Unit x not loaded."} })
	_, err := c.AllowedCPUs(ctx, unit)
	for what, err := range map[string]error{"Set": c.Set(ctx, unit, everything), "Settled": c.Settled(ctx),
		"AllowedCPUs": err} {
		var refused *Refusal
		if !errors.As(err, &refused) || refused.Name != "org.freedesktop.systemd1.NoSuchUnit" ||
			refused.Error() != "Unit x not loaded." {
			t.Errorf("%s: %#v", what, err)
		}
	}
	w.answers(func(*dbus.Message) (dbus.Type, []any) {
		return dbus.TypeMethodReply, []any{dbus.MakeVariant("text")}
	})
	var refused *Refusal
	if _, err := c.AllowedCPUs(ctx, unit); !errors.As(err, &refused) || !strings.Contains(err.Error(), "want ay") {
		t.Errorf("a mask that is none: %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := c.Settled(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that gave up: %v", err)
	}
}

func TestEscaped(t *testing.T) {
	for unit, want := range map[string]string{
		"kubepods.slice": "kubepods_2eslice", "1a.scope": "_31a_2escope",
		"cri-containerd-0.scope": "cri_2dcontainerd_2d0_2escope",
	} {
		if got := escaped(unit); got != want || !dbus.ObjectPath("/"+got).IsValid() {
			t.Errorf("%s is %s, want %s", unit, got, want)
		}
	}
}
