package rollout

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Policy is a QuietcorePolicy.
type Policy struct {
	Name       string
	Generation int64 // of its spec; people call it the revision

	Priority       int
	MaxUnavailable int           // places
	SettleFor      time.Duration // how long a node has to work before the next one changes
	// Config is what it says of the configuration, in JSON without needless spaces.
	Config []byte
	// Bad is why it cannot be read; empty: it can.
	Bad string

	selector labels.Selector
}

// Bounds of a policy. The schema of the object has the same.
const (
	MaxPlaces  = 1000
	maxSettle  = time.Hour
	usualPlace = 1
	// UsualSettle is how long a node has to work where a policy does not say it.
	UsualSettle = 30 * time.Second
	// MaxSpec bounds the spec of a policy, in bytes.
	MaxSpec = 64 << 10
)

// ReadPolicy reads the spec of an object. It always returns a policy: what cannot be read is bad.
func ReadPolicy(name string, generation int64, spec []byte) Policy {
	p := Policy{Name: name, Generation: generation, MaxUnavailable: usualPlace, SettleFor: UsualSettle,
		selector: labels.Nothing()}
	if err := p.read(spec); err != nil {
		p.Bad = err.Error()
	}
	return p
}

func (p *Policy) read(text []byte) error {
	if len(text) > MaxSpec {
		return fmt.Errorf("its spec has more than %d bytes", MaxSpec)
	}
	var spec struct {
		NodeSelector metav1.LabelSelector `json:"nodeSelector"`
		Priority     int                  `json:"priority"`
		Rollout      struct {
			MaxUnavailable *int    `json:"maxUnavailable"`
			SettleFor      *string `json:"settleFor"`
		} `json:"rollout"`
		Config json.RawMessage `json:"config"`
	}
	if err := json.Unmarshal(text, &spec); err != nil {
		return fmt.Errorf("spec: %w", err)
	}
	selector, err := metav1.LabelSelectorAsSelector(&spec.NodeSelector)
	if err != nil {
		return fmt.Errorf("nodeSelector: %w", err)
	}
	if n := spec.Rollout.MaxUnavailable; n != nil {
		if *n < 1 || *n > MaxPlaces {
			return fmt.Errorf("rollout.maxUnavailable: is %d, must be 1 to %d", *n, MaxPlaces)
		}
		p.MaxUnavailable = *n
	}
	if s := spec.Rollout.SettleFor; s != nil {
		d, err := time.ParseDuration(*s)
		if err != nil || d < 0 || d > maxSettle {
			return fmt.Errorf("rollout.settleFor: is %.40q, must be 0s to %s", *s, maxSettle)
		}
		p.SettleFor = d
	}
	if len(spec.Config) == 0 {
		spec.Config = json.RawMessage("{}")
	}
	if p.Config, err = canonical(spec.Config); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	p.Priority, p.selector = spec.Priority, selector
	return nil
}

// canonical has the keys of a mapping sorted, so that the same configuration is the same text.
func canonical(text []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var all map[string]any
	if err := d.Decode(&all); err != nil {
		return nil, err
	}
	if all == nil {
		all = map[string]any{}
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(all)
	return bytes.TrimSpace(out.Bytes()), err
}

// Selects reports whether the policy selects a node with these labels. A bad one selects none.
func (p *Policy) Selects(node map[string]string) bool {
	return p.Bad == "" && p.selector.Matches(labels.Set(node))
}

// stops says that the policy has nothing enforced.
func (p *Policy) stops() bool { return Stops(p.Config) }

// Stops reports whether a configuration has nothing enforced.
func Stops(config []byte) bool {
	var said struct {
		Mode string `json:"mode"`
	}
	return json.Unmarshal(config, &said) == nil && said.Mode == "observe"
}

// Stopped is a configuration with nothing enforced, and all else as it was. nil is one that says nothing.
func Stopped(config []byte) []byte {
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(config, &all); err != nil || all == nil {
		all = map[string]json.RawMessage{}
	}
	all["mode"] = json.RawMessage(`"observe"`)
	text, err := json.Marshal(all)
	if err == nil {
		text, err = canonical(text)
	}
	if err != nil {
		return []byte(`{"mode":"observe"}`)
	}
	return text
}

// String is the policy's name with the revision.
func (p *Policy) String() string { return fmt.Sprintf("%s, revision %d", p.Name, p.Generation) }

// Choose returns the policy that a node with these labels follows: of those that select it the one of the highest
// priority; nil: none does. doubt is why that is not known; the node then keeps what it has.
func Choose(policies []Policy, node map[string]string) (chosen *Policy, doubt string) {
	var bad, first []string
	for i := range policies {
		p := &policies[i]
		switch {
		case p.Bad != "":
			bad = append(bad, fmt.Sprintf("QuietcorePolicy %s cannot be read: %s", p.Name, p.Bad))
		case !p.Selects(node) || chosen != nil && p.Priority < chosen.Priority:
		case chosen != nil && p.Priority == chosen.Priority:
			first = append(first, p.Name)
		default:
			chosen, first = p, []string{p.Name}
		}
	}
	slices.Sort(bad)
	slices.Sort(first)
	switch {
	case len(bad) > 0:
		return nil, strings.Join(bad, "; ")
	case len(first) > 1:
		return nil, fmt.Sprintf("the policies %s select this node with the same priority, %d; give one of them another",
			strings.Join(first, " and "), chosen.Priority)
	}
	return chosen, ""
}
