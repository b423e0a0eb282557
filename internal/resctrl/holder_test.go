package resctrl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestLeastOfAMachine(t *testing.T) {
	for machine, want := range map[string]string{
		"intel":                "MB:0=10;1=10\nL3:0=1;1=1\n",
		"partitioned":          "MB:0=10;1=10\nL3:0=30;1=5\n",
		"amd":                  "MB:0=8;1=4;2=8\nL3:0=1;1=1;2=1\n",
		"cdp":                  "MB:0=20\nL3DATA:0=1\nL3CODE:0=10\n",
		"mba_MBps":             "MB:0=1024\n",
		"mba_MBps, and little": "MB:0=90\n",
	} {
		k := boot(t, machine)
		h := Open(Options{Folder: k, Threads: k.threadsOf})
		if why := h.Why(); why != "" || !h.Offers("a") || k.isMade() {
			t.Errorf("%s: %q", machine, why)
		}
		k.start("pod/a", ".", 1)
		if err := h.Hold("a", "pod/a", time.Minute); err != nil {
			t.Fatalf("%s: %v", machine, err)
		}
		if got, err := k.Read(Group + "/schemata"); got != want || err != nil {
			t.Errorf("%s: schemata is %q, want %q; %v", machine, got, want, err)
		}
		// The lines must be such as the kernel takes: each ends, and has the default group's domains.
		for _, r := range parse(want) {
			if !strings.Contains(want, r.String()) {
				t.Errorf("%s: %q is written as %q", machine, want, r.String())
			}
		}
	}
	for machine, why := range map[string]string{"caches alone": "cannot limit memory bandwidth",
		"not mounted": "not mounted", "no number": "invalid syntax"} {
		k := boot(t, machine)
		h := Open(Options{Folder: k, Threads: k.threadsOf})
		if !strings.Contains(h.Why(), why) || h.Offers("a") || h.Hold("a", "pod/a", time.Minute) == nil || k.isMade() {
			t.Errorf("%s: %q, want %q", machine, h.Why(), why)
		}
	}
}

// world is a kernel and a Holder that runs, inside of a bubble.
func world(t *testing.T, k *kernel) (h *Holder, stop func()) {
	t.Helper()
	h = Open(Options{Folder: k, Threads: k.threadsOf})
	if h.Why() != "" {
		t.Fatal(h.Why())
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { h.Run(ctx); close(done) }()
	return h, func() { cancel(); <-done }
}

func want(t *testing.T, k *kernel, when string, held, free []int) {
	t.Helper()
	if got := k.in(Group); !slices.Equal(got, held) {
		t.Errorf("%s: held are %v, want %v", when, got, held)
	}
	if got := k.in("."); !slices.Equal(got, free) {
		t.Errorf("%s: free are %v, want %v", when, got, free)
	}
	if k.isMade() != (len(held) > 0) {
		t.Errorf("%s: there is a group: %t", when, k.isMade())
	}
}

// TestHoldUntilADeadline: every thread of a container and of the cgroups in it, those that come later, and no other;
// until it is let go, or its time is over.
func TestHoldUntilADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := boot(t, "intel")
		h, stop := world(t, k)
		defer stop()
		k.start("pod/a", ".", 11, 12)
		k.start("pod/a/inner", ".", 13)
		k.start("pod/b", ".", 21)
		k.start("pod/c", ".", 31)
		must(t, h.Hold("a", "pod/a", 2*time.Minute))
		must(t, h.Hold("b", "pod/b", time.Minute))
		want(t, k, "held", []int{11, 12, 13, 21}, []int{31})
		k.start("pod/a", ".", 14) // somebody executes a command in it
		k.exit(12)
		time.Sleep(followEvery + time.Second)
		want(t, k, "followed", []int{11, 13, 14, 21}, []int{31})
		time.Sleep(time.Minute)
		want(t, k, "one deadline is over", []int{11, 13, 14}, []int{21, 31})
		must(t, h.Hold("a", "pod/a", 2*time.Minute))
		time.Sleep(90 * time.Second)
		want(t, k, "held for longer", []int{11, 13, 14}, []int{21, 31})
		must(t, h.Hold("b", "pod/b", time.Minute))
		must(t, h.Release("a"))
		must(t, h.Release("nobody"))
		want(t, k, "one is let go", []int{21}, []int{11, 13, 14, 31})
		must(t, h.Release("b"))
		want(t, k, "the last is let go", nil, []int{11, 13, 14, 21, 31})
		must(t, h.Hold("a", "pod/a", time.Minute))
		time.Sleep(2 * time.Minute)
		want(t, k, "its time is over", nil, []int{11, 13, 14, 21, 31})
		must(t, h.Hold("a", "pod/a", time.Hour))
		stop()
		want(t, k, "ended", nil, []int{11, 13, 14, 21, 31})
		if h.Hold("a", "pod/a", time.Minute) == nil || k.isMade() {
			t.Error("who has ended holds a container")
		}
		if at := slices.IndexFunc(k.wrote, func(s string) bool {
			return !strings.HasPrefix(s, Group+"/") && !strings.HasPrefix(s, "tasks ")
		}); at >= 0 {
			t.Errorf("written is %q", k.wrote[at])
		}
	})
}

