package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/quietcore/quietcore/cpi/detect"
	"github.com/quietcore/quietcore/cpi/experiment"
	"github.com/quietcore/quietcore/cpi/loop"
	"github.com/quietcore/quietcore/cpi/record"
	"github.com/quietcore/quietcore/cpi/sample"
	"github.com/quietcore/quietcore/cpi/sampler"
	"github.com/quietcore/quietcore/internal/clusterspec"
	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/lend"
	"github.com/quietcore/quietcore/internal/metrics"
	"github.com/quietcore/quietcore/internal/state"
	"github.com/quietcore/quietcore/sysfs"
)

// detector makes the loop from windows to caps. Without it windows are still counted
// and shown.
func (p *counting) detector(s *sampler.Sampler) (*loop.Loop, error) {
	for _, sentence := range p.cfg.Unused() {
		p.o.log.Warn("keys of the configuration have no effect", "keys", sentence)
	}
	o := p.loopOptions()
	o.History = func(id string) []sample.Sample { return s.History(id, nil) }
	recorder := p.recorder(s)
	if recorder != nil {
		s.Subscribe(recorder.Look)
	}
	o.OnFinding = func(f *loop.Finding) {
		p.public.add(func() { count(p.o.metrics, f) })
		p.evict(f)
		p.o.proven.find(f, time.Now())
		p.lacks.find(f, time.Now())
		if recorder != nil {
			recorder.Find(f)
		}
	}
	var reader *clusterspec.Reader
	o.Background = func(ctx context.Context) {
		if reader != nil {
			reader.Run(ctx)
		}
	}
	l, err := loop.New(o)
	if err != nil {
		return nil, err
	}
	reader = p.specs(&p.cfg.Specs.Prometheus, l)
	p.o.metrics.CPIJobs(p.cfg.JobSeries, l.Jobs)
	p.o.metrics.CPIDetector(func() metrics.Detection {
		found := loop.Counters{}
		if c := p.found.Load(); c != nil {
			found = *c
		}
		d := metrics.Detection{Outliers: found.Outliers, Anomalies: found.Anomalies, Jobs: l.Jobs()}
		if o.Experiment != nil {
			d.Tests = &found.Tests
		}
		return d
	})
	p.restore(l, o.Experiment != nil)
	return l, nil
}

// loopOptions are those that follow from the configuration.
func (p *counting) loopOptions() loop.Options {
	cfg := p.o.config
	observe := cfg.Mode == config.Observe
	o := loop.Options{
		Detector: p.cfg.Detection(), Experiment: p.cfg.Experiment(), Log: p.o.log, Submit: p.o.node.Submit,
		Notify: p.o.notify,
		OnLearned: func(list []detect.Learned) {
			list = slices.Clone(list) // the detector's own memory
			p.public.add(func() { p.o.metrics.CPILearned(list) })
		},
	}
	o.Detector.Enforce = o.Detector.Enforce && !observe
	if o.Experiment != nil {
		o.Experiment.Enforce = o.Experiment.Enforce && !observe
		view := p.view() // the sampler's is the sampler's alone
		o.Node = func() sampler.Node { return view.Node(p.o.node.Snapshot()) }
	}
	if h := p.holder.Load(); h != nil {
		o.Bandwidth = h
	}
	o.Save = func(s loop.State) error { return keepLearned(cfg.State.Dir, &s) }
	if observe {
		o.Save = func(s loop.State) error { p.kept.Store(&s); return nil }
	}
	return o
}

// view of the containers, for one goroutine.
func (p *counting) view() *loop.View {
	return loop.NewView(sysfs.CPUModel(os.DirFS("/proc")), p.o.floor).Narrowing(p.narrows)
}

// restore has a loop go on with what an earlier daemon learned of jobs.
func (p *counting) restore(l *loop.Loop, byExperiment bool) {
	file := learnedFile(p.o.config.State.Dir, byExperiment)
	learned, err := loop.State{}, error(nil)
	if kept := p.o.kept; kept != nil && (kept.Experiment != nil) == byExperiment {
		learned = *kept
	} else {
		learned, err = readLearned(file, byExperiment)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		p.o.log.Warn("what was learned of jobs is not used; it is learned again", "file", file, "err", err)
		return
	}
	if err := l.Restore(learned); err != nil {
		p.o.log.Warn("what was learned of jobs is used in part", "file", file, "err", err)
	}
}

// evict asks for the eviction of an antagonist where the detector decided for it. It
// never waits.
func (p *counting) evict(f *loop.Finding) {
	if p.o.evictions.queue == nil || f.Kind != detect.CommandEvent || f.Command != detect.DoEvict {
		return
	}
	pod := lend.Pod{UID: f.Target.PodUID, Namespace: f.Target.Namespace, Name: f.Target.Pod}
	p.o.evictions.queue.Add(pod, "to run on another node: "+f.Why)
}

