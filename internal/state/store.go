package state

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

const (
	fileName    = "state.json"
	lockName    = "lock"
	badPrefix   = fileName + ".corrupt-"
	keptBad     = 5
	badTimeForm = "20060102T150405.000000000Z"
)

// Store is the state file of one node. Load and Save must not be called concurrently.
type Store struct {
	Dir    string
	Node   string // empty: unknown, not compared
	BootID string // empty: unknown, not compared
	Now    func() time.Time
	Uptime func() time.Duration // of the machine; nil: unknown
	// At is called at each stage of a Save, for tests that kill it there; may be nil.
	At func(Stage)

	syncDir func(dir string) error // nil: syncDir
}

// Stage is a stage of a Save.
type Stage string

const (
	Begun   Stage = "begun"   // nothing is on disk
	Written Stage = "written" // in a temporary file
	Renamed Stage = "renamed" // in place
	Synced  Stage = "synced"  // and it survives all that it has to
)

func (s *Store) at(stage Stage) {
	if s.At != nil {
		s.At(stage)
	}
}

// Loaded is what a start has read.
type Loaded struct {
	Snapshot Snapshot
	// Reason is why Snapshot is empty although there was a file; "" if the file is used or there
	// was none.
	Reason string
	// Aside is the new name of a bad file, "" for none.
	Aside string
	// Rebooted means that the file is from an earlier boot: the containers in it are gone, and
	// their caps with them.
	Rebooted bool
}

// ReadBootID returns the ID of this boot of the kernel, "" if it cannot be read.
func ReadBootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// Prepare creates the directory, accessible only to us.
func Prepare(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("state directory %s is %s, must be a directory and no link to one", dir, info.Mode().Type())
	}
	if info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	if err := onlyOurs(dir); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("state directory %s has mode %04o, must be 0700: %w", dir, info.Mode().Perm(), err)
	}
	return nil
}

// ours are the files that the daemon keeps in its directory: this package's and those of its other
// parts. Each has companions with longer names.
var ours = []string{fileName, LearnedFile, TestsFile, IncidentsFile, LendingFile, ModeFile, PolicyFile,
	DayFile}

// Files of other programs in the state directory.
const (
	LearnedFile   = "learned.json"
	TestsFile     = "tests.json" // what the detector by experiment learned, and its evidence
	IncidentsFile = "incidents.db"
	LendingFile   = "lending.json"
	ModeFile      = "mode.json"   // what was said of the mode beside the configuration
	PolicyFile    = "policy.json" // the QuietcorePolicy in force
	DayFile       = "day.json"    // what `quietcore report` is made of
)

// onlyOurs prevents a mistyped path, such as /var/lib, from being closed to every other user.
func onlyOurs(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	for _, e := range entries {
		n := strings.TrimPrefix(e.Name(), ".")
		if n != lockName && !slices.ContainsFunc(ours, func(file string) bool { return strings.HasPrefix(n, file) }) {
			return fmt.Errorf(
				"state directory %s is open to others and holds %q: give quietcore a directory of its own, mode 0700",
				dir, n)
		}
	}
	return nil
}

// Load reads the file. It always returns a usable snapshot.
func (s *Store) Load() Loaded {
	s.dropUnfinished()
	text, err := read(filepath.Join(s.Dir, fileName))
	if errors.Is(err, fs.ErrNotExist) {
		return Loaded{}
	}
	if err != nil {
		return s.putAside(err)
	}
	e, snapshot, err := decode(text)
	switch {
	case err != nil:
		return s.putAside(err)
	case s.Node != "" && e.Node != "" && e.Node != s.Node:
		return s.putAside(fmt.Errorf("is of node %.253q, this is %q", e.Node, s.Node))
	case s.BootID != "" && e.BootID != "" && e.BootID != s.BootID:
		return Loaded{Rebooted: true, Reason: fmt.Sprintf("the node was started anew after %s: what ran then is gone",
			e.SavedAt.Format(time.RFC3339))}
	}
	return Loaded{Snapshot: snapshot.Timed(s.Now(), s.uptime())}
}

