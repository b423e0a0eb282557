package detect

import (
	"errors"
	"fmt"
	"math"
)

// Spec is the normal CPI of a job on a platform.
type Spec struct {
	Job       string  `json:"job"`
	Platform  string  `json:"platform"`
	Mean      float64 `json:"mean"`
	StdDev    float64 `json:"stddev"`
	UsageMean float64 `json:"usageMean,omitempty"`
	// Samples are aged, so they are not a whole number. Tasks counts those with enough
	// samples.
	Samples float64 `json:"samples"`
	Tasks   int     `json:"tasks"`
	// Bands hold robust values by usage; empty if only Mean and StdDev are known.
	Bands []BandSpec `json:"bands,omitempty"`
}

// BandSpec is the normal CPI in a usage band: the median, and the deviation of the
// natural logarithm. The deviation is that of the lower half, which interference does
// not reach.
type BandSpec struct {
	Band    int     `json:"band"` // usage from MinUsage·2^Band on
	Samples float64 `json:"samples"`
	Median  float64 `json:"median"`
	LogSD   float64 `json:"logSD"`
}

// Bands is the number of usage bands: octaves above the minimum, the last one open.
const Bands = 5

// BandOf returns the band of a usage.
func BandOf(usage, minUsage float64) int {
	band := 0
	for band < Bands-1 && usage >= 2*minUsage {
		usage /= 2
		band++
	}
	return band
}

const (
	// BandSamples is the least number of samples for a band of its own.
	BandSamples = 100
	// leastLogSD keeps noise from becoming an outlier of a very steady job.
	leastLogSD = 0.02
	// specStep is how far the logarithm of a median may move between two specs of a
	// job. Normal values change over hours; a jump is an error, or interference.
	specStep = 0.05
	// specFactor is how far the cluster's spec may be from this node's samples.
	specFactor = 2.0
	// lowerQuantile is one deviation below the median of a normal distribution.
	// maxSamples keeps sums of weights finite and exact enough.
	maxSamples                 = 1e15
	lowerQuantile, lowerSigmas = 0.16, 0.99446
	commonShare                = 0.25
)

type moments struct{ n, mean, m2, usage float64 }

func (m *moments) add(cpi, usage float64) {
	m.n++
	d := cpi - m.mean
	m.mean += d / m.n
	m.m2 += d * (cpi - m.mean)
	m.usage += (usage - m.usage) / m.n
}

func (m *moments) sd() float64 {
	if m.n <= 1 {
		return 0
	}
	return math.Sqrt(m.m2 / (m.n - 1))
}

// job is what is learned of a job on a platform, and the spec in use.
type job struct {
	jobKey
	containers int
	seen       int64
	day        int64 // of the last sample, since the epoch
	tasks      int   // with MinTaskSamples
	eligible   int   // of those, the running ones
	all        moments
	bands      [Bands]*Histogram

	published int64
	due       bool // a new spec is due
	usable    bool
	clusterSpec
	source Source
	spec   Spec
	limits
}

// clusterSpec is the cluster's spec of a job, and when it expires.
type clusterSpec struct {
	foreign      *Spec
	foreignUntil int64
}

// limits judge a sample; they are derived from the spec.
type limits struct {
	classic float64
	robust  [Bands]band
}

type band struct{ logMedian, logSD, threshold float64 }

// age reduces the weight of earlier samples once a day has passed.
func (j *job) age(day int64, weight float64) {
	if day <= j.day {
		return
	}
	w := math.Pow(weight, float64(day-j.day))
	j.day = day
	j.all.n *= w
	j.all.m2 *= w
	for _, h := range j.bands {
		if h != nil {
			h.age(w)
		}
	}
}

func (j *job) learn(usage, cpi float64, band int) {
	j.all.add(cpi, usage)
	if j.bands[band] == nil {
		j.bands[band] = new(Histogram)
	}
	j.bands[band].add(math.Log2(cpi))
}

// own is the spec from this node's samples.
func (j *job) own() Spec {
	s := Spec{
		Job: j.name, Platform: j.platform, Mean: j.all.mean, StdDev: j.all.sd(), UsageMean: j.all.usage,
		Samples: j.all.n, Tasks: j.tasks,
	}
	for i, h := range j.bands {
		if h == nil || h.Total() < BandSamples {
			continue
		}
		median, sd := h.Robust()
		s.Bands = append(s.Bands, BandSpec{Band: i, Samples: h.Total(), Median: math.Exp(median), LogSD: sd})
	}
	return s
}

