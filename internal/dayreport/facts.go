package dayreport

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Pod is one that ran here.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"pod"`
	Class     string `json:"class,omitempty"`
}

func (p *Pod) String() string { return p.Namespace + "/" + p.Name }

// Look is how the node is at a moment. Amounts are in CPUs.
type Look struct {
	At       time.Time
	Enforced bool    // else Shared, Open and what pods own is only decided
	Online   float64 // CPUs
	Shared   float64 // of the shared pool
	Open     float64 // of the shared and the best-effort pool together
	// Outside is what all but pods used since the last look. Known says that it, and what pods used, was measured.
	Outside float64
	Known   bool
	Pods    []PodLook
	// Lendable is what the estimator would lend; nil: nobody estimates.
	Lendable *float64
	// Refused are the pods that do not start, or would not.
	Refused []Refused
}

// PodLook is a pod at a moment.
type PodLook struct {
	Pod
	Owns     float64 // CPUs of its own
	Apart    bool    // these are not in the best-effort pool
	Requests float64
	Used     float64 // since the last look
}

// production says that the pod is promised CPUs, so that those that it does not use are idle.
func (p *PodLook) production() bool { return p.Class == "LSE" || p.Class == "LSR" || p.Class == "LS" }

// allocated is what nobody else is promised.
func (p *PodLook) allocated() float64 {
	switch {
	case !p.production():
		return 0
	case p.Owns > 0:
		return p.Owns
	}
	return p.Requests
}

// Refused is a pod that was refused.
type Refused struct {
	Pod
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Pair is a pod that owns CPUs, or would, and what another one had of the cores that it ran on.
type Pair struct {
	Owner, Other Pod
	CPUs         float64 // on average over the owner's CPU time
	// Parts says that the two have no core in common by what is decided.
	Parts bool
}

// Facts are what was seen in a part of an hour in one mode. Sums are in CPU-seconds.
type Facts struct {
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	Enforced bool      `json:"enforced,omitempty"`
	// Seconds were looked at, in Known of them it was measured who uses what, and in Lending somebody estimated.
	Seconds float64 `json:"seconds"`
	Known   float64 `json:"known"`
	Lending float64 `json:"lending"`

	Online   float64 `json:"online"`
	Owned    float64 `json:"owned"`
	Lendable float64 `json:"lendable"`
	Use      Use     `json:"use"`
	Tight    Tight   `json:"tight"`
	// Counted is the time in which it was counted who ran where.
	Counted float64                `json:"counted"`
	Pods    map[string]*PodFacts   `json:"pods,omitempty"`
	Pairs   map[string]*PairFacts  `json:"pairs,omitempty"`
	Refused map[string]*RefusedFor `json:"refused,omitempty"`
	// Left is how many entries there was no room for.
	Left int `json:"left,omitempty"`
}

// Use is what was used in the seconds in which that is known.
type Use struct {
	Requested  float64 `json:"requested"` // by production
	Production float64 `json:"production"`
	Batch      float64 `json:"batch"`
	Outside    float64 `json:"outside"`
	Idle       float64 `json:"idle"` // of what production was allocated
}

// Tight is what does not fit into the pools as they are decided: the seconds, and what was used in them beyond that.
type Tight struct {
	ProductionSeconds float64 `json:"productionSeconds"`
	Production        float64 `json:"production"`
	BatchSeconds      float64 `json:"batchSeconds"`
	Batch             float64 `json:"batch"`
}

// PodFacts are sums of a production pod.
type PodFacts struct {
	Pod
	Seconds   float64 `json:"seconds"`
	Owned     float64 `json:"owned"`
	Allocated float64 `json:"allocated"`
	Used      float64 `json:"used"`
	Idle      float64 `json:"idle"`
}

// PairFacts are sums of a pair, of the time in which the other one had a noticeable part of the owner's cores.
type PairFacts struct {
	Owner   Pod     `json:"owner"`
	Other   Pod     `json:"other"`
	Seconds float64 `json:"seconds"`
	Parts   float64 `json:"parts"` // of these, while the two had no core in common by what was decided
	CPUs    float64 `json:"cpus"`
}

// RefusedFor is a refused pod, and for how long it was.
type RefusedFor struct {
	Refused
	Seconds float64 `json:"seconds"`
}

// Bounds. A full bucket takes some 200 kB with usual names, and a megabyte with the longest.
const (
	keepFor    = 25 * time.Hour
	maxBuckets = 60 // more than hours: the mode may change within one
	maxPods    = 128
	maxPairs   = 256
	maxRefused = 32
	// maxGap is how long a look stands for at most.
	maxGap = 3 * time.Minute
	// noticed is how much of an owner's cores another pod has to have had.
	noticed = 0.05
)

// Day keeps the facts of a day. It is safe for concurrent use.
type Day struct {
	mu      sync.Mutex
	buckets []*Facts // oldest first
	last    time.Time
}

// NewDay has no facts yet.
func NewDay() *Day { return &Day{} }

// Look takes how the node is now. It stands for the time since the look before.
func (d *Day) Look(l *Look) {
	d.mu.Lock()
	defer d.mu.Unlock()
	span := l.At.Sub(d.last)
	if d.last.IsZero() || span < 0 || span > maxGap {
		span = 0
	}
	d.last = l.At
	f := d.bucket(l.At, l.Enforced)
	if seconds := span.Seconds(); seconds > 0 {
		f.look(l, seconds)
	}
}

// Share takes who had which part of whose cores in a window that stands for so long.
func (d *Day) Share(at time.Time, span time.Duration, enforced bool, pairs []Pair) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.bucket(at, enforced)
	seconds := span.Seconds()
	f.Counted += seconds
	for i := range pairs {
		p := &pairs[i]
		if p.CPUs < noticed {
			continue
		}
		sum := entry(f, f.Pairs, p.Owner.String()+" "+p.Other.String(), maxPairs, func(p *PairFacts) float64 {
			return p.Seconds
		})
		sum.Owner, sum.Other = p.Owner, p.Other
		sum.Seconds += seconds
		sum.CPUs += seconds * p.CPUs
		if p.Parts {
			sum.Parts += seconds
		}
	}
}

// Facts is a copy of what is kept, oldest first.
func (d *Day) Facts() []Facts {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make([]Facts, 0, len(d.buckets))
	for _, f := range d.buckets {
		c := *f
		c.Pods, c.Pairs, c.Refused = copied(f.Pods), copied(f.Pairs), copied(f.Refused)
		list = append(list, c)
	}
	return list
}

func copied[T any](from map[string]*T) map[string]*T {
	to := make(map[string]*T, len(from))
	for key, v := range from {
		c := *v
		to[key] = &c
	}
	return to
}

// bucket is that of a moment. Where the clock was set back it is the newest.
func (d *Day) bucket(at time.Time, enforced bool) *Facts {
	at = at.UTC()
	if n := len(d.buckets); n > 0 {
		if f := d.buckets[n-1]; f.Enforced == enforced && at.Before(f.From.Truncate(time.Hour).Add(time.Hour)) {
			f.To = at
			return f
		}
	}
	f := &Facts{From: at, To: at, Enforced: enforced, Pods: map[string]*PodFacts{}, Pairs: map[string]*PairFacts{},
		Refused: map[string]*RefusedFor{}}
	d.buckets = append(d.buckets, f)
	d.buckets = slices.DeleteFunc(d.buckets, func(f *Facts) bool { return at.Sub(f.To) > keepFor })
	d.buckets = slices.Delete(d.buckets, 0, max(len(d.buckets)-maxBuckets, 0))
	return f
}

// look adds a look that stands for so many seconds.
func (f *Facts) look(l *Look, seconds float64) {
	f.Seconds += seconds
	f.Online += seconds * l.Online
	for i := range l.Pods {
		f.Owned += seconds * l.Pods[i].Owns
	}
	if l.Lendable != nil {
		f.Lending += seconds
		f.Lendable += seconds * *l.Lendable
	}
	for i := range l.Refused {
		r := &l.Refused[i]
		sum := entry(f, f.Refused, r.String(), maxRefused, func(r *RefusedFor) float64 { return r.Seconds })
		sum.Refused = *r
		sum.Seconds += seconds
	}
	if l.Known {
		f.use(l, seconds)
	}
}

func (f *Facts) use(l *Look, seconds float64) {
	f.Known += seconds
	var onShared, batch, open float64 // what is used there
	outside := l.Outside
	for i := range l.Pods {
		p := &l.Pods[i]
		switch {
		case p.Class == "BE":
			batch += p.Used
			continue
		case !p.production():
			outside += p.Used // of the system's class
			continue
		case p.Owns == 0:
			onShared += p.Used
		case !p.Apart:
			open += p.Used
		}
		idle := max(0, p.allocated()-p.Used)
		f.Use.Requested += seconds * p.Requests
		f.Use.Production += seconds * p.Used
		f.Use.Idle += seconds * idle
		sum := entry(f, f.Pods, p.String(), maxPods, func(p *PodFacts) float64 { return p.Allocated })
		sum.Pod = p.Pod
		sum.Seconds += seconds
		sum.Owned += seconds * p.Owns
		sum.Allocated += seconds * p.allocated()
		sum.Used += seconds * p.Used
		sum.Idle += seconds * idle
	}
	f.Use.Batch += seconds * batch
	f.Use.Outside += seconds * outside
	f.Tight.add(seconds, l, onShared, open+outside, batch)
}

// add what does not fit. Production of the shared pool has that pool. Best effort gives way to all others; open is what
// those of them use beside best effort that are not of the shared pool.
func (t *Tight) add(seconds float64, l *Look, onShared, open, batch float64) {
	production := max(0, onShared-l.Shared)
	if production > 0 {
		t.ProductionSeconds += seconds
		t.Production += seconds * production
	}
	left := max(0, l.Open-(onShared-production)-open)
	if short := batch - left; short > 0 {
		t.BatchSeconds += seconds
		t.Batch += seconds * short
	}
}

// entry is that of a key, made where there is none. Where there is no room the smallest one is left out.
func entry[T any](f *Facts, in map[string]*T, key string, most int, size func(*T) float64) *T {
	if one := in[key]; one != nil {
		return one
	}
	if len(in) >= most {
		smallest := slices.MinFunc(slices.Sorted(maps.Keys(in)), func(a, b string) int {
			return cmp.Compare(size(in[a]), size(in[b]))
		})
		delete(in, smallest)
		f.Left++
	}
	one := new(T)
	in[key] = one
	return one
}

// kept is what is written to a file.
type kept struct {
	Version int      `json:"version"`
	Facts   []*Facts `json:"facts"`
}

const version = 1

// Encode is the facts as a file has them.
func (d *Day) Encode() ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return json.Marshal(kept{version, d.buckets})
}

// MaxBytes bounds a file that is decoded.
const MaxBytes = 64 << 20

// Decode reads a file that Encode made.
func Decode(text []byte) (*Day, error) {
	var k kept
	if err := json.Unmarshal(text, &k); err != nil {
		return nil, fmt.Errorf("facts of a day: %w", err)
	}
	if k.Version != version {
		return nil, fmt.Errorf("facts of a day: the file's version is %d, this one reads %d", k.Version, version)
	}
	d := &Day{}
	for _, f := range k.Facts {
		if f == nil || hasNil(f.Pods) || hasNil(f.Pairs) || hasNil(f.Refused) {
			return nil, fmt.Errorf("facts of a day: a part is missing")
		}
		f.Pods, f.Pairs, f.Refused = made(f.Pods), made(f.Pairs), made(f.Refused)
		d.buckets = append(d.buckets, f)
	}
	d.buckets = slices.Delete(d.buckets, 0, max(len(d.buckets)-maxBuckets, 0))
	return d, nil
}

func hasNil[T any](m map[string]*T) bool {
	for _, v := range m {
		if v == nil {
			return true
		}
	}
	return false
}

func made[T any](m map[string]*T) map[string]*T {
	if m == nil {
		return map[string]*T{}
	}
	return m
}