// Stamped adds to the snapshot what a later Timed needs: now is the wall clock's time, up the
// machine's uptime, 0 if unknown.
func (s Snapshot) Stamped(now time.Time, up time.Duration) Snapshot {
	s.Caps = slices.Clone(s.Caps)
	for i := range s.Caps {
		if c := &s.Caps[i]; !c.Until.IsZero() {
			c.Left = cmp.Or(c.Until.Sub(now), -1) // 0 would mean unknown
		}
	}
	s.Uptime = up
	return s
}

// Timed sets the deadlines of the snapshot's caps by the current clock. Their remaining time runs
// by the machine's uptime; if that is unknown and the clock was set back, they run once more at
// most.
func (s Snapshot) Timed(now time.Time, up time.Duration) Snapshot {
	passed := time.Duration(-1)
	if up > 0 && s.Uptime > 0 {
		passed = up - s.Uptime
	}
	s.Caps = slices.Clone(s.Caps)
	for i := range s.Caps {
		c := &s.Caps[i]
		if c.Left == 0 {
			continue // it has ended, or the daemon did not record it
		}
		if latest := now.Add(c.Left); passed < 0 && c.Until.After(latest) {
			c.Until = latest
		}
		if passed >= 0 {
			c.Until = now.Add(c.Left - passed)
		}
		c.Left = 0
	}
	s.Uptime = 0
	return s
}

func (s *Store) uptime() time.Duration {
	if s.Uptime == nil {
		return 0
	}
	return s.Uptime()
}

// Uptime is the machine's uptime, including suspend; it cannot be set.
func Uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// read refuses links and everything that is not a regular file.
func read(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, errors.New("is a symbolic link")
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("is %s, not a file", info.Mode().Type())
	}
	return io.ReadAll(io.LimitReader(f, maxBytes+1))
}

// putAside renames a bad file, so that people can look at it and the next save does not overwrite
// it.
func (s *Store) putAside(why error) Loaded {
	l := Loaded{Reason: why.Error()}
	aside := badPrefix + s.Now().UTC().Format(badTimeForm)
	if err := os.Rename(filepath.Join(s.Dir, fileName), filepath.Join(s.Dir, aside)); err != nil {
		l.Reason += fmt.Sprintf(" (and could not be put aside: %v)", err)
		return l
	}
	l.Aside = filepath.Join(s.Dir, aside)
	s.dropOldest()
	return l
}

func (s *Store) dropOldest() {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return // this only wastes disk space
	}
	var bad []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), badPrefix) {
			bad = append(bad, e.Name())
		}
	}
	slices.Sort(bad) // by time, since the names end with it
	for _, name := range bad[:max(0, len(bad)-keptBad)] {
		_ = os.RemoveAll(filepath.Join(s.Dir, name))
	}
}

// dropUnfinished removes the temporary file of a save that was killed before its rename.
func (s *Store) dropUnfinished() {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return // read will report the same
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "."+fileName) {
			_ = os.RemoveAll(filepath.Join(s.Dir, e.Name()))
		}
	}
}

// Save replaces the file atomically: after a crash at any time there is either the old file or the
// new one. Which one it is after a power failure is of no interest where that is noticed: the boot is another one, and
// Load takes neither.
func (s *Store) Save(snapshot Snapshot) error {
	text, err := encode(snapshot.Stamped(s.Now(), s.uptime()), s.Node, s.BootID, s.Now())
	if err != nil {
		return err
	}
	s.at(Begun)
	name := filepath.Join(s.Dir, fileName)
	f, err := s.pending(name)
	if err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	defer func() { _ = f.Cleanup() }()
	if _, err := f.Write(text); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	s.at(Written)
	if err := f.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	s.at(Renamed)
	if s.BootID == "" {
		sync := s.syncDir
		if sync == nil {
			sync = syncDir
		}
		if err := sync(s.Dir); err != nil {
			return err
		}
	}
	s.at(Synced)
	return nil
}

// pending makes the directory anew where somebody has deleted it: what is saved is then as good as before.
func (s *Store) pending(name string) (*renameio.PendingFile, error) {
	options := []renameio.Option{renameio.WithTempDir(s.Dir), renameio.WithStaticPermissions(0o600)}
	f, err := renameio.NewPendingFile(name, options...)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if err := Prepare(s.Dir); err != nil {
		return nil, err
	}
	return renameio.NewPendingFile(name, options...)
}

// syncDir makes the rename itself survive a power failure.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("save state: sync %s: %w", dir, err)
	}
	return nil
}
