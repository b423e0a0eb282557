package main

import (
	"os"
	"testing"

	"github.com/cilium/ebpf"
)

func TestHeldOfThisProcess(t *testing.T) {
	before, err := held("/proc/self")
	if err != nil {
		t.Fatal(err)
	}
	var files []*os.File
	for range 5 {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	after, err := held("/proc/self")
	for _, f := range files {
		f.Close()
	}
	if err != nil || after.Descriptors != before.Descriptors+5 {
		t.Errorf("%+v, and with five files more %+v, %v", before, after, err)
	}
	if len(after.Entries) != 0 {
		t.Errorf("%+v", after)
	}
}

// A map that is open twice is one map, and two of one name are counted together.
func TestEntriesOfBPFMaps(t *testing.T) {
	for _, n := range []int{37, 0, 5} {
		m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "slots", Type: ebpf.Hash, KeySize: 8, ValueSize: 4, MaxEntries: 100})
		if err != nil && os.Getenv("QUIETCORE_CI") != "1" {
			t.Skipf("needs the right to make BPF maps: %v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		for i := range n {
			if err := m.Put(uint64(i), uint32(i)); err != nil {
				t.Fatal(err)
			}
		}
		again, err := m.Clone()
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
	}
	if h, err := held("/proc/self"); err != nil || len(h.Entries) != 1 || h.Entries["slots"] != 42 {
		t.Errorf("%+v, %v", h, err)
	}
}

// As Linux 6.1 says it.
func TestMapOf(t *testing.T) {
	const file = "pos:\t0\nflags:\t02000002\nmnt_id:\t15\nino:\t1058\n"
	if _, isMap, err := mapOf(file + "tfd:        5 events:       19\n"); isMap || err != nil {
		t.Errorf("another file is a map: %t, %v", isMap, err)
	}
	id, isMap, err := mapOf(file + "map_type:\t1\nkey_size:\t8\nmax_entries:\t1025\nmemlock:\t90112\n" +
		"map_id:\t12\nfrozen:\t0\n")
	if id != 12 || !isMap || err != nil {
		t.Errorf("map %d, %t, %v", id, isMap, err)
	}
	if _, _, err := mapOf("map_id:\tmany\n"); err == nil {
		t.Error("many is taken for a number")
	}
}
