package metrics

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/internal/printable"
	"github.com/quietcore/quietcore/policy"
)

// CPIWindow is the result of a counting window.
type CPIWindow struct {
	Failed     bool // nothing could be read
	Dropped    bool // no container has a sample
	Length     time.Duration
	Containers []sample.Result
	Running    float64 // the smallest share of the time in which an event was counted
	Followed   int
	Unfollowed int
	Faults     uint64        // rejected readings since the counters were opened
	Cost       time.Duration // CPU time that counting took, since then
	// Descriptors is the number of open file descriptors for counting.
	Descriptors int
	// Calls is how often the window interrupted the CPU that it interrupted most.
	Calls uint64
	// Roles is how many containers had a place for which reason, where there were too few places.
	Roles [sample.NumRoles]int
	// Step is how many steps less than everything was counted, to keep cpi.budget.
	Step int
}

// The label value production is every class but best effort.
const (
	production = "production"
	bestEffort = "be"
)

func watchedRoles() []sample.Role {
	return []sample.Role{sample.AsVictim, sample.AsSuspect, sample.ByTurn}
}

func windowResults() []string { return []string{"ok", "dropped", "error"} }

// droppedReasons are the reasons that count as dropped samples; where events are not
// present at all, there was nothing to drop.
func droppedReasons() []sample.Reason {
	var list []sample.Reason
	for _, r := range sample.Reasons() {
		if r != sample.Uncounted {
			list = append(list, r)
		}
	}
	return list
}

// cpiSums are the totals of the containers of one label set. Cycles are those that CPI
// is made of.
type cpiSums struct {
	cycles, instructions, misses uint64
	onCPU, wait, windows         time.Duration
}

func (s *cpiSums) add(c *sample.Result) {
	s.windows += c.Length
	s.onCPU += c.Delta.OnCPU
	if c.HasWait {
		s.wait += c.Delta.Wait
	}
	// What was counted for less of the time than instructions were is scaled to them.
	instructions := c.Delta.Events[sample.Instructions]
	if c.NoCPI == sample.None {
		s.cycles += uint64(math.Round(c.CPI * float64(instructions)))
		s.instructions += instructions
	}
	if c.HasMPKI {
		s.misses += uint64(math.Round(c.MPKI * float64(instructions) / 1000))
	}
}

// containerKey has the labels of a series in the order of their names, which is the
// order of a scrape.
type containerKey struct{ name, namespace, pod string }

func (k containerKey) compare(o containerKey) int {
	return cmp.Or(cmp.Compare(k.name, o.name), cmp.Compare(k.namespace, o.namespace), cmp.Compare(k.pod, o.pod))
}

// containerSums are the series of one container.
type containerSums struct {
	cpiSums
	key    containerKey
	labels []*dto.LabelPair // made once: a scrape of a thousand containers is mostly labels
}

func newContainerSums(key containerKey) *containerSums {
	return &containerSums{key: key, labels: prometheus.MakeLabelPairs(newCPIDescs().container[0],
		[]string{key.namespace, key.pod, key.name})}
}

// counterMetric is a counter whose labels are made already.
type counterMetric struct {
	desc   *prometheus.Desc
	labels []*dto.LabelPair
	value  float64
}

func (m *counterMetric) Desc() *prometheus.Desc { return m.desc }

func (m *counterMetric) Write(out *dto.Metric) error {
	out.Label, out.Counter = m.labels, &dto.Counter{Value: &m.value}
	return nil
}

// label makes a label value of text that a tenant may have chosen. The text format
// passes escape codes on, and people read it, so control characters are removed.
func label(text string) string {
	const most = 253 // the longest name that Kubernetes allows
	return printable.Clip(text, most)
}

// perContainer is the number of series per container.
const perContainer = 6

// cpiCollector keeps the results of windows for the next scrape.
type cpiCollector struct {
	mu         sync.Mutex
	most       int // containers with series of their own
	counting   bool
	windows    map[string]int
	seconds    time.Duration
	samples    int
	dropped    [sample.NumReasons]int
	classes    map[string]*cpiSums
	containers map[containerKey]*containerSums
	ordered    []*containerSums // the same; nil: some came or went
	last       CPIWindow
}

func newCPICollector() *cpiCollector {
	return &cpiCollector{
		windows: map[string]int{}, classes: map[string]*cpiSums{production: {}, bestEffort: {}},
		containers: map[containerKey]*containerSums{}, last: CPIWindow{Running: 1},
	}
}