// whole merges the histograms of all bands.
func (j *job) whole() *Histogram {
	sum := new(Histogram)
	for _, h := range j.bands {
		if h != nil {
			sum.Merge(h)
		}
	}
	return sum
}

// logNormal returns the parameters of the log-normal distribution with that mean and
// deviation.
func logNormal(mean, sd float64) (logMedian, logSD float64) {
	v := math.Log1p(sd * sd / mean / mean)
	return math.Log(mean) - v/2, max(math.Sqrt(v), leastLogSD)
}

// checkForeign also bounds the deviation. A spec learned here has no such bound: one
// container start can exceed it, and medians do not mind.
// Check says why a spec from elsewhere cannot be used; nil: it can.
func (s *Spec) Check(c Config) error { return s.checkForeign(&c) }

func (s *Spec) checkForeign(c *Config) error {
	if err := s.check(c); err != nil {
		return err
	}
	if s.StdDev > 3*s.Mean {
		return fmt.Errorf(
			"spec of job %q on platform %q: deviation %v with mean %v; it must lie between 0 and three times the mean",
			s.Job, s.Platform, s.StdDev, s.Mean)
	}
	return nil
}

// clampCPI bounds a CPI to the range of histograms, so that one extreme sample does not
// shift a mean for days.
func clampCPI(cpi float64) float64 {
	return min(max(cpi, 1.0/(1<<-lowestOctave)), 1<<highestOctave)
}

// check rejects an implausible spec and one with too few samples.
func (s *Spec) check(c *Config) error {
	name := fmt.Sprintf("spec of job %q on platform %q", s.Job, s.Platform)
	if !(s.Mean > 1e-3 && s.Mean < 1e3) {
		return fmt.Errorf("%s: mean CPI %v; it must lie between 0.001 and 1000", name, s.Mean)
	}
	if !(s.StdDev >= 0 && s.StdDev < maxSamples) {
		return fmt.Errorf("%s: deviation %v; it must not be negative or huge", name, s.StdDev)
	}
	if !(s.UsageMean >= 0 && s.UsageMean <= maxUsage) {
		return fmt.Errorf("%s: mean usage %v; it must lie between 0 and %d CPUs", name, s.UsageMean, maxUsage)
	}
	for _, b := range s.Bands {
		if b.Band < 0 || b.Band >= Bands || !(b.Median > 1e-3 && b.Median < 1e3) || !(b.LogSD >= 0 && b.LogSD < 3) ||
			!(b.Samples >= 0 && b.Samples < maxSamples) {
			return fmt.Errorf("%s: band %d has median %v, deviation %v in logarithms and %v samples", name, b.Band,
				b.Median, b.LogSD, b.Samples)
		}
	}
	if !(s.Samples < maxSamples) {
		return fmt.Errorf("%s: %v samples; there must be fewer than %v", name, s.Samples, float64(maxSamples))
	}
	if s.Tasks < c.MinTasks || !(s.Samples >= float64(c.MinTasks*c.MinTaskSamples)) {
		return fewSamples(fmt.Sprintf("%s: %d tasks and %v samples; at least %d tasks with %d samples each are needed",
			name, s.Tasks, s.Samples, c.MinTasks, c.MinTaskSamples))
	}
	return nil
}

// fewSamples is what is wrong with a plausible spec that is too young, or of too small a job.
type fewSamples string

func (e fewSamples) Error() string { return string(e) }

// FewSamples reports whether err says no more than that a spec needs more tasks or samples.
func FewSamples(err error) bool { return errors.As(err, new(fewSamples)) }

// in returns a band's median and deviation as logarithms, or those of the nearest band
// with enough samples.
func (s *Spec) in(band int) (logMedian, logSD, samples float64) {
	logMedian, logSD = logNormal(s.Mean, s.StdDev)
	samples = s.Samples
	nearest := Bands
	for _, b := range s.Bands {
		if away := max(b.Band-band, band-b.Band); away < nearest {
			nearest = away
			logMedian, logSD, samples = math.Log(b.Median), max(b.LogSD, leastLogSD), b.Samples
		}
	}
	return logMedian, logSD, samples
}

