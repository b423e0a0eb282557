package machine

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/e2e/kubelet"
)

func TestRootTreeArchive(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"usr/bin/systemctl": "x", "usr/bin/perl5": "x", "usr/share/doc/a": "x", "usr/share/dbus-1/system.conf": "x",
		"usr/lib/systemd/system/dbus.socket": "x", "usr/lib/systemd/system/sysinit.target.wants/a": "x",
		"var/cache/apt/a": "x", "etc/rc2.d/a": "x", "etc/passwd": "x", "run/leftover": "x",
	} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("usr/bin", filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	c := newCpio(&buf)
	if err := c.tree(dir, keepInRoot); err != nil {
		t.Fatal(err)
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
	got := readCpio(t, buf.Bytes())
	maps.DeleteFunc(got, func(_, entry string) bool { return strings.HasPrefix(entry, "40755:") })
	want := map[string]string{
		"bin": "120777:usr/bin", "usr/bin/systemctl": "100640:x", "usr/share/dbus-1/system.conf": "100640:x",
		"usr/lib/systemd/system/dbus.socket": "100640:x", "etc/passwd": "100640:x",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// A directory in a later archive replaces a link of an earlier one, and with lib
// the whole of Debian's userland would be gone.
func TestBaseLeavesTheRootTreesLinks(t *testing.T) {
	data, err := baseArchive(Kind{kubelet.Systemd, CRIO, Bookworm}, unitLinks())
	if err != nil {
		t.Fatal(err)
	}
	entries := readCpio(t, data)
	for _, link := range []string{"bin", "sbin", "lib", "lib64", "var/run", "var/lock"} {
		if entry, there := entries[link]; there {
			t.Errorf("%s is %q", link, entry)
		}
	}
	if entries["etc/systemd/system/systemd-udevd.service"] != "120777:/dev/null" {
		t.Error("udev is not masked")
	}
}

func TestGuestsOfBothDrivers(t *testing.T) {
	for driver, init := range map[kubelet.Driver]string{
		kubelet.Cgroupfs: "exec /usr/bin/init",
		kubelet.Systemd:  "exec /usr/lib/systemd/systemd",
	} {
		etc := guestEtc(Kind{driver, Containerd, Bookworm})
		if got := rcScript(driver, false); !strings.HasSuffix(got, init+"\n") {
			t.Errorf("%s: the start ends otherwise than with %s", driver, init)
		}
		card := rcScript(driver, true)
		if !strings.HasSuffix(card, init+"\n") || strings.Index(card, "virtio_net") > strings.Index(card,
			GuestAddress) {
			t.Errorf("%s: a guest with a card starts with\n%s", driver, card)
		}
		_, units := etc["etc/systemd/system/agent.service"]
		if units != (driver == kubelet.Systemd) {
			t.Errorf("%s: has units: %t", driver, units)
		}
		for n := range busyboxEtc {
			if _, there := etc[n]; there != (driver == kubelet.Cgroupfs) {
				t.Errorf("%s: %s: %t", driver, n, there)
			}
		}
	}
}

func TestOnceLeavesNothingHalf(t *testing.T) {
	b := &builder{dir: t.TempDir(), progress: &bytes.Buffer{}}
	broken := os.ErrDeadlineExceeded
	_, err := b.once("thing", func(tmp string) error {
		if err := os.WriteFile(filepath.Join(tmp, "half"), nil, 0o644); err != nil {
			return err
		}
		return broken
	})
	if err == nil {
		t.Fatal("no error from a broken build")
	}
	if left, err := os.ReadDir(b.dir); err != nil || len(left) > 0 {
		t.Errorf("%v left behind (%v)", left, err)
	}
	if err := os.Mkdir(filepath.Join(b.dir, making+"thing-1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := b.clear(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(b.dir); err != nil || len(left) > 0 {
		t.Errorf("%v left of a killed build (%v)", left, err)
	}
	dir, err := b.once("thing", func(tmp string) error { return os.WriteFile(filepath.Join(tmp, "whole"), nil, 0o644) })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "whole")); err != nil {
		t.Error(err)
	}
	again, err := b.once("thing", func(string) error { return broken })
	if err != nil || again != dir {
		t.Errorf("made again: %s, %v", again, err)
	}
}
