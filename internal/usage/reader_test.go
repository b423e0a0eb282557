package usage

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/internal/cgroup"
)

// burn, in the environment, makes the test program a process that uses that much
// CPU time once its standard input ends, and says how much it was.
const burnVariable = "QUIETCORE_TEST_BURN"

func TestMain(m *testing.M) {
	if text := os.Getenv(burnVariable); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			panic(err)
		}
		var b [1]byte
		os.Stdin.Read(b[:])
		for end := used() + d; used() < end; {
		}
		fmt.Println(used())
		return
	}
	os.Exit(m.Run())
}

// used is the CPU time of this process.
func used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// tree is a hierarchy of plain files.
type tree struct {
	tb   testing.TB
	root string
	v1   bool
}

func newTree(tb testing.TB, v1 bool) tree {
	t := tree{tb, tb.TempDir(), v1}
	if v1 {
		for _, name := range []string{"cpu,cpuacct"} {
			t.check(os.Mkdir(filepath.Join(t.root, name), 0o755))
		}
	}
	return t
}

func (t tree) check(err error) {
	t.tb.Helper()
	if err != nil {
		t.tb.Fatal(err)
	}
}

func (t tree) dir(path string) string {
	if t.v1 {
		return filepath.Join(t.root, "cpu,cpuacct", path)
	}
	return filepath.Join(t.root, path)
}

