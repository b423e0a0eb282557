package incidents

import (
	"encoding/base32"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"
)

// Subject is a container with a part in an incident.
type Subject struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
	Job       string `json:"job,omitempty"`
	Class     string `json:"class,omitempty"`
	CPUs      string `json:"cpus,omitempty"` // it might run on, in the kernel's list format
	// Claims of CPUs that it has, with commas between: NAMESPACE/NAME, or another driver's CDI devices.
	Claims string `json:"claims,omitempty"`
}

// Name is namespace/pod/container.
func (s Subject) Name() string { return s.Namespace + "/" + s.Pod + "/" + s.Container }

// JobName is the job with its namespace; a pod without a job is its own job.
func (s Subject) JobName() string { return string(s.raw().jobName(nil)) }

// Same says that both are the same container.
func (s Subject) Same(o Subject) bool {
	return s.Namespace == o.Namespace && s.Pod == o.Pod && s.Container == o.Container
}

// Spec is the basis of the threshold: what was normal for the victim's job.
type Spec struct {
	Mean     float64 `json:"mean"` // of a band: its median
	StdDev   float64 `json:"stddev"`
	Platform string  `json:"platform,omitempty"`
	Band     int     `json:"band"` // of usage; -1: all
	Samples  float64 `json:"samples"`
	Tasks    int     `json:"tasks"`
}

// Suspect is a neighbour of the victim, as the analysis saw it.
type Suspect struct {
	Subject
	Score      float64 `json:"score"`
	Contrast   float64 `json:"contrast"`
	Confidence float64 `json:"confidence"`
	Usage      float64 `json:"usage"`            // mean, in CPUs
	Prior      float64 `json:"prior,omitempty"`  // log odds by which an experiment chooses whom to test
	EValue     float64 `json:"eValue,omitempty"` // of its test so far; 0: it is untested
	Shares     string  `json:"shares,omitempty"` // the closest that it shares with the victim: core, L3 or NUMA
	Series     []Point `json:"series,omitempty"` // usage in CPUs
}

// Evidence says which resource the victim lacked, by its own figures before and now and by what
// ran beside it in the last window.
type Evidence struct {
	Resource string   `json:"resource"`         // queue, SMT sibling, L3, memory bandwidth, frequency or unknown
	Waited   bool     `json:"waited,omitempty"` // it waited for CPUs longer than before, too
	Before   *Figures `json:"before,omitempty"` // nil: there is no window to compare with
	Now      *Figures `json:"now,omitempty"`
	// WaitedFor is what had the CPU while it waited, by its part of that time.
	WaitedFor []Part `json:"waitedFor,omitempty"`
	// Siblings, L3 and Node are who ran most on its SMT siblings, in its L3 domain and on its NUMA
	// node, on average over its CPU time.
	Siblings []Neighbour `json:"siblings,omitempty"`
	L3       []Neighbour `json:"l3,omitempty"`
	Node     []Neighbour `json:"node,omitempty"`
	// Steal and Interrupts are the shares of the time of its CPUs that the hypervisor, and
	// interrupts and softirqs, took.
	Steal      float64 `json:"steal,omitempty"`
	Interrupts float64 `json:"interrupts,omitempty"`
}

// Figures are medians over windows. Nil is not known.
type Figures struct {
	CPI      *float64 `json:"cpi,omitempty"`
	MPKI     *float64 `json:"mpki,omitempty"`     // misses in 1,000 instructions
	Wait     *float64 `json:"wait,omitempty"`     // share of the time in which it could run
	Speed    *float64 `json:"speed,omitempty"`    // core cycles a reference cycle
	Queue    *float64 `json:"queue,omitempty"`    // how many times as long its work took as alone
	Pressure *float64 `json:"pressure,omitempty"` // share of the time in which some thread waited
}

// Part is a share of a whole.
type Part struct {
	Name  string  `json:"name"` // namespace/pod/container; empty: what is no container
	Share float64 `json:"share"`
}

