//go:build amd64 || arm64

package confine

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/cpi/counter"
	"github.com/quietcore/quietcore/internal/dirwatch"
)

// held is what the daemon opens before its calls are denied, and uses afterwards.
type held struct {
	dir     string
	counter *counter.Counter // nil: this machine cannot count
	locked  *os.File
}

func opened(r *report) *held {
	b := &held{}
	var err error
	if b.dir, err = os.MkdirTemp("", "confine"); err != nil {
		r.fail("%v", err)
		return b
	}
	if b.locked, err = os.Create(filepath.Join(b.dir, "lock")); err != nil {
		r.fail("%v", err)
	} else if err := unix.Flock(int(b.locked.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		r.fail("lock: %v", err)
	}
	if b.counter, err = counter.Open(cgroups()); err != nil {
		fmt.Println("counting was not tried:", err)
	}
	return b
}

// cgroups are where this machine has its cgroups, which are not written to.
func cgroups() counter.Options {
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return counter.Options{Root: root}
	}
	return counter.Options{Root: filepath.Join(root, "cpu"), V1: true}
}

// stillWorks does what the daemon does once its calls are denied.
func stillWorks(r *report, b *held) {
	defer os.RemoveAll(b.dir)
	defer b.locked.Close()
	for what, do := range map[string]func() error{
		"files":    b.files,
		"watching": b.watching,
		"unix":     func() error { return serves("unix", filepath.Join(b.dir, "socket")) },
		"tcp":      func() error { return serves("tcp", "127.0.0.1:0") },
		"addresses": func() error {
			_, err := net.InterfaceAddrs()
			return err
		},
		"a name": func() error {
			_, err := net.DefaultResolver.LookupHost(context.Background(), "localhost")
			return err
		},
		"uevents": uevents,
		"keys of TLS": func() error {
			_, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			return err
		},
		"threads": threads,
	} {
		if err := do(); err != nil {
			r.fail("%s: %v", what, err)
		}
	}
	signals(r)
	if b.counter == nil {
		return
	}
	err := countWith(b.counter)
	if denied := os.Getenv(filtered) != "counts"; denied && err == nil {
		_, err = counter.Open(cgroups())
		if !errors.Is(err, unix.EPERM) {
			r.fail("counting is begun: %v", err)
		}
	} else if !denied && err != nil {
		r.fail("counting: %v", err)
	}
}

// countWith has a counter count, and another one begin: the daemon begins anew when CPUs come and when it is told to.
func countWith(c *counter.Counter) error {
	if os.Getenv(filtered) != "counts" {
		return c.Close()
	}
	for range 2 {
		reading := new(counter.Reading)
		if err := errors.Join(c.Enable(nil), spin(), c.Read(reading), c.Disable(nil), c.Close()); err != nil {
			return err
		}
		var err error
		if c, err = counter.Open(cgroups()); err != nil {
			return err
		}
	}
	return c.Close()
}

func spin() error {
	for n := 0; n < 1e6; n++ {
		_ = fmt.Sprint()
	}
	return nil
}

// files are replaced as the daemon's state is.
func (b *held) files() error {
	f, err := os.CreateTemp(b.dir, "state")
	if err != nil {
		return err
	}
	_, err = f.WriteString("x")
	name := filepath.Join(b.dir, "state")
	err = errors.Join(err, f.Chmod(0o600), f.Sync(), f.Close(), os.Rename(f.Name(), name), os.Chmod(b.dir, 0o700))
	if text, read := os.ReadFile(name); read != nil || string(text) != "x" {
		err = errors.Join(err, fmt.Errorf("read %q: %w", text, read))
	}
	_, listed := os.ReadDir(b.dir)
	var free unix.Statfs_t
	return errors.Join(err, listed, unix.Statfs(b.dir, &free), unix.Flock(int(b.locked.Fd()), unix.LOCK_UN))
}

// watching a folder notices a file.
func (b *held) watching() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir := filepath.Join(b.dir, "watched")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	var unwatched error
	looks := 0
	dirwatch.Watch(ctx, []string{dir}, func(context.Context) {
		if looks++; looks >= 2 {
			cancel()
		} else if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
			unwatched = err
		}
	}, func(err error) { unwatched = err })
	if looks < 2 {
		return fmt.Errorf("looked %d times: %w", looks, unwatched)
	}
	if errors.Is(unwatched, unix.EMFILE) { // other processes have all watchers of this machine
		return nil
	}
	return unwatched
}

// serves answers a request to itself.
func serves(network, address string) error {
	l, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	defer l.Close()
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "answer") }))
	}()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, l.Addr().String())
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial}}
	defer client.CloseIdleConnections()
	answer, err := client.Get("http://daemon/")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if text, err := io.ReadAll(answer.Body); string(text) != "answer" {
		return fmt.Errorf("got %q: %w", text, err)
	}
	return nil
}

// uevents are what the kernel says of CPUs.
func uevents() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return err
	}
	return errors.Join(unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1}), unix.Close(fd))
}

// threads are made, interrupted by Go's own signals, and end.
func threads() error {
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			runtime.LockOSThread() // ends with the goroutine
			_ = spin()
			runtime.GC()
		})
	}
	all.Wait()
	return nil
}
