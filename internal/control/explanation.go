package control

import (
	"strings"

	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/policy"
)

// ExplainSchema names the form of `explain -o json`, which docs/explain.md lists. Within a
// version keys are added, and none is renamed, removed or given another meaning.
const ExplainSchema = "quietcore.dev/explain/v1"

// Explanation is where the containers of a pod may run, and why.
type Explanation struct {
	Schema    string `json:"schema"`
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	// Connected is false where the daemon has no runtime: all of this is what was known last.
	Connected  bool                 `json:"connected"`
	Containers []ExplainedContainer `json:"containers"` // that run
	Owners     []ExplainedOwner     `json:"owners"`
	Pools      script.Pools         `json:"pools"`
	Lending    *ExplainedLending    `json:"lending"` // nil: the pod is not best effort, or nothing is lent

	// Asked is what was asked for: namespace/pod or namespace/pod/container.
	Asked string `json:"-"`
}

// ExplainedContainer is a container that runs.
type ExplainedContainer struct {
	Container        string          `json:"container"`
	Class            policy.Class    `json:"class"`
	Pool             policy.PoolKind `json:"pool"`
	CPUs             string          `json:"cpus"`
	Withheld         string          `json:"withheld"`
	Mems             string          `json:"mems"`
	QuotaMilli       int64           `json:"quotaMilli"` // -1: none
	CapMilli         *int64          `json:"capMilli"`   // nil: none
	ManagedByKubelet bool            `json:"managedByKubelet"`
	Why              string          `json:"why"`
	Throttled        *Throttled      `json:"throttled"` // nil: not by this daemon
}

// ExplainedOwner are CPUs that are the pod's, or one container's, own until the pod ends.
type ExplainedOwner struct {
	Container        string `json:"container"` // empty: the pod as a whole
	CPUs             string `json:"cpus"`
	ManagedByKubelet bool   `json:"managedByKubelet"`
}

// ExplainedLending is what a best-effort pod was lent. Amounts are in CPUs.
type ExplainedLending struct {
	Requests float64          `json:"requests"`
	Counts   float64          `json:"counts"`
	Idle     bool             `json:"idle"`
	Why      string           `json:"why"`
	Budget   *ExplainedBudget `json:"budget"` // nil: best effort is not held back
	Part     *ExplainedPart   `json:"part"`   // nil: the pod has no quota of its own
	Taken    []Taken          `json:"taken"`
}

// ExplainedBudget is what all of best effort has together.
type ExplainedBudget struct {
	Mode  string  `json:"mode"` // observe or enforce
	CPUs  float64 `json:"cpus"`
	On    string  `json:"on"`    // a list of CPUs; empty: it is held by the quota
	Quota float64 `json:"quota"` // 0: none
}

// ExplainedPart is what the pod has of that budget, outside of the best-effort slice.
type ExplainedPart struct {
	Mode string  `json:"mode"`
	CPUs float64 `json:"cpus"`
}

// Explain is about a namespace, a pod and optionally a container; nil: none of it is here.
func (s *Status) Explain(want []string) *Explanation {
	e := &Explanation{Schema: ExplainSchema, Namespace: want[0], Pod: want[1], Pools: s.Pools,
		Connected: s.Connected && s.Synchronised, Containers: []ExplainedContainer{}, Owners: []ExplainedOwner{},
		Asked: strings.Join(want, "/")}
	for _, c := range s.Containers {
		if c.Namespace == want[0] && c.Pod == want[1] && (len(want) == 2 || c.Container == want[2]) {
			e.Containers = append(e.Containers, explainedOf(c, s.Throttled))
		}
	}
	for _, o := range s.Owners {
		if o.Namespace == want[0] && o.Pod == want[1] &&
			(o.Container == "" || len(want) == 2 || o.Container == want[2]) {
			e.Owners = append(e.Owners, ExplainedOwner{o.Container, o.CPUs, o.ManagedByKubelet})
		}
	}
	if len(e.Containers)+len(e.Owners) == 0 {
		return nil
	}
	e.Lending = lendingOf(s.Lending, want)
	return e
}

func explainedOf(c script.State, throttled map[string]Throttled) ExplainedContainer {
	out := ExplainedContainer{Container: c.Container, Class: c.Class, Pool: c.Pool, CPUs: c.CPUs, Withheld: c.Withheld,
		Mems: c.Mems, QuotaMilli: c.QuotaMilli, CapMilli: c.CapMilli, ManagedByKubelet: c.ByKubelet, Why: c.Why}
	if why, known := throttled[c.Namespace+"/"+c.Pod+"/"+c.Container]; known {
		out.Throttled = &why
	}
	return out
}

func lendingOf(l *Lending, want []string) *ExplainedLending {
	if l == nil {
		return nil
	}
	for _, p := range l.Pods {
		if p.Namespace != want[0] || p.Pod != want[1] {
			continue
		}
		out := &ExplainedLending{Requests: p.Requests, Counts: p.Counts, Idle: p.Idle, Why: p.Why,
			Taken: []Taken{}}
		if l.Suppressed != "" || l.Quota > 0 {
			out.Budget = &ExplainedBudget{Mode: l.Suppression, CPUs: l.Budget, On: l.Suppressed, Quota: l.Quota}
		}
		if p.Part > 0 && l.Group != nil {
			out.Part = &ExplainedPart{Mode: l.Group.Mode, CPUs: p.Part}
		}
		for _, t := range l.Taken {
			if t.Pod == "" || t.Pod == p.Namespace+"/"+p.Pod {
				out.Taken = append(out.Taken, t)
			}
		}
		return out
	}
	return nil
}
