package plugin

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/policy"
)

// rivals notices other NRI plugins that set the CPUs of containers. Where two set them for one container the runtime
// refuses it, and tells neither: the first one's answer comes to nothing, and the second one finds CPUs that nobody
// asked for.
type rivals struct {
	log    *slog.Logger
	notify func(policy.Notice)
	count  func(how string)
	now    func() time.Time

	mu      sync.Mutex
	kubelet *policy.KubeletState // nil: not known
	// open are the containers that were answered and of which nothing was heard since, by ID.
	open    map[string]answered
	odd     map[named]string         // CPUs that neither kubelet's state nor we gave, once
	refused map[named]int            // in a row, after an answer of ours
	found   map[string]*policy.Rival // by How
	told    map[string]time.Time
}

// named is a container across its lives.
type named struct{ uid, container string }

type answered struct {
	of     named
	ref    string // namespace/pod/container
	before string // the CPUs that it had already, where kubelet did not give them
}

const (
	mostOpen  = 512 // containers of each kind that are remembered
	tellAgain = time.Hour
)

func newRivals(o *Options) *rivals {
	return &rivals{log: o.Log, notify: o.Notify, count: o.Metrics.Rival, now: o.Clock.Now,
		open: map[string]answered{}, odd: map[named]string{}, refused: map[named]int{},
		found: map[string]*policy.Rival{}, told: map[string]time.Time{}}
}

// takeKubelet keeps what kubelet's own CPU manager has given: it sets CPUs in the runtime's request, too.
func (r *rivals) takeKubelet(s policy.KubeletState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kubelet = &s
}

// list is what was noticed, by kind.
func (r *rivals) list() []policy.Rival {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]policy.Rival, 0, len(r.found))
	for _, f := range r.found {
		all = append(all, *f)
	}
	slices.SortFunc(all, func(a, b policy.Rival) int { return strings.Compare(a.How, b.How) })
	return all
}

// connected begins with a runtime of which nothing else is known.
func (r *rivals) connected() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.open)
}

// answer notes what a container that is created had, and whether our answer gives it CPUs.
func (r *rivals) answer(pod *policy.Pod, c *policy.Container, ours bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := answered{of: named{pod.UID, c.Name}, ref: pod.Namespace + "/" + pod.Name + "/" + c.Name}
	for id, old := range r.open {
		if old.of == a.of && id != c.ID { // CRI-O does not say that it gave that one up
			r.giveUp(id)
		}
	}
	if c.CPUs != "" && !r.kubelets(a.of, c.CPUs) {
		a.before = c.CPUs
	}
	if a.before != "" && !ours {
		r.note(policy.RivalAlone, a.ref, givenAlone(a.ref, a.before))
	}
	if ours {
		remember(r.open, c.ID, a)
	}
}

// kubelets reports whether kubelet put these CPUs into the request, or may have: it saves what it gives before it asks
// the runtime, but we may read that later. So a request that differs counts the second time.
func (r *rivals) kubelets(c named, cpus string) bool {
	if r.kubelet == nil {
		return true
	}
	set, err := cpuset.Parse(cpus)
	if err != nil {
		return true
	}
	if r.kubelet.PolicyName != "static" {
		return false
	}
	given, pinned := r.kubelet.Entries[c.uid][c.container]
	if !pinned {
		given = r.kubelet.Default
	}
	if given == set {
		delete(r.odd, c)
		return true
	}
	again := r.odd[c] == cpus
	remember(r.odd, c, cpus)
	return !again
}

// gone notes that a container has ended, begun or not.
func (r *rivals) gone(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.giveUp(id)
}

// giveUp: a container that was answered did not come to be. Runtimes fail for reasons of their own; twice in a row is
// told.
func (r *rivals) giveUp(id string) {
	a, is := r.open[id]
	delete(r.open, id)
	switch {
	case !is:
		return
	case a.before != "":
		r.note(policy.RivalBefore, a.ref, fmt.Sprintf("container %s had CPUs %s"+
			" before Quietcore set them, too, and the runtime refused it", a.ref, a.before))
		return
	}
	n := r.refused[a.of] + 1
	remember(r.refused, a.of, n)
	if n > 1 {
		r.note(policy.RivalAfter, a.ref, fmt.Sprintf("container %s was refused %d times after "+
			"Quietcore had set its CPUs: another plugin sets them, too, or refuses it", a.ref, n))
	}
}

// made notes that a container has passed all plugins.
func (r *rivals) made(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a, is := r.open[id]; is {
		delete(r.open, id)
		delete(r.refused, a.of)
	}
}

func givenAlone(ref, cpus string) string {
	return fmt.Sprintf("container %s, to which Quietcore gives no CPUs, was given %s", ref, cpus)
}

// moved notes that a container was moved through its runtime: by another plugin, or by a client of the runtime.
func (r *rivals) moved(container string, to, back cpuset.Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(policy.RivalMoved, container, fmt.Sprintf("container %s was moved through its "+
		"runtime to CPUs %s, and back to %s", container, to, back))
}

// note records what was noticed, and tells it once in a while.
func (r *rivals) note(how, ref, message string) {
	r.count(how)
	f := r.found[how]
	if f == nil {
		f = &policy.Rival{How: how}
		r.found[how] = f
	}
	now := r.now()
	f.Times, f.Last, f.Container, f.Message = f.Times+1, now.UTC().Truncate(time.Second), ref, message
	if last, is := r.told[how]; is && now.Sub(last) < tellAgain {
		return
	}
	r.told[how] = now
	r.notify(policy.Notice{Reason: policy.ReasonRival, Message: f.String()})
}

// remember forgets all where there is no room: that costs a sentence, and no memory.
func remember[K comparable, V any](m map[K]V, key K, value V) {
	if _, known := m[key]; !known && len(m) >= mostOpen {
		clear(m)
	}
	m[key] = value
}
