package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quietcore/quietcore/internal/doctext"
	"github.com/quietcore/quietcore/internal/rollout"
)

// tutorial is the page whose commands are run, and a folder with its file.
type tutorial struct {
	*fleet
	page doctext.Page
	dir  string
}

// TestRealAPIServerTutorial runs docs/fleet-policy.md step by step, as it stands there, on a real API server with three
// daemons, and wants what it shows. What it asks the daemons is run by cmd/quietcore.
func TestRealAPIServerTutorial(t *testing.T) {
	f := newFleet(t, "worker-7", "worker-8", "worker-9")
	pages, err := doctext.Pages("../..")
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(pages, func(p doctext.Page) bool { return p.Path == "docs/fleet-policy.md" })
	p := &tutorial{fleet: f, page: pages[at], dir: t.TempDir()}
	f.all(rollout.File, "off")
	commands, shown, begun := p.page.Commands(), 0, false
	ran := map[string]bool{}
	for _, b := range p.page.Blocks {
		if b.Info == "yaml" && strings.Contains(b.Text, "config: {memory: strict}") {
			hasty := strings.Replace(b.Text, "settleFor: 1m", "settleFor: 1s", 1)
			if hasty == b.Text {
				t.Errorf("the policy settles for another time than 1m:\n%s", b.Text)
			}
			if err := os.WriteFile(filepath.Join(p.dir, "batch.yaml"), []byte(hasty), 0o600); err != nil {
				t.Fatal(err)
			}
			begun = true
		}
		last := ""
		for ; len(commands) > 0 && commands[0].Line < b.Line+strings.Count(b.Text, "\n"); commands = commands[1:] {
			words := strings.Fields(commands[0].Text)
			if !begun || len(words) < 3 || words[0] != "kubectl" || words[1] == "quietcore" ||
				words[1] == "port-forward" {
				continue
			}
			last = commands[0].Text
			out := p.kubectl(last)
			p.follows(last)
			ran[words[1]] = true
			t.Logf("$ %s\n%s", last, out)
		}
		if begun && b.Info == "text" {
			shown++
			p.shows(b)
		}
	}
	if shown < 3 || !ran["apply"] || !ran["patch"] || !ran["annotate"] || !ran["get"] || !ran["delete"] {
		t.Errorf("the page shows %d outputs, and runs %v", shown, ran)
	}
	f.all(rollout.File, "off")
}

// kubectl runs a command line of it, as the administrator.
func (p *tutorial) kubectl(line string) string {
	p.t.Helper()
	run := exec.CommandContext(p.t.Context(), "sh", "-c", line)
	run.Dir = p.dir
	run.Env = append(os.Environ(), "KUBECONFIG="+p.Kubeconfig("admin", []string{"system:masters"}, nil),
		"PATH="+p.Programs()+":"+os.Getenv("PATH"))
	out, err := run.CombinedOutput()
	if err != nil {
		p.t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// follows waits for what a command says to be so; the kill switch has five seconds.
func (p *tutorial) follows(line string) {
	p.t.Helper()
	mode := ""
	switch {
	case strings.HasSuffix(line, "quietcore.dev/mode=observe"):
		mode = "observe"
	case strings.HasSuffix(line, "quietcore.dev/mode-"):
		mode = "enforce"
	default:
		return
	}
	began := time.Now()
	p.Within("every node has the mode "+mode, func() bool {
		return !slices.ContainsFunc(p.members, func(m *member) bool { return m.modeNow().Mode != mode })
	})
	if took := time.Since(began); mode == "observe" && took > 5*time.Second {
		p.t.Errorf("enforcement ended after %s", took)
	}
}

var someNode = regexp.MustCompile(`worker-\d`)

// likely is a table without what chance decides: which node was first.
func likely(table string) string {
	lines := strings.Split(strings.TrimSpace(someNode.ReplaceAllString(table, "worker-N")), "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// shows waits until the nodes say what the page shows.
func (p *tutorial) shows(b doctext.Block) {
	p.t.Helper()
	again := time.NewTicker(300 * time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(2 * time.Minute); ; <-again.C {
		got := p.kubectl("kubectl get quietcorenodes")
		if likely(got) == likely(b.Text) {
			fmt.Fprintln(p.t.Output(), got)
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s:%d: this is shown:\n%sand this is so after two minutes:\n%s", p.page.Path, b.Line, b.Text,
				got)
		}
	}
}
