package node

import (
	"cmp"
	"errors"
	"reflect"
	"slices"

	"github.com/quietcore/quietcore/cpuset"
	"github.com/quietcore/quietcore/internal/cgroup"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/policy"
)

// query is one read that a Synchronize needs.
type query struct {
	path string // as listings spell it
	kind EffectKind
}

// reading is its result.
type reading struct {
	e     cgroup.Effective
	names []string
	err   error
}

func (q query) effect() *Effect { return &Effect{Kind: q.kind, Path: q.path} }

func (q query) reading(r *Result) reading { return reading{e: r.Seen, names: r.Names, err: r.Err} }

// errUnread is the result of a cgroup that was not read yet.
var errUnread = errors.New("not read yet")

// seenReader answers from earlier reads, so that a recovery never waits for the kernel.
type seenReader map[query]reading

func (s seenReader) Effective(path string) (cgroup.Effective, error) {
	if found, ok := s[query{cleanOf(path), ReadAll}]; ok {
		return found.e, found.err
	}
	return cgroup.Effective{}, errUnread
}

func (s seenReader) CPUs(path string) (cgroup.Effective, error) {
	if found, ok := s[query{cleanOf(path), ReadCPUs}]; ok {
		return found.e, found.err
	}
	return s.Effective(path)
}

// lacks reports whether a cgroup is still to be read, or was written since it was.
func (s seenReader) lacks(path string) bool {
	_, err := s.CPUs(path)
	return path != "" && errors.Is(err, errUnread)
}

func (s seenReader) Allowed(path string) (cpuset.Set, error) {
	e, err := s.CPUs(path)
	return e.CPUs, err
}

func (s seenReader) Children(path string) ([]string, error) {
	if path != "/" {
		path = cleanOf(path)
	}
	if found, ok := s[query{path, List}]; ok {
		return found.names, found.err
	}
	return nil, errUnread
}

// taking is one takeover of running pods: which cgroups to read in which order, the answer to the
// Synchronize from what was read by then, and the corrections by later reads. It does no I/O.
type taking struct {
	recovery // as of the runtime's lists; its reader is not used
	listed   Inventory
	// again means that this daemon has taken over before: a pod that it did not place owns
	// nothing.
	again bool
	// unread are pods, by UID, that an earlier taking left unread.
	unread map[string]bool

	queries []query
	urgent  int // how many of the first queries decide which pods own what

	// The answer, with its corrections since.
	answered map[string]policy.Pod
	limits   map[string]policy.Container
	observed map[string]bool // cgroups that were read, by path; true: it had a mask
	followed map[string]bool // resizes, by sandbox: those of its answers, and those that an event told
}

func newTaking(r recovery, listed Inventory, again bool, unread map[string]bool) *taking {
	t := &taking{recovery: r, listed: listed, again: again, unread: unread, answered: map[string]policy.Pod{},
		limits: map[string]policy.Container{}, observed: map[string]bool{},
		followed: map[string]bool{}}
	t.plan()
	return t
}

// recorded reports whether the state file has CPUs of a pod. A pod that was in the pool when the file
// was written may have received CPUs since.
func (t *taking) recorded(uid string) bool {
	saved, ok := t.saved[uid]
	return ok && (!saved.CPUs.IsEmpty() || saved.Reservation != nil)
}

// questionable reports whether only a read can show what a pod owns. A pod that started without this
// daemon during its life owns nothing.
func (t *taking) questionable(p *policy.Pod) bool {
	return p.Exclusive() && (t.unread[p.UID] || !t.again && !t.known(p.UID) && !t.recorded(p.UID))
}

// plan orders the reads by priority: pods that ask to own CPUs and have no record first, then
// slices, then the rest.
func (t *taking) plan() {
	if t.reader == nil {
		return
	}
	const (
		unrecorded = iota
		slice
		owner
		other
		container
		priorities
	)
	var by [priorities][]query
	have := map[query]bool{}
	add := func(priority int, path string, kind EffectKind) {
		q := query{path, kind}
		if kind != List || path != "/" {
			q.path = cleanOf(path)
		}
		if path != "" && !have[q] {
			have[q] = true
			by[priority] = append(by[priority], q)
		}
	}
	pods := t.group(t.listed)
	for _, p := range pods {
		path := p.pod.CgroupParent
		if len(p.containers) == 0 && path != "" {
			add(slice, parentOf(cleanOf(path)), List)
		}
		add(slice, burstableOf(&p.pod), ReadCPUs)
		switch {
		case mayBeCapped(&p.pod):
			add(other, path, ReadAll)
		case !p.pod.Exclusive():
			add(other, path, ReadCPUs)
		case t.questionable(&p.pod):
			add(unrecorded, path, ReadAll)
		default:
			add(owner, path, ReadAll)
		}
		for _, c := range p.containers {
			kind, priority := ReadCPUs, container
			if mayBeOurs(&p.pod) {
				kind = ReadAll
			}
			if named, _ := p.pod.Names(c.Name); named && t.questionable(&p.pod) {
				priority = unrecorded
			}
			add(priority, c.CgroupPath, kind)
		}
	}
	t.queries = slices.Concat(by[:]...)
	if len(by[unrecorded]) > 0 {
		t.urgent = len(by[unrecorded]) + len(by[slice])
	}
}

