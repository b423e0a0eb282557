package incidents

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"
)

// Filter selects incidents. Empty fields match all.
//
// Victim and Antagonist name a job (with or without its namespace and kind), a pod
// (with or without its namespace) or NAMESPACE/POD/CONTAINER.
type Filter struct {
	Since, Until       time.Time
	Victim, Antagonist string
	Verdict            string
	Active             bool // a cap of it is in force
	Limit              int
}

// Summary is an incident in a list.
type Summary struct {
	ID        string    `json:"id"`
	At        time.Time `json:"at"`
	Victim    Subject   `json:"victim"`
	CPI       float64   `json:"cpi"`
	Threshold float64   `json:"threshold"`
	Mean      float64   `json:"mean"`
	Verdict   string    `json:"verdict"`
	Result    string    `json:"result,omitempty"`
	Before    float64   `json:"before,omitempty"`
	After     float64   `json:"after,omitempty"`
	Active    bool      `json:"active,omitempty"`
	Resource  string    `json:"resource,omitempty"` // that the victim lacked
	// DisturbedSeconds is Incident's; Suspect is the job that was suspected first.
	DisturbedSeconds float64             `json:"disturbedSeconds,omitempty"`
	Suspect          string              `json:"suspect,omitempty"`
	Antagonists      []SummaryAntagonist `json:"antagonists,omitempty"`
}

// SummaryAntagonist is an antagonist in a list.
type SummaryAntagonist struct {
	Subject
	Score         float64 `json:"score"`
	CappedSeconds float64 `json:"cappedSeconds"`
}

// Listing is the result of List, newest first.
type Listing struct {
	Incidents []Summary `json:"incidents"`
	More      bool      `json:"more"` // than Filter.Limit
	Kept      int       `json:"kept"` // of all incidents
	Oldest    time.Time `json:"oldest,omitzero"`
	Damaged   int       `json:"damaged,omitempty"` // could not be read
}

// Ways to rank and to group.
const (
	ByIncidents = "incidents"
	ByCapped    = "capped"
	ByScore     = "score"
	ByExcess    = "excess"

	GroupJob = "job"
	GroupPod = "pod"
)

// TopQuery ranks what hurt Victim, or what Antagonist hurt; with neither, all
// antagonists.
type TopQuery struct {
	Victim, Antagonist string
	Since, Until       time.Time
	By                 string // default ByIncidents
	Group              string // what a row is; default GroupJob
	Limit              int
}

// Rank is one row of a Top.
type Rank struct {
	Name          string  `json:"name"`
	Incidents     int     `json:"incidents"`
	CappedSeconds float64 `json:"cappedSeconds"`
	Score         float64 `json:"meanScore"`
	Blamed        int     `json:"blamed"` // containers of it, which the mean is over
	// sum of (CPI - normal) / normal, shared among the antagonists of an incident
	Excess float64   `json:"excess"`
	Helped int       `json:"helped"` // incidents in which acting on it made the victim normal again, or better
	Last   time.Time `json:"last"`
}

// Top is the result of a TopQuery. Unexplained incidents in the window have no
// antagonist.
type Top struct {
	Ranks       []Rank `json:"ranks"`
	More        bool   `json:"more"`
	Incidents   int    `json:"incidents"` // in the window, of that victim or antagonist
	Unexplained int    `json:"unexplained"`
	Damaged     int    `json:"damaged,omitempty"`
}

// Source answers queries about incidents: a Store, a Reader, or a daemon behind its
// socket.
type Source interface {
	List(context.Context, Filter) (*Listing, error)
	// Get takes an ID or a unique prefix.
	Get(ctx context.Context, id string) (*Incident, error)
	Top(context.Context, TopQuery) (*Top, error)
	// Export calls give for every matching incident, oldest first, until it fails.
	Export(ctx context.Context, f Filter, give func(*Incident) error) error
}

// NotFoundError says that no incident, or several, have that ID.
type NotFoundError struct {
	ID         string
	Candidates []string
}

func (e *NotFoundError) Error() string {
	if len(e.Candidates) == 0 {
		return fmt.Sprintf(
			"no incident has an ID that begins with %q; `quietcore incidents` lists those that are kept", e.ID)
	}
	return fmt.Sprintf("%q is the beginning of several IDs: %q; give more of it", e.ID, e.Candidates)
}

// jobName appends namespace/job, or namespace/pod if the job is unknown.
func (s rawSubject) jobName(to []byte) []byte {
	job := s.job
	if len(job) == 0 {
		job = s.pod
	}
	if n := len(s.namespace); len(job) > n && job[n] == '/' && bytes.Equal(job[:n], s.namespace) {
		return append(to, job...)
	}
	to = append(to, s.namespace...)
	to = append(to, '/')
	return append(to, job...)
}

