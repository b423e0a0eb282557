package config

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

type reload struct {
	c   *Config
	err error
}

// watched starts a watch whose quiet time is over at once.
func watched(t *testing.T, name string) <-chan reload {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	got, done := make(chan reload), make(chan error, 1)
	elapsed := make(chan time.Time)
	close(elapsed)
	go func() {
		done <- watch(ctx, name, func(c *Config, err error) {
			select {
			case got <- reload{c, err}:
			case <-ctx.Done():
			}
		}, func(time.Duration) <-chan time.Time { return elapsed })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		goleak.VerifyNone(t)
	})
	return got
}

func next(t *testing.T, got <-chan reload) reload {
	t.Helper()
	select {
	case r := <-got:
		return r
	case <-time.After(30 * time.Second):
		t.Fatal("no reload within 30 s")
		return reload{}
	}
}

// replace writes a file as editors do: next to it, then renamed over it. Reading
// in between is then not part of the test.
func replace(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

func TestWatchKeepsTheLastGoodFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "config.yaml")
	replace(t, name, head)
	got := watched(t, name)
	if r := next(t, got); r.err != nil || r.c.Mode != Enforce {
		t.Fatalf("at the start: %+v", r)
	}
	replace(t, name, head+"mode: observe")
	if r := next(t, got); r.err != nil || r.c.Mode != Observe {
		t.Fatalf("after a change: %+v", r)
	}
	replace(t, name, head+"mode: obscure")
	if r := next(t, got); r.c != nil || r.err == nil || !strings.Contains(r.err.Error(), `"obscure"`) {
		t.Fatalf("a bad file: %+v", r)
	}
	// The same text as before the mistake says that all is well again.
	replace(t, name, head+"mode: observe")
	if r := next(t, got); r.err != nil || r.c.Mode != Observe {
		t.Fatalf("repaired: %+v", r)
	}
	// A comment changes nothing, so the next event is the removal.
	replace(t, name, head+"mode: observe # quietly")
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if r := next(t, got); r.c != nil || r.err == nil || !strings.Contains(r.err.Error(), "no such file") {
		t.Fatalf("removed: %+v", r)
	}
	replace(t, name, head)
	if r := next(t, got); r.err != nil || r.c.Mode != Enforce {
		t.Fatalf("back again: %+v", r)
	}
}

// A mounted ConfigMap: config.yaml -> ..data/config.yaml, ..data -> ..N, and an
// update swaps ..data by a rename.
func TestWatchSeesAConfigMapSwap(t *testing.T) {
	dir := t.TempDir()
	version := func(name, text string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "config.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(name, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("..1", head)
	name := filepath.Join(dir, "config.yaml")
	if err := os.Symlink("..data/config.yaml", name); err != nil {
		t.Fatal(err)
	}
	got := watched(t, name)
	if r := next(t, got); r.err != nil || r.c.Mode != Enforce {
		t.Fatalf("at the start: %+v", r)
	}
	version("..2", head+"mode: observe")
	if r := next(t, got); r.err != nil || r.c.Mode != Observe {
		t.Fatalf("after the swap: %+v", r)
	}
	if err := os.RemoveAll(filepath.Join(dir, "..1")); err != nil {
		t.Fatal(err)
	}
	version("..3", head+"mode: enforce")
	if r := next(t, got); r.err != nil || r.c.Mode != Enforce {
		t.Fatalf("after the second swap: %+v", r)
	}
}

func TestWatchOfADirectoryThatIsNotThere(t *testing.T) {
	err := Watch(t.Context(), filepath.Join(t.TempDir(), "none", "config.yaml"), func(*Config, error) {})
	if err == nil || !strings.Contains(err.Error(), "will not be reloaded") {
		t.Fatal(err)
	}
}
