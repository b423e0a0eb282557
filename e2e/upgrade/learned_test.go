package upgrade

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

// learned is the checkpoint of lending: what pods used, in what every version understands of it. The rest stays as
// it is.
type learned struct {
	Version  int             `json:"version"`
	Node     string          `json:"node"`
	At       time.Time       `json:"at"`
	Epoch    time.Time       `json:"epoch"`
	Cell     json.RawMessage `json:"cell"`
	Length   uint32          `json:"length"`
	Offered  float64         `json:"offered"`
	Observed [][3]uint32     `json:"observed"`
	Pods     []usedBy        `json:"pods"`

	Predictor  string          `json:"predictor"`
	Production json.RawMessage `json:"production"`
	Known      json.RawMessage `json:"known"`
}

type usedBy struct {
	ID      string       `json:"id"`
	Created time.Time    `json:"created"`
	First   uint32       `json:"first"`
	Runs    [][3]uint32  `json:"runs"`
	Points  [][2]float64 `json:"points"`
}

func (n *node) learned() (l learned) {
	text, err := os.ReadFile(n.at("state/lending.json"))
	if err == nil {
		err = json.Unmarshal(text, &l)
	}
	if err != nil {
		return learned{}
	}
	return l
}

// keepsCheckpoint: what a daemon learned of a batch pod's use in two hours is known to one of another version, and to
// the first again. Without it every idle pod would be taken for busy.
func keepsCheckpoint(t *testing.T, first, second string) {
	n := newNode(t, "a")
	n.shared = map[string]string{"b": "BE"}
	n.configure("cpi: {mode: \"off\"}\nreclaim: {mode: observe}")
	n.estimates(first)
	made := n.learned()
	if len(made.Pods) != 1 || made.At.IsZero() {
		t.Fatalf("saved %+v\n%s", made, n.log())
	}
	made.age(2*time.Hour, 1.5)
	text, err := json.Marshal(made)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.at("state/lending.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, next := range []string{second, first} {
		last := n.learned()
		n.estimates(next)
		got := n.learned()
		if log := n.log(); strings.Contains(log, "is not used") || !got.At.After(last.At) {
			t.Errorf("what was learned until %s is lost, or not saved at %s:\n%s", last.At, got.At, log)
		}
		// The clock that is counted with and that which is written differ by nanoseconds.
		if got.Epoch.Sub(made.Epoch).Abs() > time.Second || len(got.Pods) != 1 {
			t.Fatalf("windows begin at %s, want %s; pods: %+v", got.Epoch, made.Epoch, got.Pods)
		}
		was, is := made.Pods[0], got.Pods[0]
		if is.ID != was.ID || !is.Created.Equal(was.Created) || is.First != was.First || len(is.Runs) == 0 ||
			is.Runs[0][0] != 0 || len(is.Points) == 0 || is.Points[len(is.Points)-1] != [2]float64{100, 1.5} {
			t.Errorf("of the pod is known %+v, want as of %+v", is, was)
		}
	}
}

// estimates runs a daemon until it has measured for the first time, and ends it: it then saves what it learned.
func (n *node) estimates(daemon string) {
	n.t.Helper()
	n.while(daemon, func(saved) bool { return strings.Contains(n.log(), "BatchOvercommitted") },
		func(status, string) { n.end() })
}

// age makes the checkpoint that of a daemon which has measured a use for so long.
func (l *learned) age(by time.Duration, use float64) {
	cells := uint32(by / (5 * time.Minute)) // the cell by default
	l.Epoch = l.At.Add(-by)
	l.Observed = [][3]uint32{{0, 1, cells}}
	p := &l.Pods[0]
	p.Created, p.First, p.Runs, p.Points = l.Epoch, 0, l.Observed, [][2]float64{{50, use}, {100, use}}
}
