package topology

import (
	"strings"
	"testing"

	"github.com/quietcore/quietcore/cpuset"
)

func TestGridNumbering(t *testing.T) {
	for _, c := range []struct {
		numbering Numbering
		core0     string
		node1     string
	}{
		{Adjacent, "0-1", "8-15"},
		{Split, "0,8", "4-7,12-15"},
	} {
		m, err := Grid{Sockets: 2, NodesPerSocket: 1, L3PerNode: 1, CoresPerL3: 4, ThreadsPerCore: 2,
			Numbering: c.numbering}.Build()
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Siblings(cpuset.Of(0)).String(); got != c.core0 {
			t.Errorf("%s: siblings of CPU 0 are %s, want %s", c.numbering, got, c.core0)
		}
		if got := m.Nodes()[1].CPUs.String(); got != c.node1 {
			t.Errorf("%s: node 1 is %s, want %s", c.numbering, got, c.node1)
		}
		if len(m.Cores()) != 8 || len(m.L3s()) != 2 || len(m.Sockets()) != 2 || m.ThreadsPerCore() != 2 {
			t.Errorf("%s: %d cores, %d L3s, %d sockets", c.numbering, len(m.Cores()), len(m.L3s()), len(m.Sockets()))
		}
	}
}

func TestWithOnlineKeepsPlaces(t *testing.T) {
	m, err := Grid{CoresPerL3: 4, ThreadsPerCore: 2}.Build()
	if err != nil {
		t.Fatal(err)
	}
	off, err := m.WithOnline(cpuset.Of(0, 1, 2, 4, 5, 6, 7))
	if err != nil {
		t.Fatal(err)
	}
	offline, online := off.Offline(), off.Online()
	if offline.String() != "3" || online.String() != "0-2,4-7" {
		t.Errorf("offline %s, online %s", offline, online)
	}
	if got := off.Siblings(cpuset.Of(2)).String(); got != "2-3" {
		t.Errorf("an offline sibling forgot its core: %s", got)
	}
	before := m.Online()
	if before.String() != "0-7" {
		t.Errorf("the original changed: %s", before)
	}
	if _, err := m.WithOnline(cpuset.Set{}); err == nil {
		t.Error("a machine without CPUs was accepted")
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		cpus []CPU
		want string
	}{
		{"nothing", nil, "no CPU is listed"},
		{"twice", []CPU{{ID: 1}, {ID: 1}}, "CPU 1 is listed twice"},
		{"too large", []CPU{{ID: 8192}}, "outside 0-8191"},
		{"split core", []CPU{{ID: 0, Node: 0}, {ID: 1, Node: 1}}, "a core lies within one of each"},
		{"negative", []CPU{{ID: 0, Core: -1}}, "negative"},
	} {
		if _, err := New(c.cpus, Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := (Grid{Sockets: 4000, CoresPerL3: 4000}).Build(); err == nil {
		t.Error("a grid of 16,000,000 CPUs was built")
	}
}