// CPICounting says whether CPU performance is counted, and how many series containers
// may have in total.
func (m *Metrics) CPICounting(yes bool, containerSeries int) {
	c := m.cpi
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counting, c.most = yes, containerSeries/perContainer
}

// CPIStopped says that nothing is counted any more, until CPICounting says otherwise.
func (m *Metrics) CPIStopped() {
	m.CPICounting(false, 0)
	m.CPIJobs(0, nil)
	m.CPIDetector(func() Detection { return Detection{} })
	m.CPIClusterSpecs(nil)
}

// CPIWindow records a window.
func (m *Metrics) CPIWindow(w *CPIWindow) {
	c := m.cpi
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case w.Failed:
		c.windows["error"]++
		return
	case w.Dropped:
		c.windows["dropped"]++
	default:
		c.windows["ok"]++
		c.seconds += w.Length
	}
	c.last = *w
	c.last.Containers = nil // only their sums are kept
	c.count(w.Containers)
	c.countEach(w.Containers)
}

func (c *cpiCollector) count(containers []sample.Result) {
	for i := range containers {
		one := &containers[i]
		reason := one.Dropped
		if reason == sample.None {
			reason = one.NoCPI
			class := production
			if one.PodClass == string(policy.BE) {
				class = bestEffort
			}
			c.classes[class].add(one)
		}
		c.dropped[reason]++
		if reason == sample.None {
			c.samples++
		}
	}
}

// countEach counts into series of single containers, as many as are allowed. A
// container keeps its series until it ends, so that no counter disappears and
// reappears.
func (c *cpiCollector) countEach(containers []sample.Result) {
	if c.most == 0 {
		return
	}
	here := make(map[containerKey]bool, len(containers))
	for i := range containers {
		here[keyOf(&containers[i])] = here[keyOf(&containers[i])] || containers[i].Dropped != sample.Ended
	}
	for key := range c.containers {
		if !here[key] {
			delete(c.containers, key)
			c.ordered = nil
		}
	}
	for i := range containers {
		one := &containers[i]
		key := keyOf(one)
		sums := c.containers[key]
		if sums == nil {
			if !here[key] || len(c.containers) >= c.most {
				continue
			}
			sums = newContainerSums(key)
			c.containers[key], c.ordered = sums, nil
		}
		if one.Dropped == sample.None {
			sums.add(one)
		}
	}
}

func keyOf(c *sample.Result) containerKey {
	return containerKey{name: label(c.Name), namespace: label(c.Namespace), pod: label(c.Pod)}
}

type cpiDescs struct {
	counting, windows, seconds, samples, dropped, containers, descriptors, running, faults *prometheus.Desc
	overhead, calls, step, watched                                                         *prometheus.Desc
	class, container                                                                       sumDescs
}

// sumDescs are in the order of cpiSums.values.
type sumDescs [perContainer]*prometheus.Desc

func newCPIDescs() cpiDescs {
	labels := []string{"namespace", "pod", "container"}
	return cpiDescs{
		counting: desc("cpi_counting",
			"1 while CPU performance is counted. 0 with cpi.mode not off: the reason is in the log and in the body "+
				"of /readyz."),
		windows: desc("cpi_windows_total",
			"Windows of counting. dropped: no container has a sample, since the machine was suspended, a CPU went "+
				"on- or offline, or the "+
				"timer was very late. error: nothing could be read.", "result"),
		seconds: desc("cpi_window_seconds_total",
			"Time that was counted. All sums over windows are of this time alone."),
		samples: desc("cpi_samples_total", "Samples of containers with a CPI."),
		dropped: desc("cpi_samples_dropped_total", "Samples dropped, or their CPI, by reason.", "reason"),
		containers: desc("cpi_containers",
			"Containers that are counted (followed), and that had no place in the last window (unfollowed).", "state"),
		watched: desc("cpi_watched_containers",
			"Containers that the last window counted before others, where not all have a place: victims in question, "+
				"their suspects, and those whose turn it was.", "role"),
		descriptors: desc("cpi_descriptors",
			"File descriptors open for counting. They do not depend on the number of containers."),
		running: desc("cpi_running_ratio",
			"Lowest share of the last window that an event was really counted. Below 1 others use the counters too, "+
				"and what was counted weighs less."),
		faults:   desc("cpi_faults_total", "Readings of counters that were refused and left out."),
		overhead: desc("cpi_overhead_seconds_total", "CPU time that counting took in the kernel."),
		calls: desc("cpi_window_calls",
			"Times that the last window interrupted the CPU that it interrupted most: 2, and more where events were "+
				"opened again."),
		step: desc("cpi_budget_step",
			"How much the last window left out to keep cpi.budget: 0 nothing, 1 LLC misses, 2 reference cycles too, 3 "+
				"half of the containers at a time, 4 seven eighths, 5 and 6 shorter windows, 7 most windows."),
		class: sumDescs{
			desc("cpi_cycles_total", "Cycles in windows: reference cycles where the PMU has them, else core cycles.",
				"class"),
			desc("cpi_instructions_total", "Instructions in windows.", "class"),
			desc("cpi_llc_misses_total", "Misses of the last-level cache in windows.", "class"),
			desc("cpi_on_cpu_seconds_total", "CPU time in windows.", "class"),
			desc("cpi_run_queue_wait_seconds_total", "Time in windows that was spent waiting for a CPU.", "class"),
		},
		container: sumDescs{
			desc("cpi_container_cycles_total", "Cycles of a container in windows. Only with cpi.containerSeries.",
				labels...),
			desc("cpi_container_instructions_total",
				"Instructions of a container in windows. Only with cpi.containerSeries.", labels...),
			desc("cpi_container_llc_misses_total",
				"Misses of the last-level cache of a container in windows. Only with cpi.containerSeries.", labels...),
			desc("cpi_container_on_cpu_seconds_total",
				"CPU time of a container in windows. Only with cpi.containerSeries.", labels...),
			desc("cpi_container_run_queue_wait_seconds_total",
				"Time in windows that a container spent waiting for a CPU. Only with cpi.containerSeries.", labels...),
			desc("cpi_container_window_seconds_total",
				"Time of the windows in which a container was counted. Only with cpi.containerSeries.", labels...),
		},
	}
}