// takingResult is what follows from the reads so far.
type takingResult struct {
	event    policy.Synchronized
	observed map[string]*cgroup.Effective
	resized  []policy.PodResized
}

// evaluate turns the reads so far into an event. unread reports which pods the policy has as unread.
func (t *taking) evaluate(seen map[query]reading, unread func(uid string) bool) takingResult {
	r := t.recovery
	if r.reader != nil {
		r.reader = seenReader(seen)
	}
	var out takingResult
	out.event = r.synchronized(t.listed)
	out.observed, out.resized = r.observed, r.resized
	if t.again {
		out.event.Caps = nil // the policy has them
	}
	t.holdBack(&out, seen, unread)
	return out
}

// holdBack marks as unread the pods that ask to own CPUs and whose CPUs are not known: those that
// are not read yet and, while there are any, also those that were read and found without CPUs of
// their own. These get CPUs once no other pod may hold them. A pod that was answered as unread
// and is not unread any more has ended, so its cgroup cannot be read. The masks of the
// slices show what a pod's mask means, so pods are held back until these are read, too.
func (t *taking) holdBack(out *takingResult, seen map[query]reading, unread func(uid string) bool) {
	open := len(t.unreadSlices(seen)) > 0
	for _, q := range t.queries[:t.urgent] {
		if _, done := seen[q]; !done {
			open = true
		}
	}
	for i := range out.event.Pods {
		// A read that failed shows nothing, but what the runtime stores may be enough.
		p := &out.event.Pods[i]
		ended := t.answered[p.UID].Unread && !unread(p.UID)
		open = open || t.questionable(p) && (p.Recovered == nil && failed(seen, p) && !ended || t.claimed(p, seen))
	}
	if !open {
		return
	}
	held := map[string]bool{}
	for i := range out.event.Pods {
		p := &out.event.Pods[i]
		if !t.questionable(p) {
			continue
		}
		p.Recovered, p.Unread = nil, true
		held[p.Sandbox] = true
	}
	out.resized = slices.DeleteFunc(out.resized, func(e policy.PodResized) bool { return held[e.Sandbox] })
}

// claimed reports whether some of the CPUs that a pod was found to own are another's by the state file, and that one's
// cgroup, which shows whether it still has them, is not read yet.
func (t *taking) claimed(p *policy.Pod, seen map[query]reading) bool {
	if before, told := t.answered[p.UID]; p.Recovered == nil || told && !before.Unread {
		return false
	}
	found := ownedBy(p.Recovered)
	return slices.ContainsFunc(t.listed.Pods, func(o policy.Pod) bool {
		saved := t.saved[o.UID].CPUs
		return o.UID != p.UID && saved.Intersects(&found) && seenReader(seen).lacks(o.CgroupParent)
	})
}

// unreadSlices are the failed reads of slices, whose masks show what the masks of pods mean.
func (t *taking) unreadSlices(seen map[query]reading) (list []query) {
	for _, q := range t.queries[:t.urgent] {
		if err := seen[q].err; q.kind == ReadCPUs && err != nil && !errors.Is(err, cgroup.ErrGone) {
			list = append(list, q)
		}
	}
	return list
}

// failed reports whether the cgroup of a pod could not be read.
func failed(seen map[query]reading, p *policy.Pod) bool {
	found, done := seen[queryOf(p)]
	return done && found.err != nil
}

// queryOf is the read that shows what a pod owns.
func queryOf(p *policy.Pod) query { return query{cleanOf(p.CgroupParent), ReadAll} }

// capped reports whether the file has a cap of a container, expired or not.
func (t *taking) capped(c *policy.Container) bool {
	return slices.ContainsFunc(t.caps, func(was state.Cap) bool {
		return was.Container == c.Name && t.answered[was.PodUID].Sandbox == c.Sandbox
	})
}

// unreadable lists the failed reads of pods whose CPUs nothing else shows, and of containers that may
// have a cap of ours, and of their pods, whose limits may follow the caps: those with a cap in the file and, without
// a file, all. A cgroup that is not found counts as long as the policy knows its container: all of a slice may look
// gone for a while. So does a read that was dropped because a mask was written: that shows no limit.
func (t *taking) unreadable(seen map[query]reading, unread, knows func(id string) bool) []query {
	var list []query
	waiting := false
	for uid, p := range t.answered {
		waiting = waiting || unread(uid)
		if unread(uid) && failed(seen, &p) {
			list = append(list, queryOf(&p))
		}
	}
	if waiting {
		list = append(list, t.unreadSlices(seen)...)
	}
	pods := t.podsBySandbox()
	for id, c := range t.guesses(seen) {
		if !t.unrecorded(id) && !t.capped(&c) || !knows(id) {
			continue
		}
		p := pods[c.Sandbox]
		for _, path := range []string{c.CgroupPath, p.CgroupParent} {
			q := query{cleanOf(path), ReadAll}
			if found, done := seen[q]; done && found.err != nil || !done && path != "" && mayBeCapped(p) {
				list = append(list, q)
			}
		}
	}
	slices.SortFunc(list, func(a, b query) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.kind, b.kind))
	})
	return slices.Compact(list)
}