// TestDeadlinesOfOthers are kept while a container is held anew in every short window.
func TestDeadlinesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := boot(t, "intel")
		h, stop := world(t, k)
		defer stop()
		k.start("pod/a", ".", 11)
		k.start("pod/b", ".", 21)
		must(t, h.Hold("b", "pod/b", 10*time.Second))
		for range 20 {
			must(t, h.Hold("a", "pod/a", 10*time.Second))
			time.Sleep(time.Second)
		}
		want(t, k, "its time is over", []int{11}, []int{21})
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestThreadsThatComeAndGo while the others are written.
func TestThreadsThatComeAndGo(t *testing.T) {
	k := boot(t, "intel")
	h := Open(Options{Folder: k, Threads: k.threadsOf})
	k.start("pod/a", ".", 1, 2, 3)
	next := 4
	k.on = func(name, text string) error {
		switch {
		case name != Group+"/tasks":
		case text == "2\n":
			k.exit(2)
		case next < 7:
			k.start("pod/a", ".", next)
			next++
		}
		return nil
	}
	must(t, h.Hold("a", "pod/a", time.Minute))
	want(t, k, "held", []int{1, 3, 4, 5, 6}, nil)
	// Who makes threads faster than they are written is held as far as that goes.
	k.on = func(name, text string) error {
		k.start("pod/a", ".", next)
		next++
		return nil
	}
	k.start("pod/a", ".", 1000)
	must(t, h.Hold("a", "pod/a", time.Minute))
	if n := len(k.in(Group)); n != 5+mostRounds {
		t.Errorf("%d threads are held", n)
	}
	// One that a held thread makes while others are let go is held until it is let go, too.
	k.on = nil
	k.start("pod/b", ".", 1001)
	must(t, h.Hold("b", "pod/b", time.Minute))
	k.on = func(name, text string) error {
		if text == "1\n" {
			k.start("pod/a", Group, 1002)
		}
		return nil
	}
	must(t, h.Release("a"))
	if got := k.in(Group); !slices.Equal(got, []int{1001}) {
		t.Errorf("held are %v", got)
	}
}

// TestOthersAreLeftAlone: who has a class, or is monitored, keeps it, and is not offered again.
func TestOthersAreLeftAlone(t *testing.T) {
	for _, group := range []string{"gold", "mon_groups/watched"} {
		k := boot(t, "intel")
		h := Open(Options{Folder: k, Threads: k.threadsOf})
		k.put(group+"/tasks", "")
		k.start("pod/a", group, 1)
		k.start("pod/a", ".", 2)
		k.start("pod/b", ".", 3)
		if err := h.Hold("a", "pod/a", time.Minute); !errors.Is(err, errOthers) {
			t.Errorf("%s: %v", group, err)
		}
		want(t, k, group, nil, []int{2, 3})
		if h.Offers("a") || !h.Offers("b") || h.Why() != "" {
			t.Errorf("%s: offered are a %t, b %t", group, h.Offers("a"), h.Offers("b"))
		}
		must(t, h.Hold("b", "pod/b", time.Minute))
		// It is given a class while it is held.
		k.start("pod/b", group, 4)
		h.follow()
		want(t, k, group, nil, []int{2, 3})
		if got := k.in(group); !slices.Equal(got, []int{1, 4}) {
			t.Errorf("%s has %v", group, got)
		}
	}
}

