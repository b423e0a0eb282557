package config

import (
	"fmt"
	"math"
	"net/url"
	"strings"
	"time"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/experiment"
)

// withDetector writes the detector's configuration as the file does.
func (c CPI) withDetector(d detect.Config) CPI {
	c.Detector = DetectorDefault
	if d.Mode == detect.Classic {
		c.Detector = DetectorClassic
	}
	c.MinUsage, c.MinScore, c.MinConfidence = d.MinUsage, d.MinScore, d.MinConfidence
	c.OutlierWindow, c.ScoreWindow, c.History = Duration(d.OutlierWindow), Duration(d.Window), Duration(d.History)
	c.MinTasks, c.MinTaskSamples, c.SpecEvery = d.MinTasks, d.MinTaskSamples, Duration(d.RespecEvery)
	c.CapFor, c.MoveFor, c.EvictAfter = Duration(d.CapFor), Duration(d.MoveFor), d.EvictAfter
	c.CapBatch, c.CapBestEffort = float64(d.CapBatchMilli)/1000, float64(d.CapBEMilli)/1000
	return c
}

// unsaid stands for a number that the file leaves out, and that is none of those it may say.
const unsaid = math.MinInt

// usualJobSeries is cpi.jobSeries where the file does not say it: a node that reads the
// cluster's specs helps to make them; others cost Prometheus nothing.
func (c *CPI) usualJobSeries() int {
	if c.Specs.Prometheus.URL == "" {
		return 0
	}
	return 1000
}

func defaultSpecs() Specs {
	return Specs{Prometheus: Prometheus{Period: Duration(5 * time.Minute), Timeout: Duration(10 * time.Second),
		MaxAge: Duration(24 * time.Hour)}}
}

// Bounds of asking Prometheus: a node alone must not load it, nor rely on what it
// said last week.
const (
	minSpecPeriod, maxSpecPeriod   = Duration(time.Second), Duration(24 * time.Hour)
	minSpecTimeout, maxSpecTimeout = Duration(100 * time.Millisecond), Duration(5 * time.Minute)
	maxSpecAge                     = Duration(7 * 24 * time.Hour)
)

func (v *checker) specs(p *Prometheus) {
	const at = "cpi.specs.prometheus."
	if p.URL != "" {
		u, err := url.Parse(p.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" ||
			u.Fragment != "" {
			v.fail(at+"url", "is %s, must be such as http://prometheus.monitoring:9090, or \"\" to ask none",
				quote(p.URL))
		}
	}
	if p.Period < minSpecPeriod || p.Period > maxSpecPeriod {
		v.fail(at+"period", "is %s, must be %s to %s", p.Period, minSpecPeriod, maxSpecPeriod)
	} else if p.MaxAge < p.Period || p.MaxAge > maxSpecAge {
		v.fail(at+"maxAge", "is %s, must be %s, the period, to %s", p.MaxAge, p.Period, maxSpecAge)
	}
	if p.Timeout < minSpecTimeout || p.Timeout > maxSpecTimeout {
		v.fail(at+"timeout", "is %s, must be %s to %s", p.Timeout, minSpecTimeout, maxSpecTimeout)
	}
	if p.TokenFile != "" {
		v.path(at+"tokenFile", p.TokenFile)
	}
	if p.CAFile != "" {
		v.path(at+"caFile", p.CAFile)
	}
}

// Detection is what the detector is to do.
func (c *CPI) Detection() detect.Config {
	d := detect.DefaultConfig()
	if c.Detector == DetectorClassic {
		d.Mode = detect.Classic
	}
	d.Enforce = c.Mode == CPIEnforce
	d.Period, d.MaxContainers = time.Duration(c.Interval), c.MaxContainers
	d.MinUsage, d.MinScore, d.MinConfidence = c.MinUsage, c.MinScore, c.MinConfidence
	d.OutlierWindow, d.Window, d.History = time.Duration(c.OutlierWindow), time.Duration(c.ScoreWindow), time.Duration(
		c.History)
	d.MinTasks, d.MinTaskSamples, d.RespecEvery = c.MinTasks, c.MinTaskSamples, time.Duration(c.SpecEvery)
	d.CapFor, d.MoveFor, d.EvictAfter = time.Duration(c.CapFor), time.Duration(c.MoveFor), c.EvictAfter
	d.CapBatchMilli, d.CapBEMilli = milli(c.CapBatch), milli(c.CapBestEffort)
	return d
}

// Unused has a sentence on the keys that were set for another detector than the chosen one.
func (c *CPI) Unused() []string {
	usual := Default().CPI
	if c.Detector != DetectorDefault {
		key := "cpi.probe.window"
		switch {
		case c.Probe == usual.Probe && c.Resctrl == "":
			return nil
		case c.Probe == usual.Probe:
			key = "cpi.resctrl"
		case c.Probe.Budget != usual.Probe.Budget:
			key = "cpi.probe.budget"
		case c.Probe.Witness:
			key = "cpi.probe.witness"
		}
		return []string{fmt.Sprintf("%s has no effect with cpi.detector: %s; it is for default", key, c.Detector)}
	}
	var keys []string
	for _, k := range []struct {
		name    string
		is, was any
	}{
		{"outlierWindow", c.OutlierWindow, usual.OutlierWindow}, {"scoreWindow", c.ScoreWindow, usual.ScoreWindow},
		{"history", c.History, usual.History}, {"minScore", c.MinScore, usual.MinScore},
		{"minConfidence", c.MinConfidence, usual.MinConfidence}, {"minTasks", c.MinTasks, usual.MinTasks},
		{"minTaskSamples", c.MinTaskSamples, usual.MinTaskSamples}, {"specEvery", c.SpecEvery, usual.SpecEvery},
		{"capFor", c.CapFor, usual.CapFor}, {"moveFor", c.MoveFor, usual.MoveFor},
	} {
		if k.is != k.was {
			keys = append(keys, "cpi."+k.name)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return []string{strings.Join(keys, ", ") + ": without effect with cpi.detector: default, which finds antagonists " +
		"by experiment since this version; remove what is set there, or choose contrast, which default was before"}
}

// Experiment is what the detector by experiment is to do; nil where another one looks.
func (c *CPI) Experiment() *experiment.Config {
	if c.Detector != DetectorDefault {
		return nil
	}
	d := experiment.DefaultConfig()
	d.Enforce, d.Budget = c.Mode == CPIEnforce, c.Probe.Budget
	d.Period, d.MaxContainers, d.EvictAfter = time.Duration(c.Interval), c.MaxContainers, c.EvictAfter
	d.Window, d.NeedWitness = c.probeWindow(), c.Probe.Witness
	d.CapBatchMilli, d.CapBEMilli = milli(c.CapBatch), milli(c.CapBestEffort)
	return &d
}

// probeWindow is what of the interval's whole parts, down to a sixth, is closest to what is wanted.
func (c *CPI) probeWindow() time.Duration {
	parts := math.Round(float64(c.Interval) / float64(c.Probe.Window))
	return time.Duration(float64(c.Interval) / min(max(parts, 1), experiment.MostWindows))
}

func milli(cpus float64) int64 { return int64(math.Round(cpus * 1000)) }
