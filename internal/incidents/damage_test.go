package incidents

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// writeUntilKilled puts incidents and prints each ID once Flush has returned.
func writeUntilKilled(dir string) {
	s := New(Options{Path: filepath.Join(dir, "incidents.db"), MaxBytes: LeastBytes})
	go s.Run(context.Background())
	for n := 0; ; n++ {
		id := s.Put(example(time.Now(), fmt.Sprint("victim-", n), "a", "b", "c"))
		if err := s.Flush(context.Background()); err != nil {
			os.Exit(1)
		}
		fmt.Println(id)
	}
}

// What a Flush has written is there after a kill -9, whenever that comes.
func TestKilledWhileWriting(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "incidents.db")
	for life := range 8 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "INCIDENTS_WRITER="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		last := ""
		lines := bufio.NewScanner(out)
		for n := 0; n <= life*7 && lines.Scan(); n++ {
			last = lines.Text()
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			last = lines.Text() // said before it died
		}
		_ = cmd.Wait() // killed
		if !validID(last) {
			t.Fatalf("the writer said %q", last)
		}
		r, err := OpenReader(path, time.Now())
		if err != nil {
			t.Fatalf("after kill %d: %v", life, err)
		}
		if _, err := r.Get(context.Background(), last); err != nil {
			t.Errorf("after kill %d: %v", life, err)
		}
		r.Close()
	}
	s, _ := running(t, Options{Path: path, Now: time.Now})
	flush(t, s)
	if st := s.Stats(); st.Aside != "" || st.Why != "" || st.Kept < 8 {
		t.Errorf("%+v", st)
	}
}

// whole is a small file with several levels of pages.
func whole(t testing.TB) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "incidents.db")
	s, end := running(t, Options{Path: path, MaxBytes: LeastBytes, Queue: 500})
	for n := range 60 {
		s.Put(example(noon.Add(time.Duration(n)*time.Minute), fmt.Sprint("v", n), "a"))
		if n%20 == 0 {
			flush(t, s) // pages become free
		}
	}
	end()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// survives says that a store opens a damaged file one way or the other, answers,
// and takes another incident.
func survives(t *testing.T, text []byte) {
	t.Helper()
	dir, err := os.MkdirTemp(inMemory(), "incidents")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "incidents.db")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := OpenReader(path, noon); err == nil {
		ask(t, r)
		r.Close()
	}
	s, end := running(t, Options{Path: path, MaxBytes: LeastBytes})
	ask(t, s)
	for n := range 20 {
		s.Put(example(noon.Add(time.Duration(1000+n)*time.Minute), "later", "a"))
	}
	id := s.Put(example(noon.Add(2000*time.Minute), "last"))
	flush(t, s)
	flush(t, s) // where the first one found the damage
	if _, err := s.Get(context.Background(), id); err != nil {
		t.Fatalf("what came after the damage is not there: %v; %+v", err, s.Stats())
	}
	end()
}

func ask(t *testing.T, s Source) {
	t.Helper()
	_, _ = s.List(context.Background(), Filter{Limit: 10})
	_, _ = s.Top(context.Background(), TopQuery{})
	_ = s.Export(context.Background(), Filter{}, func(*Incident) error { return nil })
	_, _ = s.Get(context.Background(), "20261121-12")
}

// repair makes both meta pages valid again, so that damage gets past the checksum.
func repair(text []byte) {
	for page := range 2 {
		if m := text[page*pageSize+pageHeader:]; len(m) >= metaChecked+8 {
			h := fnv.New64a()
			h.Write(m[:metaChecked])
			binary.NativeEndian.PutUint64(m[metaChecked:], h.Sum64())
		}
	}
}

func FuzzDamage(f *testing.F) {
	good := whole(f)
	for _, at := range []uint32{0, 24, 40, 4096 + 24, 4096 + 64, 2 * 4096, 3*4096 + 8, 3*4096 + 20, 4 * 4096, 5*4096 +
		10} {
		f.Add(at, []byte{0xFF}, uint32(len(good)), true)
		f.Add(at, []byte{3, 0, 0, 0}, uint32(len(good)), false)
	}
	f.Add(uint32(0), []byte{}, uint32(5000), false)
	f.Add(uint32(0), []byte{}, uint32(3*4096), false)
	f.Fuzz(func(t *testing.T, at uint32, bytes []byte, size uint32, fits bool) {
		text := append([]byte(nil), good[:min(int(size), len(good))]...)
		if len(text) > 0 {
			copy(text[int(at)%len(text):], bytes)
		}
		if fits && len(text) > 2*pageSize {
			repair(text)
		}
		survives(t, text)
	})
}