// put makes a cgroup that used so many microseconds.
func (t tree) put(path string, micros int) {
	t.tb.Helper()
	dir := t.dir(path)
	t.check(os.MkdirAll(dir, 0o755))
	files := map[string]string{
		"cpu.stat": fmt.Sprintf(
			"usage_usec %d\nuser_usec 1\nsystem_usec 1\nnice_usec 0\nnr_periods 70\nnr_throttled 3\nthrottled_usec "+
				"4000\nnr_bursts 0\nburst_usec 0\n", micros),
		"cpu.pressure": fmt.Sprintf(
			"some avg10=1.00 avg60=0.00 avg300=0.00 total=%d\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
			micros/2),
	}
	if t.v1 {
		files = map[string]string{"cpu.stat": "nr_periods 70\nnr_throttled 3\nthrottled_time 4000000\n",
			"cpuacct.usage": fmt.Sprintln(micros * 1000)}
	}
	for name, text := range files {
		t.check(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
}

func (t tree) open(keep int) *Reader {
	t.tb.Helper()
	r, err := Open(Options{Root: t.root, V1: t.v1, KeepOpen: keep, Now: func() time.Time { return time.Unix(7, 0) }})
	t.check(err)
	t.tb.Cleanup(func() { r.Close() })
	return r
}

func one(t *testing.T, r *Reader, id string) Reading {
	t.Helper()
	for _, v := range r.Read(nil) {
		if v.ID == id {
			return v
		}
	}
	t.Fatalf("no reading of %s", id)
	return Reading{}
}

func TestReadings(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		for _, keep := range []int{1, 100} {
			t.Run(fmt.Sprintf("v1=%v keep=%d", v1, keep), func(t *testing.T) {
				tree := newTree(t, v1)
				tree.put("kubepods/pod1", 1_500_000)
				r := tree.open(keep)
				tree.check(r.Follow("one", "/kubepods/pod1"))
				tree.check(r.Follow("later", "kubepods/pod2"))
				want := Reading{ID: "one", At: time.Unix(7, 0), CPU: 1500 * time.Millisecond, Periods: 70,
					Throttled: 3, Stopped: 4 * time.Millisecond, Quota: true}
				if !v1 {
					want.Waiting, want.Pressure = 750*time.Millisecond, true
				}
				if got := one(t, r, "one"); got != want {
					t.Errorf("got %+v, want %+v", got, want)
				}
				if got := one(t, r, "later"); !errors.Is(got.Err, cgroup.ErrGone) || got.CPU != 0 {
					t.Errorf("a cgroup that is not there: %+v", got)
				}
				tree.put("kubepods/pod2", 5)
				if got := one(t, r, "later"); got.Err != nil || got.CPU != 5*time.Microsecond {
					t.Errorf("a cgroup that is there now: %+v", got)
				}
				// A total that goes back is reported as it is.
				tree.put("kubepods/pod1", 1_000)
				if got := one(t, r, "one"); got.CPU != time.Millisecond {
					t.Errorf("after the total went back: %+v", got)
				}
				r.Forget("one")
				r.Forget("nobody")
				if got := r.Read(nil); len(got) != 1 || got[0].ID != "later" {
					t.Errorf("after forgetting: %+v", got)
				}
				tree.check(r.Follow("later", "kubepods/pod1"))
				if got := r.Read(nil); len(got) != 1 || got[0].CPU != time.Millisecond {
					t.Errorf("after moving: %+v", got)
				}
				if r.open > keep {
					t.Errorf("%d files are open, at most %d", r.open, keep)
				}
			})
		}
	}
}

func TestRootOfTheHierarchy(t *testing.T) {
	tree := newTree(t, false)
	tree.put(".", 9)
	r := tree.open(0)
	tree.check(r.Follow("node", "/"))
	if got := one(t, r, "node"); got.CPU != 9*time.Microsecond {
		t.Errorf("got %+v", got)
	}
}

func TestBadFiles(t *testing.T) {
	tree := newTree(t, false)
	r := tree.open(0)
	tree.check(r.Follow("a", "a"))
	for _, c := range []struct{ stat, pressure, want string }{
		{"", "some total=1", "usage_usec"},
		{"usage_usec -1\n", "some total=1", "not a number"},
		{"usage_usec 99999999999999999999999\n", "some total=1", "not a number"},
		{"usage_usec 18446744073709551615\n", "some total=1", "not a number"},
		{"usage_usec 1\nnr_periods x\n", "some total=1", "not a number"},
		{"usage_usec 1\n", "", "some"},
		{"usage_usec 1\n", "full avg10=0 total=1\n", "some"},
		{"usage_usec 1\n", "some avg10=0 total=\n", "not a number"},
		{"usage_usec 1\n" + strings.Repeat("x", 5000), "some total=1", "longer"},
	} {
		tree.put("a", 1)
		tree.check(os.WriteFile(filepath.Join(tree.dir("a"), "cpu.stat"), []byte(c.stat), 0o644))
		tree.check(os.WriteFile(filepath.Join(tree.dir("a"), "cpu.pressure"), []byte(c.pressure), 0o644))
		got := one(t, r, "a")
		if got.Err == nil || !strings.Contains(got.Err.Error(), c.want) || len(got.Err.Error()) > 200 || got.CPU != 0 {
			t.Errorf("%.40q, %.40q: %+v, want an error with %q", c.stat, c.pressure, got, c.want)
		}
	}
	tree.put("a", 1)
	if got := one(t, r, "a"); got.Err != nil {
		t.Errorf("after the files are right again: %v", got.Err)
	}
	// A kernel without PSI has no such file.
	tree.check(os.Remove(filepath.Join(tree.dir("a"), "cpu.pressure")))
	tree.check(r.Follow("a", "a"))
	if got := one(t, r, "a"); got.Err != nil || got.Pressure || got.CPU != time.Microsecond {
		t.Errorf("without PSI: %+v", got)
	}
	// A controller that is not enabled has no periods.
	tree.check(os.WriteFile(filepath.Join(tree.dir("a"), "cpu.stat"), []byte("usage_usec 5"), 0o644))
	if got := one(t, r, "a"); got.Err != nil || got.Quota || got.CPU != 5*time.Microsecond {
		t.Errorf("without the controller: %+v", got)
	}
}

func TestNoPathLeavesTheHierarchy(t *testing.T) {
	tree := newTree(t, false)
	tree.put("a", 1)
	tree.check(os.Symlink("a", filepath.Join(tree.root, "link")))
	tree.check(os.Symlink("/proc", filepath.Join(tree.root, "out")))
	r := tree.open(0)
	for _, bad := range []string{"", "../x", "a/../b", "a//b", "a/./b", strings.Repeat("a", 300), "a\x00b"} {
		if err := r.Follow("x", bad); err == nil {
			t.Errorf("%.20q was accepted", bad)
		}
	}
	tree.check(r.Follow("link", "link"))
	if got := one(t, r, "link"); got.Err == nil {
		t.Error("read through a symbolic link")
	}
	if fd, err := openBeneath(int(r.hierarchy[statFile].Fd()), "out/stat"); err == nil {
		unix.Close(fd)
		t.Error("opened a file outside of the hierarchy")
	}
	// The way for old kernels refuses the same.
	dir := int(r.hierarchy[statFile].Fd())
	for path, ok := range map[string]bool{"a/cpu.stat": true, "link/cpu.stat": false, "out/stat": false,
		"b/cpu.stat": false} {
		fd, err := walkBeneath(dir, path)
		if (err == nil) != ok {
			t.Errorf("%s: %v", path, err)
		}
		if err == nil {
			unix.Close(fd)
		}
	}
	if _, err := Open(Options{Root: filepath.Join(tree.root, "nothing")}); err == nil {
		t.Error("a hierarchy that is not there was opened")
	}
	if _, err := Open(Options{Root: tree.root, V1: true}); err == nil {
		t.Error("a v1 hierarchy that is not there was opened")
	}
}

func TestAPassAllocatesNothing(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		tree := newTree(t, v1)
		r := tree.open(0)
		for i := range 10 {
			path := fmt.Sprint("pod", i)
			tree.put(path, i)
			tree.check(r.Follow(path, path))
		}
		readings := r.Read(nil)
		if n := testing.AllocsPerRun(10, func() {
			readings = r.Read(readings[:0])
		}); n > 0 || len(readings) != 10 || readings[0].Err != nil {
			t.Errorf("v1 %t: a pass over 10 cgroups allocates %v times and reads %d, %v", v1, n, len(readings),
				readings[0].Err)
		}
	}
}

