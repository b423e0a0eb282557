package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/plugin"
)

func TestRestoredIsWritten(t *testing.T) {
	set := func(text string) cpuset.Set {
		s, err := cpuset.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	found := []plugin.Restored{
		{Name: "default/db", Path: "kubepods/poddb", CPUs: set("0-7"), Was: set("0-1"),
			Quota: cgroup.Quota{Micros: 200_000, Period: 100_000}, QuotaWas: cgroup.Quota{Micros: -1},
			StillMasked: true},
		{Name: "default/web", Path: "kubepods/burstable/podweb", CPUs: set("0-7"), Was: set("0-7"),
			Quota: cgroup.Quota{Micros: -1}, QuotaWas: cgroup.Quota{Micros: -1}},
		{Name: "default/bad", Path: "kubepods/podbad", CPUs: set("3"), Was: set("3"), Quota: cgroup.Quota{Micros: -1},
			QuotaWas: cgroup.Quota{Micros: -1}, Err: errors.New("read-only \x1b[31m")},
	}
	var text, lines bytes.Buffer
	if err := RestoredText(&text, found); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"default/db", "CPUs 0-1 -> 0-7", "quota none -> 2000m", "NOT RESTORED: read-only",
		"1 restored, 1 were as they should be, 1 not restored", "1 cgroups keep a mask"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, &text)
		}
	}
	if strings.ContainsRune(text.String(), '\x1b') {
		t.Error("an escape sequence reaches the terminal")
	}
	if err := RestoredJSON(&lines, found); err != nil {
		t.Fatal(err)
	}
	var first struct {
		Name, CPUsWere, CPUs string
		QuotaMilli           int64
	}
	if err := json.NewDecoder(&lines).Decode(&first); err != nil || first.Name != "default/db" ||
		first.CPUsWere != "0-1" || first.QuotaMilli != 2000 {
		t.Errorf("first line %+v, %v", first, err)
	}
}
