package main

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/quietcore/quietcore/cpi/detect"
)

// cell is many trials of one kind.
type cell struct {
	mode     detect.Mode
	effect   float64
	suspects int

	trials       int
	right, wrong int
	firsts       int // trials with a cap
	firstHit     int // whose first cap was right
	found        int
	percentile   float64
	ranked       int
	delays       []time.Duration
	hours        float64
	analysed     int
	outliers     float64
}

func (c *cell) precision() float64 { return float64(c.right) / float64(max(c.right+c.wrong, 1)) }
func (c *cell) firstRight() float64 {
	return float64(c.firstHit) / float64(max(c.firsts, 1))
}
func (c *cell) recall() float64    { return float64(c.found) / float64(c.trials) }
func (c *cell) rank() float64      { return c.percentile / float64(max(c.ranked, 1)) }
func (c *cell) falseCaps() float64 { return 1000 * float64(c.wrong) / c.hours }

// median time from the antagonist's arrival to its cap.
func (c *cell) median() time.Duration {
	if len(c.delays) == 0 {
		return 0
	}
	slices.Sort(c.delays)
	return c.delays[len(c.delays)/2]
}

// setting is what the trials of a cell have in common.
type setting struct {
	mode     detect.Mode
	effect   float64
	suspects int
	length   time.Duration
}

// measure plays the trials of one cell. Trial i is the same machine in every
// mode.
func measure(s setting, trials int, seed uint64) (*cell, error) {
	cfg := detect.DefaultConfig()
	cfg.Mode = s.mode
	c := &cell{mode: s.mode, effect: s.effect, suspects: s.suspects, trials: trials}
	results := make([]result, trials)
	errs := make([]error, trials)
	var wg sync.WaitGroup
	next := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				results[i], errs[i] = play(newTrial(seed+uint64(i), s.suspects, s.effect, s.length), cfg)
			}
		})
	}
	for i := range trials {
		next <- i
	}
	close(next)
	wg.Wait()
	for i, r := range results {
		if errs[i] != nil {
			return nil, fmt.Errorf("trial %d: %w", i, errs[i])
		}
		c.right += r.right
		c.wrong += r.wrong
		if r.right+r.wrong > 0 {
			c.firsts++
			if r.firstHit {
				c.firstHit++
			}
		}
		if r.found {
			c.found++
			c.delays = append(c.delays, r.after)
		}
		if r.analyses > 0 {
			c.percentile += r.percentile / float64(r.analyses)
			c.ranked++
		}
		c.hours += r.hours
		c.analysed += r.analysed
		c.outliers += float64(r.outliers) / float64(r.samples) / float64(trials)
	}
	return c, nil
}

// effects on the victim's CPI and numbers of suspects that are measured.
var (
	effects = []float64{1.3, 1.6, 2.0}
	crowds  = []int{10, 20, 40, 60}
	modes   = []detect.Mode{detect.Classic, detect.Default}
)

const (
	trialLength = 100 * time.Minute
	calmLength  = 10 * time.Hour
)

// survey measures every cell and calls progress after each.
func survey(trials int, seed uint64, progress func(*cell)) (*study, error) {
	s := &study{trials: trials, seed: seed}
	for _, mode := range modes {
		for _, effect := range effects {
			for _, suspects := range crowds {
				c, err := measure(setting{mode, effect, suspects, trialLength}, trials, seed)
				if err != nil {
					return nil, err
				}
				s.cells = append(s.cells, c)
				progress(c)
			}
		}
		c, err := measure(setting{mode, 1, 20, calmLength}, trials, seed)
		if err != nil {
			return nil, err
		}
		s.calm = append(s.calm, c)
		progress(c)
	}
	return s, nil
}