// TestACrashIsUndone by the daemon that comes next, and by whoever uninstalls. A group of the same name that somebody
// makes meanwhile is taken.
func TestACrashIsUndone(t *testing.T) {
	k := boot(t, "intel")
	k.start("pod/a", ".", 1, 2)
	must(t, Open(Options{Folder: k, Threads: k.threadsOf}).Hold("a", "pod/a", time.Minute))
	want(t, k, "killed", []int{1, 2}, nil)
	next := Open(Options{Folder: k, Threads: k.threadsOf})
	want(t, k, "with the next daemon", nil, []int{1, 2})
	must(t, k.Make(Group))
	must(t, next.Hold("a", "pod/a", time.Minute))
	if got, _ := k.Read(Group + "/schemata"); got != "MB:0=10;1=10\nL3:0=1;1=1\n" {
		t.Errorf("schemata is %q", got)
	}
	must(t, Clear(k))
	must(t, Clear(k))
	want(t, k, "uninstalled", nil, []int{1, 2})
	must(t, Clear(Dir(filepath.Join(t.TempDir(), "none"))))
	// Somebody removes the group: it is there again when the containers are followed.
	next.follow()
	want(t, k, "followed", []int{1, 2}, nil)
}

// TestFailures leave nothing behind, and are not tried for ever where that is in vain.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		on      string // the file
		err     error
		forGood bool
	}{
		"schemata refused":  {Group + "/schemata", syscall.EINVAL, false},
		"a thread refused":  {Group + "/tasks", syscall.EPERM, true},
		"a thread, for now": {Group + "/tasks", syscall.EIO, false},
	} {
		k := boot(t, "intel")
		h := Open(Options{Folder: k, Threads: k.threadsOf})
		k.start("pod/a", ".", 1, 2)
		k.put("info/last_cmd_status", "the reason\n")
		k.on = func(file, text string) error {
			if file == c.on && text != "1\n" {
				return c.err
			}
			return nil
		}
		err := h.Hold("a", "pod/a", time.Minute)
		if !errors.Is(err, c.err) || !strings.Contains(fmt.Sprint(err), "the reason") {
			t.Errorf("%s: %v", name, err)
		}
		want(t, k, name, nil, []int{1, 2})
		if (h.Why() != "") != c.forGood || h.Offers("a") == c.forGood {
			t.Errorf("%s: offered %t, %q", name, h.Offers("a"), h.Why())
		}
	}
	k := boot(t, "intel")
	h := Open(Options{Folder: k, Threads: k.threadsOf})
	k.classes = 0
	if err := h.Hold("a", "pod/a", time.Minute); !errors.Is(err, syscall.ENOSPC) || !h.Offers("a") {
		t.Errorf("without a class that is free: %v, offered %t", err, h.Offers("a"))
	}
	k.classes = 1
	h.o.Threads = func(string) ([]int, error) { return []int{7, 0}, nil }
	if err := h.Hold("a", "pod/a", time.Minute); !errors.Is(err, errHidden) || h.Offers("a") || k.isMade() {
		t.Errorf("in a PID namespace of its own: %v, offered %t", err, h.Offers("a"))
	}
}

// TestAGroupThatStays is removed once that can be done.
func TestAGroupThatStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := boot(t, "amd")
		h, stop := world(t, k)
		defer stop()
		k.start("pod/a", ".", 1)
		must(t, h.Hold("a", "pod/a", time.Minute))
		k.on = func(name, _ string) error {
			if name == Group {
				return syscall.EBUSY
			}
			return nil
		}
		if err := h.Release("a"); !errors.Is(err, syscall.EBUSY) {
			t.Errorf("let go: %v", err)
		}
		time.Sleep(time.Minute)
		want(t, k, "busy", []int{1}, nil)
		k.on = nil
		time.Sleep(time.Minute)
		want(t, k, "not busy", nil, []int{1})
	})
}

func TestThreadsInACgroup(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"pod/a/cgroup.threads": "1\n2\n", "pod/a/x/cgroup.threads": "30\n",
		"pod/a/y/other": "", "pod/b/cgroup.threads": "4\n", "pod/v1/tasks": "5\n6\n", "pod/bad/cgroup.threads": "z\n"} {
		name = filepath.Join(root, name)
		must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must(t, os.WriteFile(name, []byte(text), 0o644))
	}
	threads := ThreadsIn(root, false)
	for cgroup, want := range map[string][]int{"/pod/a": {1, 2, 30}, "pod/b": {4}, "pod/gone": nil} {
		if got, err := threads(cgroup); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", cgroup, got, err)
		}
	}
	if got, err := ThreadsIn(root, true)("pod/v1"); err != nil || !slices.Equal(got, []int{5, 6}) {
		t.Errorf("cgroup v1: %v, %v", got, err)
	}
	for _, cgroup := range []string{"", "/", "pod/../..", "pod/bad"} {
		if got, err := threads(cgroup); err == nil {
			t.Errorf("%q: %v", cgroup, got)
		}
	}
}
