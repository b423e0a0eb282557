package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

var update = flag.Bool("update", false, "write testdata of the present version anew; only before its release")

func TestMain(m *testing.M) {
	if dir := os.Getenv("QUIETCORE_TEST_LOCK"); dir != "" {
		_, err := TakeLock(dir)
		fmt.Println(err)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func diff(a, b any) string {
	return cmp.Diff(a, b, cmp.Comparer(func(a, b cpuset.Set) bool { return a == b }))
}

func equal(a, b any) bool { return diff(a, b) == "" }

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func example() Snapshot {
	node, quota := 1, int64(2000)
	return Snapshot{
		Revision: 42,
		Pods: []Pod{
			{UID: "u1", Sandbox: "s1", Namespace: "default", Name: "web", Class: policy.LSR, CPUs: cpuset.Range(0, 3),
				Withheld: cpuset.Of(8), Request: 4, CreatedAt: noon},
			{UID: "u2", Sandbox: "s2", Namespace: "default", Name: "near", Class: policy.LS, BoundNode: &node,
				CreatedAt: noon},
			{UID: "u3", Sandbox: "s3", Namespace: "batch", Name: "late", Class: policy.LSE,
				Degraded: "InsufficientCPUs", Several: true, CreatedAt: noon},
		},
		Caps: []Cap{{PodUID: "u9", Container: "main", CapMilli: 100, Until: noon.Add(5 * time.Minute),
			PreviousQuotaMilli: &quota}},
	}
}

func store(t *testing.T) *Store {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	if err := Prepare(dir); err != nil {
		t.Fatal(err)
	}
	return &Store{Dir: dir, Node: "node-a", BootID: "boot-1", Now: func() time.Time { return noon }}
}

func TestWhatIsSavedIsLoaded(t *testing.T) {
	s := store(t)
	if got := s.Load(); !equal(got, Loaded{}) {
		t.Fatalf("without a file: %+v", got)
	}
	if err := s.Save(example()); err != nil {
		t.Fatal(err)
	}
	if d := diff(Loaded{Snapshot: example()}, s.Load()); d != "" {
		t.Fatal(d)
	}
	for _, name := range []string{"", fileName} {
		info, err := os.Stat(filepath.Join(s.Dir, name))
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v; nobody else may read it", name, info.Mode(), err)
		}
	}
}

// Every format that was released stays readable.
func TestGolden(t *testing.T) {
	for i, want := range []Snapshot{example(), withOwners(t), withClaims()} {
		version := i + 1
		name := filepath.Join("testdata", fmt.Sprintf("v%d.json", version))
		if *update {
			text, err := encode(want, "node-a", "boot-1", noon)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		e, got, err := decode(text)
		if err != nil || e.Version != version || e.Node != "node-a" || e.BootID != "boot-1" {
			t.Fatalf("%s: %+v, %v", name, e, err)
		}
		if d := diff(want, got); d != "" {
			t.Fatalf("%s: %s", name, d)
		}
	}
}

// An upgrade and its reversal: fields that this version does not know are left
// out and nothing else is.
func TestFieldsOfALaterMinorAreLeftOut(t *testing.T) {
	var body map[string]any
	text, err := json.Marshal(example())
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &body); err != nil {
		t.Fatal(err)
	}
	body["later"] = map[string]any{"a": 1}
	body["pods"].([]any)[0].(map[string]any)["later"] = []int{1}
	e := envelope{Version: formatPods, Node: "node-a", BootID: "boot-1", SavedAt: noon}
	if e.Body, err = json.Marshal(body); err != nil {
		t.Fatal(err)
	}
	e.Checksum = e.sum()
	if text, err = json.Marshal(e); err != nil {
		t.Fatal(err)
	}
	_, got, err := decode(text)
	if err != nil {
		t.Fatal(err)
	}
	if d := diff(example(), got); d != "" {
		t.Fatal(d)
	}
}

func TestBadFilesArePutAside(t *testing.T) {
	good, err := encode(example(), "node-a", "boot-1", noon)
	if err != nil {
		t.Fatal(err)
	}
	future := envelope{Version: formatClaims + 1, Body: json.RawMessage(`{}`)}
	future.Checksum = future.sum()
	fromFuture, err := json.Marshal(future)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := encode(example(), "node-b", "boot-1", noon)
	if err != nil {
		t.Fatal(err)
	}
	nonsense := example()
	nonsense.Caps[0].CapMilli = -5
	negative, err := encode(nonsense, "node-a", "boot-1", noon)
	if err != nil {
		t.Fatal(err)
	}
	claims := withClaims()
	claims.Claims[0].Given = nil
	halfAClaim, err := encode(claims, "node-a", "boot-1", noon)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text []byte
		want string
	}{
		"empty":        {nil, "is empty"},
		"truncated":    {good[:len(good)/2], "is truncated or not JSON"},
		"flipped":      {bytes.Replace(good, []byte(`"0-3"`), []byte(`"0-7"`), 1), "does not match its checksum"},
		"other boot":   {bytes.Replace(good, []byte(`boot-1`), []byte(`boot-2`), 1), "does not match its checksum"},
		"from future":  {fromFuture, "has format 4, this daemon reads up to 3"},
		"other node":   {elsewhere, `is of node "node-b", this is "node-a"`},
		"negative cap": {negative, "has a cap of -5 milli-CPUs"},
		"half a claim": {halfAClaim, "of which 0 were given CPUs"},
		"a list":       {[]byte("[]"), "is truncated or not JSON"},
		"no version":   {[]byte("{}"), "has format 0"},
		"too large":    {bytes.Repeat([]byte(" "), maxBytes+1), "is larger than"},
	} {
		s := store(t)
		file := filepath.Join(s.Dir, fileName)
		if err := os.WriteFile(file, c.text, 0o600); err != nil {
			t.Fatal(err)
		}
		got := s.Load()
		if !strings.Contains(got.Reason, c.want) || !equal(got.Snapshot, Snapshot{}) {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
		kept, err := os.ReadFile(got.Aside)
		if err != nil || !bytes.Equal(kept, c.text) {
			t.Errorf("%s: what was put aside: %.60q, %v", name, kept, err)
		}
		if err := s.Save(example()); err != nil || s.Load().Reason != "" {
			t.Errorf("%s: saving after it: %v", name, err)
		}
	}
}

func TestAnyFlippedBitIsNoticedOrMeansNothing(t *testing.T) {
	good, err := encode(example(), "node-a", "boot-1", noon)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := decode(good)
	for i := range len(good) * 8 {
		bad := bytes.Clone(good)
		bad[i/8] ^= 1 << (i % 8)
		e, got, err := decode(bad)
		if err == nil && (!equal(got, example()) || e.BootID != head.BootID || e.Node != head.Node ||
			!e.SavedAt.Equal(head.SavedAt)) {
			t.Fatalf("bit %d of byte %d: read as %+v", i%8, i/8, got)
		}
	}
}

func TestEveryTruncationIsNoticed(t *testing.T) {
	good, err := encode(example(), "node-a", "boot-1", noon)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(good) - 1 {
		if _, _, err := decode(good[:n]); err == nil {
			t.Fatalf("%d of %d bytes were accepted", n, len(good))
		}
	}
}

func TestLinksAndFoldersAreRefused(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	good, err := encode(example(), "node-a", "boot-1", noon)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(secret, good, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		plant func(file string) error
		want  string
	}{
		"link":   {func(f string) error { return os.Symlink(secret, f) }, "is a symbolic link"},
		"folder": {func(f string) error { return os.Mkdir(f, 0o700) }, "not a file"},
		"pipe":   {func(f string) error { return unix.Mkfifo(f, 0o600) }, "not a file"},
	} {
		s := store(t)
		if err := c.plant(filepath.Join(s.Dir, fileName)); err != nil {
			t.Fatal(err)
		}
		if got := s.Load(); !strings.Contains(got.Reason, c.want) || len(got.Snapshot.Pods) != 0 || got.Aside == "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	// A link that appears later is replaced, never followed.
	s := store(t)
	if err := os.Symlink(secret, filepath.Join(s.Dir, fileName)); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(Snapshot{}); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(secret); err != nil || !bytes.Equal(text, good) {
		t.Fatalf("a save followed a link: %v", err)
	}
}

// A sync takes milliseconds that replies wait for. That of the directory makes the file's new name survive a power
// failure, after which a boot of another ID does not take it anyway.
func TestTheDirectoryIsSyncedWhereAPowerFailureGoesUnnoticed(t *testing.T) {
	for id, want := range map[string]int{"boot-1": 0, "": 1} {
		synced, s := 0, store(t)
		s.BootID, s.syncDir = id, func(dir string) error {
			synced++
			return syncDir(dir)
		}
		if err := s.Save(example()); err != nil || synced != want {
			t.Errorf("boot %q: %v, the directory was synced %d times, want %d", id, err, synced, want)
		}
		if got := s.Load(); len(got.Snapshot.Pods) != 3 {
			t.Errorf("boot %q: %+v is read back", id, got)
		}
	}
}

func TestAReboot(t *testing.T) {
	s := store(t)
	if err := s.Save(example()); err != nil {
		t.Fatal(err)
	}
	s.BootID = "boot-2"
	if got := s.Load(); !got.Rebooted || len(got.Snapshot.Pods) != 0 || got.Aside != "" ||
		!strings.Contains(got.Reason, "started anew after 2026-11-21T12:00:00Z") {
		t.Fatalf("%+v", got)
	}
	s.BootID = "" // unknown: the file is taken as it is
	if got := s.Load(); got.Rebooted || len(got.Snapshot.Pods) != 3 {
		t.Fatalf("%+v", got)
	}
}

func TestFewBadFilesAreKept(t *testing.T) {
	s := store(t)
	now := noon
	s.Now = func() time.Time { now = now.Add(time.Second); return now }
	for range 3 * keptBad {
		if err := os.WriteFile(filepath.Join(s.Dir, fileName), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		s.Load()
	}
	bad, err := filepath.Glob(filepath.Join(s.Dir, badPrefix+"*"))
	if err != nil || len(bad) != keptBad || !strings.HasSuffix(bad[keptBad-1], now.Format(badTimeForm)) {
		t.Fatalf("%v, %v; the newest is of %v", bad, err, now)
	}
}

func TestAFailedSaveKeepsTheOldFile(t *testing.T) {
	s := store(t)
	if err := s.Save(example()); err != nil {
		t.Fatal(err)
	}
	// A folder in the file's place makes the rename fail, for root as well.
	other := &Store{Dir: t.TempDir(), Now: s.Now}
	if err := os.MkdirAll(filepath.Join(other.Dir, fileName, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := other.Save(example()); err == nil || !strings.Contains(err.Error(), "save state") {
		t.Fatalf("saved over a folder: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(other.Dir, ".*"))
	if err != nil || len(left) != 0 {
		t.Fatalf("temporary files are left: %v, %v", left, err)
	}
	// A save that was killed leaves one; the next start removes it.
	if err := os.WriteFile(filepath.Join(s.Dir, "."+fileName+"123"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := s.Load(); len(got.Snapshot.Pods) != 3 {
		t.Fatalf("%+v", got)
	}
	if left, err := filepath.Glob(filepath.Join(s.Dir, ".*")); err != nil || len(left) != 0 {
		t.Fatalf("temporary files are left: %v, %v", left, err)
	}
}

func TestPrepareClosesOnlyItsOwnDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "others"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Prepare(dir); err == nil || !strings.Contains(err.Error(), `holds "others"`) {
		t.Fatalf("a shared directory: %v", err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
		t.Fatalf("its mode was changed to %v, %v", info.Mode(), err)
	}
	if err := os.Remove(filepath.Join(dir, "others")); err != nil {
		t.Fatal(err)
	}
	if err := Prepare(dir); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := Prepare(link); err == nil || !strings.Contains(err.Error(), "no link") {
		t.Fatalf("a link: %v", err)
	}
}

// The second instance is another process, as in life.
func TestOneInstance(t *testing.T) {
	dir := t.TempDir()
	l, err := TakeLock(dir)
	if err != nil {
		t.Fatal(err)
	}
	second := func() string {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "QUIETCORE_TEST_LOCK="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	if got := second(); !strings.Contains(got, fmt.Sprintf("in use by another quietcore, pid %d on ", os.Getpid())) {
		t.Fatalf("second instance: %s", got)
	}
	var busy *BusyError
	if _, err := TakeLock(dir); !errors.As(err, &busy) {
		t.Fatalf("second in this process: %v", err)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	if got := second(); got != "<nil>\n" {
		t.Fatalf("after the first is gone: %s", got)
	}
}

func TestOfKeepsWhatThePolicyRecovers(t *testing.T) {
	node := 0
	owned, idle, several := cpuset.Range(0, 3), cpuset.Of(5), cpuset.Of(0, 2)
	want := &policy.Recovered{CPUs: &owned, Withheld: &idle, Reasons: "r", From: "state file", Request: 4,
		BoundNode: &node, BoundNodes: &several, Degraded: "x", Several: true}
	narrowed := *want
	narrowed.Narrowed = []string{"", "main"}
	s := Of(policy.Synchronized{
		Pods: []policy.Pod{
			{UID: "u", Sandbox: "s", Namespace: "n", Name: "p", Labels: map[string]string{policy.LabelClass: "LSR"},
				Recovered: &narrowed, CreatedAt: noon},
			{UID: "shared", Sandbox: "t"},
		},
		Caps: []policy.Cap{{PodUID: "u", Container: "c", Milli: 100, Until: noon}},
	}, 7)
	if len(s.Pods) != 1 || s.Revision != 7 || len(s.Pods[0].Narrowed) != 2 || s.Pods[0].Class != policy.LSR {
		t.Fatalf("%+v", s)
	}
	if d := diff(want, s.Pods[0].Recovered()); d != "" {
		t.Fatal(d)
	}
	if d := diff(policy.Cap{PodUID: "u", Container: "c", Milli: 100, Until: noon}, s.Caps[0].Policy()); d != "" {
		t.Fatal(d)
	}
}

func FuzzDecode(f *testing.F) {
	good, err := encode(example(), "node-a", "boot-1", noon)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:100])
	f.Add([]byte(`{"version":1,"body":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		// The checksum is made right, so that the fuzzer gets past it.
		var e envelope
		if json.Unmarshal(text, &e) == nil {
			e.Checksum = e.sum()
			if whole, err := json.Marshal(e); err == nil {
				text = whole
			}
		}
		_, s, err := decode(text)
		if err != nil {
			return
		}
		again, err := encode(s, "n", "b", noon)
		if err != nil {
			t.Fatal(err)
		}
		_, back, err := decode(again)
		if err != nil {
			t.Fatal(err)
		}
		if d := diff(s, back); d != "" {
			t.Fatal(d)
		}
	})
}

func BenchmarkSave1000Pods(b *testing.B) {
	s := &Store{Dir: b.TempDir(), Node: "n", BootID: "b", Now: func() time.Time { return noon }}
	snapshot := Snapshot{}
	for i := range 1000 {
		p := example().Pods[0]
		p.UID = fmt.Sprint(i)
		snapshot.Pods = append(snapshot.Pods, p)
	}
	for b.Loop() {
		if err := s.Save(snapshot); err != nil {
			b.Fatal(err)
		}
	}
}
