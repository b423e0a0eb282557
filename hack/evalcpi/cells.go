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
	found        int
	percentile   float64
	ranked       int
	delays       []time.Duration
	hours        float64
	analysed     int
	outliers     float64
}

func (c *cell) precision() float64 { return float64(c.right) / float64(max(c.right+c.wrong, 1)) }
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

// measure plays the trials of one cell. Trial i is the same machine in every
// mode.
func measure(mode detect.Mode, effect float64, suspects, trials int, length time.Duration, seed uint64) (*cell, error) {
	cfg := detect.DefaultConfig()
	cfg.Mode = mode
	c := &cell{mode: mode, effect: effect, suspects: suspects, trials: trials}
	results := make([]result, trials)
	errs := make([]error, trials)
	var wg sync.WaitGroup
	next := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				results[i], errs[i] = play(newTrial(seed+uint64(i), suspects, effect, length), cfg)
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

func run(trials int, seed uint64) error {
	for _, mode := range []detect.Mode{detect.Classic, detect.Default} {
		for _, effect := range []float64{1.3, 1.6, 2.0} {
			for _, suspects := range []int{10, 20, 40, 60} {
				c, err := measure(mode, effect, suspects, trials, 100*time.Minute, seed)
				if err != nil {
					return err
				}
				fmt.Printf("%-8s x%.1f %2d  precision %.3f recall %.3f rank %.3f caps %d+%d median %v false/1000h %.2f analyses/h %.2f\n", mode, effect, suspects, c.precision(), c.recall(), c.rank(), c.right, c.wrong, c.median(), c.falseCaps(), float64(c.analysed)/c.hours)
			}
		}
		c, err := measure(mode, 1, 20, 5*trials, 10*time.Hour, seed)
		if err != nil {
			return err
		}
		fmt.Printf("%-8s none 20 false caps/1000 h %.3f (%d in %.0f h), outliers %.2f %%, analyses/h %.2f\n", mode, c.falseCaps(), c.wrong, c.hours, 100*c.outliers, float64(c.analysed)/c.hours)
	}
	return nil
}