// specs reads what the cluster knows to be normal; nil where it is not asked, or the
// reader cannot be made.
func (p *counting) specs(from *config.Prometheus, l *loop.Loop) *clusterspec.Reader {
	if from.URL == "" {
		return nil
	}
	reader, err := clusterspec.New(clusterspec.Options{
		URL: from.URL, Period: time.Duration(from.Period), Timeout: time.Duration(from.Timeout),
		MaxAge:    time.Duration(from.MaxAge),
		TokenFile: from.TokenFile, CAFile: from.CAFile, Log: p.o.log,
		Jobs: l.Jobs, Set: l.SetSpecs,
	})
	if err != nil {
		text := err.Error()
		p.noSpecs.Store(&text)
		p.o.log.Warn("specs of the cluster are not read; what this node learns itself counts", "err", err)
		return nil
	}
	p.reader.Store(reader)
	p.o.metrics.CPIClusterSpecs(func() metrics.ClusterSpecs {
		s := reader.Stats()
		return metrics.ClusterSpecs{
			Queries: map[string]uint64{"ok": s.OK, "error": s.Errors, "timeout": s.Timeouts}, Refused: s.Refused,
			InUse: s.InUse, Age: s.Seconds(),
		}
	})
	return reader
}

// whyNoSpecs is what is wrong with the cluster's specs; empty: nothing, or they are
// not wanted.
func (p *counting) whyNoSpecs() string {
	if r := p.reader.Load(); r != nil {
		return r.Why()
	}
	if text := p.noSpecs.Load(); text != nil {
		return *text
	}
	return ""
}

// count keeps metrics on what the detector found.
func count(m *metrics.Metrics, f *loop.Finding) {
	switch f.Kind {
	case detect.AnalysisEvent:
		m.CPIVerdict(f.Verdict)
		for i := range f.Antagonists {
			m.CPIBlamed(f.Victim.Job, f.Antagonists[i].Job)
		}
	case detect.OutcomeEvent:
		if f.Test != nil && f.Outcome.Result == detect.Failure {
			return // a test was given up: nobody was capped in vain
		}
		m.CPIOutcome(f.Outcome.Result)
	}
}

// recorder keeps incidents; nil where there is no database of them.
func (p *counting) recorder(s *sampler.Sampler) *record.Recorder {
	if p.o.incidents == nil {
		return nil
	}
	return record.New(record.Options{
		Node: p.o.config.NodeName(), Put: p.o.incidents.Put, Interval: time.Duration(p.cfg.Interval),
		History: func(id string) []sample.Sample {
			return s.History(id, nil)
		},
	})
}

// observedBytes bounds the database of incidents in mode observe, which is in memory.
const observedBytes = 8 << 20

// newIncidentStore is the database of incidents, which is not opened before something is looked for. In mode
// observe it is in the folder of the daemon's socket, which is gone when the node restarts:
// nothing of the node's own is written to. It stays where it is while the daemon runs.
func newIncidentStore(cfg *config.Config) incidentStore {
	o := incidents.Options{Path: filepath.Join(cfg.State.Dir, state.IncidentsFile)}
	if cfg.Mode == config.Observe {
		o.Path, o.MaxBytes = filepath.Join(filepath.Dir(cfg.Socket), state.IncidentsFile), observedBytes
	}
	if cfg.CPI.Mode == config.CPIOff {
		o.Before = "cpi.mode is off, and with observe or enforce there are incidents"
	}
	return incidentStore{Store: incidents.New(o), begun: newBegun()}
}

// incidentStore is the database of incidents, whether it is used, and what else is kept of a day.
type incidentStore struct {
	*incidents.Store
	begun *begun
	day   *day
}

// lookFrom has it opened where incidents are looked for.
func (s incidentStore) lookFrom(cfg *config.Config) {
	if cfg.CPI.Mode != config.CPIOff {
		s.begun.now()
	}
}

// maxLearned bounds what is read: 4,096 jobs take under 40 MiB.
const maxLearned = 64 << 20

// learnedFile is where a detector keeps what it learned. Each has its own, so that one that
// is chosen again goes on.
func learnedFile(dir string, byExperiment bool) string {
	if byExperiment {
		return filepath.Join(dir, state.TestsFile)
	}
	return filepath.Join(dir, state.LearnedFile)
}

func readLearned(name string, byExperiment bool) (loop.State, error) {
	var s loop.State
	text, err := state.ReadFile(name, maxLearned)
	if err != nil {
		return s, err
	}
	if byExperiment {
		s.Experiment = new(experiment.State)
		return s, json.Unmarshal(text, s.Experiment)
	}
	s.Detector = new(detect.State)
	return s, json.Unmarshal(text, s.Detector)
}

func keepLearned(dir string, s *loop.State) error {
	var what any = s.Detector
	if s.Experiment != nil {
		what = s.Experiment
	}
	text, err := json.Marshal(what)
	if err != nil {
		return err
	}
	return state.WriteFile(learnedFile(dir, s.Experiment != nil), text)
}