// respec recomputes the job's spec from its own samples and the cluster's. It returns
// whether there is one.
func (j *job) respec(now int64, c *Config) bool {
	j.due = false
	j.published = now
	if j.foreign != nil && now >= j.foreignUntil {
		j.foreign = nil
	}
	j.dropContradicted()
	own := j.own()
	enough := own.check(c) == nil
	if !enough && j.foreign == nil {
		// The present spec stays: the job did not change because the cluster's spec
		// expired or its tasks ended.
		return false
	}
	j.source = FromHere
	switch {
	case !enough:
		own, j.source = *j.foreign, FromCluster
	case j.foreign != nil:
		own, j.source = merged(&own, j.foreign), FromBoth
	}
	first := !j.usable
	j.spec, j.usable = own, true
	j.classic = own.Mean + c.Sigmas*own.StdDev
	for i := range j.robust {
		median, sd, _ := own.in(i)
		if len(own.Bands) == 0 && enough && j.all.n > 0 {
			median, sd = j.whole().Robust()
		}
		if was := j.robust[i]; !first {
			median = min(max(median, was.logMedian-specStep), was.logMedian+specStep)
			sd = min(max(sd, was.logSD*(1-4*specStep)), was.logSD*(1+4*specStep))
		}
		j.robust[i] = band{logMedian: median, logSD: sd, threshold: math.Exp(median + c.RobustSigmas*sd)}
	}
	return true
}

// merged averages two specs of a job, weighted by their samples.
func merged(own, foreign *Spec) Spec {
	w := foreign.Samples / (own.Samples + foreign.Samples)
	m := *own
	m.Mean = (1-w)*own.Mean + w*foreign.Mean
	a, b := own.Mean-m.Mean, foreign.Mean-m.Mean
	m.StdDev = math.Sqrt((1-w)*(own.StdDev*own.StdDev+a*a) + w*(foreign.StdDev*foreign.StdDev+b*b))
	m.UsageMean = (1-w)*own.UsageMean + w*foreign.UsageMean
	m.Samples += foreign.Samples
	m.Tasks = max(own.Tasks, foreign.Tasks)
	foreign = foreign.spread(own)
	m.Bands = nil
	for i := range Bands {
		b := BandSpec{Band: i}
		var median float64
		for _, s := range []*Spec{own, foreign} {
			for _, part := range s.Bands {
				if part.Band == i && part.Samples > 0 {
					median += part.Samples * math.Log(part.Median)
					b.LogSD += part.Samples * part.LogSD
					b.Samples += part.Samples
				}
			}
		}
		if b.Samples > 0 {
			b.Median, b.LogSD = math.Exp(median/b.Samples), b.LogSD/b.Samples
			m.Bands = append(m.Bands, b)
		}
	}
	return m
}

// spread gives a spec without bands those of another.
func (s *Spec) spread(like *Spec) *Spec {
	if len(s.Bands) > 0 {
		return s
	}
	with := *s
	median, sd := logNormal(s.Mean, s.StdDev)
	for _, b := range like.Bands {
		with.Bands = append(with.Bands, BandSpec{Band: b.Band, Samples: s.Samples * b.Samples / like.Samples,
			Median: math.Exp(median), LogSD: sd})
	}
	return &with
}

// implausible says that the cluster's spec contradicts this node's samples.
func (j *job) implausible(s *Spec) error {
	if j.all.n < BandSamples {
		return nil
	}
	here := j.whole().Quantile(0.5)
	if there := s.Mean; there > here*specFactor || there < here/specFactor {
		return fmt.Errorf(
			"spec of job %q on platform %q: mean CPI %.4g, but the median of %.0f samples seen here is %.4g, more "+
				"than a factor of %v away", j.name, j.platform, there, j.all.n, here, specFactor)
	}
	for _, b := range s.Bands {
		seen := j.bands[b.Band]
		if seen == nil || seen.Total() < BandSamples {
			continue
		}
		if here := seen.Quantile(0.5); b.Median > here*specFactor || b.Median < here/specFactor {
			return fmt.Errorf(
				"spec of job %q on platform %q: median CPI %.4g in band %d, but that of %.0f samples seen here is "+
					"%.4g, more than a factor of %v away", j.name, j.platform, b.Median, b.Band, seen.Total(), here,
				specFactor)
		}
	}
	return nil
}

// dropContradicted drops the cluster's spec if this node's samples contradict it, and
// the spec in use if it is only the cluster's.
func (j *job) dropContradicted() {
	if j.foreign != nil && j.implausible(j.foreign) != nil {
		j.foreign = nil
	}
	if j.source == FromCluster && j.implausible(&j.spec) != nil {
		j.usable, j.source, j.spec = false, NoSource, Spec{}
	}
}

// threshold is the CPI above which a sample in that band is an outlier.
func (j *job) threshold(m Mode, band int) float64 {
	if m == Classic {
		return j.classic
	}
	return j.robust[band].threshold
}
