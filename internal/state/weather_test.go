package state

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// mounted is a state directory on a file system of its own, of 32 KiB.
func mounted(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("quietcore", dir, "tmpfs", 0, "size=32k,mode=0700"); err != nil {
		if os.Getenv("QUIETCORE_CI") == "1" {
			t.Fatalf("mounting a file system: %v", err)
		}
		t.Skipf("needs to mount a file system, as root: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

func TestAFullDiskKeepsTheOldFileAndTheLock(t *testing.T) {
	dir := mounted(t)
	s := &Store{Dir: dir, Node: "n", Now: func() time.Time { return noon }}
	if err := s.Save(example()); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(dir, lockName+"-filler")
	full := fill(t, filler)
	bigger := example()
	bigger.Revision = 43
	if err := s.Save(bigger); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "save state") {
		t.Errorf("saving on a full disk: %v", err)
	}
	if got := s.Load(); got.Reason != "" || got.Snapshot.Revision != 42 || len(got.Snapshot.Pods) != 3 {
		t.Errorf("what was there is read as %+v", got)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("half a file is left: %v", left)
	}
	l, err := TakeLock(dir)
	if err != nil {
		t.Fatalf("no daemon starts on a full disk: %v", err)
	}
	defer l.Release()
	var busy *BusyError
	if _, err := TakeLock(dir); !errors.As(err, &busy) {
		t.Errorf("a second one: %v", err)
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(bigger); err != nil || s.Load().Snapshot.Revision != 43 {
		t.Errorf("with room again: %v", err)
	}
}

func TestAFolderThatIsDeletedIsMadeAnew(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "quietcore")
	if err := Prepare(dir); err != nil {
		t.Fatal(err)
	}
	s := &Store{Dir: dir, Node: "n", Now: func() time.Time { return noon }}
	if err := s.Save(example()); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(example()); err != nil {
		t.Fatal(err)
	}
	if got := s.Load(); got.Reason != "" || len(got.Snapshot.Pods) != 3 {
		t.Errorf("read as %+v", got)
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v", info, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(example()); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("a file in its place: %v", err)
	}
}

// fill leaves not a byte.
func fill(t *testing.T, name string) string {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	return name
}

func TestAReadOnlyFolder(t *testing.T) {
	for _, before := range []string{"with a lock", "without one"} {
		t.Run(before, func(t *testing.T) {
			dir := mounted(t)
			s := &Store{Dir: dir, Node: "n", Now: func() time.Time { return noon }}
			if err := s.Save(example()); err != nil {
				t.Fatal(err)
			}
			if before == "with a lock" {
				l, err := TakeLock(dir)
				if err != nil {
					t.Fatal(err)
				}
				if err := l.Release(); err != nil {
					t.Fatal(err)
				}
			}
			if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
				t.Fatal(err)
			}
			l, err := TakeLock(dir)
			if err != nil {
				t.Fatalf("no daemon starts: %v", err)
			}
			defer l.Release()
			if got := s.Load(); got.Reason != "" || len(got.Snapshot.Pods) != 3 {
				t.Errorf("read as %+v", got)
			}
			if err := s.Save(example()); !errors.Is(err, unix.EROFS) {
				t.Errorf("saving: %v", err)
			}
			// One that starts when it can be written again meets the one that holds it.
			if err := unix.Mount("", dir, "", unix.MS_REMOUNT, ""); err != nil {
				t.Fatal(err)
			}
			var busy *BusyError
			if _, err := TakeLock(dir); !errors.As(err, &busy) {
				t.Errorf("a second one: %v", err)
			}
		})
	}
}

// A cap ends when its time has passed, whatever the clock is set to.
func TestDeadlinesAndAClockThatJumps(t *testing.T) {
	day := 24 * time.Hour
	for _, c := range []struct {
		name          string
		jump, passed  time.Duration // of the clock, and really
		before, after time.Duration // uptime known, at the save and at the load
		left          time.Duration
	}{
		{"no jump", 0, 2 * time.Minute, time.Hour, time.Hour + 2*time.Minute, 3 * time.Minute},
		{"a day forward", day, 2 * time.Minute, time.Hour, time.Hour + 2*time.Minute, 3 * time.Minute},
		{"a day back", -day, 2 * time.Minute, time.Hour, time.Hour + 2*time.Minute, 3 * time.Minute},
		{"it is over, and the clock was put back", -day, 7 * time.Minute, time.Hour, time.Hour + 7*time.Minute,
			-2 * time.Minute},
		{"nobody knows the uptime, a day back", -day, 2 * time.Minute, 0, 0, 5 * time.Minute},
		{"nobody knows the uptime, no jump", 0, 2 * time.Minute, 0, 0, 3 * time.Minute},
		{"the uptime is of another boot", -day, 2 * time.Minute, time.Hour, time.Minute, 5 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			now, up := noon, c.before
			s := store(t)
			s.Now = func() time.Time { return now }
			s.Uptime = func() time.Duration { return up }
			if err := s.Save(example()); err != nil {
				t.Fatal(err)
			}
			now, up = noon.Add(c.passed+c.jump), c.after
			caps := s.Load().Snapshot.Caps
			if len(caps) != 1 || caps[0].Until.Sub(now) != c.left {
				t.Errorf("it runs for %s more, want %s", caps[0].Until.Sub(now), c.left)
			}
		})
	}
	for _, until := range []time.Time{noon, {}} { // it ends as it is saved; it is over
		saved := example()
		saved.Caps[0].Until = until
		put := noon.Add(-day) // the clock was put back
		now := saved.Stamped(noon, time.Hour).Timed(put, time.Hour+time.Minute)
		if got := now.Caps[0]; got.Until.After(put) || got.Until.IsZero() != until.IsZero() || got.Left != 0 {
			t.Errorf("one that ended at %s ends at %s, with %s left", until, got.Until, got.Left)
		}
	}
	if a := Uptime(); a <= 0 || Uptime() < a {
		t.Errorf("the machine is up for %s", a)
	}
}

// Of a daemon that wrote no time left its deadline is taken by the clock.
func TestDeadlinesOfAnOlderDaemon(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "v1.json"))
	if err != nil {
		t.Fatal(err)
	}
	s := store(t)
	s.BootID = "boot-1"
	if err := os.WriteFile(filepath.Join(s.Dir, fileName), text, 0o600); err != nil {
		t.Fatal(err)
	}
	got := s.Load()
	if got.Reason != "" || len(got.Snapshot.Caps) != 1 || !got.Snapshot.Caps[0].Until.Equal(noon.Add(5*time.Minute)) {
		t.Errorf("%+v", got)
	}
}
