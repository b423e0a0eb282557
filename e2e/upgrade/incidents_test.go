package upgrade

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quietcore/quietcore/internal/incidents"
)

// version is the programs of a tree.
type version struct{ name, daemon, keeps string }

// keeper builds the program that keeps incidents.
func (v Version) keeper(t *testing.T) string {
	t.Helper()
	binary, err := v.Program(t.Context(), root, KeepIncidents)
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// keepsIncidents: first, second and first again take over from each other a file of incidents that the one before was
// killed over. Nothing is lost, and each tells of an incident what both know of it.
func keepsIncidents(t *testing.T, first, second, older version) {
	n := newNode(t, "a")
	n.configure("cpi: {mode: observe}")
	kept := n.keepUntilKilled(first)
	last, told := kept[0], n.tell(first, kept[0], "--database", n.at("state/incidents.db"))
	for _, next := range []version{second, first} {
		n.while(next.daemon, func(s saved) bool { return s.pods() != "" }, func(status, string) {
			listed, damaged := n.listed(next)
			for _, id := range kept {
				if !slices.Contains(listed, id) {
					t.Errorf("%s does not list %s, which was on the disk when the one before it was killed", next.name,
						id)
				}
			}
			if len(listed) > len(kept)+1 || damaged > 0 {
				// The one that was under way when the program was killed may be there.
				t.Errorf("%s lists %d incidents and %d damaged ones; %d were kept", next.name, len(listed), damaged,
					len(kept))
			}
			kept = listed
			of := n.tell(next, last, "--socket", n.at("q.sock"))
			less, more := told, of
			if next == older {
				less, more = of, told
			}
			if missing := within(less, more); missing != "" || len(less) < 10 {
				t.Errorf("%s tells otherwise of an incident than who wrote it, at %q:\n%s", next.name, missing,
					cmp.Diff(told, of))
			}
		})
		kept = append(n.keepUntilKilled(next), kept...)
		last, told = kept[0], n.tell(next, kept[0], "--database", n.at("state/incidents.db"))
	}
	if aside, _ := filepath.Glob(n.at("state/*corrupt*")); len(aside) > 0 {
		t.Errorf("put aside: %v", aside)
	}
}

// keepUntilKilled has a version keep incidents, and kills it as by kill -9 while it does. It returns the IDs of those
// that are on the disk, newest first.
func (n *node) keepUntilKilled(v version) (ids []string) {
	n.t.Helper()
	if err := os.MkdirAll(n.at("state"), 0o700); err != nil {
		n.t.Fatal(err)
	}
	cmd := exec.CommandContext(n.t.Context(), v.keeps, n.at("state/incidents.db"))
	in, err := cmd.StdinPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	fed := make(chan struct{})
	go func() { defer close(fed); feed(in) }()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if ids = append([]string{lines.Text()}, ids...); len(ids) == 20 {
			_ = cmd.Process.Kill()
		}
	}
	_ = cmd.Wait()
	<-fed
	if len(ids) < 20 {
		n.t.Fatalf("%s kept %d incidents\n%s", v.name, len(ids), &said)
	}
	return ids
}

// feed writes incidents in which every field has something, without an end.
func feed(to io.Writer) {
	all := json.NewEncoder(to)
	for at := time.Now().UTC().Truncate(time.Millisecond); ; at = at.Add(time.Millisecond) {
		var i incidents.Incident
		fill(reflect.ValueOf(&i).Elem(), at)
		i.ID = "" // the program gives it one
		if all.Encode(&i) != nil {
			return
		}
	}
}

// fill gives every field a value. at is the time of all.
func fill(v reflect.Value, at time.Time) {
	switch x := v.Addr().Interface().(type) {
	case *time.Time:
		*x = at
		return
	case *time.Duration:
		*x = time.Minute
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), at)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), at)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), at)
	case reflect.String:
		v.SetString("text")
	case reflect.Float64:
		v.SetFloat(1.25)
	case reflect.Int, reflect.Int64:
		v.SetInt(3)
	case reflect.Bool:
		v.SetBool(true)
	}
}

// listed asks the daemon that runs, with its own program.
func (n *node) listed(v version) (ids []string, damaged int) {
	n.t.Helper()
	var all incidents.Listing
	n.ask(v, &all, "list", "--limit", "0", "--socket", n.at("q.sock"))
	for _, i := range all.Incidents {
		ids = append(ids, i.ID)
	}
	return ids, all.Damaged
}

// tell is all that a version says of an incident.
func (n *node) tell(v version, id string, from ...string) (all map[string]any) {
	n.t.Helper()
	n.ask(v, &all, append([]string{"show", id}, from...)...)
	return all
}

func (n *node) ask(v version, into any, args ...string) {
	n.t.Helper()
	cmd := exec.CommandContext(n.t.Context(), v.daemon, append([]string{"incidents", "-o", "json"}, args...)...)
	var said strings.Builder
	cmd.Stderr = &said
	text, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		n.t.Fatalf("%s: %v: %v\n%s", v.name, cmd.Args, err, &said)
	}
}

// within is where a document says otherwise than one that may say more; empty: nowhere.
func within(less, more any) string {
	switch l := less.(type) {
	case map[string]any:
		m, _ := more.(map[string]any)
		for key, value := range l {
			if at := within(value, m[key]); at != "" {
				return key + " " + at
			}
		}
		return ""
	case []any:
		m, _ := more.([]any)
		if len(m) != len(l) {
			return "its length"
		}
		for i, value := range l {
			if at := within(value, m[i]); at != "" {
				return at
			}
		}
		return ""
	}
	if reflect.DeepEqual(less, more) {
		return ""
	}
	return "its value"
}
