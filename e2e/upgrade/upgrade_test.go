package upgrade

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/state"
)

const newer = `{"kind":"claim","uid":"b","cpus":"4-6","later":{"a":1}}`

// TestUpgrades lets daemons of this version and of older ones take over from each other.
func TestUpgrades(t *testing.T) {
	now, keeps := current(t), currentProgram(t, KeepIncidents)
	present := version{"this version", now, keeps}
	for _, v := range versions(t) {
		old := v.build(t)
		former := version{v.Name, old, v.keeper(t)}
		t.Run("from "+v.Name, func(t *testing.T) { keepsOwners(t, old, now) })
		t.Run("to "+v.Name, func(t *testing.T) { keepsOwners(t, now, old) })
		t.Run("to "+v.Name+" with a newer kind", func(t *testing.T) { newerKind(t, now, old, v.Name != "v0.0.9") })
		t.Run("incidents from "+v.Name, func(t *testing.T) { keepsIncidents(t, former, present, former) })
		t.Run("incidents to "+v.Name, func(t *testing.T) { keepsIncidents(t, present, former, former) })
		t.Run("checkpoint from "+v.Name, func(t *testing.T) { keepsCheckpoint(t, old, now) })
		t.Run("checkpoint to "+v.Name, func(t *testing.T) { keepsCheckpoint(t, now, old) })
		t.Run("configuration of "+v.Name, func(t *testing.T) { takesConfiguration(t, now, v, old) })
		t.Run("configuration for "+v.Name, func(t *testing.T) { refusesConfiguration(t, now, old) })
	}
	t.Run("to this version with a newer kind", func(t *testing.T) { newerKind(t, now, now, true) })
}

// keepsOwners: of two owners the first one ends while no daemon runs. A daemon that does
// not read what the other one saved would give its CPUs to the second.
func keepsOwners(t *testing.T, first, second string) {
	n := newNode(t, "a", "b")
	both := func(s saved) bool { return s.pods() == "a 0-1, b 2-3" }
	if owners, _ := n.run(first, both); owners != "a 0-1, b 2-3" {
		t.Fatalf("owners are %q", owners)
	}
	if s := n.saved(); s.Version != 1 {
		t.Errorf("the state file has format %d without an owner of a newer kind, want 1", s.Version)
	}
	n.pods = n.pods[1:]
	if owners, log := n.run(second, func(s saved) bool { return s.pods() != "" && !both(s) }); owners != "b 2-3" {
		t.Errorf("owners are %q, want b 2-3\n%s", owners, log)
	}
}

// newerKind: the file has an owner of a kind that neither daemon knows. From v0.1.0 on one
// keeps its CPUs; one that reads only format 1 leaves the whole file alone and starts all
// the same.
func newerKind(t *testing.T, now, second string, keeps bool) {
	n := newNode(t, "a", "b")
	var o state.Owner
	if err := json.Unmarshal([]byte(newer), &o); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(n.dir, "state")
	if err := state.Prepare(dir); err != nil {
		t.Fatal(err)
	}
	store := &state.Store{Dir: dir, BootID: state.ReadBootID(), Now: time.Now, Uptime: state.Uptime}
	if err := store.Save(state.Snapshot{Owners: []state.Owner{o}}); err != nil {
		t.Fatal(err)
	}
	const want = "a 0-1, b 4-6"
	kept := func(s saved) bool {
		return s.Version == 2 && s.pods() == "a 0-1" && len(s.Body.Owners) == 1 && string(s.Body.Owners[0]) == newer
	}
	if owners, log := n.run(now, kept); owners != want {
		t.Fatalf("owners are %q, want %q\n%s", owners, want, log)
	}
	if keeps {
		if owners, log := n.run(second, kept); owners != want {
			t.Errorf("after a restart owners are %q, want %q\n%s", owners, want, log)
		}
		return
	}
	owners, log := n.run(second, func(s saved) bool { return s.Version == 1 && s.pods() == "a 0-1, b 2-3" })
	if owners != "a 0-1, b 2-3" || !strings.Contains(log, "has format 2, this daemon reads up to 1") {
		t.Errorf("owners are %q\n%s", owners, log)
	}
	if aside, _ := filepath.Glob(filepath.Join(dir, "state.json.corrupt-*")); len(aside) != 1 {
		t.Errorf("put aside: %v", aside)
	}
}

// TestDoctorNamesBeforehandWhoWouldBeRefused: doctor of this version asks the daemon that it is
// to replace, which may know of no profile.
func TestDoctorNamesBeforehandWhoWouldBeRefused(t *testing.T) {
	now := current(t)
	daemons := map[string]string{"this version": now}
	for _, v := range versions(t) {
		daemons[v.Name] = v.build(t)
	}
	for name, daemon := range daemons {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "plain", "wide")
			n.annotations = map[string]map[string]string{"wide": {"quietcore.dev/smt": "isolate"}}
			both := func(s saved) bool { return len(s.Body.Pods) == 2 }
			n.while(daemon, both, func(status, string) {
				for profile, want := range map[string]string{"open": "", "default": "wide wholeCores",
					"strict": "plain exclusive, wide exclusive, wide wholeCores"} {
					if got := n.wouldBeRefused(now, profile); got != want {
						t.Errorf("with profile %s doctor names %q, want %q", profile, got, want)
					}
				}
			})
		})
	}
}

var refused = regexp.MustCompile(`pod default/(\w+) would be refused if it came again: (\w+)$`)

// wouldBeRefused is what doctor says of the pods that run, in order.
func (n *node) wouldBeRefused(binary, profile string) string {
	n.t.Helper()
	cmd := exec.CommandContext(n.t.Context(), binary, "doctor", "--config", n.at("config.yaml"), "--profile", profile,
		"-o", "json")
	text, _ := cmd.Output() // its exit code tells of findings, of which such a node has more
	var report struct {
		Findings []struct{ ID, What string } `json:"findings"`
	}
	if err := json.Unmarshal(text, &report); err != nil {
		n.t.Fatalf("doctor says %.300q: %v", text, err)
	}
	var all []string
	for _, f := range report.Findings {
		switch m := refused.FindStringSubmatch(f.What); {
		case f.ID == "daemon.powers":
			n.t.Errorf("doctor does not know: %s", f.What)
		case m != nil:
			all = append(all, m[1]+" "+m[2])
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
