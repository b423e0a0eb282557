package cdi

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/policy"
)

const uid = "0f9c2b1e-5a4d-4c3b-8f7e-6d5c4b3a2f1e"

func TestOwnSpecs(t *testing.T) {
	o := &Own{Dir: filepath.Join(t.TempDir(), "cdi")} // is made
	for range 2 {                                     // kubelet prepares a claim again after a restart
		if err := o.Write(uid, 2); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(o.Dir, "*"))
	if err != nil || len(files) != 1 || filepath.Base(files[0]) != "quietcore.dev-cpu-"+uid+".json" {
		t.Fatalf("files %v, %v", files, err)
	}
	info, err := os.Stat(files[0])
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var s ownSpec
	if err := json.Unmarshal(text, &s); err != nil || len(s.Devices) != 2 {
		t.Fatalf("%s: %v", text, err)
	}
	for i, d := range s.Devices {
		name := s.Kind + "=" + d.Name
		if name != policy.ClaimDevice(uid, i) || !IsCPU(name) || len(d.Edits.Env) != 1 ||
			strings.HasPrefix(d.Edits.Env[0], cpusEnv) {
			t.Errorf("device %s with %v, want %s", name, d.Edits.Env, policy.ClaimDevice(uid, i))
		}
	}
	if devices, err := Parse(text); err != nil || len(devices) > 0 {
		t.Errorf("read as another driver's: %v, %v", devices, err)
	}
	for range 2 {
		if err := o.Remove(uid); err != nil {
			t.Fatal(err)
		}
	}
	if left, _ := os.ReadDir(o.Dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A UID that is none makes no file elsewhere.
func TestUIDsAreNoPaths(t *testing.T) {
	o := &Own{Dir: t.TempDir()}
	for _, bad := range []string{"", "../x", "a/b", "a b", strings.Repeat("a", 64), "-a"} {
		if o.Write(bad, 1) == nil || o.Remove(bad) == nil {
			t.Errorf("%q is taken for a UID", bad)
		}
	}
}

// A spec that claims to be of our own driver gives nobody CPUs.
func TestAForgedOwnSpecReservesNothing(t *testing.T) {
	text := `{"kind":"quietcore.dev/cpu","devices":[{"name":"a-0","containerEdits":{"env":["DRA_CPUSET_a=1-3"]}}]}`
	if devices, err := Parse([]byte(text)); err != nil || len(devices) > 0 {
		t.Errorf("%v, %v", devices, err)
	}
}