// Neighbour is what a container did in a part of the machine: CPUs, and events a second.
type Neighbour struct {
	Name         string  `json:"name"`
	CPUs         float64 `json:"cpus"`
	Instructions float64 `json:"instructions,omitempty"`
	Misses       float64 `json:"misses,omitempty"`
}

// Lacked is the resource for people; empty: there is no evidence.
func (e *Evidence) Lacked() string {
	const queue = "queue"
	switch {
	case e == nil:
		return ""
	case e.Waited && e.Resource != queue:
		return e.Resource + " and " + queue
	}
	return e.Resource
}

// Verdicts.
const (
	None    = "none"    // no suspect can be blamed
	Observe = "observe" // a suspect is to blame, but nothing is done
	Test    = "test"    // a suspect is tested
	Cap     = "cap"
	Move    = "move"
	Idle    = "idle"   // of actions only: it runs on otherwise idle CPUs alone
	Narrow  = "narrow" // the same: it gets the least memory bandwidth
	Evict   = "evict"  // of actions only
)

// Action is what was done. It is in force until Ended is set or Until has passed.
type Action struct {
	Kind     string    `json:"kind"` // cap, move, idle, narrow or evict
	Subject  Subject   `json:"subject"`
	Milli    int64     `json:"milli,omitempty"` // thousandths of a CPU
	Off      string    `json:"off,omitempty"`   // CPUs that Subject alone was moved off; empty: best effort as a whole
	From     time.Time `json:"from"`
	Until    time.Time `json:"until,omitzero"`
	Ended    time.Time `json:"ended,omitzero"`
	EndedWhy string    `json:"endedWhy,omitempty"`
}

// OfOne says that one antagonist bears it, and not best effort as a whole.
func (a *Action) OfOne() bool {
	return a.Kind == Cap || a.Kind == Idle || a.Kind == Narrow || a.Off != ""
}

// End is when it ended, or will end at the latest.
func (a Action) End() time.Time {
	if a.Ended.IsZero() {
		return a.Until
	}
	return a.Ended
}

// Experiment is a test of a suspect's job: its containers are throttled in windows that a coin
// chooses.
type Experiment struct {
	Job     string  `json:"job"`              // the suspect, with its namespace
	Result  string  `json:"result,omitempty"` // Guilty or Innocent; empty: it is not over
	EValue  float64 `json:"eValue"`
	Alone   Arm     `json:"leftAlone"`
	Under   Arm     `json:"throttled"`
	Minutes float64 `json:"chargedMinutes"` // what it cost the suspect, for less the surer it is
	Coins   []Coin  `json:"coins,omitempty"`
	// Witness is who confirms that it is guilty; nil: it is not, or that was not asked.
	Witness *Witness `json:"witness,omitempty"`
}

// Witness is a job of another namespace than the victim's that is better off while the suspect is
// throttled.
type Witness struct {
	Job    string  `json:"job,omitempty"` // empty: there is none yet
	EValue float64 `json:"eValue"`        // of all jobs that were asked
	Jobs   int     `json:"jobs"`
}

// Text says who it is.
func (w *Witness) Text() string {
	switch {
	case w.Job != "":
		return fmt.Sprintf("confirmed by %s, e-value %.2g", w.Job, w.EValue)
	case w.Jobs == 0:
		return "no neutral witness is near"
	}
	return fmt.Sprintf("no neutral witness yet: e-value %.2g of %d jobs", w.EValue, w.Jobs)
}

// Results of an experiment.
const (
	Guilty   = "guilty"
	Innocent = "innocent"
)

// Arm is how the victim was in the windows of one side of the coin in which the suspect was busy,
// as far back as the test goes.
type Arm struct {
	Windows int     `json:"windows"`
	CPI     float64 `json:"cpi"` // geometric mean
}

// Coin is what was thrown for a window.
type Coin struct {
	Offset time.Duration `json:"offset"` // of the window's beginning from the incident's time
	Length time.Duration `json:"length"`
	P      float64       `json:"p"` // of throttling
	On     bool          `json:"on"`
}