// kernelTree is a real hierarchy with a folder of our own.
type kernelTree struct {
	root    string
	v1      bool
	path    string // below each hierarchy
	folders []string
}

// realTrees returns what this machine has of cgroup v1 and v2. It needs root.
func realTrees(tb testing.TB) []kernelTree {
	const mount = "/sys/fs/cgroup"
	path := fmt.Sprintf("quietcore-usage-test-%d", os.Getpid())
	var trees []kernelTree
	for _, c := range []struct {
		root    string
		v1      bool
		folders []string
	}{
		{mount, true, []string{"cpu", "cpuacct"}},
		{mount, true, []string{"cpu,cpuacct"}},
		{mount, false, []string{"."}},
		{mount + "/unified", false, []string{"."}},
	} {
		t := kernelTree{root: c.root, v1: c.v1, path: path}
		for _, f := range c.folders {
			dir := filepath.Join(c.root, f)
			file := filepath.Join(dir, "cgroup.procs")
			if info, err := os.Lstat(dir); err != nil || info.Mode()&os.ModeSymlink != 0 {
				break
			}
			if _, err := os.Stat(file); err != nil {
				break
			}
			t.folders = append(t.folders, filepath.Join(dir, path))
		}
		if len(t.folders) != len(c.folders) {
			continue
		}
		made := true
		for _, dir := range t.folders {
			if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
				made = false
			}
			tb.Cleanup(func() { os.Remove(dir) })
		}
		if made {
			trees = append(trees, t)
		}
	}
	if len(trees) == 0 {
		if os.Getenv("QUIETCORE_CI") == "1" {
			tb.Fatal("no cgroup can be made here; CI runs as root with cgroups mounted")
		}
		tb.Skip("needs root and a cgroup hierarchy at /sys/fs/cgroup")
	}
	return trees
}