func (c *cpiCollector) Describe(ch chan<- *prometheus.Desc) {
	d := newCPIDescs()
	for _, one := range []*prometheus.Desc{d.counting, d.windows, d.seconds, d.samples, d.dropped, d.containers,
		d.descriptors, d.running, d.faults, d.overhead, d.calls,
		d.step, d.watched} {
		ch <- one
	}
	for _, descs := range []sumDescs{d.class, d.container} {
		for _, one := range descs {
			if one != nil {
				ch <- one
			}
		}
	}
}

func (s *cpiSums) values() [perContainer]float64 {
	return [...]float64{float64(s.cycles), float64(s.instructions), float64(s.misses), s.onCPU.Seconds(),
		s.wait.Seconds(), s.windows.Seconds()}
}

func (s *cpiSums) collect(ch chan<- prometheus.Metric, descs sumDescs, labels ...string) {
	for i, v := range s.values() {
		if descs[i] != nil {
			ch <- prometheus.MustNewConstMetric(descs[i], prometheus.CounterValue, v, labels...)
		}
	}
}

func (c *cpiCollector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := newCPIDescs()
	gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	}
	counter := func(desc *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, v, labels...)
	}
	gauge(d.counting, number(c.counting))
	for _, result := range windowResults() {
		counter(d.windows, float64(c.windows[result]), result)
	}
	counter(d.seconds, c.seconds.Seconds())
	counter(d.samples, float64(c.samples))
	for _, reason := range droppedReasons() {
		counter(d.dropped, float64(c.dropped[reason]), reason.String())
	}
	gauge(d.containers, float64(c.last.Followed), "followed")
	gauge(d.containers, float64(c.last.Unfollowed), "unfollowed")
	for _, role := range watchedRoles() {
		gauge(d.watched, float64(c.last.Roles[role]), role.String())
	}
	gauge(d.descriptors, float64(c.last.Descriptors))
	gauge(d.running, c.last.Running)
	counter(d.faults, float64(c.last.Faults))
	counter(d.overhead, c.last.Cost.Seconds())
	gauge(d.calls, float64(c.last.Calls))
	gauge(d.step, float64(c.last.Step))
	for class, sums := range c.classes {
		sums.collect(ch, d.class, class)
	}
	c.collectEach(ch, &d.container)
}

// collectEach sends the series of containers in sorted order, which saves the registry
// the sorting.
func (c *cpiCollector) collectEach(ch chan<- prometheus.Metric, descs *sumDescs) {
	if c.ordered == nil {
		c.ordered = slices.SortedFunc(maps.Values(c.containers), func(a, b *containerSums) int {
			return a.key.compare(b.key)
		})
	}
	list := make([]counterMetric, 0, len(c.ordered)*perContainer)
	for _, sums := range c.ordered {
		for i, v := range sums.values() {
			list = append(list, counterMetric{descs[i], sums.labels, v})
			ch <- &list[len(list)-1]
		}
	}
}