func (s rawSubject) podName(to []byte) []byte {
	to = append(to, s.namespace...)
	to = append(to, '/')
	return append(to, s.pod...)
}

// matcher compares names without building them for each incident.
type matcher struct {
	want    string
	scratch []byte
}

func (m *matcher) match(s rawSubject) bool {
	if m.want == "" {
		return true
	}
	// Every form ends in one of three names; comparing the end first is cheap.
	tail := m.want[strings.LastIndexByte(m.want, '/')+1:]
	if n := len(s.job) - len(tail); (n < 0 || string(s.job[n:]) != tail) && string(s.pod) != tail &&
		string(s.container) != tail {
		return false
	}
	if string(s.job) == m.want || string(s.pod) == m.want {
		return true
	}
	m.scratch = s.jobName(m.scratch[:0])
	if string(m.scratch) == m.want {
		return true
	}
	// The job's own name, without a kind: web of default/Deployment/web; and with
	// the namespace alone.
	if i := bytes.LastIndexByte(m.scratch, '/'); i >= 0 {
		name := m.scratch[i+1:]
		if string(name) == m.want {
			return true
		}
		if n := len(s.namespace); len(m.want) == n+1+len(name) && m.want[:n] == string(s.namespace) &&
			m.want[n] == '/' && m.want[n+1:] == string(name) {
			return true
		}
	}
	m.scratch = s.podName(m.scratch[:0])
	if string(m.scratch) == m.want {
		return true
	}
	m.scratch = append(append(m.scratch, '/'), s.container...)
	return string(m.scratch) == m.want
}

// selection is a filter in use.
type selection struct {
	f                  Filter
	now                int64
	victim, antagonist matcher
}

func (f Filter) selection(now time.Time) *selection {
	return &selection{f: f, now: now.UnixMilli(), victim: matcher{want: f.Victim},
		antagonist: matcher{want: f.Antagonist}}
}

// matchesStart checks the first part of a digest, match the rest.
func (s *selection) matchesStart(d *digest) bool {
	return (s.f.Verdict == "" || string(d.verdict) == s.f.Verdict) && s.victim.match(d.victim)
}

func (s *selection) match(d *digest) bool {
	if s.f.Active && !d.active(s.now) {
		return false
	}
	return s.f.Antagonist == "" || slices.ContainsFunc(d.antagonists, func(a rawAntagonist) bool {
		return s.antagonist.match(a.rawSubject)
	})
}

func (d *digest) summary(id string, now int64) Summary {
	s := Summary{
		ID: id, At: time.UnixMilli(d.at).UTC(), Victim: d.victim.subject(), CPI: d.cpi, Threshold: d.threshold,
		Mean: d.mean, Resource: string(d.resource), DisturbedSeconds: d.disturbed, Suspect: string(d.suspect),
		Verdict: string(d.verdict), Result: string(d.result), Before: d.before, After: d.after, Active: d.active(now),
	}
	for i := range d.antagonists {
		a := &d.antagonists[i]
		s.Antagonists = append(s.Antagonists, SummaryAntagonist{Subject: a.subject(), Score: a.score,
			CappedSeconds: a.capped(now).Seconds()})
	}
	return s
}

// ranking sums incidents by the other party.
type ranking struct {
	q                  TopQuery
	now                int64
	victim, antagonist matcher
	rows               map[string]*row
	counted            map[uint64]struct{} // caps
	seed               maphash.Seed
	scratch            []byte
	out                Top
}

// row counts an incident once, with every antagonist in it that belongs to the row.
type row struct {
	Rank
	seq    uint64 // of the incident counted last
	number uint64
}

func (q TopQuery) ranking(now time.Time) *ranking {
	return &ranking{
		q: q, now: now.UnixMilli(), rows: map[string]*row{}, counted: map[uint64]struct{}{}, seed: maphash.MakeSeed(),
		victim: matcher{want: q.Victim}, antagonist: matcher{want: q.Antagonist},
	}
}

func (r *ranking) matchesStart(d *digest) bool { return r.victim.match(d.victim) }

func (r *ranking) add(d *digest) {
	if len(d.antagonists) == 0 && r.q.Antagonist == "" {
		r.out.Incidents++
		r.out.Unexplained++
		return
	}
	hit := false
	for i := range d.antagonists {
		a := &d.antagonists[i]
		if !r.antagonist.match(a.rawSubject) {
			continue
		}
		other := a.rawSubject
		if r.q.Antagonist != "" {
			other = d.victim
		}
		r.count(r.row(other), a, d)
		hit = true
	}
	if hit {
		r.out.Incidents++
	}
}

