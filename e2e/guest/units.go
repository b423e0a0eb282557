package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"

	"github.com/quietcore/quietcore/e2e/wire"
)

// bus keeps one connection to systemd, made when it is first needed and again
// after it was lost.
type bus struct {
	mu   sync.Mutex
	conn *systemd.Conn
}

func (b *bus) get(ctx context.Context) (*systemd.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil && b.conn.Connected() {
		return b.conn, nil
	}
	// The connection outlives the request that asked for it.
	conn, err := systemd.NewWithContext(context.WithoutCancel(ctx))
	if err != nil {
		return nil, fmt.Errorf("connect to systemd: %w", err)
	}
	b.conn = conn
	return conn, nil
}

func (b *bus) units(req *wire.Request) (*wire.Response, error) {
	ctx, cancel := timeout(req)
	defer cancel()
	conn, err := b.get(ctx)
	if err != nil {
		return nil, err
	}
	resp := &wire.Response{}
	for _, a := range req.Units {
		res, err := unitAction(ctx, conn, a)
		if err != nil {
			return resp, fmt.Errorf("%s %s: %w", a.Do, a.Name, err)
		}
		resp.Units = append(resp.Units, res)
	}
	return resp, nil
}

func unitAction(ctx context.Context, conn *systemd.Conn, a wire.UnitAction) (res wire.UnitResult, err error) {
	switch a.Do {
	case wire.UnitStart:
		err = job(ctx, func(done chan<- string) error {
			_, err := conn.StartTransientUnitContext(ctx, a.Name, "replace", properties(a.Properties), done)
			return err
		})
		if named(err, "org.freedesktop.systemd1.UnitExists") {
			err = nil
		}
	case wire.UnitSet:
		err = conn.SetUnitPropertiesContext(ctx, a.Name, true, properties(a.Properties)...)
	case wire.UnitStop:
		err = job(ctx, func(done chan<- string) error {
			_, err := conn.StopUnitContext(ctx, a.Name, "replace", done)
			return err
		})
		if named(err, "org.freedesktop.systemd1.NoSuchUnit") {
			return res, nil
		}
		// Only a failed unit needs it, and systemd refuses it for any other.
		_ = conn.ResetFailedUnitContext(ctx, a.Name)
	case wire.UnitList:
		var units []systemd.UnitStatus
		units, err = conn.ListUnitsByPatternsContext(ctx, nil, []string{a.Name})
		for _, u := range units {
			res.Names = append(res.Names, u.Name)
		}
	case wire.UnitReload:
		err = conn.ReloadContext(ctx)
	default:
		err = fmt.Errorf("unknown unit action %q", a.Do)
	}
	return res, err
}

// job waits for what start began, as kubelet does.
func job(ctx context.Context, start func(done chan<- string) error) error {
	done := make(chan string, 1)
	if err := start(done); err != nil {
		return err
	}
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("systemd's job ended with %q", result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("systemd's job did not end: %w", ctx.Err())
	}
}

func named(err error, name string) bool {
	var refused dbus.Error
	return errors.As(err, &refused) && refused.Name == name
}

func properties(list []wire.Property) []systemd.Property {
	out := make([]systemd.Property, len(list))
	for i, p := range list {
		out[i] = systemd.Property{Name: p.Name, Value: variant(p)}
	}
	return out
}

func variant(p wire.Property) dbus.Variant {
	switch {
	case p.Bool != nil:
		return dbus.MakeVariant(*p.Bool)
	case p.Uint != nil:
		return dbus.MakeVariant(*p.Uint)
	case p.Strings != nil:
		return dbus.MakeVariant(p.Strings)
	case p.Bytes != nil:
		return dbus.MakeVariant(p.Bytes)
	default:
		return dbus.MakeVariant(p.Text)
	}
}