// answer is the event for the policy, from the reads so far.
func (t *taking) answer(seen map[query]reading, unread func(uid string) bool) takingResult {
	out := t.evaluate(seen, unread)
	t.note(&out)
	for uid := range t.unread {
		if p, listed := t.answered[uid]; listed {
			p.Unread = true // the policy knows the pod already and takes nothing else from the answer
			t.answered[uid] = p
		}
	}
	for id, before := range t.guessed {
		if _, listed := t.limits[id]; listed {
			t.limits[id] = before // the same of its limit
		}
	}
	return out
}

// guesses are the answered containers, by ID, that may have a limit of ours and are not read, or their pods are not.
// Where the policy knows a limit already, it keeps that one: it is no guess.
func (t *taking) guesses(seen map[query]reading) map[string]policy.Container {
	pods, reader, guessed := t.podsBySandbox(), seenReader(seen), map[string]policy.Container{}
	for id, c := range t.limits {
		p := pods[c.Sandbox]
		if p == nil || !mayBeOurs(p) || t.limitKnown(p.UID, id) {
			continue
		}
		_, err := reader.Effective(c.CgroupPath)
		_, above := reader.Effective(p.CgroupParent)
		if err != nil || above != nil {
			guessed[id] = c
		}
	}
	return guessed
}

func (t *taking) podsBySandbox() map[string]*policy.Pod {
	pods := make(map[string]*policy.Pod, len(t.listed.Pods))
	for i := range t.listed.Pods {
		pods[t.listed.Pods[i].Sandbox] = &t.listed.Pods[i]
	}
	return pods
}

func (t *taking) note(out *takingResult) {
	for _, p := range out.event.Pods {
		t.answered[p.UID] = p
	}
	for _, c := range out.event.Containers {
		t.limits[c.ID] = c
	}
	for path, e := range out.observed {
		t.observed[path] = t.observed[path] || e != nil
	}
	for _, e := range out.resized {
		t.followed[e.Sandbox] = true
	}
}

// changes are the corrections of the answer by later reads.
type changes struct {
	now       takingResult
	corrected policy.Corrected
	observed  map[string]*cgroup.Effective
	resized   []policy.PodResized
}

// otherPlace reports whether a pod has another place than it was answered with. A resize is followed as such.
func otherPlace(before, now *policy.Recovered) bool {
	if before != nil {
		was := *before
		was.ResizedTo, before = now.ResizedTo, &was
	}
	return !reflect.DeepEqual(before, now)
}

// correct compares the reads so far with the answer. Cgroups whose reads were dropped because they
// were written stay as answered.
func (t *taking) correct(seen map[query]reading, isUnread func(uid string) bool) changes {
	now := t.evaluate(seen, isUnread)
	c := changes{now: now, observed: map[string]*cgroup.Effective{}}
	reader := seenReader(seen)
	listed, entered := map[string]bool{}, map[string]bool{}
	for i, p := range now.event.Pods {
		before, known := t.answered[p.UID]
		if listed[p.UID] || !known || p.Unread {
			continue
		}
		if reader.lacks(p.CgroupParent) {
			now.event.Pods[i] = before // a later read corrects it
			continue
		}
		listed[p.UID] = true
		if before.Unread || !t.known(p.UID) && p.Recovered != nil && otherPlace(before.Recovered, p.Recovered) {
			c.corrected.Pods = append(c.corrected.Pods, policy.Correction{UID: p.UID, Recovered: p.Recovered})
		}
		if before.Unread { // it has no decision before this correction, so the tree has none of its cgroups
			entered[cleanOf(p.CgroupParent)] = true
		}
	}
	for i, p := range now.event.Containers {
		before, known := t.limits[p.ID]
		if !known || p.Asked == before.Asked && p.Resources == before.Resources {
			continue
		}
		if reader.lacks(p.CgroupPath) {
			now.event.Containers[i] = before // a later read corrects it
			continue
		}
		c.corrected.Containers = append(c.corrected.Containers, policy.ContainerCorrection{
			ID: p.ID, Was: before.Asked.Quota, LimitMilli: p.Resources.LimitMilli, Asked: p.Asked,
			StoredLimits: p.StoredLimits, FoundCap: p.FoundCap,
		})
	}
	for path, e := range now.observed {
		masked, read := t.observed[path]
		news := !read || !masked && e != nil
		if news || entered[cleanOf(path)] || entered[parentOf(cleanOf(path))] {
			c.observed[path] = e
		}
	}
	for _, e := range now.resized {
		if !t.followed[e.Sandbox] {
			c.resized = append(c.resized, e)
		}
	}
	return c
}
