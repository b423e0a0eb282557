package confine

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
)

// confined is set in the process that is confined: this test's own could not run any other test after it.
const confined = "QUIETCORE_TEST_CONFINED"

// filtered says what the process does whose calls are denied: "counts" or "not".
const filtered = "QUIETCORE_TEST_FILTERED"

func TestMain(m *testing.M) {
	if dir := os.Getenv(confined); dir != "" {
		os.Exit(child(dir))
	}
	if how := os.Getenv(filtered); how != "" {
		os.Exit(filteredChild(how))
	}
	os.Exit(m.Run())
}

// child confines itself and prints what of it does not hold.
func child(dir string) (code int) {
	fail := func(format ...string) {
		code = 1
		os.Stdout.WriteString(strings.Join(format, " ") + "\n")
	}
	// Threads that run already are confined, too.
	var begun, rest sync.WaitGroup
	hold := make(chan struct{})
	denied := func(what string, err error) {
		if !errors.Is(err, fs.ErrPermission) {
			fail(what, "is not denied:", errText(err))
		}
	}
	outside, inside := filepath.Join(dir, "outside"), filepath.Join(dir, "inside")
	for range 4 {
		begun.Add(1)
		rest.Go(func() {
			begun.Done()
			<-hold
			denied("a file by a goroutine that ran before", os.WriteFile(filepath.Join(outside, "x"), nil, 0o600))
		})
	}
	begun.Wait()
	if _, err := Writes([]string{inside, filepath.Join(inside, "not", "there")}); err != nil {
		fail("not confined:", err.Error())
		return 2
	}
	close(hold)
	rest.Wait()
	there := filepath.Join(outside, "there")
	_, err := os.OpenFile(there, os.O_WRONLY, 0)
	denied("writing a file outside", err)
	denied("truncating a file outside", os.Truncate(there, 0))
	denied("removing a file outside", os.Remove(there))
	denied("a folder outside", os.Mkdir(filepath.Join(outside, "d"), 0o700))
	denied("a link outside", os.Symlink(there, filepath.Join(outside, "l")))
	denied("moving a file outside", os.Rename(there, filepath.Join(outside, "moved")))
	denied("executing", execute("/proc/self/exe"))
	program, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(filepath.Join(inside, "program"), program, 0o700)
	}
	if err != nil {
		fail("a program inside:", err.Error())
	}
	denied("executing what it wrote", execute(filepath.Join(inside, "program")))
	if text, err := os.ReadFile(there); err != nil || string(text) != "kept" {
		fail("reading outside:", errText(err), string(text))
	}
	name := filepath.Join(inside, "a")
	for what, err := range map[string]error{
		"writing inside": os.WriteFile(name, []byte("b"), 0o600),
		"renaming":       os.Rename(name, name+"2"),
		"a folder":       os.MkdirAll(filepath.Join(inside, "not", "there"), 0o700),
		"removing":       os.Remove(name + "2"),
	} {
		if err != nil {
			fail(what, errText(err))
		}
	}
	return code
}

// execute starts a program with what is open already.
func execute(name string) error {
	p, err := os.StartProcess(name, []string{name, "-test.list=^$"},
		&os.ProcAttr{Env: []string{}, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return err
	}
	_, err = p.Wait()
	return err
}

func errText(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}

func TestWrites(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"inside", "outside"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "outside", "there"), []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), confined+"="+dir)
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), ErrUnsupported.Error()) && os.Getenv("QUIETCORE_CI") != "1" {
		t.Skip(ErrUnsupported)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestExisting(t *testing.T) {
	dir := t.TempDir()
	got := existing([]string{filepath.Join(dir, "a", "b"), dir, "/proc/self/", "/none/there"})
	if want := []string{"/", "/proc/self", dir}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
