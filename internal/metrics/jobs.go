package metrics

import (
	"math"
	"slices"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quietcore/quietcore/cpi/detect"
)

// jobBounds are the upper bounds of the buckets of jobs' CPIs: eight an octave from 1/4
// to 16, every second one of detect.Histogram's. They are rounded, so that nodes of all
// architectures have the same labels.
func jobBounds() []float64 {
	var list []float64
	for k := -16; k <= 32; k++ {
		list = append(list, math.Round(math.Exp2(float64(k)/8)*1e5)/1e5)
	}
	return list
}

const (
	jobBuckets = 49
	// perBand is the number of series of a job's band: its buckets, +Inf, sum, count,
	// squares and usage. A job has one more.
	perBand = jobBuckets + 5
	// idleRounds without a sample free a job's series for others.
	idleRounds = 60
)

type jobName struct{ workload, platform string }

type jobSeries struct {
	bands [detect.Bands]*bandSeries
	round int // of its last sample
}

type bandSeries struct {
	counts              [jobBuckets + 1]uint64
	n                   uint64
	sum, squares, usage float64
}

// jobsCollector counts the samples that show what is normal for jobs, for the cluster.
type jobsCollector struct {
	mu      sync.Mutex
	most    int // series
	used    int
	tasks   func() []detect.JobInfo
	round   int
	jobs    map[jobName]*jobSeries
	leftOut uint64
	bounds  []float64
}

func newJobsCollector() *jobsCollector {
	return &jobsCollector{jobs: map[jobName]*jobSeries{}, bounds: jobBounds()}
}

// CPIJobs sets how many series jobs may have in total, and the source of their tasks.
func (m *Metrics) CPIJobs(most int, tasks func() []detect.JobInfo) {
	c := m.jobs
	c.mu.Lock()
	defer c.mu.Unlock()
	c.most, c.tasks = most, tasks
}

// CPILearned counts the samples of a round.
func (m *Metrics) CPILearned(list []detect.Learned) {
	c := m.jobs
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.most == 0 {
		return
	}
	c.round++
	for i := range list {
		l := &list[i]
		b := c.band(jobName{workload(l.Job), label(l.Platform)}, l.Band)
		if b == nil {
			c.leftOut++
			continue
		}
		at, _ := slices.BinarySearch(c.bounds, l.CPI)
		b.counts[at]++
		b.n++
		b.sum += l.CPI
		b.squares += l.CPI * l.CPI
		b.usage += l.Usage
	}
}

// band returns where a sample is counted; nil if there is no room.
func (c *jobsCollector) band(name jobName, band int) *bandSeries {
	j := c.jobs[name]
	if j == nil {
		if !c.room(1 + perBand) {
			return nil
		}
		j = &jobSeries{}
		c.jobs[name] = j
		c.used++
	}
	j.round = c.round
	if j.bands[band] == nil {
		if !c.room(perBand) {
			return nil
		}
		j.bands[band] = &bandSeries{}
		c.used += perBand
	}
	return j.bands[band]
}

// room frees the series of jobs that have not been seen for long.
func (c *jobsCollector) room(series int) bool {
	for c.used+series > c.most {
		var oldest *jobSeries
		var which jobName
		for name, j := range c.jobs {
			if oldest == nil || j.round < oldest.round {
				oldest, which = j, name
			}
		}
		if oldest == nil || c.round-oldest.round < idleRounds {
			return false
		}
		c.used--
		for _, b := range oldest.bands {
			if b != nil {
				c.used -= perBand
			}
		}
		delete(c.jobs, which)
	}
	return true
}

type jobDescs struct{ cpi, squares, usage, tasks, leftOut *prometheus.Desc }

func newJobDescs() jobDescs {
	labels := []string{"workload", "platform", "band"}
	return jobDescs{
		cpi: desc("job_cpi", "CPIs of a job's samples that show what is normal for it. Only with cpi.jobSeries.",
			labels...),
		squares: desc("job_cpi_squares_total", "Sum of the squares of those CPIs. Only with cpi.jobSeries.", labels...),
		usage: desc("job_cpi_usage_total", "Sum of the usage in those samples, in CPUs. Only with cpi.jobSeries.",
			labels...),
		tasks: desc("job_cpi_tasks",
			"Containers of the job on this node that have enough samples (cpi.minTaskSamples). Only with "+
				"cpi.jobSeries.", labels[:2]...),
		leftOut: desc("job_cpi_left_out_total",
			"Samples of jobs for whose series there was no room. Only with cpi.jobSeries."),
	}
}

func (c *jobsCollector) Describe(ch chan<- *prometheus.Desc) {
	d := newJobDescs()
	for _, one := range []*prometheus.Desc{d.cpi, d.squares, d.usage, d.tasks, d.leftOut} {
		ch <- one
	}
}

func (c *jobsCollector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	most, source := c.most, c.tasks
	c.mu.Unlock()
	if most == 0 {
		return
	}
	tasks := map[jobName]int{}
	for _, j := range source() { // without our lock: it takes the detector's, whose holder takes ours
		tasks[jobName{workload(j.Job), label(j.Platform)}] += j.Tasks
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	d := newJobDescs()
	send := sender(ch)
	send(d.leftOut, prometheus.CounterValue, float64(c.leftOut))
	for name, j := range c.jobs {
		send(d.tasks, prometheus.GaugeValue, float64(tasks[name]), name.workload, name.platform)
		for i, b := range j.bands {
			if b == nil {
				continue
			}
			labels := []string{name.workload, name.platform, strconv.Itoa(i)}
			ch <- b.histogram(d.cpi, c.bounds, labels)
			send(d.squares, prometheus.CounterValue, b.squares, labels...)
			send(d.usage, prometheus.CounterValue, b.usage, labels...)
		}
	}
}

func (b *bandSeries) histogram(d *prometheus.Desc, bounds []float64, labels []string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(bounds))
	below := uint64(0)
	for i, bound := range bounds {
		below += b.counts[i]
		buckets[bound] = below
	}
	return prometheus.MustNewConstHistogram(d, b.n, b.sum, buckets, labels...)
}
