package loop

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// driven is a node whose batch job works for six minutes of ten, from the 31st on. Its windows
// are as long as the loop asks for. It returns the minute of the verdict.
func driven(t *testing.T, window time.Duration) (n *node, verdict int) {
	n = newNode(t, topology.Grid{CoresPerL3: 4, ThreadsPerCore: 2})
	minute := 0
	n.noisy = func(int) bool { return minute > 30 && minute%10 >= 4 }
	learned := 0
	l := n.byExperiment(func(o *Options) {
		o.Experiment.Window, o.OnLearned = window, func(list []detect.Learned) { learned += len(list) }
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); l.Run(ctx) }()
	for ; minute < 180 && verdict == 0; minute++ {
		for k := range 6 {
			time.Sleep(10 * time.Second)
			short := l.Short()
			if short == 0 && k != 3 {
				continue
			}
			if short != 0 && short != window {
				t.Fatalf("windows of %v are asked for, want %v", short, window)
			}
			w := n.next()
			w.Between = k != 3
			l.Take(w)
			synctest.Wait()
		}
		if l.Counters().Tests.Verdicts > 0 {
			verdict = minute
		}
	}
	cancel()
	<-done
	if per := float64(learned) / float64(minute) / 5; per > 1 {
		t.Errorf("%.1f windows a minute show what is normal for each of the five containers, want one", per)
	}
	return n, verdict
}

// TestShortWindows while a test runs: its coins hold for ten seconds, and the guilty is found
// sooner.
func TestShortWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, long := driven(t, time.Minute)
		n, short := driven(t, 10*time.Second)
		if short == 0 || long == 0 || short-34 > (long-34)/2 {
			t.Errorf("found in minute %d, with windows of a minute in minute %d; it came in minute 34", short, long)
		}
		coins := 0
		for _, f := range n.found {
			if f.Kind == TestEvent && !f.Test.Begun {
				if coins++; f.Until.Sub(f.At) != 10*time.Second && f.Until.Sub(f.At) != time.Minute {
					t.Errorf("a coin for %v", f.Until.Sub(f.At))
				}
			}
			if f.Command == detect.DoCap && f.Target.Job != "default/Job/batch/main" {
				t.Errorf("%s is capped", f.Target)
			}
		}
		for _, e := range n.events {
			if v, is := e.(policy.CapVerdict); is && (v.ID != "batch-main" || v.For != 2*time.Minute) {
				t.Errorf("%+v", v)
			}
		}
		if coins < 8 {
			t.Errorf("%d coins", coins)
		}
	})
}