func (r *ranking) row(s rawSubject) *row {
	if r.q.Group == GroupPod {
		r.scratch = s.podName(r.scratch[:0])
	} else {
		r.scratch = s.jobName(r.scratch[:0])
	}
	to := r.rows[string(r.scratch)]
	if to == nil {
		to = &row{Rank: Rank{Name: string(r.scratch)}, number: uint64(len(r.rows))}
		r.rows[to.Name] = to
	}
	return to
}

func (r *ranking) count(to *row, a *rawAntagonist, d *digest) {
	if normal := cmp.Or(d.mean, d.threshold); normal > 0 {
		to.Excess += max(0, d.cpi/normal-1) / float64(len(d.antagonists))
	}
	to.Blamed++
	to.Score += a.score
	for _, c := range a.caps {
		if r.first(to, a, c.from) {
			to.CappedSeconds += c.lasted(r.now).Seconds()
		}
	}
	if to.Incidents > 0 && to.seq == d.seq {
		return
	}
	to.seq = d.seq
	to.Incidents++
	if string(d.result) == "success" || string(d.result) == "partial" {
		to.Helped++
	}
	if at := time.UnixMilli(d.at).UTC(); at.After(to.Last) {
		to.Last = at
	}
}

// first says that this cap was not counted in a row yet: victims share caps, and each
// has them in its incident.
func (r *ranking) first(to *row, a *rawAntagonist, from int64) bool {
	b := append(append(a.podName(r.scratch[:0]), '/'), a.container...)
	b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, uint64(from)), to.number)
	r.scratch = b
	// Two of a million caps collide once in ten million rankings.
	key := maphash.Bytes(r.seed, b)
	if _, known := r.counted[key]; known {
		return false
	}
	r.counted[key] = struct{}{}
	return true
}

func (r *ranking) top() *Top {
	r.out.Ranks = make([]Rank, 0, len(r.rows))
	for _, from := range r.rows {
		from.Score /= float64(from.Blamed)
		r.out.Ranks = append(r.out.Ranks, from.Rank)
	}
	r.q.cut(&r.out)
	return &r.out
}

// cut puts ranks in order, and leaves out those beyond the limit.
func (q *TopQuery) cut(t *Top) {
	slices.SortFunc(t.Ranks, func(a, b Rank) int {
		first := 0
		switch q.By {
		case ByCapped:
			first = cmp.Compare(b.CappedSeconds, a.CappedSeconds)
		case ByScore:
			first = cmp.Compare(b.Score, a.Score)
		case ByExcess:
			first = cmp.Compare(b.Excess, a.Excess)
		}
		return cmp.Or(first, cmp.Compare(b.Incidents, a.Incidents), cmp.Compare(b.Score, a.Score),
			cmp.Compare(b.CappedSeconds, a.CappedSeconds), cmp.Compare(b.Excess, a.Excess), cmp.Compare(a.Name, b.Name))
	})
	if q.Limit > 0 && len(t.Ranks) > q.Limit {
		t.Ranks, t.More = t.Ranks[:q.Limit], true
	}
}

// Merge is one Top of those of several nodes, which were asked the same without a limit: an incident is on one node,
// and so is a cap.
func (q TopQuery) Merge(tops []*Top) *Top {
	out, rows := &Top{}, map[string]*Rank{}
	for _, t := range tops {
		out.Incidents += t.Incidents
		out.Unexplained += t.Unexplained
		out.Damaged += t.Damaged
		out.More = out.More || t.More
		for i := range t.Ranks {
			from := &t.Ranks[i]
			to := rows[from.Name]
			if to == nil {
				to = &Rank{Name: from.Name}
				rows[from.Name] = to
			}
			to.add(from)
		}
	}
	out.Ranks = make([]Rank, 0, len(rows))
	for _, r := range rows {
		if r.Blamed > 0 {
			r.Score /= float64(r.Blamed)
		}
		out.Ranks = append(out.Ranks, *r)
	}
	q.cut(out)
	return out
}

// add sums; the score is a sum until it is divided by Blamed.
func (r *Rank) add(o *Rank) {
	r.Incidents += o.Incidents
	r.CappedSeconds += o.CappedSeconds
	r.Score += o.Score * float64(o.Blamed)
	r.Blamed += o.Blamed
	r.Excess += o.Excess
	r.Helped += o.Helped
	if o.Last.After(r.Last) {
		r.Last = o.Last
	}
}
