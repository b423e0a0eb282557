package main

import (
	"strings"
	"testing"

	"github.com/quietcore/quietcore/cpuset"
)

func TestFreeSince(t *testing.T) {
	cpus, err := cpuset.Parse("0-1")
	if err != nil {
		t.Fatal(err)
	}
	const found = `{"at":1,"dir":0,"cpus":"0-7"}
{"at":1,"dir":1,"cpus":"0-7"}
`
	for _, c := range []struct{ name, lines, want string }{
		{"both have left", `{"at":5,"dir":0,"cpus":"2-7"}
{"at":6,"dir":1,"cpus":"2-7"}`, ""},
		{"one is still there", `{"at":5,"dir":0,"cpus":"2-7"}`, "shared container 1 is on CPUs 0-7"},
		{"one comes back too soon", `{"at":5,"dir":0,"cpus":"2-7"}
{"at":6,"dir":1,"cpus":"2-7"}
{"at":7,"dir":0,"cpus":"0-7"}`, "shared container 0"},
		{"one leaves after the start", `{"at":6,"dir":0,"cpus":"2-7"}
{"at":12,"dir":1,"cpus":"2-7"}`, "shared container 1"},
	} {
		changes, err := parseChanges(found + c.lines)
		if err != nil {
			t.Fatal(err)
		}
		since, err := freeSince(changes, 2, cpus, 10)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || err == nil &&
			since != 6 {
			t.Errorf("%s: %d, %v", c.name, since, err)
		}
	}
	changes, err := parseChanges(found)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := freeSince(changes, 3, cpus, 10); err == nil {
		t.Error("a cgroup that was never read is taken for free")
	}
	other, _ := cpuset.Parse("9")
	if _, err := freeSince(changes, 2, other, 10); err == nil {
		t.Error("CPUs that nobody left show something")
	}
	if _, err := parseChanges("watcher: permission denied"); err == nil {
		t.Error("words are taken for a change")
	}
}

func TestParseUsage(t *testing.T) {
	u, err := parseUsage("Name:\tquietcore\nVmHWM:\t   40960 kB\nVmRSS:\t   20480 kB\n")
	if err != nil || u.String() != "20.0 MiB resident, 40.0 MiB at most" {
		t.Errorf("%s, %v", u, err)
	}
	for _, text := range []string{"", "VmRSS:\t1 kB\n", "VmRSS:\tx kB\nVmHWM:\t1 kB\n"} {
		if _, err := parseUsage(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