// Every field of every page, one after the other, so that no kind of damage is
// left to chance.
func TestDamageInEveryPage(t *testing.T) {
	good := whole(t)
	if err := verify(strings.NewReader(string(good)), int64(len(good))); err != nil {
		t.Fatalf("an undamaged file: %v", err)
	}
	found, opened := 0, 0
	for page := 0; page*pageSize < len(good); page++ {
		for _, offset := range []int{0, 8, 10, 12, 16, 20, 24, 32, 40, 48} {
			for _, with := range [][]byte{{0xFF, 0xFF}, {2, 0}, {0, 0}} {
				text := append([]byte(nil), good...)
				copy(text[page*pageSize+offset:], with)
				repair(text)
				if verify(strings.NewReader(string(text)), int64(len(text))) != nil {
					found++
					continue // it is renamed, as TestWhatIsNoDatabase shows
				}
				if opened++; opened%30 == 0 { // opening takes its time, and damage that is let through is alike
					survives(t, text)
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d kinds of damage were found before the file was opened", found)
	}
}

// A file that is damaged while it is open: whatever bbolt does then, the store
// begins anew.
func TestDamageWhileOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "incidents.db")
	if err := os.WriteFile(path, whole(t), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _ := running(t, Options{Path: path, MaxBytes: LeastBytes})
	flush(t, s)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size := fileSize(path)
	for at := int64(2 * pageSize); at < size; at += pageSize {
		if _, err := f.WriteAt([]byte(strings.Repeat("\xFF", 64)), at); err != nil {
			t.Fatal(err)
		}
	}
	ask(t, s)
	id := s.Put(example(noon.Add(time.Hour*100), "after"))
	flush(t, s)
	flush(t, s)
	if _, err := s.Get(context.Background(), id); err != nil {
		t.Errorf("%v; %+v", err, s.Stats())
	}
	if st := s.Stats(); st.Aside == "" || st.DamagedWhy == "" || st.Why != "" {
		t.Errorf("%+v", st)
	}
}

// mounted is a folder on a file system of its own, of so many KiB.
func mounted(t *testing.T, kib int) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("quietcore", dir, "tmpfs", 0, fmt.Sprintf("size=%dk,mode=0700", kib)); err != nil {
		if os.Getenv("QUIETCORE_CI") == "1" {
			t.Fatalf("mounting a file system: %v", err)
		}
		t.Skipf("needs to mount a file system, as root: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

func TestAFullDisk(t *testing.T) {
	dir := mounted(t, 512)
	path := filepath.Join(dir, "incidents.db")
	filler := filepath.Join(dir, "filler")
	fill(t, filler)
	s, _ := running(t, Options{Path: path, Queue: 20})
	s.Put(example(noon, "first"))
	flush(t, s)
	if st := s.Stats(); !strings.Contains(st.Why, "no space left") {
		t.Fatalf("beginning on a full disk: %+v", st)
	}
	empty(t, filler)
	flush(t, s)
	if st := s.Stats(); st.Why != "" || st.Kept != 1 {
		t.Fatalf("with room again: %+v", st)
	}
	fill(t, filler)
	for n := range 500 { // more than the file has room for
		s.Put(example(noon.Add(time.Duration(n+1)*time.Second), "more", "a", "b", "c", "d"))
		if n%10 == 0 {
			flush(t, s)
		}
	}
	flush(t, s)
	st := s.Stats()
	if st.Dropped == 0 || !strings.Contains(st.Why, "space") {
		t.Fatalf("on a full disk: %+v", st)
	}
	if list, err := s.List(context.Background(), Filter{}); err != nil || len(list.Incidents) < 1 {
		t.Errorf("what was there before: %+v, %v", list, err)
	}
	empty(t, filler)
	flush(t, s)
	if after := s.Stats(); after.Why != "" || after.Written <= st.Written || after.Aside != "" {
		t.Errorf("with room again: %+v", after)
	}
}

func fill(t *testing.T, name string) {
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
}

func empty(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
}

func TestAReadOnlyFolder(t *testing.T) {
	dir := mounted(t, 4096)
	path := filepath.Join(dir, "incidents.db")
	s, end := running(t, Options{Path: path})
	s.Put(example(noon, "web"))
	end()
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	s, _ = running(t, Options{Path: path})
	s.Put(example(noon.Add(time.Second), "web"))
	flush(t, s)
	if st := s.Stats(); !strings.Contains(st.Why, "read-only") || st.Aside != "" {
		t.Errorf("%+v", st)
	}
	r, err := OpenReader(path, noon)
	if err != nil {
		t.Fatalf("reading it: %v", err)
	}
	r.Close()
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
	flush(t, s)
	if st := s.Stats(); st.Why != "" || st.Kept != 2 {
		t.Errorf("when it can be written again: %+v", st)
	}
}
