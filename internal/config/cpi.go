package config

import (
	"math"
	"time"

	"github.com/quietcore/quietcore/cpi/detect"
)

// withDetector writes the detector's configuration as the file does.
func (c CPI) withDetector(d detect.Config) CPI {
	c.Detector = Detector(d.Mode.String())
	c.MinUsage, c.MinScore, c.MinConfidence = d.MinUsage, d.MinScore, d.MinConfidence
	c.OutlierWindow, c.ScoreWindow, c.History = Duration(d.OutlierWindow), Duration(d.Window), Duration(d.History)
	c.MinTasks, c.MinTaskSamples, c.SpecEvery = d.MinTasks, d.MinTaskSamples, Duration(d.RespecEvery)
	c.CapFor, c.MoveFor, c.EvictAfter = Duration(d.CapFor), Duration(d.MoveFor), d.EvictAfter
	c.CapBatch, c.CapBestEffort = float64(d.CapBatchMilli)/1000, float64(d.CapBEMilli)/1000
	return c
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
	d.OutlierWindow, d.Window, d.History = time.Duration(c.OutlierWindow), time.Duration(c.ScoreWindow), time.Duration(c.History)
	d.MinTasks, d.MinTaskSamples, d.RespecEvery = c.MinTasks, c.MinTaskSamples, time.Duration(c.SpecEvery)
	d.CapFor, d.MoveFor, d.EvictAfter = time.Duration(c.CapFor), time.Duration(c.MoveFor), c.EvictAfter
	d.CapBatchMilli, d.CapBEMilli = int64(math.Round(c.CapBatch*1000)), int64(math.Round(c.CapBestEffort*1000))
	return d
}