// Outcome is the actions' effect on the victim's CPI.
type Outcome struct {
	Result  string  `json:"result"` // success, partial, failure, …; empty: unknown yet
	Before  float64 `json:"before,omitempty"`
	After   float64 `json:"after,omitempty"`
	Samples int     `json:"samples,omitempty"`
}

// Arms names what the outcome compares. An action is compared with what was before it; the outcome of an experiment is
// what its coin chose between, window by window.
func (i *Incident) Arms() (first, second string) {
	if i.Judged() != nil {
		return "left alone", "throttled"
	}
	return "before", "after"
}

// Judged is the experiment that the outcome is of: the last that ended; nil: none did.
func (i *Incident) Judged() *Experiment {
	for n := range slices.Backward(i.Experiments) {
		if i.Experiments[n].Result != "" {
			return &i.Experiments[n]
		}
	}
	return nil
}

// Point is one sample. In JSON it is [seconds, value].
type Point struct {
	Offset time.Duration // from the incident's time
	Value  float64
}

// MarshalJSON rounds to the precision of a plot: two decimals of a second, five
// significant digits.
func (p Point) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "[%.10g,%.5g]", float64(p.Offset.Round(10*time.Millisecond).Milliseconds())/1000, p.Value),
		nil
}

func (p *Point) UnmarshalJSON(text []byte) error {
	var pair [2]float64
	if err := json.Unmarshal(text, &pair); err != nil {
		return fmt.Errorf("point %.40q: %w", text, err)
	}
	p.Offset, p.Value = time.Duration(clamp(pair[0], maxOffset.Seconds())*float64(time.Second)), pair[1]
	return nil
}

// Incident is one anomaly of one victim and everything known about it.
type Incident struct {
	ID          string    `json:"id"`
	At          time.Time `json:"at"`
	Node        string    `json:"node,omitempty"`
	Victim      Subject   `json:"victim"`
	CPI         float64   `json:"cpi"`
	Threshold   float64   `json:"threshold"`
	Spec        Spec      `json:"spec"`
	Suspects    []Suspect `json:"suspects,omitempty"` // the most suspicious first
	Verdict     string    `json:"verdict"`
	Antagonists []Subject `json:"antagonists,omitempty"`
	Why         string    `json:"why,omitempty"`
	Evidence    *Evidence `json:"evidence,omitempty"`
	Actions     []Action  `json:"actions,omitempty"`
	Outcome     Outcome   `json:"outcome,omitzero"`
	Series      []Point   `json:"series,omitempty"` // the victim's CPI
	// DisturbedSeconds is the time that those windows stand for in which the victim was in an anomaly; 0: an earlier
	// version wrote it.
	DisturbedSeconds float64 `json:"disturbedSeconds,omitempty"`
	// Experiments are the tests that fell into the incident.
	Experiments []Experiment `json:"experiments,omitempty"`
}

const idTime = "20060102-150405.000"

// NewID derives an ID from the time, so that IDs sort by time, and from the victim, so
// that an anomaly reported twice is one incident.
func NewID(at time.Time, node string, victim Subject) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q %q %q %q", node, victim.Namespace, victim.Pod, victim.Container)
	tail := base32.StdEncoding.EncodeToString(h.Sum(nil))[:8]
	return idPrefix(at) + "-" + strings.ToLower(tail)
}

// idPrefix is the first part of every ID of that millisecond. Years with four digits
// sort; others do not occur.
func idPrefix(at time.Time) string {
	at = at.UTC()
	if first := time.Unix(0, 0).UTC(); at.Before(first) {
		at = first
	}
	if last := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC); at.After(last) {
		at = last
	}
	return strings.Replace(at.Format(idTime), ".", "", 1)
}

const idLength = len("20060102-150405000-aaaaaaaa")

// validID keeps foreign text out of keys.
func validID(id string) bool {
	if len(id) != idLength || id[8] != '-' || id[18] != '-' {
		return false
	}
	return !strings.ContainsFunc(id, func(r rune) bool {
		return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
	})
}