// TestRealKernel compares the reading of a cgroup with what a process in it says
// that it used, and lets the cgroup vanish and come back.
func TestRealKernel(t *testing.T) {
	for _, tree := range realTrees(t) {
		t.Run(fmt.Sprintf("%s v1=%v", tree.root, tree.v1), func(t *testing.T) {
			r, err := Open(Options{Root: tree.root, V1: tree.v1})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if err := r.Follow("pod", tree.path); err != nil {
				t.Fatal(err)
			}
			before := one(t, r, "pod")
			if before.Err != nil {
				t.Fatal(before.Err)
			}
			says := burnIn(t, tree, 300*time.Millisecond)
			after := one(t, r, "pod")
			got := after.CPU - before.CPU
			if got < 290*time.Millisecond || got > says+20*time.Millisecond {
				t.Errorf("the cgroup used %v, its process says %v", got, says)
			}
			if !tree.v1 && !after.Pressure {
				t.Log("this kernel has no PSI")
			}
			for _, dir := range tree.folders {
				if err := os.Remove(dir); err != nil {
					t.Fatal(err)
				}
			}
			if gone := one(t, r, "pod"); !errors.Is(gone.Err, cgroup.ErrGone) {
				t.Errorf("after it was removed: %+v", gone)
			}
			for _, dir := range tree.folders {
				if err := os.Mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if again := one(t, r, "pod"); again.Err != nil || again.CPU >= after.CPU {
				t.Errorf("after it was made anew: %+v, before it was removed %+v", again, after)
			}
		})
	}
}

// burnIn runs a process in the cgroup that uses so much CPU time, and returns what
// it says that it used in its whole life.
func burnIn(t *testing.T, tree kernelTree, d time.Duration) time.Duration {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), burnVariable+"="+d.String())
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range tree.folders {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	says, err := time.ParseDuration(strings.TrimSpace(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	return says
}

const benchGroups = 1000

// BenchmarkRead is one pass over 1,000 cgroups. CPU time is what counts.
func BenchmarkRead(b *testing.B) {
	bench := func(b *testing.B, r *Reader, path func(int) string) {
		for i := range benchGroups {
			if err := r.Follow(strconv.Itoa(i), path(i)); err != nil {
				b.Fatal(err)
			}
		}
		readings := r.Read(nil)
		for _, v := range readings {
			if v.Err != nil {
				b.Fatal(v.Err)
			}
		}
		b.ReportAllocs()
		b.ResetTimer()
		before := used()
		for range b.N {
			readings = r.Read(readings[:0])
		}
		b.ReportMetric(float64((used()-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
	}
	for _, keep := range []int{0, 1} {
		suffix := map[int]string{0: "", 1: "/reopened"}[keep]
		for _, v1 := range []bool{false, true} {
			b.Run(fmt.Sprintf("files/v1=%v%s", v1, suffix), func(b *testing.B) {
				tree := newTree(b, v1)
				path := func(i int) string { return fmt.Sprint("kubepods/pod", i) }
				for i := range benchGroups {
					tree.put(path(i), i)
				}
				bench(b, tree.open(keep), path)
			})
		}
		b.Run("kernel"+suffix, func(b *testing.B) {
			for _, tree := range realTrees(b) {
				b.Run(fmt.Sprintf("v1=%v", tree.v1), func(b *testing.B) {
					path := func(i int) string { return filepath.Join(tree.path, strconv.Itoa(i)) }
					for i := range benchGroups {
						for _, dir := range tree.folders {
							if err := os.Mkdir(filepath.Join(dir, strconv.Itoa(i)), 0o755); err != nil {
								b.Fatal(err)
							}
							defer os.Remove(filepath.Join(dir, strconv.Itoa(i)))
						}
					}
					r, err := Open(Options{Root: tree.root, V1: tree.v1, KeepOpen: keep})
					if err != nil {
						b.Fatal(err)
					}
					defer r.Close()
					bench(b, r, path)
				})
			}
		})
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("usage_usec 52\nuser_usec 50\nnr_periods 7\nnr_throttled 1\nthrottled_usec 9\n"), false)
	f.Add([]byte("nr_periods 7\nnr_throttled 1\nthrottled_time 9000\n"), true)
	f.Add([]byte("usage_usec \nusage_usec 18446744073709551616"), false)
	f.Fuzz(func(t *testing.T, text []byte, v1 bool) {
		var r Reading
		if err := parseStat(text, v1, &r); err == nil && (r.CPU < 0 || r.Stopped < 0) {
			t.Fatalf("%q is %+v", text, r)
		}
	})
}

func FuzzParsePressure(f *testing.F) {
	f.Add(
		[]byte("some avg10=0.12 avg60=0.20 avg300=0.05 total=20773\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"))
	f.Add([]byte("some total=\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if v, err := parsePressure(text); err == nil && v < 0 {
			t.Fatalf("%q is %v", text, v)
		}
	})
}

func TestParseNumber(t *testing.T) {
	for _, text := range []string{"0", "7", "18446744073709551615", "00000000000000000001"} {
		got, err := parseNumber([]byte(text))
		want, _ := strconv.ParseUint(text, 10, 64)
		if err != nil || got != want {
			t.Errorf("%s is %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-1", "+1", " 1", "1 ", "18446744073709551616", "99999999999999999999",
		"000000000000000000001", "1e3"} {
		if got, err := parseNumber([]byte(text)); err == nil {
			t.Errorf("%q is %d", text, got)
		}
	}
}
