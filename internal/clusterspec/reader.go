// Package clusterspec reads what the cluster knows to be normal for jobs from
// Prometheus, where the recording rules of the chart make it of what all nodes
// count. It waits for Prometheus so that no other part does: a slow, absent or lying
// one costs the node nothing but these specs, and why they are missing is logged.
//
//	the nodes' quietcore_job_cpi -> rules/cpi-specs.yaml -> Reader -> detect.Detector
package clusterspec

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/internal/prom"
)

// Options are what a Reader is made of; URL, Jobs and Set are required.
type Options struct {
	URL     string
	Period  time.Duration // between two readings
	Timeout time.Duration // of one question
	MaxAge  time.Duration // how long a spec is good without being confirmed
	// TokenFile and CAFile are read anew when they change; empty: none, and the
	// system's authorities.
	TokenFile, CAFile string
	// Jobs are those that specs are wanted for.
	Jobs func() []detect.JobInfo
	// Set takes specs, good for a time, and returns why not, for those that it
	// does not believe.
	Set   func(specs []detect.Spec, good time.Duration) []error
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
	Log   *slog.Logger
}

// Reader asks Prometheus from time to time. Run owns it; the other methods may be
// called from any goroutine.
type Reader struct {
	o      Options
	client *prom.Client

	mu    sync.Mutex // guards what follows
	stats Stats
	last  time.Time // when there were specs, or this reader began
	why   string
}

// Stats of the readings so far.
type Stats struct {
	OK, Errors, Timeouts uint64 // readings
	Refused              uint64 // specs
	InUse                int    // specs of the last reading that were believed
	Age                  time.Duration
	Never                bool // there were none yet, and Age says nothing
}

// New makes a reader that has asked for nothing yet.
func New(o Options) (*Reader, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.After == nil {
		o.After = time.After
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Jobs == nil || o.Set == nil {
		return nil, errors.New("specs of the cluster: nobody wants them")
	}
	client, err := prom.New(prom.Server{URL: o.URL, Timeout: o.Timeout, TokenFile: o.TokenFile, CAFile: o.CAFile})
	if err != nil {
		return nil, fmt.Errorf("specs of the cluster: %w", err)
	}
	return &Reader{o: o, client: client, stats: Stats{Never: true}, last: o.Now()}, nil
}

// idle is how soon it is looked again whether there are jobs.
const idle = 10 * time.Second

// Run asks until ctx ends.
func (r *Reader) Run(ctx context.Context) {
	for {
		wait := r.o.Period
		if !r.round(ctx) {
			wait = min(idle, wait)
		}
		// Nodes that started together shall not ask together.
		wait += time.Duration((rand.Float64() - 0.5) / 5 * float64(wait))
		select {
		case <-ctx.Done():
			return
		case <-r.o.After(wait):
		}
	}
}

// round asks once, and says whether there was something to ask for.
func (r *Reader) round(ctx context.Context) bool {
	questions := ask(r.o.Jobs())
	if len(questions) == 0 {
		return false
	}
	var specs []detect.Spec
	var read reading
	for _, q := range questions {
		answer, err := r.client.Query(ctx, q.text)
		if ctx.Err() != nil {
			return true
		}
		if err != nil {
			r.failed(err)
			return true
		}
		found, bad := q.specs(answer)
		specs, read.refused = append(specs, found...), append(read.refused, bad...)
		read.known += len(found) + len(bad)
	}
	bad := r.o.Set(specs, r.o.MaxAge)
	read.used = len(specs) - len(bad)
	read.refused = append(read.refused, slices.DeleteFunc(bad, detect.FewSamples)...)
	r.succeeded(&read)
	return true
}

// reading is what Prometheus answered.
type reading struct {
	known, used int // specs
	refused     []error
}

// patience is how long Prometheus may know no job of this node: new rules and new nodes
// need their time.
const patience = time.Hour

// missing says that Prometheus should know a job that runs here: this node has long had
// enough samples of one. Whoever calls holds the lock.
func (r *Reader) missing() bool {
	return r.o.Now().Sub(r.last) >= patience &&
		slices.ContainsFunc(r.o.Jobs(), func(j detect.JobInfo) bool { return j.Containers > 0 && j.Tasks > 0 })
}

// stale says how many jobs are judged by what the cluster said too long ago; empty:
// none.
func (r *Reader) stale() string {
	n, first := 0, ""
	for _, j := range r.o.Jobs() {
		if !j.Stale || j.Containers == 0 {
			continue
		}
		if n++; first == "" || j.Job < first {
			first = j.Job
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(
		"%d jobs are judged by specs of the cluster's that nobody confirmed for %s (cpi.specs.prometheus.maxAge), "+
			"the first is %.100q", n, r.o.MaxAge, first)
}

func (r *Reader) failed(err error) {
	var slow net.Error
	why := fmt.Sprintf(
		"Prometheus does not say what is normal for jobs; what this node learned itself counts, and what it said "+
			"before: %.300s", err)
	if stale := r.stale(); stale != "" {
		why += "; " + stale
	}
	timeout := errors.Is(err, context.DeadlineExceeded) || errors.As(err, &slow) && slow.Timeout()
	r.mu.Lock()
	defer r.mu.Unlock()
	if timeout {
		r.stats.Timeouts++
	} else {
		r.stats.Errors++
	}
	r.logChange(why)
}

func (r *Reader) succeeded(read *reading) {
	stale := r.stale()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.OK++
	r.stats.Refused += uint64(len(read.refused))
	r.stats.InUse = read.used
	if read.used > 0 {
		r.stats.Never, r.last = false, r.o.Now()
	}
	switch {
	case len(read.refused) > 0:
		r.logChange(fmt.Sprintf("%d specs of the cluster's are not believed, %d are; the first: %.300s",
			len(read.refused), read.used, read.refused[0]))
	case read.known == 0 && r.missing():
		r.logChange("Prometheus knows no spec of any job that runs here; are the rules loaded, and do nodes have " +
			"cpi.jobSeries?")
	default:
		r.logChange(stale)
	}
}

// logChange logs what has changed. Whoever calls holds the lock.
func (r *Reader) logChange(why string) {
	if why == r.why {
		return
	}
	r.why = why
	if why != "" {
		r.o.Log.Warn("specs of the cluster", "why", why)
		return
	}
	r.o.Log.Info("specs of the cluster are used", "specs", r.stats.InUse)
}

// Why says what is wrong; empty: nothing is.
func (r *Reader) Why() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.why
}

// Stats so far.
func (r *Reader) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.stats
	if !s.Never {
		s.Age = max(r.o.Now().Sub(r.last), 0)
	}
	return s
}

// Seconds since the last specs, +Inf before the first.
func (s *Stats) Seconds() float64 {
	if s.Never {
		return math.Inf(1)
	}
	return s.Age.Seconds()
}
